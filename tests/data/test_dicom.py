"""DICOM files: rescaled, windowed, inverted where their shades are; several frames are refused."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proud.data.bad import BadImage
from proud.data.decode import PixelFormat, decode
from proud.data.folder import scan_folder
from proud.data.shapes import native_side

pydicom = pytest.importorskip("pydicom")

SIDE = 16
RAMP = np.arange(SIDE * SIDE, dtype=np.uint16).reshape(SIDE, SIDE) * 16  # 0 to 4080


def dicom(pixels: np.ndarray = RAMP, **tags: Any) -> bytes:
    """An uncompressed file: 12 bits of grey unless the tags say otherwise."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    file = Dataset()
    file.file_meta = meta
    bits = 12 if pixels.dtype.itemsize == 2 else 8
    about = {
        "Rows": pixels.shape[-3 if pixels.shape[-1] == 3 else -2],
        "Columns": pixels.shape[-2 if pixels.shape[-1] == 3 else -1],
        "SamplesPerPixel": 3 if pixels.shape[-1] == 3 else 1,
        "PhotometricInterpretation": "RGB" if pixels.shape[-1] == 3 else "MONOCHROME2",
        "BitsAllocated": 8 * pixels.dtype.itemsize,
        "BitsStored": bits,
        "HighBit": bits - 1,
        "PixelRepresentation": 0,
        "PixelData": pixels.tobytes(),
    }
    about |= {"PlanarConfiguration": 0} if pixels.shape[-1] == 3 else {}
    for name, value in (about | tags).items():
        setattr(file, name, value)
    out = io.BytesIO()
    pydicom.dcmwrite(out, file, enforce_file_format=True)
    return out.getvalue()


def shades(content: bytes) -> np.ndarray:
    """[SIDE, SIDE] of the first of three equal channels."""
    found = decode(content, PixelFormat(SIDE)).numpy()
    assert (found == found[:1]).all()
    return found[0].astype(int)


def test_without_a_window_the_full_range_is_shown() -> None:
    assert np.abs(shades(dicom()) - RAMP / 4095 * 255).max() <= 0.5


def test_the_window_is_applied_to_rescaled_values() -> None:
    """Hounsfield units: stored 0 to 4080 are -1024 to 3056; a window of 400 around 40."""
    tags = {"RescaleSlope": 1, "RescaleIntercept": -1024, "WindowCenter": 40, "WindowWidth": 400}
    expected = np.clip((RAMP - 1024.0 - 40 + 0.5) / 399 + 0.5, 0, 1) * 255
    assert np.abs(shades(dicom(**tags)) - expected).max() <= 1


def test_monochrome1_is_inverted() -> None:
    assert (shades(dicom(PhotometricInterpretation="MONOCHROME1")) == 255 - shades(dicom())).all()


def test_signed_values() -> None:
    signed = RAMP.astype(np.int16) - 2048
    assert np.abs(shades(dicom(signed, PixelRepresentation=1)) - RAMP / 4095 * 255).max() <= 0.5


def test_colours() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    assert (decode(dicom(colours), PixelFormat(SIDE)).numpy() == colours.transpose(2, 0, 1)).all()


def test_unusable_files_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = np.stack([RAMP, RAMP])
    with pytest.raises(BadImage, match="2 frames: save each frame"):
        decode(dicom(frames, NumberOfFrames=2), PixelFormat(SIDE))
    with pytest.raises(BadImage, match="a DICOM file that cannot be read"):
        decode(dicom()[:-100], PixelFormat(SIDE))
    with pytest.raises(BadImage, match="the limit of 100 million"):
        decode(dicom(Rows=20_000, Columns=20_000), PixelFormat(SIDE))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(BadImage, match=r"pip install 'proud\[dicom\]'"):
        decode(dicom_before, PixelFormat(SIDE))


dicom_before = dicom()


def test_dicom_files_are_images_of_a_folder(tmp_path: Path) -> None:
    for name in ("a/x/1.dcm", "a/y/2.DICOM"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(dicom())
    catalog = scan_folder(tmp_path)
    assert [entry.label for entry in catalog.domains["a"].entries] == ["x", "y"]
    assert native_side(catalog, catalog.domains["a"]) == SIDE
