"""Channels: the closed vocabulary of what goes into a model and of what is asked back from it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from neuroledger.errors import RequestError

__all__ = ["INPUTS", "OUTPUTS", "STIMULI", "Channels", "Declared", "Interface", "Sense", "Shown", "channels"]

Channels = frozenset[str]
Sense = Literal["images", "text", "sound", "film"]

Shown = Literal[Sense, "names"]
STIMULI: Final[Channels] = frozenset({"images", "text", "sound", "film", "names"})
"""Channels of stimuli, which a data set shows one by one."""
INPUTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "images": "images, as RGB files",
        "text": "texts, with their context",
        "sound": "sounds, as files or intervals of files",
        "film": "films, as files",
        "names": "names of stimuli whose files the data set does not hold, for answers and responses that were stored once",
        "stimuli": "stimuli of whatever channel the data set names in `stimuli` (paradigms only)",
        "signals": "recordings, counts or series over time",
        "training": "examples with the answers to be learned",
        "problems": "problems to be solved, whose best known costs the data set states",
    }
)
OUTPUTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "responses": "responses of a region, `responses:IT`: presentation × neuroid, or stimulus × stimulus",
        "dynamics": "responses that differ between time bins",
        "decisions": (
            "decisions about stimuli: `decisions:label`, `decisions:probabilities`, `decisions:odd_one_out`; about texts "
            "`decisions:reading_times`, `decisions:next_word`"
        ),
        "embeddings": "one row of features for each stimulus",
        "decoded": "predictions of an estimator trained anew in each fold, `decoded:classification`",
        "answers": "answers of one trained network, `answers:forecast`",
        "costs": "what a pass of that network costs",
    }
)
# A set of channels, or a function from parameters (and, of a model, `regions`, `layers`, `readout`, `commit`) to one.
Declared = Iterable[str] | Callable[[Mapping[str, Any]], Iterable[str]]


def channels(names: Iterable[str], known: Mapping[str, str], owner: str) -> Channels:
    """The channels, each of which must be in the vocabulary; an output may carry an address, ``responses:IT``.

    Raises
    ------
    RequestError
        A name is not in the vocabulary, or there is none.
    """
    found = frozenset([names] if isinstance(names, str) else names)
    for name in sorted(found):
        base, colon, address = name.partition(":")
        if base not in known or (colon and (known is INPUTS or not address)):
            near = difflib.get_close_matches(base, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"channels are {', '.join(known)}"
            raise RequestError(f"{owner}: no channel {name!r}; {hint}")
    if not found:
        raise RequestError(f"{owner}: no channel is named; channels are {', '.join(known)}")
    return found


@dataclass(frozen=True)
class Interface:
    """What a model takes and gives, or what a benchmark shows and asks back."""

    inputs: Channels
    outputs: Channels

    def lacking(self, asked: Interface) -> tuple[list[str], list[str]]:
        """Inputs and outputs of a benchmark that this model does not have; both empty for a compatible pair.

        An output without an address includes all of its addresses.
        """
        outputs = {
            name
            for name in asked.outputs
            if name not in self.outputs and name.partition(":")[0] not in self.outputs
        }
        return sorted(asked.inputs - self.inputs), sorted(outputs)
