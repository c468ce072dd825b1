"""Contracts of pretrained weights: requirements that windows must meet."""

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

__all__ = ["WindowArrangement", "Contract", "tensor_adapter", "arrange_windows"]

log = logging.getLogger("neuroledger")
Positive = Annotated[float, Field(gt=0)]


class Contract(Frozen):
    """Requirements of a network with pretrained weights for its windows.

    Attributes
    ----------
    channels
        Names of the channels of the weights, case-insensitive.
    needs
        Whether windows must have `all` of them, and are put into this order, or `some`, which the network receives by name.
    others
        Whether other channels are refused, or dropped with a warning.
    sampling_rate
        In Hz.
    whole, longest
        The duration of windows in s must be a multiple of `whole`, and at most `longest`.
    one
        The amplitude in microvolts that is 1.0 for the network. The recipe may then not scale channels.
    unused
        Prefixes of the names of tensors in the file that this network does not have.
    cut
        Tensors that are cut to the size of the network's, by name, with the axis: an embedding of more time steps than a
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


class WindowArrangement(NamedTuple):
    """The inputs of the network: their signature, the rows of the channels in order, and the factor of amplitudes."""

    signature: Signature
    rows: tuple[int, ...]
    factor: float


def arrange_windows(
    contract: Contract, signature: Signature, recipe: TrainingRecipe, id: str
) -> WindowArrangement:
    """The arrangement of windows that the contract requires; dropped channels are logged as a warning.

    Raises
    ------
    ModelError
        The windows violate the contract; the message lists all violations.
    """
    known = {name.lower(): place for place, name in enumerate(contract.channels)}
    channels_of_rows = {
        row: known.get(name.lower()) for row, name in enumerate(signature.channel_ids)
    }
    rows_of_channels = {
        place: row for row, place in channels_of_rows.items() if place is not None
    }
    unknown = [
        signature.channel_ids[row]
        for row, place in channels_of_rows.items()
        if place is None
    ]
    problems = []
    missing = [
        name
        for place, name in enumerate(contract.channels)
        if place not in rows_of_channels
    ]
    if contract.needs == "all" and missing:
        problems.append(f"channels {_first_few(missing)} are missing")
    if not rows_of_channels:
        problems.append(
            f"none of the channels {_first_few(signature.channel_ids)} is a channel of the weights"
        )
    elif unknown and contract.others == "refuse":
        problems.append(
            f"the weights do not have channels {_first_few(unknown)} (`others: drop` drops them)"
        )
    if signature.sampling_rate != contract.sampling_rate:
        problems.append(
            f"{signature.sampling_rate:g} Hz instead of {contract.sampling_rate:g}: resample in the data set's reader"
        )
    seconds = signature.samples / signature.sampling_rate
    if (
        contract.whole
        and abs(seconds / contract.whole - round(seconds / contract.whole)) > 1e-9
    ):
        problems.append(
            f"windows of {seconds:g} s are not a multiple of {contract.whole:g} s"
        )
    if contract.longest and seconds > contract.longest + 1e-9:
        problems.append(f"windows of {seconds:g} s, at most {contract.longest:g} s")
    factor = to_microvolts(signature.units, "eeg") if contract.one else 1.0
    if factor is None:
        problems.append(f"amplitudes are in {signature.units!r}, not in uV, mV or V")
    if contract.one and recipe.for_task(signature.recipe).scale != "none":
        problems.append("the recipe scales channels: set `scale: none` in it")
    if problems:
        raise ModelError(
            f"model {id!r}: the windows do not fit its weights: {'; '.join(problems)}"
        )
    if unknown:
        log.warning(
            "model %r: channels %s are dropped, which its weights do not have",
            id,
            _first_few(unknown),
        )
    if contract.needs == "all":
        rows = tuple(rows_of_channels[place] for place in range(len(contract.channels)))
    else:
        rows = tuple(sorted(rows_of_channels.values()))
    arranged_signature = signature._replace(
        channels=len(rows),
        channel_ids=tuple(signature.channel_ids[row] for row in rows),
        positions=None
        if signature.positions is None
        else tuple(signature.positions[row] for row in rows),
    )
    return WindowArrangement(
        arranged_signature,
        rows,
        1.0 if contract.one is None or factor is None else factor / contract.one,
    )


def tensor_adapter(
    contract: Contract, network: Any, id: str
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function that adapts the tensors of a file to the network: `unused` ones are dropped, and others `cut` to size.

    Raises
    ------
    ModelError
        On call: no tensor matches a declared name, or a tensor to be cut is smaller than the network's.
    """
    own = network.state_dict()

    def adapt(state: Mapping[str, Any]) -> dict[str, Any]:
        unmatched = [
            part
            for part in contract.unused
            if not any(name.startswith(part) for name in state)
        ]
        missing = [
            name for name in contract.cut if name not in state or name not in own
        ]
        if unmatched or missing:
            raise ModelError(
                f"model {id!r}: the tensors {_first_few([*unmatched, *missing])} of its contract do not exist"
            )
        # str.startswith(()) is False.
        adapted_state = {
            name: value
            for name, value in state.items()
            if not name.startswith(contract.unused)
        }
        for name, axis in contract.cut.items():
            value = adapted_state[name]
            size = own[name].shape[axis] if axis < own[name].ndim else 0
            if axis >= value.ndim or value.shape[axis] < size:
                raise ModelError(
                    f"model {id!r}: {name!r} is {tuple(value.shape)}, but the network needs {tuple(own[name].shape)}: "
                    "windows are longer than the weights allow"
                )
            adapted_state[name] = value.narrow(axis, 0, size)
        return adapted_state

    return adapt


def _first_few(names: Any) -> str:
    listed = list(names)
    return f"{', '.join(listed[:8])}{f' and {len(listed) - 8} more' if len(listed) > 8 else ''}"
