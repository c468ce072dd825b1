"""Stimulus files become images by one defined conversion, within limits, or one clear error."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from neuroledger.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_BYTES: Final = 64 * 1024**2
MAX_PIXELS: Final = 64_000_000
FORMATS: Final = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_SIGNATURES: Final = (
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"II*\x00",
    b"MM\x00*",
    b"RIFF",
)
_SIXTEEN_BIT: Final = ("I", "I;16", "I;16B", "I;16L", "I;16N")


def decode(data: bytes, name: str) -> Image:
    """Decode the image in ``data`` as upright 8-bit RGB.

    Grey and palette images become RGB. Transparency is dropped; the colour stored under it stays, as in Brain-Score.
    16-bit grey is divided by 257. An EXIF orientation is applied. ``name`` is the stimulus id for error messages.

    Raises
    ------
    DataError
        The data are not an image of a known format, or the image is truncated, empty, animated, has floating-point
        values or more than 16 bits, or exceeds ``MAX_BYTES`` or ``MAX_PIXELS``.
    """
    import PIL.Image
    from PIL import ImageOps, UnidentifiedImageError

    if len(data) > MAX_BYTES:
        raise DataError(
            f"image of {name!r} has {len(data):,} bytes, the limit is {MAX_BYTES:,}: store it smaller"
        )
    if not data:
        raise DataError(
            f"image of {name!r} is an empty file: it is damaged or incomplete"
        )
    try:
        with PIL.Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            _check_header(opened, name)
            opened.load()
            upright = ImageOps.exif_transpose(opened)
    except UnidentifiedImageError as error:
        if data.startswith(_SIGNATURES):
            raise DataError(
                f"image of {name!r} is truncated or damaged: it is damaged or incomplete"
            ) from error
        raise DataError(
            f"{name!r} is not an image: expected one of {', '.join(FORMATS)}"
        ) from error
    except (
        PIL.Image.DecompressionBombError,
        PIL.Image.DecompressionBombWarning,
    ) as error:
        raise DataError(
            f"image of {name!r} exceeds {MAX_PIXELS:,} pixels: store it smaller"
        ) from error
    except DataError:
        raise
    except (
        Exception
    ) as error:  # decoders raise nearly every kind of exception on damaged files
        raise DataError(
            f"image of {name!r} is truncated or damaged ({error}): it is damaged or incomplete"
        ) from error
    return _to_rgb(upright, name)


def thumbnail(data: bytes, name: str, side: int) -> bytes:
    """A PNG of the image in ``data``, at most ``side`` pixels wide and high.

    Raises
    ------
    DataError
        See :func:`decode`.
    """
    image = decode(data, name)
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _check_header(image: Image, name: str) -> None:
    width, height = image.size
    if width * height == 0:
        raise DataError(f"image of {name!r} is empty: {width} x {height} pixels")
    if width * height > MAX_PIXELS:
        raise DataError(
            f"image of {name!r} has {width} x {height} pixels, the limit is {MAX_PIXELS:,}: store it smaller"
        )
    frames = getattr(image, "n_frames", 1)
    if frames != 1:
        raise DataError(
            f"image of {name!r} has {frames} frames: a stimulus is one image, split it"
        )


def _to_rgb(image: Image, name: str) -> Image:
    if image.mode in _SIXTEEN_BIT:
        return _sixteen_bit_to_rgb(image, name)
    if image.mode == "F":
        raise DataError(
            f"image of {name!r} has floating-point values: store it with 8 or 16 bits per channel"
        )
    # Pillow would otherwise warn, in all threads, that the transparency of a palette is lost.
    image.info.pop("transparency", None)
    return image.convert("RGB")


def _sixteen_bit_to_rgb(image: Image, name: str) -> Image:
    """Convert a 16-bit grey image to 8-bit RGB, rounded: 65535 becomes 255."""
    import numpy as np
    import PIL.Image

    values = np.asarray(image).astype(np.float64)
    if values.min() < 0 or values.max() > 65535:
        raise DataError(
            f"image of {name!r} has values from {values.min():.0f} to {values.max():.0f}: "
            "store it with 8 or 16 bits per channel"
        )
    grey = np.clip(np.rint(values / 257), 0, 255).astype(np.uint8)
    return PIL.Image.fromarray(grey).convert("RGB")
