"""Embedders: models that return one row of numbers per stimulus (image, text, or interval of a sound or film)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from neuroledger.data.arrays import Floats, Reals, Singles, floats
from neuroledger.errors import DataError
from neuroledger.spec.channels import Channels, Sense

__all__ = ["COLUMNS", "Embed", "Embedded", "Embedder", "Shown", "Tell", "grouped_mean"]

Tell = Callable[[int], None]
"""Called with the number of stimuli embedded so far."""
Rows = Singles

COLUMNS: Final[Mapping[Sense, tuple[str, ...]]] = {
    "images": ("filename",),
    "text": ("text",),
    "sound": ("filename", "start", "duration"),
    "film": ("filename",),
}
"""Columns of a table of stimuli in addition to `stimulus_id`, by channel."""


@dataclass(frozen=True)
class Shown:
    """One stimulus: a text with its context up to its end, or a file, or an interval of a file in seconds."""

    stimulus_id: str
    text: str = ""
    context: str | None = None
    path: Path | None = None
    start: float | None = None
    duration: float | None = None

    @property
    def where(self) -> str:
        """Name of the file, for messages."""
        if self.path is None:
            return "(no file)"
        return self.path.name

    @property
    def file(self) -> Path:
        """Path of the file.

        Raises
        ------
        DataError
            The stimulus has no file, or the file does not exist.
        """
        if self.path is None or not self.path.is_file():
            raise DataError(
                f"stimulus {self.stimulus_id!r}: the file {self.path or '(none)'} does not exist"
            )
        return self.path


@dataclass(frozen=True)
class Embedded:
    """Rows (stimulus, feature), float32, and notes on how to interpret them."""

    rows: Rows
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Embed:
    """A request for embeddings of stimuli, in their order.

    ``states`` are numbers of hidden states (None: those of the spec); ``tell`` is called with the number of stimuli done.
    """

    stimuli: Sequence[Shown]
    states: tuple[int, ...] | None
    tell: Tell
    asks = "embeddings"


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """A model that gives embeddings and nothing else.

    Attributes
    ----------
    shown
        The channel of its stimuli.
    embed
        Function of stimuli, numbers of hidden states (None: those of the spec) and a callback, which is called with the
        number of stimuli done; it returns embeddings in the order of the stimuli.
    described
        Plain data that identifies the rows: states, pooling, SHA-256 of the weights, versions of packages.
    """

    id: str
    shown: Sense
    embed: Callable[[Sequence[Shown], tuple[int, ...] | None, Tell], Embedded] = field(
        repr=False
    )
    described: Mapping[str, Any]

    @property
    def takes(self) -> Channels:
        """The channel of its stimuli."""
        return frozenset({self.shown})

    @property
    def gives(self) -> Channels:
        """Embeddings."""
        return frozenset({"embeddings"})

    def answer(self, question: Embed) -> Embedded:
        """Return embeddings; see :class:`Embed`."""
        return self.embed(question.stimuli, question.states, question.tell)


def grouped_mean(frames: Reals, groups: int) -> Floats:
    """Return the concatenated means over ``groups`` consecutive parts of (frame, feature); the first may be a frame longer.

    Raises
    ------
    DataError
        There are fewer frames than parts.
    """
    if len(frames) < groups:
        raise DataError(
            f"{len(frames)} frames cannot be divided into {groups} parts: use a longer window"
        )
    parts = np.array_split(floats(frames), groups)
    return np.concatenate([part.mean(axis=0) for part in parts])
