"""Every image, whatever its format, becomes the same square of bytes or is refused with a reason."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from trees import pixels, write_image

from proud.data.decode import BadImage, PixelFormat, content_hash, decode, decode_all, hash_all, stored_side
from proud.errors import UserError


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def only_colour(content: bytes, side: int = 8) -> list[int]:
    """The one colour of a plain image."""
    decoded = decode(content, PixelFormat(side))
    assert decoded.shape == (3, side, side) and decoded.dtype == torch.uint8
    assert torch.equal(decoded, decoded[:, :1, :1].expand_as(decoded))
    return decoded[:, 0, 0].tolist()


@pytest.mark.parametrize(("size", "side"), [(32, 36), (224, 252), (64, 72)])
def test_stored_side(size: int, side: int) -> None:
    assert stored_side(size) == side


def test_no_resize_leaves_pixels_identical() -> None:
    square = pixels(1, 20, 20)
    assert np.array_equal(decode(saved(Image.fromarray(square)), PixelFormat(20)).permute(1, 2, 0).numpy(), square)
    wide = pixels(2, 20, 31)
    assert np.array_equal(decode(saved(Image.fromarray(wide)), PixelFormat(20)).permute(1, 2, 0).numpy(), wide[:, 5:25])


@pytest.mark.parametrize(("height", "width"), [(40, 120), (120, 40), (8, 24), (50, 50)])
def test_shorter_side_is_scaled_and_the_centre_kept(height: int, width: int) -> None:
    image = Image.fromarray(pixels(1, 6, 6)).resize((width, height), Image.Resampling.BICUBIC)
    scale = 16 / min(height, width)
    whole = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (whole.width - 16) // 2, (whole.height - 16) // 2
    expected = np.asarray(whole.crop((left, top, left + 16, top + 16))).astype(float)
    difference = np.abs(decode(saved(image), PixelFormat(16)).permute(1, 2, 0).numpy() - expected)
    assert difference.max() <= 1


def test_extreme_aspect_ratio_needs_no_huge_intermediate_image() -> None:
    assert only_colour(saved(Image.new("RGB", (200_000, 1), (9, 8, 7))), side=64) == [9, 8, 7]


def test_downscaling_is_antialiased() -> None:
    checks = np.indices((64, 64)).sum(0) % 2 * 255
    decoded = decode(saved(Image.fromarray(checks.astype(np.uint8))), PixelFormat(8)).float()
    assert (decoded - 127.5).abs().max() < 20


@pytest.mark.parametrize(
    ("image", "colour"),
    [
        (Image.new("L", (9, 9), 77), [77, 77, 77]),
        (Image.new("1", (9, 9), 1), [255, 255, 255]),
        (Image.new("LA", (9, 9), (40, 0)), [255, 255, 255]),
        (Image.new("LA", (9, 9), (40, 255)), [40, 40, 40]),
        (Image.new("RGBA", (9, 9), (10, 20, 30, 255)), [10, 20, 30]),
        (Image.new("RGBA", (9, 9), (10, 20, 30, 0)), [255, 255, 255]),
    ],
)
def test_modes_and_transparency_over_white(image: Image.Image, colour: list[int]) -> None:
    assert only_colour(saved(image)) == colour


def test_palette_with_and_without_transparency() -> None:
    palette = Image.new("P", (9, 9), 3)
    palette.putpalette([0, 0, 0, 1, 1, 1, 2, 2, 2, 200, 100, 50])
    assert only_colour(saved(palette)) == [200, 100, 50]
    assert only_colour(saved(palette, transparency=3)) == [255, 255, 255]
    assert only_colour(saved(Image.new("RGB", (9, 9), (1, 2, 3)), transparency=(1, 2, 3))) == [255, 255, 255]


def test_cmyk_jpeg() -> None:
    red, green, blue = only_colour(saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95))
    assert red > 200 and green < 60 and blue < 60


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (65535, 255), (32768, 128), (257, 1), (255, 1)])
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_by_its_range(value: int, expected: int, kind: str) -> None:
    image = Image.fromarray(np.full((9, 9), value, dtype=np.uint16))
    assert only_colour(saved(image, kind)) == [expected] * 3


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (2**31 - 1, 255), (2**30, 128), (-5, 0)])
def test_32_bit_signed_grey(value: int, expected: int) -> None:
    image = Image.fromarray(np.full((9, 9), value, dtype=np.int32))
    assert only_colour(saved(image, "TIFF")) == [expected] * 3


def test_depth_and_orientation_of_a_tiff_together() -> None:
    values = np.repeat([[0], [2**30]], 16, axis=1).astype(np.int32).repeat(8, axis=0)
    exif = Image.Exif()
    exif[0x0112] = 3
    decoded = decode(saved(Image.fromarray(values), "TIFF", exif=exif), PixelFormat(16))
    assert decoded[:, 0, 0].tolist() == [128] * 3 and decoded[:, -1, 0].tolist() == [0] * 3


def test_float_pixels_are_named_rather_than_guessed() -> None:
    with pytest.raises(BadImage, match="floating-point"):
        decode(saved(Image.fromarray(np.ones((9, 9), dtype=np.float32)), "TIFF"), PixelFormat(8))


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_animation_gives_its_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    content = saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=50)
    red, _, blue = only_colour(content)
    assert red > 230 and blue < 25


def test_exif_orientation_is_applied() -> None:
    image = Image.fromarray(np.repeat([[[255, 0, 0]], [[0, 0, 255]]], 16, axis=1).astype(np.uint8).repeat(8, axis=0))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    upright = decode(saved(image, "PNG", exif=exif), PixelFormat(16))
    assert upright[2, 0, 0] == 255 and upright[0, -1, 0] == 255
    upright = decode(saved(image, "TIFF", exif=exif), PixelFormat(16))
    assert upright[2, 0, 0] == 255 and upright[0, -1, 0] == 255
    exif[0x0112] = 6  # turned to the right
    turned = decode(saved(image, "JPEG", exif=exif, quality=95), PixelFormat(16))
    assert turned[0, 8, 15] > 200 and turned[2, 8, 0] > 200


def test_large_jpeg_is_close_to_its_full_decode() -> None:
    smooth = Image.fromarray(pixels(5, 8, 8)).resize((900, 700), Image.Resampling.BICUBIC)
    jpeg, png = saved(smooth, "JPEG", quality=95), saved(smooth)
    assert (decode(jpeg, PixelFormat(36)).float() - decode(png, PixelFormat(36)).float()).abs().mean() < 3


def png_header(width: int, height: int) -> bytes:
    """A tiny file that claims to be huge."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"hello, this is text", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (saved(Image.fromarray(pixels(1, 64, 64)))[:500], "truncated"),
        (saved(Image.fromarray(pixels(1, 64, 64)), "JPEG")[:900], "truncated"),
        (png_header(30_000, 30_000), "exceed the limit of 100 million"),
        (png_header(11_000, 10_000), "exceed the limit of 100 million"),
    ],
)
def test_bad_content_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(BadImage, match=reason):
        decode(content, PixelFormat(16))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_larger_images_are_read_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    huge = saved(Image.new("1", (20_000, 10_000), 1))  # Pillow alone refuses it
    with pytest.raises(BadImage, match=r"the limit of 150 million \(--max-pixels\)"):
        decode(huge, PixelFormat(16, max_pixels=150))
    assert decode(huge, PixelFormat(16, max_pixels=200)).min() == 255


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match="cannot be read"):
        decode(tmp_path / "gone.png", PixelFormat(16))


def test_arrays_grey_and_colour() -> None:
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    assert torch.equal(decode(grey, PixelFormat(8)), torch.from_numpy(grey).permute(2, 0, 1).expand(3, 8, 8))
    colour = pixels(3, 10, 10)
    assert torch.equal(decode(colour, PixelFormat(16)), decode(saved(Image.fromarray(colour)), PixelFormat(16)))


def test_content_hash_depends_on_content_only(tmp_path: Path) -> None:
    one, two = write_image(tmp_path / "a" / "x.png", 1), write_image(tmp_path / "b" / "y.png", 1)
    other = write_image(tmp_path / "c.png", 2)
    assert hash_all([one, two, other, tmp_path / "none.png"]) == [
        content_hash(one.read_bytes()),
        content_hash(one),
        content_hash(other),
        "",
    ]
    assert content_hash(np.zeros((2, 8, 1), np.uint8)) != content_hash(np.zeros((8, 2, 1), np.uint8))


def bad_batch(folder: Path, bad: int) -> list[Path]:
    paths = [write_image(folder / f"{number:02d}.png", number) for number in range(20)]
    for path in paths[3 : 3 + bad]:
        path.write_bytes(b"")
    return paths


def test_decode_all_keeps_order_and_equals_decode(tmp_path: Path) -> None:
    paths = bad_batch(tmp_path, 0)
    images, kept, bad = decode_all(paths, PixelFormat(9), progress=True)
    assert kept == list(range(20)) and bad == []
    assert torch.equal(images, torch.stack([decode(path, PixelFormat(9)) for path in paths]))


def test_decode_all_skips_bad_files_when_asked(tmp_path: Path) -> None:
    paths = bad_batch(tmp_path, 4)
    images, kept, bad = decode_all(paths, PixelFormat(9), skip_bad=True)
    assert kept == [0, 1, 2, *range(7, 20)]
    assert torch.equal(images, torch.stack([decode(paths[row], PixelFormat(9)) for row in kept]))
    assert [file.path for file in bad] == [str(path) for path in paths[3:7]]


def test_decode_all_names_bad_files_and_what_to_do(tmp_path: Path) -> None:
    paths = bad_batch(tmp_path, 12)
    with pytest.raises(UserError) as caught:
        decode_all(paths, PixelFormat(9))
    text = str(caught.value)
    assert text.startswith("12 images cannot be used") and "--skip-bad" in text and "and 2 more" in text
    assert str(paths[3]) in text and "0 bytes" in text and str(paths[13]) not in text


def test_an_unexpected_error_in_a_thread_is_not_swallowed() -> None:
    with pytest.raises(TypeError):
        decode_all([None], PixelFormat(9))  # type: ignore[list-item]
