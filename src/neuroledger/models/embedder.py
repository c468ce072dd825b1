"""An embedder answers a stimulus, an image, a text, a stretch of sound or of film, with one row of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neuroledger.errors import DataError
from neuroledger.spec.channels import Channels, Sense

__all__ = ["COLUMNS", "Embed", "Embedded", "Embedder", "Shown", "Tell", "grouped_mean"]

Tell = Callable[[int], None]
"""Called with the number of stimuli embedded so far."""
Rows = NDArray[np.float32]

COLUMNS: Final[Mapping[Sense, tuple[str, ...]]] = {
    "images": ("filename",),
    "text": ("text",),
    "sound": ("filename", "start", "duration"),
    "film": ("filename",),
}
"""Columns of a table of stimuli beside `stimulus_id`, by channel."""


@dataclass(frozen=True)
class Shown:
    """One stimulus: a text with what was read or heard up to its end, or a file, or a stretch of one in seconds."""

    stimulus_id: str
    text: str = ""
    context: str | None = None
    path: Path | None = None
    start: float | None = None
    duration: float | None = None

    @property
    def where(self) -> str:
        """The name of the file, for messages."""
        return "(no file)" if self.path is None else self.path.name

    @property
    def file(self) -> Path:
        """The file.

        Raises
        ------
        DataError
            There is none, or it is not there.
        """
        if self.path is None or not self.path.is_file():
            raise DataError(f"stimulus {self.stimulus_id!r}: the file {self.path or '(none)'} is not there")
        return self.path


@dataclass(frozen=True)
class Embedded:
    """Rows (stimulus, feature), float32, and what a reader of them should know."""

    rows: Rows
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Embed:
    """The question for embeddings of stimuli in their order.

    ``states`` are hidden states by number, those of the spec where None; ``tell`` is called with the number of stimuli done.
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
        Embeddings of stimuli in their order, of the given hidden states, or of those that the spec names; the third argument
        is called with the number of stimuli done.
    described
        Plain data that says what the rows are: states, pooling, SHA-256 of the weights, versions of packages.
    """

    id: str
    shown: Sense
    embed: Callable[[Sequence[Shown], tuple[int, ...] | None, Tell], Embedded] = field(repr=False)
    described: Mapping[str, Any]

    @property
    def takes(self) -> Channels:
        """The channel of its stimuli."""
        return frozenset({self.shown})

    @property
    def gives(self) -> Channels:
        """Embeddings."""
        return frozenset({"embeddings"})

    def answer(self, question: Any) -> Embedded:
        """Embeddings; see :class:`Embed`."""
        return self.embed(question.stimuli, question.states, question.tell)


def grouped_mean(frames: NDArray[np.floating[Any]], groups: int) -> NDArray[np.float64]:
    """Means over ``groups`` stretches of (frame, feature), side by side; the first stretches are longer by one frame.

    Raises
    ------
    DataError
        There are fewer frames than stretches.
    """
    if len(frames) < groups:
        raise DataError(
            f"{len(frames)} frames cannot be divided into {groups} stretches: take a longer window"
        )
    parts = np.array_split(np.asarray(frames, dtype=np.float64), groups)
    return np.concatenate([part.mean(axis=0) for part in parts])
