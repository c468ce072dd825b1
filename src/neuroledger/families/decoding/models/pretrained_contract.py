"""What pretrained weights were made for, as a contract that windows keep or are refused by."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import TrainingRecipe
from neuroledger.families.signals.units import to_microvolts
from neuroledger.spec.base import Frozen

__all__ = ["Arranged", "Contract", "adapted", "arranged"]

log = logging.getLogger("neuroledger")
Positive = Annotated[float, Field(gt=0)]


class Contract(Frozen):
    """What the windows of a network with pretrained weights are.

    Attributes
    ----------
    channels
        Names of the channels that the weights know, whatever the case of letters.
    needs
        Whether windows have `all` of them, and are put into this order, or `some`, which the network receives by name.
    others
        Whether channels that the weights do not know are refused, or left out with a warning that names them.
    sampling_rate
        In Hz.
    whole, longest
        Windows last a multiple of so many seconds, and not longer.
    one
        How many microvolts are 1.0 to the network. The recipe may then not scale channels.
    unused
        Tensors of the file, by the beginnings of their names, that this network has no place for.
    cut
        Tensors of which the network takes the beginning, by name, with the axis: an embedding of more moments than a
        window has.
    """

    channels: Annotated[tuple[str, ...], Field(min_length=1)]
    needs: Literal["all", "some"] = "all"
    others: Literal["refuse", "drop"] = "refuse"
    sampling_rate: Positive
    whole: Positive | None = None
    longest: Positive | None = None
    one: Positive | None = None
    unused: tuple[str, ...] = ()
    cut: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)


class Arranged(NamedTuple):
    """The windows that the network sees: their signature, which channels in which order, and what they are multiplied by."""

    signature: Signature
    rows: tuple[int, ...]
    factor: float


def arranged(contract: Contract, signature: Signature, recipe: TrainingRecipe, id: str) -> Arranged:
    """Windows as the contract says, with a warning for each channel that is left out.

    Raises
    ------
    ModelError
        The windows break the contract; the message names every way in which they do.
    """
    known = {name.lower(): place for place, name in enumerate(contract.channels)}
    places = {row: known.get(name.lower()) for row, name in enumerate(signature.channel_ids)}
    found = {place: row for row, place in places.items() if place is not None}
    strange = [signature.channel_ids[row] for row, place in places.items() if place is None]
    problems = []
    absent = [name for place, name in enumerate(contract.channels) if place not in found]
    if contract.needs == "all" and absent:
        problems.append(f"channels {_few(absent)} are missing")
    if not found:
        problems.append(f"none of the channels {_few(signature.channel_ids)} is known to the weights")
    elif strange and contract.others == "refuse":
        problems.append(f"the weights do not know channels {_few(strange)} (`others: drop` leaves them out)")
    if signature.sampling_rate != contract.sampling_rate:
        problems.append(
            f"{signature.sampling_rate:g} Hz, not {contract.sampling_rate:g}: resample in the data set's reader"
        )
    seconds = signature.samples / signature.sampling_rate
    if contract.whole and abs(seconds / contract.whole - round(seconds / contract.whole)) > 1e-9:
        problems.append(f"windows of {seconds:g} s are no multiple of {contract.whole:g} s")
    if contract.longest and seconds > contract.longest + 1e-9:
        problems.append(f"windows of {seconds:g} s, at most {contract.longest:g} s")
    factor = to_microvolts(signature.units, "eeg") if contract.one else 1.0
    if factor is None:
        problems.append(f"amplitudes are in {signature.units!r}, not in uV, mV or V")
    if contract.one and recipe.for_task(signature.recipe).scale != "none":
        problems.append("the recipe scales channels: say `scale: none` in it")
    if problems:
        raise ModelError(f"model {id!r}: the windows are not those of its weights: {'; '.join(problems)}")
    if strange:
        log.warning("model %r: channels %s are left out, which its weights do not know", id, _few(strange))
    if contract.needs == "all":
        rows = tuple(found[place] for place in range(len(contract.channels)))
    else:
        rows = tuple(sorted(found.values()))
    kept = signature._replace(
        channels=len(rows),
        channel_ids=tuple(signature.channel_ids[row] for row in rows),
        positions=None if signature.positions is None else tuple(signature.positions[row] for row in rows),
    )
    return Arranged(kept, rows, 1.0 if contract.one is None or factor is None else factor / contract.one)


def adapted(contract: Contract, network: Any, id: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The tensors of a file as the network takes them: without those that are declared `unused`, the rest `cut` to size.

    Raises
    ------
    ModelError
        When it is called: nothing begins so, or a tensor to be cut is not there, or smaller than the network's.
    """
    own = network.state_dict()

    def adapt(state: Mapping[str, Any]) -> dict[str, Any]:
        idle = [part for part in contract.unused if not any(name.startswith(part) for name in state)]
        lost = [name for name in contract.cut if name not in state or name not in own]
        if idle or lost:
            raise ModelError(
                f"model {id!r}: its contract speaks of tensors {_few([*idle, *lost])}, which are not there"
            )
        # No text begins with one of no beginnings.
        kept = {name: value for name, value in state.items() if not name.startswith(contract.unused)}
        for name, axis in contract.cut.items():
            value = kept[name]
            size = own[name].shape[axis] if axis < own[name].ndim else 0
            if axis >= value.ndim or value.shape[axis] < size:
                raise ModelError(
                    f"model {id!r}: {name!r} is {tuple(value.shape)}, and the network takes {tuple(own[name].shape)}: "
                    "windows are longer than the weights allow"
                )
            kept[name] = value.narrow(axis, 0, size)
        return kept

    return adapt


def _few(names: Any) -> str:
    shown = list(names)
    return f"{', '.join(shown[:8])}{f' and {len(shown) - 8} more' if len(shown) > 8 else ''}"
