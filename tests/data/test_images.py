"""Every kind of image file becomes 8-bit RGB, upright, or one clear error."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neuroledger.data import images
from neuroledger.data.images import decode, thumbnail
from neuroledger.errors import DataError


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format=format, **options)
    return file.getvalue()


RAMP = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5


def test_grey_becomes_three_equal_channels() -> None:
    values = np.asarray(decode(encoded(Image.fromarray(RAMP)), "a"))
    assert values.shape == (6, 8, 3)
    assert all((values[..., channel] == RAMP).all() for channel in range(3))


def test_palette_images_show_their_colours() -> None:
    colours = np.zeros((6, 8, 3), dtype=np.uint8)
    colours[:3], colours[3:] = (250, 10, 20), (0, 128, 255)
    palette = Image.fromarray(colours).convert("P", palette=Image.Palette.ADAPTIVE)
    assert palette.mode == "P"
    assert (np.asarray(decode(encoded(palette), "a")) == colours).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_is_dropped_and_the_colour_under_it_stays(mode: str) -> None:
    image = Image.fromarray(np.stack([RAMP] * 3, axis=-1)).convert(mode)
    image.putalpha(0)
    assert (np.asarray(decode(encoded(image), "a"))[..., 0] == RAMP).all()


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    deep = RAMP.astype(np.uint16) * 257
    assert (
        np.asarray(decode(encoded(Image.fromarray(deep)), "a"))[..., 1] == RAMP
    ).all()


def test_one_bit_images_are_black_and_white() -> None:
    image = Image.fromarray(RAMP > 100)
    assert set(np.unique(np.asarray(decode(encoded(image), "a")))) == {0, 255}


@pytest.mark.parametrize(
    ("orientation", "turned"),
    [
        (3, lambda a: a[::-1, ::-1]),
        (6, lambda a: np.rot90(a, -1)),
        (8, lambda a: np.rot90(a)),
        (2, lambda a: a[:, ::-1]),
    ],
)
def test_exif_orientation_is_applied(orientation: int, turned: Any) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(RAMP), exif=exif)
    assert (np.asarray(decode(data, "a"))[..., 0] == turned(RAMP)).all()


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
@pytest.mark.parametrize("kept", [0.1, 0.4, 0.9])
def test_truncated_files_are_refused_by_name(format: str, kept: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), format)
    with pytest.raises(DataError, match="'face_3' is truncated or damaged"):
        decode(data[: int(len(data) * kept)], "face_3")


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(DataError, match="image of 'a' is an empty file"):
        decode(b"", "a")


@pytest.mark.parametrize(
    "data", [b"hello", b"<svg xmlns='http://www.w3.org/2000/svg'/>"]
)
def test_files_that_are_not_images_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="'a' is not an image"):
        decode(data, "a")


def test_floating_point_images_are_refused() -> None:
    data = encoded(Image.fromarray(RAMP.astype(np.float32)), "TIFF")
    with pytest.raises(DataError, match="floating-point"):
        decode(data, "a")


def test_integers_beyond_sixteen_bits_are_refused_not_clipped() -> None:
    data = encoded(Image.fromarray(RAMP.astype(np.int32) * 1000), "TIFF")
    with pytest.raises(DataError, match="has values from 0 to"):
        decode(data, "a")


@pytest.mark.filterwarnings("error")
def test_a_palette_with_transparent_colours_needs_no_warning() -> None:
    image = Image.fromarray(RAMP).convert("P")
    data = encoded(image, "PNG", transparency=bytes(range(256)))
    assert np.array_equal(
        np.asarray(decode(data, "a")), np.asarray(image.convert("RGB"))
    )


def test_animations_are_refused() -> None:
    frames = [Image.fromarray(RAMP), Image.fromarray(RAMP[::-1])]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(DataError, match="2 frames"):
        decode(data, "a")


def test_limits_hold_before_any_pixel_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encoded(Image.fromarray(RAMP))
    monkeypatch.setattr(images, "MAX_PIXELS", 47)
    with pytest.raises(DataError, match="8 x 6 pixels, the limit is 47"):
        decode(data, "a")
    monkeypatch.setattr(images, "MAX_BYTES", 10)
    with pytest.raises(DataError, match="the limit is 10"):
        decode(data, "a")


def test_odd_images_of_brain_score_decode_as_there(mirror: Path) -> None:
    for path in sorted((mirror / "brainscore_alexnet_activations").glob("*.[jp]*g")):
        ours = np.asarray(decode(path.read_bytes(), path.name))
        with Image.open(path) as opened:
            pasted = Image.new("RGB", opened.size)
            pasted.paste(opened)
        assert (ours == np.asarray(pasted)).all(), path.name


def test_a_thumbnail_that_cannot_be_made_names_its_image() -> None:
    assert Image.open(
        io.BytesIO(thumbnail(encoded(Image.new("RGB", (8, 4))), "a", 4))
    ).size == (4, 2)
    with pytest.raises(DataError, match="'a' is not an image"):
        thumbnail(b"text", "a", 4)
