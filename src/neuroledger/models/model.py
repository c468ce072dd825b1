"""A model is anything that takes some channels and gives others; `record`, `perform`, `fit` and `embed` ask it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from neuroledger.data.memory import require_memory
from neuroledger.data.screen import place
from neuroledger.data.stimuli import StimulusSet
from neuroledger.data.threads import exclusive
from neuroledger.errors import ModelError, RequestError
from neuroledger.models import readout
from neuroledger.models.activations import (
    PROBE,
    Array,
    Extract,
    Probe,
    Store,
    Trial,
    checked,
    collect,
    differing,
    probe,
    stream,
)
from neuroledger.models.embedder import Embed, Embedded, Shown, Tell
from neuroledger.models.neuroids import Bin, align_time, labelled
from neuroledger.spec.channels import Channels, Interface

# Double-precision copies of the features that a readout makes while it is fitted.
FIT_COPIES: Final = 3
READOUTS: Final = ("probabilities", "odd_one_out")
"""Tasks that can be read out of any features."""
DECISIONS: Final = ("label", *READOUTS)
"""Tasks that can be read out of logits."""


@dataclass(frozen=True)
class Task:
    """What a model is to decide about each stimulus.

    ``label``: one of ``choices``. ``probabilities``: the probability of each label that the fitting stimuli have in
    their column ``label_column``. ``odd_one_out``: which of three stimuli is unlike the other two, for each of
    ``triplets`` of stimulus ids, or for the rows in threes. ``reading_times`` and ``next_word``: of each part of a text,
    read with its ``context``.
    """

    name: Literal["label", "probabilities", "odd_one_out", "reading_times", "next_word"]
    choices: tuple[str, ...] = ()
    label_column: str = "image_label"
    similarity: Literal["dot", "cosine"] = "dot"
    triplets: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Record:
    """The question for responses of a region: (presentation, neuroid), and (…, time_bin) where ``time_bins`` (ms) are given.

    Coordinates of the answer: stimulus_id and, for a model that varies from trial to trial and ``trials > 1``, repetition
    on presentation; neuroid_id, layer, and the place within the layer (channel, channel_x, …) on neuroid.
    """

    stimuli: StimulusSet
    region: str
    time_bins: Sequence[Bin] | None = None
    trials: int = 1

    @property
    def asks(self) -> str:
        """The output channel."""
        return f"responses:{self.region}"


@dataclass(frozen=True)
class Perform:
    """The question for decisions: (presentation,) labels, or (presentation, choice) probabilities, with stimulus_id."""

    task: Task
    stimuli: StimulusSet
    fitting_stimuli: StimulusSet | None = None
    trials: int = 1

    @property
    def asks(self) -> str:
        """The output channel."""
        return f"decisions:{self.task.name}"


@dataclass(frozen=True)
class Fit:
    """The question for what a model makes of examples: a trained network or estimator, of a form that the family states.

    ``before`` is what was fitted to earlier examples, where learning goes on; it is not changed.
    """

    asks: str
    training: Any
    before: Any = None


Question = Record | Perform | Fit | Embed


@runtime_checkable
class Model(Protocol):
    """Anything that takes and gives channels; it remembers nothing from one question to the next.

    A new sense or readout is a new channel (:mod:`neuroledger.spec.channels`), not a new method.
    """

    @property
    def id(self) -> str:
        """The id under which scores are recorded."""
        ...

    @property
    def takes(self) -> Channels:
        """Channels that can be shown to it."""
        ...

    @property
    def gives(self) -> Channels:
        """Channels that can be asked back; ``responses`` stands for every region, ``responses:IT`` for one."""
        ...

    def answer(self, question: Any) -> Any:
        """The answer to a question on a channel that it gives.

        A model with a field of view places the stimuli on it (:func:`neuroledger.data.screen.place`).
        """
        ...


def record(
    model: Model, stimuli: StimulusSet, region: str, time_bins: Sequence[Bin] | None = None, trials: int = 1
) -> xr.DataArray:
    """Responses of a region; see :class:`Record`.

    Raises
    ------
    ModelError
        The model gives no responses of the region, or no assembly.
    """
    return _assembly(model, Record(stimuli, region, time_bins, trials))


def perform(
    model: Model,
    task: Task,
    stimuli: StimulusSet,
    fitting_stimuli: StimulusSet | None = None,
    trials: int = 1,
) -> xr.DataArray:
    """Decisions about stimuli; see :class:`Perform`.

    Raises
    ------
    ModelError
        The model makes no such decisions, or gives no assembly.
    """
    return _assembly(model, Perform(task, stimuli, fitting_stimuli, trials))


def fit(model: Model, asks: str, training: Any, before: Any = None) -> Any:
    """What the model makes of examples, for answers on the channel ``asks``; see :class:`Fit`.

    Raises
    ------
    ModelError
        The model cannot be fitted to give such answers.
    """
    return asked(model, Fit(asks, training, before))


def embed(
    model: Model,
    stimuli: Sequence[Shown],
    states: tuple[int, ...] | None = None,
    tell: Tell = lambda done: None,
) -> Embedded:
    """Embeddings of stimuli; see :class:`neuroledger.models.embedder.Embed`.

    Raises
    ------
    ModelError
        The model gives no embeddings.
    """
    answer = asked(model, Embed(stimuli, states, tell))
    if not isinstance(answer, Embedded):
        raise ModelError(
            f"model {model.id!r} gave {type(answer).__name__} as embeddings, not rows of numbers"
        )
    return answer


def asked(model: Model, question: Question) -> Any:
    """The answer to a question, which is refused here where the model does not give its channel."""
    lacking = Interface(model.takes, model.gives).lacking(Interface(frozenset(), frozenset({question.asks})))[
        1
    ]
    if lacking:
        raise ModelError(
            f"model {model.id!r} does not give {question.asks}; it gives {', '.join(sorted(model.gives)) or 'nothing'}"
        )
    return model.answer(question)


def _assembly(model: Model, question: Record | Perform) -> xr.DataArray:
    answer = asked(model, question)
    if not isinstance(answer, xr.DataArray):
        raise ModelError(
            f"model {model.id!r} gave {type(answer).__name__}, not an assembly (xarray.DataArray)"
        )
    return answer


Identity = Mapping[str, Any]


class _Seeing(Protocol):
    """A model that is shown stimuli as they are."""

    def record(
        self, stimuli: StimulusSet, region: str, time_bins: Sequence[Bin] | None = None, trials: int = 1
    ) -> xr.DataArray: ...

    def perform(
        self, task: Task, stimuli: StimulusSet, fitting_stimuli: StimulusSet | None = None, trials: int = 1
    ) -> xr.DataArray: ...


def shown_to(model: _Seeing, question: Record | Perform, degrees: float | None) -> xr.DataArray:
    """The answer of a model with a field of view of so many degrees (None: it sees stimuli as they are)."""
    stimuli = place(question.stimuli, degrees)
    if isinstance(question, Record):
        return model.record(stimuli, question.region, question.time_bins, question.trials)
    fitting = question.fitting_stimuli
    fitting = None if fitting is None else place(fitting, degrees)
    return model.perform(question.task, stimuli, fitting, question.trials)


def of_layers(
    values: Mapping[str, Any],
    *,
    decisions: Sequence[str] = DECISIONS,
    layers: Sequence[str] = (),
    dynamics: bool | None = None,
) -> Channels:
    """What a model of layers gives, from its parameters and the fields of its spec.

    Parameters
    ----------
    values
        ``regions``, ``layers``, ``commit`` (a rule whose ``on`` names regions) and ``times``, each if there is one.
    decisions
        Tasks that can be read out; labels need a layer of logits.
    layers
        The layers of a model that names none.
    dynamics
        Whether responses develop in time; by ``times`` when not given.
    """
    regions = {*(values.get("regions") or {}), *((values.get("commit") or {}).get("on") or {})}
    names = {f"responses:{region}" for region in regions}
    if not regions and len(values.get("layers") or layers) <= 1:
        names = {"responses"}
    if names and (values.get("times") is not None if dynamics is None else dynamics):
        names.add("dynamics")
    return frozenset(names | {f"decisions:{name}" for name in decisions})


@dataclass(frozen=True, kw_only=True)
class LayeredModel:
    """A model made of named layers: a commitment of regions to layers over a function that gives their activations.

    ``layers`` are all layers that one pass records; ``regions`` commits each region to one or several of them (a
    model with a single layer answers for every region with it). ``decisions`` are the tasks that can be read out of
    ``readout``, or of the last layer; labels are decided from ``logits`` where they are another, and ``labels`` name
    its features. ``identity`` is plain data that determines the activations, or, for a model in memory, a function that
    gives it (with the key ``process``) for the model's present state; without it nothing is kept.
    ``times`` are the model's own time bins in ms: its activations then are (stimulus, time bin, …).
    """

    id: str
    takes: Channels
    extract: Extract = field(repr=False)
    layers: tuple[str, ...]
    decisions: tuple[str, ...] = DECISIONS
    regions: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    readout: str | None = None
    logits: str | None = None
    labels: tuple[str, ...] = ()
    visual_degrees: float | None = None
    identity: Identity | Callable[[], Identity] | None = None
    times: tuple[Bin, ...] | None = None
    stochastic: bool = False
    batch: int | None = None
    store: Store | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.layers:
            raise ModelError(f"model {self.id!r} has no layers: name at least one")
        asked = {layer: f"region {region}" for region in self.regions for layer in self.committed(region)}
        asked |= {one: name for name, one in (("readout", self.readout), ("logits", self.logits)) if one}
        for layer, asking in asked.items():
            if layer not in self.layers:
                words = f"it records no {unknown('layer', layer, self.layers)}"
                raise ModelError(f"model {self.id!r}, {asking}: {words}")

    @property
    def gives(self) -> Channels:
        """Responses of the regions that it is committed to, and decisions."""
        return of_layers(vars(self), decisions=self.decisions)

    def answer(self, question: Any) -> xr.DataArray:
        """Responses or decisions, of stimuli as they appear in its field of view; see :class:`Model`."""
        return shown_to(self, question, self.visual_degrees)

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
        """Responses of the layers committed to ``region``; see :class:`Record`."""
        activations = self.activations(stimuli, self.committed(region), trials)
        responses = [self._responses(values, time_bins) for values in activations.values()]
        joined = responses[0] if len(responses) == 1 else self._join(responses)
        if time_bins is not None and self.times is None:
            joined = np.broadcast_to(joined[:, :, None], (*joined.shape, len(time_bins)))
        shapes = {layer: self._feature_shape(values) for layer, values in activations.items()}
        return labelled(joined, shapes, stimuli.ids, model=self.id, region=region, time_bins=time_bins)

    def perform(
        self, task: Task, stimuli: StimulusSet, fitting_stimuli: StimulusSet | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Decisions read out from the ``readout`` layer, or the last one, labels from ``logits``; see :class:`Perform`."""
        layer = (self.logits if task.name == "label" else None) or self.readout or self.layers[-1]
        features = self._features(stimuli, layer, trials)
        if task.name == "odd_one_out":
            return readout.odd_one_out(
                features, stimuli.ids, similarity=task.similarity, triplets=task.triplets
            )
        if task.name == "label":
            return readout.label(features, stimuli.ids, task.choices, model=self.id, labels=self.labels)
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
        identity = self.identity() if callable(self.identity) else self.identity
        if self.store is None or identity is None:
            seen, passes = self._present(stimuli, layers, trials)
            require_memory(
                rows * seen.bytes_per_stimulus,
                f"model {self.id!r}, {len(layers)} layers for {rows:,} presentations,",
                "score it with nl.score, which keeps them on disk, or name fewer layers",
            )
            return collect(passes, seen, rows)
        identity = {**identity, "trials": trials}
        kept = self._kept(self.store, identity, stimuli, layers, rows)
        if kept is None:
            # A module belongs to its process: that lock comes before the one that processes share.
            with exclusive(), self.store.computing(identity, stimuli):
                kept = self._kept(self.store, identity, stimuli, layers, rows)
                if kept is None:
                    there = {} if "process" in identity else self.store.get(identity, stimuli, self.layers)
                    seen, passes = self._present(
                        stimuli, [one for one in self.layers if one not in there], trials
                    )
                    kept = {**there, **self.store.put(identity, stimuli, seen, rows, passes, model=self.id)}
        return {layer: kept[layer] for layer in layers}

    def _present(
        self, stimuli: StimulusSet, layers: Sequence[str], trials: int
    ) -> tuple[Probe, Iterator[Mapping[str, Array]]]:
        """A look at the first stimuli, and the pass over all of them, not begun."""
        seen = probe(self.extract, stimuli, layers, model=self.id, stochastic=self.stochastic)
        return seen, stream(
            self.extract,
            stimuli,
            seen,
            model=self.id,
            trials=trials,
            batch=self.batch,
            stochastic=self.stochastic,
        )

    def _kept(
        self, store: Store, identity: Identity, stimuli: StimulusSet, layers: Sequence[str], rows: int
    ) -> dict[str, Array] | None:
        """The layers from the store, if it has all and, for a model in memory, they still are what the model gives."""
        kept = dict(store.get(identity, stimuli, layers))
        if any(layer not in kept or len(kept[layer]) != rows for layer in layers):
            return None
        if "process" not in identity or self.stochastic:
            return kept
        ids = stimuli.ids[:PROBE]
        now = checked(self.extract(stimuli, ids, layers, Trial()), ids, layers, self.id)
        first = {layer: np.asarray(kept[layer][: len(ids)]) for layer in layers}
        return kept if differing(first, now) is None else None

    def _features(self, stimuli: StimulusSet, layer: str, trials: int) -> Array:
        """Features (stimulus, feature) of one layer: time bins side by side, trials averaged."""
        values = self.activations(stimuli, [layer], trials)[layer]
        count = len(stimuli.table)
        flat = values.reshape(len(values), -1)
        require_memory(
            FIT_COPIES * flat.size * np.dtype(float).itemsize,
            f"model {self.id!r}: deciding from layer {layer!r}, {flat.shape[1]:,} features for {count:,} stimuli,",
            "name a smaller layer as `readout`, or fewer stimuli",
        )
        return flat if len(flat) == count else flat.reshape(-1, count, flat.shape[1]).mean(axis=0)

    def _responses(self, values: Array, time_bins: Sequence[Bin] | None) -> Array:
        """Activations of one layer as (presentation, neuroid), or (presentation, neuroid, time_bin) in time."""
        if self.times is None:
            return values.reshape(len(values), -1)
        if values.shape[1] != len(self.times):
            raise ModelError(
                f"model {self.id!r}: {values.shape[1]} time steps for {len(self.times)} declared time bins"
            )
        if time_bins is None:
            return np.asarray(values.mean(axis=1)).reshape(len(values), -1)
        features = int(np.prod(values.shape[2:]))
        require_memory(
            len(values) * features * len(time_bins) * np.dtype(float).itemsize,
            f"model {self.id!r}: {features:,} features in {len(time_bins)} time bins for {len(values):,} presentations",
            "commit a smaller layer to the region, or ask for fewer time bins or stimuli",
        )
        aligned = align_time(values, self.times, time_bins, self.id)
        responses: Array = aligned.reshape(len(values), len(time_bins), -1).swapaxes(1, 2)
        return responses

    def _join(self, responses: Sequence[Array]) -> Array:
        flat = all(values.ndim == 2 for values in responses)
        return (
            self.store.join(responses)
            if self.store is not None and flat
            else np.concatenate(responses, axis=1)
        )

    def _feature_shape(self, values: Array) -> tuple[int, ...]:
        return tuple(values.shape[1:] if self.times is None else values.shape[2:])


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Words for a name that does not exist, with the names it may have been meant to be."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"{kind} {name!r} (did you mean {', '.join(near)}?)"
    listed = ", ".join(list(known)[:8]) + (" …" if len(known) > 8 else "")
    return f"{kind} {name!r} (there are: {listed or 'none'})"
