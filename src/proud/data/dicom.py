"""DICOM files: one frame each, rescaled and windowed as the file states, in 8 bits."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from PIL import Image

from proud.data.bad import BadImage, check_pixels
from proud.data.memory_budget import decoding
from proud.lazy import np

DICOM_START = 132  # 128 bytes of anything, then four letters


def is_dicom(start: bytes) -> bool:
    return start[128:DICOM_START] == b"DICM"


def dicom_size(file: BinaryIO) -> tuple[int, int]:
    """Width and height, from the header."""
    header = _pydicom().dcmread(file, stop_before_pixels=True)
    return int(header.Columns), int(header.Rows)


def dicom_image(content: bytes, max_pixels: int) -> Image.Image:
    """The file's only frame as an RGB image; the shades of MONOCHROME1 are inverted, as every viewer does."""
    pydicom = _pydicom()
    try:
        header = pydicom.dcmread(io.BytesIO(content), stop_before_pixels=True)
        check_pixels(int(header.Columns), int(header.Rows), max_pixels)
        frames = int(header.get("NumberOfFrames") or 1)
        if frames > 1:
            raise BadImage(f"a DICOM file with {frames} frames: save each frame as a file of its own")
        with decoding(int(header.Columns), int(header.Rows), "DICOM", max_pixels):
            found = pydicom.pixels.pixel_array(io.BytesIO(content))
            grey = found.ndim == 2 and header.PhotometricInterpretation.startswith("MONOCHROME")
            shades = shades_of(pydicom, found, header) if grey else colours_of(pydicom, found, header)
    except (BadImage, MemoryError):
        raise
    except Exception as error:  # its readers raise errors of every kind on broken content
        raise BadImage(f"a DICOM file that cannot be read ({error})") from error
    return Image.fromarray(shades).convert("RGB")


def shades_of(pydicom: Any, stored: np.ndarray, header: Any) -> np.ndarray:
    """uint8 [H,W]: the modality's values, seen through the file's window or, without one, over their full range."""
    values = pydicom.pixels.apply_modality_lut(stored, header)
    seen = pydicom.pixels.apply_voi_lut(values, header)
    low, high = value_range(header)
    shades = np.rint((seen.astype(np.float64) - low) * (255 / (high - low))).clip(0, 255).astype(np.uint8)
    return 255 - shades if header.PhotometricInterpretation == "MONOCHROME1" else shades


def value_range(header: Any) -> tuple[float, float]:
    """What the darkest and the brightest possible pixel become."""
    tables = header.get("VOILUTSequence") or header.get("ModalityLUTSequence")
    if tables:
        return 0.0, 2.0 ** int(tables[0].LUTDescriptor[2]) - 1
    bits = int(header.BitsStored)
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if header.PixelRepresentation else (0.0, 2.0**bits - 1)
    slope, offset = float(header.get("RescaleSlope", 1)), float(header.get("RescaleIntercept", 0))
    ends = (low * slope + offset, high * slope + offset)
    return min(ends), max(ends)


def colours_of(pydicom: Any, found: np.ndarray, header: Any) -> np.ndarray:
    """uint8 [H,W,3]."""
    if header.PhotometricInterpretation == "PALETTE COLOR":
        found = pydicom.pixels.apply_color_lut(found, header)
    deepest = np.iinfo(found.dtype).max
    return found if deepest == 255 else np.rint(found * (255 / deepest)).astype(np.uint8)


def _pydicom() -> Any:
    try:
        import pydicom  # noqa: PLC0415
        import pydicom.pixels  # noqa: PLC0415
    except ImportError as error:
        raise BadImage("a DICOM file: to read it, pip install 'proud[dicom]'") from error
    return pydicom
