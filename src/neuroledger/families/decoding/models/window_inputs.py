"""Inputs of networks: channels adapted, amplitudes in the network's unit, and windows padded to a length that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.channel_adapters import (
    UNKNOWN,
    Adapted,
    ByName,
    ChannelAdapter,
    Learned,
    adapt_channels,
)
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import TrainingRecipe
from neuroledger.families.signals.model_needs import Needs
from neuroledger.families.signals.units import to_microvolts
from neuroledger.spec.base import Frozen

__all__ = ["Inputs", "with_inputs"]

NOTHING = Needs()
SMALLEST = 1e-12
"""Least divisor of amplitudes, so that a flat channel stays flat."""


class Inputs(Frozen):
    """What is done to each window before a network sees it, in this order.

    Attributes
    ----------
    rename
        Channels of recordings by another name.
    channels
        The channel adapter; by default, the channels that the model needs by name.
    scale
        Each channel of each window: `standard` has mean 0 and deviation 1, `quantile` divides by the 0.95 quantile of
        absolute values. `range`: each window, all channels together, from -1 to 1.
    amplitude
        Adds a channel `SCALE` of the constant 2 · min(range / amplitude, 1) - 1, from the range of the window before it is
        scaled.
    pad
        Windows are lengthened at their end to the multiple that the model needs, by zeros or by their last sample.
    """

    rename: dict[str, str] = Field(default_factory=dict)
    channels: ChannelAdapter | None = None
    scale: Literal["standard", "quantile", "range"] | None = None
    amplitude: Annotated[float, Field(gt=0)] | None = None
    pad: Literal["zeros", "edge"] | None = None


def with_inputs(
    make: Callable[[Signature], Any],
    signature: Signature,
    needs: Needs | None,
    inputs: Inputs | None,
    recipe: TrainingRecipe,
    id: str,
) -> Any:
    """The network that `make` builds for the windows as it sees them, which takes the windows of the signature.

    Raises
    ------
    ModelError
        The windows lack a channel, are not a multiple of the needed length, or would be scaled by the recipe too.
    """
    if needs is None and inputs is None:
        return make(signature)
    needs, inputs = needs or NOTHING, inputs or Inputs()
    _require_unscaled(needs, inputs, recipe.for_task(signature.recipe), id)
    own = tuple(inputs.rename.get(name, name) for name in signature.channel_ids)
    adapted = _channels(signature._replace(channel_ids=own), needs, inputs, id)
    factor = 1.0
    if needs.unit is not None:
        given, wanted = (
            to_microvolts(unit, "eeg") for unit in (signature.units, needs.unit)
        )
        factor = (given or 1.0) / ((wanted or 1.0) * needs.one)
        signature = signature._replace(units=needs.unit)
    lacking = -signature.samples % needs.window_multiple
    if lacking and inputs.pad is None:
        raise ModelError(
            f"model {id!r}: windows of {signature.samples} samples are not a multiple of {needs.window_multiple}: change "
            "their duration, or `inputs: {pad: zeros}`"
        )
    seen = adapted.signature._replace(samples=signature.samples + lacking)
    if inputs.amplitude is not None:
        if seen.positions is None:
            places = None
        else:
            places = (*seen.positions, UNKNOWN)
        names = (*seen.channel_ids, "SCALE")
        seen = seen._replace(channels=len(names), channel_ids=names, positions=places)
    network = make(seen)
    return _wrapped(network, adapted, inputs, factor, lacking, own)


def _require_unscaled(
    needs: Needs, inputs: Inputs, recipe: TrainingRecipe, id: str
) -> None:
    """Refuse a recipe that scales channels of windows whose amplitudes are declared."""
    declared = needs.unit or needs.scale or inputs.scale
    if declared and recipe.scale != "none":
        raise ModelError(
            f"model {id!r}: its amplitudes are declared, and the recipe would scale them again: set `scale: none` and "
            "`clamp: 0` in the recipe"
        )


def _channels(signature: Signature, needs: Needs, inputs: Inputs, id: str) -> Adapted:
    """The channels that the network sees."""
    adapter = inputs.channels
    if adapter is None and needs.channels != "any":
        adapter = ByName(name="by_name", channels=needs.channels)
    if adapter is None:
        return Adapted(signature, np.eye(signature.channels), ())
    adapted = adapt_channels(adapter, signature, id)
    if needs.channels != "any":
        given = [name.lower() for name in adapted.signature.channel_ids]
        if given != [name.lower() for name in needs.channels]:
            raise ModelError(
                f"model {id!r}: its adapter gives channels {', '.join(adapted.signature.channel_ids)}, but it needs "
                f"{', '.join(needs.channels)}"
            )
    return adapted


def _wrapped(
    network: Any,
    adapted: Adapted,
    inputs: Inputs,
    factor: float,
    lacking: int,
    own: Sequence[str],
) -> Any:
    """The network behind its inputs, as a module."""
    import torch
    from torch import nn

    mixing = _mixing(adapted, inputs.channels)
    value = {"zeros": "constant", "edge": "replicate"}[inputs.pad or "zeros"]

    class WithInputs(nn.Module):  # type: ignore[misc]
        """A network and what is done to its windows; `adapter` is trained if the channels are learned."""

        def __init__(self) -> None:
            super().__init__()
            self.adapter, self.network = mixing, network

        def forward(self, windows: Any) -> Any:
            windows = self.adapter(windows) * factor
            amplitude = _amplitude(windows, inputs.amplitude)
            windows = _scaled(windows, inputs.scale)
            if amplitude is not None:
                windows = torch.cat([windows, amplitude], dim=1)
            if lacking:
                windows = nn.functional.pad(windows, (0, lacking), mode=value)
            return self.network(windows)

    wrapped = WithInputs()
    if isinstance(inputs.channels, Learned):
        wrapped.notes = ()
    else:
        wrapped.notes = _notes(adapted, own)
    return wrapped


def _notes(adapted: Adapted, own: Sequence[str]) -> tuple[str, ...]:
    """Notes on channels of the network that are zero, and on channels of the recording that it does not use."""
    zero = ", ".join(adapted.missing)
    used = np.flatnonzero(adapted.matrix.any(axis=0))
    unused = ", ".join(name for row, name in enumerate(own) if row not in used)
    if zero:
        notes = [f"channels are zero: {zero}"]
    else:
        notes = []
    return (*notes, *([f"channels are not used: {unused}"] if unused else []))


def _scaled(windows: Any, scale: str | None) -> Any:
    """Windows (window, channel, sample), each scaled by itself."""
    import torch

    if scale == "standard":
        centred = windows - windows.mean(dim=-1, keepdim=True)
        spread = windows.std(dim=-1, correction=0, keepdim=True)
        return centred / spread.clamp(min=SMALLEST)
    if scale == "quantile":
        limit = torch.quantile(windows.abs(), 0.95, dim=-1, keepdim=True)
        return windows / limit.clamp(min=SMALLEST)
    if scale == "range":
        low, high = _ends(windows)
        return 2.0 * (windows - low) / (high - low).clamp(min=SMALLEST) - 1.0
    return windows


def _ends(windows: Any) -> tuple[Any, Any]:
    """The smallest and the largest value of each window, (window, 1, 1)."""
    extremes = windows.aminmax(dim=-1, keepdim=True)
    low = extremes.min.amin(dim=1, keepdim=True)
    high = extremes.max.amax(dim=1, keepdim=True)
    return low, high


def _amplitude(windows: Any, largest: float | None) -> Any:
    """A channel with the range of each window as a share of the largest, from -1 to 1; None if none is declared."""
    if largest is None:
        return None
    low, high = _ends(windows)
    share = ((high - low) / largest).clamp(max=1.0)
    return (2.0 * share - 1.0).expand(-1, 1, windows.shape[-1])


def _mixing(adapted: Adapted, adapter: ChannelAdapter | None) -> Any:
    """The matrix of an adapter as a module, (window, channel, sample) to (window, channel of the network, sample)."""
    import torch
    from torch import nn

    start = torch.from_numpy(adapted.matrix).float()
    if not isinstance(adapter, Learned):

        class Mixing(nn.Module):  # type: ignore[misc]
            """A fixed matrix over channels."""

            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("matrix", start, persistent=False)

            def forward(self, windows: Any) -> Any:
                return self.matrix @ windows

        return Mixing()
    outputs, inputs = start.shape
    convolution = nn.Conv1d(inputs, outputs, 1)
    convolution.is_new = True
    with torch.no_grad():
        if adapter.start != "random":
            base = convolution.weight[:, :, 0] if adapter.start == "pairs" else 0.0
            convolution.weight[:, :, 0] = base + start
            nn.init.zeros_(convolution.bias)
    if adapter.largest_norm is not None:
        convolution.largest_norm = adapter.largest_norm
    return convolution
