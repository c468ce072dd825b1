"""Channels: the closed vocabulary of a model's inputs and outputs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from neuroledger.errors import RequestError

__all__ = [
    "INPUTS",
    "OUTPUTS",
    "STIMULI",
    "Channels",
    "Declared",
    "Interface",
    "Sense",
    "Shown",
    "channels",
]

Channels = frozenset[str]
Sense = Literal["images", "text", "sound", "film"]

Shown = Literal[Sense, "names"]
STIMULI: Final[Channels] = frozenset({"images", "text", "sound", "film", "names"})
"""Channels of stimuli, which are presented one by one."""
INPUTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "images": "images, as RGB files",
        "text": "texts, with their context",
        "sound": "sounds, as files or intervals of files",
        "film": "films, as files",
        "names": "names of stimuli without files, for stored answers and responses",
        "stimuli": "stimuli of the channel that the data set states in `stimuli` (paradigms only)",
        "signals": "recordings, counts or series over time",
        "training": "examples with the answers to learn",
        "problems": "optimisation problems, with the best known costs in the data set",
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
        "decoded": "predictions of an estimator that is trained in each fold, `decoded:classification`",
        "answers": "answers of one trained network, `answers:forecast`",
        "costs": "the cost of one pass of that network",
    }
)
# A set of channels, or a function of the parameters (and of a model's `regions`, `layers`, `readout`, `commit`).
Declared = Iterable[str] | Callable[[Mapping[str, Any]], Iterable[str]]


def channels(names: Iterable[str], known: Mapping[str, str], owner: str) -> Channels:
    """Validate names of channels against the vocabulary; an output may have an address, ``responses:IT``.

    Raises
    ------
    RequestError
        A name is not in the vocabulary, or there is no name.
    """
    result = frozenset([names] if isinstance(names, str) else names)
    for name in sorted(result):
        base, colon, address = name.partition(":")
        if base not in known or (colon and (known is INPUTS or not address)):
            near = difflib.get_close_matches(base, known, 1, 0.5)
            if near:
                hint = f"did you mean {near[0]!r}?"
            else:
                hint = f"channels are {', '.join(known)}"
            raise RequestError(f"{owner}: no channel {name!r}; {hint}")
    if not result:
        raise RequestError(
            f"{owner}: no channel is declared; channels are {', '.join(known)}"
        )
    return result


@dataclass(frozen=True)
class Interface:
    """The input and output channels of a model, or those that a benchmark requires."""

    inputs: Channels
    outputs: Channels

    def lacking(self, asked: Interface) -> tuple[list[str], list[str]]:
        """Inputs and outputs that a benchmark requires and this model lacks; both empty for a compatible pair.

        An output without an address includes all addresses.
        """
        outputs = {
            name
            for name in asked.outputs
            if name not in self.outputs and name.partition(":")[0] not in self.outputs
        }
        return sorted(asked.inputs - self.inputs), sorted(outputs)
