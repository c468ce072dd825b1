"""A model is anything that can be shown stimuli and asked for the responses of a region or for a decision."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from neuroledger.core import readout
from neuroledger.core.activations import Array, Extract, Store, collect, probe, stream
from neuroledger.core.stimuli import StimulusSet
from neuroledger.core.time_bins import Bin, align_time
from neuroledger.errors import ModelError, RequestError


@dataclass(frozen=True)
class Task:
    """What a model is to decide about each stimulus.

    ``label``: one of ``choices``. ``probabilities``: the probability of each label that the fitting stimuli have in
    their column ``label_column``. ``odd_one_out``: which of three stimuli (rows in threes) is unlike the other two.
    """

    name: Literal["label", "probabilities", "odd_one_out"]
    choices: tuple[str, ...] = ()
    label_column: str = "image_label"
    similarity: Literal["dot", "cosine"] = "dot"


@runtime_checkable
class Model(Protocol):
    """What every model answers; it remembers nothing from one question to the next."""

    @property
    def id(self) -> str:
        """The id under which scores are recorded."""
        ...

    @property
    def visual_degrees(self) -> float | None:
        """Visual angle that the model's input spans, or None when stimuli are shown to it as they are."""
        ...

    @property
    def varies_in_time(self) -> bool:
        """Whether its responses differ between time bins."""
        ...

    def record(
        self, stimuli: StimulusSet, region: str, time_bins: Sequence[Bin] | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Responses of a region: presentation × neuroid, and × time_bin where ``time_bins`` (ms) are given.

        Coordinates: stimulus_id and, for a model that varies from trial to trial and ``trials > 1``, repetition
        on presentation; neuroid_id, layer, and the place within the layer (channel, channel_x, …) on neuroid.
        """
        ...

    def perform(
        self, task: Task, stimuli: StimulusSet, fitting_stimuli: StimulusSet | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Decisions: (presentation,) labels, or (presentation, choice) probabilities; stimulus_id on presentation."""
        ...


@dataclass(frozen=True, kw_only=True)
class LayeredModel:
    """A model made of named layers: a commitment of regions to layers over a function that gives their activations.

    ``layers`` are all layers that one pass records; ``regions`` commits each region to one or several of them (a model
    with a single layer answers for every region with it). ``identity`` is plain data that determines the activations;
    None stands for a model that only lives in this process. ``times`` are the model's own time bins in ms: its
    activations then are (stimulus, time bin, …).
    """

    id: str
    extract: Extract = field(repr=False)
    layers: tuple[str, ...]
    regions: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    readout: str | None = None
    visual_degrees: float | None = None
    identity: Mapping[str, Any] | None = None
    times: tuple[Bin, ...] | None = None
    stochastic: bool = False
    batch: int | None = None
    store: Store | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.layers:
            raise ModelError(f"model {self.id!r} has no layers: name at least one")
        asked = {layer: region for region in self.regions for layer in self.committed(region)}
        for layer, region in asked.items():
            if layer not in self.layers:
                raise ModelError(
                    f"model {self.id!r}, region {region}: {unknown('layer', layer, self.layers)}"
                )
        if self.readout is not None and self.readout not in self.layers:
            raise ModelError(f"model {self.id!r}, readout: {unknown('layer', self.readout, self.layers)}")

    @property
    def varies_in_time(self) -> bool:
        """Whether its responses differ between time bins."""
        return self.times is not None

    def committed(self, region: str) -> tuple[str, ...]:
        """The layers that stand for a region.

        Raises
        ------
        RequestError
            The model is not committed to the region.
        """
        if region in self.regions:
            layers = self.regions[region]
            return (layers,) if isinstance(layers, str) else tuple(layers)
        if not self.regions and len(self.layers) == 1:
            return self.layers
        raise RequestError(
            f"model {self.id!r} commits no layer to {unknown('region', region, tuple(self.regions))}; "
            f"add `regions: {{{region}: <layer>}}` to its spec"
        )

    def record(
        self, stimuli: StimulusSet, region: str, time_bins: Sequence[Bin] | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Responses of the layers committed to ``region``; see :class:`Model`."""
        activations = self.activations(stimuli, self.committed(region), trials)
        ids = stimuli.ids
        parts = [
            neuroids(layer, self._in_time(values, time_bins), ids, model=self.id, timed=time_bins is not None)
            for layer, values in activations.items()
        ]
        response = (
            parts[0]
            if len(parts) == 1
            else xr.concat(parts, "neuroid", join="exact", combine_attrs="override")
        )
        response = response.drop_vars([name for name in PLACES if bool(response[name].isnull().all())])
        response = response.assign_coords(region=("neuroid", np.full(response.sizes["neuroid"], region)))
        if time_bins is not None:
            edges = np.asarray(time_bins, dtype=float)
            response = response.assign_coords(
                time_bin_start=("time_bin", edges[:, 0]), time_bin_end=("time_bin", edges[:, 1])
            )
        response.attrs["model"] = self.id
        return response

    def perform(
        self, task: Task, stimuli: StimulusSet, fitting_stimuli: StimulusSet | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Decisions read out from the ``readout`` layer, or the last one; see :class:`Model`."""
        layer = self.readout or self.layers[-1]
        features = self._features(stimuli, layer, trials)
        if task.name == "odd_one_out":
            return readout.odd_one_out(features, stimuli.ids, similarity=task.similarity)
        if task.name == "label":
            return readout.label(features, stimuli.ids, task.choices, model=self.id)
        if fitting_stimuli is None:
            raise RequestError(
                f"model {self.id!r}: probabilities need fitting stimuli with labels, none were given"
            )
        if task.label_column not in fitting_stimuli.table:
            raise RequestError(f"fitting stimuli {fitting_stimuli.id!r} have no column {task.label_column!r}")
        labels = [str(value) for value in fitting_stimuli.table[task.label_column]]
        return readout.probabilities(self._features(fitting_stimuli, layer, 1), labels, features, stimuli.ids)

    def activations(self, stimuli: StimulusSet, layers: Sequence[str], trials: int = 1) -> dict[str, Array]:
        """Layer → array (presentation, …), from the store or from one pass that records every layer for it."""
        if len(stimuli.table) == 0:
            raise RequestError(f"stimulus set {stimuli.id!r} is empty: nothing to show to model {self.id!r}")
        trials = trials if self.stochastic else 1
        rows = len(stimuli.table) * trials
        if self.store is None or self.identity is None:
            return self._collect(stimuli, layers, trials, rows)
        identity = {**self.identity, "trials": trials}
        kept = self.store.get(identity, stimuli, layers)
        if len(kept) < len(set(layers)):
            there = self.store.get(identity, stimuli, self.layers)
            missing = [layer for layer in self.layers if layer not in there]
            seen = probe(self.extract, stimuli, missing, model=self.id, stochastic=self.stochastic)
            passes = stream(
                self.extract,
                stimuli,
                seen,
                model=self.id,
                trials=trials,
                batch=self.batch,
                stochastic=self.stochastic,
            )
            kept = {**there, **self.store.put(identity, stimuli, seen, rows, passes)}
        return {layer: kept[layer] for layer in layers}

    def _collect(
        self, stimuli: StimulusSet, layers: Sequence[str], trials: int, rows: int
    ) -> dict[str, Array]:
        seen = probe(self.extract, stimuli, layers, model=self.id, stochastic=self.stochastic)
        passes = stream(
            self.extract,
            stimuli,
            seen,
            model=self.id,
            trials=trials,
            batch=self.batch,
            stochastic=self.stochastic,
        )
        return collect(passes, seen, rows)

    def _features(self, stimuli: StimulusSet, layer: str, trials: int) -> Array:
        """Features (stimulus, feature) of one layer: time bins side by side, trials averaged."""
        values = self.activations(stimuli, [layer], trials)[layer]
        count = len(stimuli.table)
        flat = values.reshape(len(values), -1)
        return flat if len(flat) == count else flat.reshape(-1, count, flat.shape[1]).mean(axis=0)

    def _in_time(self, values: Array, time_bins: Sequence[Bin] | None) -> Array:
        """Activations (presentation, …) or, with ``time_bins``, (presentation, time_bin, …)."""
        if self.times is not None and values.shape[1] != len(self.times):
            raise ModelError(
                f"model {self.id!r}: {values.shape[1]} time steps for {len(self.times)} declared time bins"
            )
        if time_bins is None:
            return values if self.times is None else values.mean(axis=1)
        if self.times is not None:
            return align_time(values, self.times, time_bins, self.id)
        return np.broadcast_to(values[:, None], (len(values), len(time_bins), *values.shape[1:]))


def neuroids(layer: str, values: Array, ids: Sequence[str], *, model: str, timed: bool) -> xr.DataArray:
    """Activations (presentation[, time_bin], …) of one layer with their names: presentation × neuroid [× time_bin].

    Neuroids are in C order of the layer's own axes, and carry their place along each: ``channel, channel_x,
    channel_y`` of a convolution's map, ``channel, embedding`` of tokens.
    """
    shape = values.shape[2:] if timed else values.shape[1:]
    count = int(np.prod(shape))
    numbers = np.arange(count)
    coords: dict[str, Any] = {
        "stimulus_id": ("presentation", np.tile(np.asarray(ids, dtype=object), len(values) // len(ids))),
        "neuroid_id": (
            "neuroid",
            np.array([f"{model}.{layer}.{number}" for number in numbers], dtype=object),
        ),
        "neuroid_num": ("neuroid", numbers),
        "layer": ("neuroid", np.full(count, layer, dtype=object)),
        **{name: ("neuroid", place) for name, place in _places(shape).items()},
    }
    if len(values) != len(ids):
        coords["repetition"] = ("presentation", np.repeat(np.arange(len(values) // len(ids)), len(ids)))
    if not timed:
        return xr.DataArray(
            values.reshape(len(values), count), dims=("presentation", "neuroid"), coords=coords
        )
    flat = values.reshape(*values.shape[:2], count).swapaxes(1, 2)
    return xr.DataArray(flat, dims=("presentation", "neuroid", "time_bin"), coords=coords)


_AXES = {
    2: ("channel", "embedding"),
    3: ("channel", "channel_x", "channel_y"),
    4: ("channel_temporal", "channel", "channel_x", "channel_y"),
}
PLACES = ("channel_temporal", "channel", "channel_x", "channel_y", "embedding")


def _places(shape: tuple[int, ...]) -> dict[str, Array]:
    """Index along each axis for every neuroid; NaN along axes the layer does not have, so that layers concatenate."""
    count = int(np.prod(shape))
    places: dict[str, Array] = {name: np.full(count, np.nan) for name in PLACES}
    if len(shape) in _AXES:
        indices = np.indices(shape).reshape(len(shape), count)
        places |= {name: index.astype(float) for name, index in zip(_AXES[len(shape)], indices, strict=True)}
    return places


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Words for a name that does not exist, with the names it may have been meant to be."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"{kind} {name!r} (did you mean {', '.join(near)}?)"
    listed = ", ".join(list(known)[:8]) + (" …" if len(known) > 8 else "")
    return f"{kind} {name!r} (there are: {listed or 'none'})"
