"""Place stimuli on a model's screen so that they span the same visual angle as in the experiment."""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

import pandas as pd

from neuroledger.data.images import MAX_PIXELS, decode
from neuroledger.data.stimuli import StimulusSet
from neuroledger.data.threads import THREADS, pool
from neuroledger.errors import DataError, RequestError

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")

GREY: Final = (128, 128, 128)
AHEAD: Final = 4 * THREADS


class Placement(NamedTuple):
    """The size of the screen in pixels, and the box of the image.

    If ``padded`` is true, the screen is larger than the image, and ``box`` is the position of the image on the screen.
    Otherwise ``box`` is the part of the image that the screen shows.
    """

    size: tuple[int, int]
    box: tuple[int, int, int, int]
    padded: bool


def placement(
    size: tuple[int, int], source_degrees: float, target_degrees: float
) -> Placement:
    """The placement of an image of ``size`` (width, height) that spans ``source_degrees``, on a ``target_degrees`` screen.

    The screen has ``round(size * target / source)`` pixels, rounded half to even. The image is centred and never
    resampled.


    >>> placement((256, 256), source_degrees=8, target_degrees=10)
    Placement(size=(320, 320), box=(32, 32, 288, 288), padded=True)
    """
    if source_degrees <= 0 or target_degrees <= 0:
        raise ValueError(
            f"visual degrees must be positive, got {source_degrees} and {target_degrees}"
        )
    ratio = target_degrees / source_degrees
    width = round(ratio * size[0])
    height = round(ratio * size[1])
    if ratio >= 1:
        left = round((width - size[0]) / 2)
        top = round((height - size[1]) / 2)
        return Placement(
            (width, height), (left, top, left + size[0], top + size[1]), padded=True
        )
    left = round((size[0] - width) / 2)
    top = round((size[1] - height) / 2)
    return Placement(
        (width, height), (left, top, left + width, top + height), padded=False
    )


def place_image(image: Image, source_degrees: float, target_degrees: float) -> Image:
    """``image`` centred on a grey (128, 128, 128) screen, or its centre if the screen is smaller than the image."""
    import PIL.Image

    if source_degrees == target_degrees:
        return image
    geometry = placement(image.size, source_degrees, target_degrees)
    if not geometry.padded:
        return image.crop(geometry.box)
    screen = PIL.Image.new("RGB", geometry.size, GREY)
    screen.paste(image, geometry.box[:2])
    return screen


def check_size(size: tuple[int, int], name: str, source: float, target: float) -> None:
    """Refuse an image that has no pixels, or too many, on a screen of another size in degrees."""
    width, height = placement(size, source, target).size
    image = f"image of {name!r}, {size[0]} x {size[1]} pixels for {source:g} degrees,"
    if width * height == 0:
        raise DataError(
            f"{image} has no pixels on a screen of {target:g} degrees: check the degrees"
        )
    if width * height > MAX_PIXELS:
        raise DataError(
            f"{image} needs a screen of {width} x {height} pixels for {target:g} degrees, the limit is "
            f"{MAX_PIXELS:,}: check the degrees"
        )


@dataclass(frozen=True)
class ScreenedSet(StimulusSet):
    """A stimulus set on a screen of ``target_degrees``; images are placed when they are read."""

    target_degrees: float = 0.0

    def images(self, ids: Sequence[str]) -> Iterator[Image]:
        """Yield the placed images of ``ids``, in RGB."""
        for name, data in zip(ids, super().read(ids), strict=True):
            yield self.placed(name, data)

    def placed(self, name: str, data: bytes) -> Image:
        """The image in ``data``, the file of stimulus ``name``, placed on the screen."""
        image = decode(data, name)
        source = self._sources[name]
        check_size(image.size, name, source, self.target_degrees)
        return place_image(image, source, self.target_degrees)

    @cached_property
    def _sources(self) -> dict[str, float]:
        return source_degrees(self)

    def read(self, ids: Sequence[str] | None = None) -> Iterator[bytes]:
        """Yield the placed images as PNG files, which are lossless (Brain-Score compresses JPEG images a second time)."""
        for image in self.images(self.ids if ids is None else ids):
            file = io.BytesIO()
            image.save(file, format="PNG")
            yield file.getvalue()

    @cached_property
    def content_sha256(self) -> str:
        """SHA-256 of the original set and of the degrees of stimuli and screen."""
        original = {
            field.name: getattr(self, field.name) for field in fields(StimulusSet)
        }
        sources = list(map(repr, source_degrees(self).values()))
        text = f"{StimulusSet(**original).content_sha256} on {self.target_degrees!r} from {' '.join(sources)}"
        return hashlib.sha256(text.encode()).hexdigest()


def source_degrees(stimuli: StimulusSet) -> dict[str, float]:
    """Degrees that each stimulus spanned in the experiment: those of the set, or its table's column ``degrees``.

    Raises
    ------
    RequestError
        Neither is known, or both are given.
    DataError
        The degrees of a stimulus are missing or not positive.
    """
    column = "degrees" in stimuli.table.columns
    if column and stimuli.degrees is not None:
        raise RequestError(
            f"stimulus set {stimuli.id!r} has degrees for the whole set and per stimulus: keep one of them"
        )
    if column:
        values = pd.to_numeric(stimuli.table["degrees"], errors="coerce").to_numpy(
            dtype=float
        )
        wrong = [
            id
            for id, value in zip(stimuli.ids, values, strict=True)
            if not 0 < value < float("inf")
        ]
        if wrong:
            raise DataError(
                f"stimulus set {stimuli.id!r}: `degrees` of {wrong[0]!r} is not a positive number"
                + (f", nor of {len(wrong) - 1} more" if len(wrong) > 1 else "")
            )
        return dict(zip(stimuli.ids, values.tolist(), strict=True))
    if stimuli.degrees is None:
        raise RequestError(
            f"stimulus set {stimuli.id!r} does not state how many degrees it spans: add `visual_degrees` to the benchmark"
        )
    return dict.fromkeys(stimuli.ids, stimuli.degrees)


def spanning(
    stimuli: StimulusSet,
    degrees: float | None,
    screen: Literal["visual_degrees", "as_is"] = "visual_degrees",
) -> StimulusSet:
    """The stimulus set with the degrees of a benchmark, unless it has its own; with ``as_is`` no image is placed.

    Raises
    ------
    RequestError
        The benchmark and the set state different degrees, or degrees are given together with ``as_is``.
    """
    if screen == "as_is":
        if degrees is not None:
            raise RequestError(
                "`screen: as_is` places no stimulus: remove `visual_degrees`"
            )
        return replace(stimuli, as_is=True)
    if degrees in (None, stimuli.degrees) or "degrees" in stimuli.table.columns:
        return stimuli
    if stimuli.degrees is not None and stimuli.degrees != degrees:
        raise RequestError(
            f"stimulus set {stimuli.id!r} spans {stimuli.degrees:g} degrees, the benchmark states {degrees:g}: "
            "correct one of them"
        )
    return replace(stimuli, degrees=degrees)


def place(stimuli: StimulusSet, target_degrees: float | None) -> StimulusSet:
    """``stimuli`` placed on a model's screen; the set itself if every stimulus has the size of the screen.

    With ``target_degrees`` None the model is shown the images as they are. Stimuli without files are returned unchanged.
    """
    if target_degrees is None or stimuli.as_is or "filename" not in stimuli.table:
        return stimuli
    if all(value == target_degrees for value in source_degrees(stimuli).values()):
        return stimuli
    if target_degrees <= 0:
        raise RequestError(
            f"the model's screen has {target_degrees} degrees: visual degrees must be positive"
        )
    if isinstance(stimuli, ScreenedSet):
        raise RequestError(f"stimulus set {stimuli.id!r} is on a screen already")
    original = {
        field.name: getattr(stimuli, field.name) for field in fields(StimulusSet)
    }
    return ScreenedSet(**original, target_degrees=float(target_degrees))


def shown(stimuli: StimulusSet, ids: Sequence[str]) -> Iterator[Image]:
    """Yield the images of ``ids`` as a model sees them, in RGB."""
    yield from shown_as(stimuli, ids, lambda image: image, ahead=1)


def shown_as(
    stimuli: StimulusSet,
    ids: Sequence[str],
    make: Callable[[Image], T],
    *,
    ahead: int = AHEAD,
) -> Iterator[T]:
    """Yield ``make(image)`` for each image of ``ids`` as a model sees it, in order, computed in several threads.

    Files are read one after the other. Decoding, placing and ``make`` run in threads, at most ``ahead`` images before the
    consumer. The results do not depend on the number of threads.
    """
    decode_image = (
        stimuli.placed
        if isinstance(stimuli, ScreenedSet)
        else lambda name, data: decode(data, name)
    )
    files = zip(ids, StimulusSet.read(stimuli, ids), strict=True)
    if ahead <= 1:
        yield from (make(decode_image(name, data)) for name, data in files)
        return
    futures: deque[Future[T]] = deque()
    try:
        for name, data in files:
            futures.append(
                pool().submit(
                    lambda name, data: make(decode_image(name, data)), name, data
                )
            )
            if len(futures) >= ahead:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        for future in futures:
            future.cancel()
