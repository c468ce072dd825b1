"""The model protocol, the questions that `record`, `perform`, `fit` and `embed` ask, and models made of layers."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.memory import Deferred, require_memory
from neuroledger.data.screen import place
from neuroledger.data.stimuli import StimulusSet
from neuroledger.data.threads import exclusive
from neuroledger.errors import ModelError, RequestError, StorageError
from neuroledger.models import readout
from neuroledger.models.activations import (
    PROBE,
    Extract,
    Form,
    Passes,
    Probe,
    Recorded,
    Repeated,
    Store,
    Summary,
    SummaryStore,
    Trial,
    checked,
    collect,
    differing,
    probe,
    stream,
)
from neuroledger.models.embedder import Embed, Embedded, Shown, Tell
from neuroledger.models.neuroids import Bin, align_time, labelled
from neuroledger.spec.base import sha256_of
from neuroledger.spec.channels import Channels, Interface
from neuroledger.store.store import Entry

# Number of double-precision copies of the features that fitting a readout makes.
FIT_COPIES: Final = 3
READOUTS: Final = ("probabilities", "odd_one_out")
"""Tasks that can be read out of any features."""
DECISIONS: Final = ("label", *READOUTS)
"""Tasks that can be read out of logits."""


@dataclass(frozen=True)
class Task:
    """The decision that a model makes about each stimulus.

    ``label``: one of ``choices``. ``probabilities``: the probability of each label in the column ``label_column`` of the
    fitting stimuli. ``odd_one_out``: which of three stimuli differs most from the other two, for each of ``triplets``
    of stimulus ids, or else for each three consecutive rows. ``reading_times`` and ``next_word``: for each part of a
    text, read with its ``context``.
    """

    name: Literal["label", "probabilities", "odd_one_out", "reading_times", "next_word"]
    choices: tuple[str, ...] = ()
    label_column: str = "image_label"
    similarity: Literal["dot", "cosine"] = "dot"
    triplets: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Record:
    """A request for the responses of a region: (presentation, neuroid), or (…, time_bin) if ``time_bins`` (ms) are given.

    Coordinates of the answer: on ``presentation``, stimulus_id and, for a stochastic model with ``trials > 1``,
    repetition; on ``neuroid``, neuroid_id, layer, and the position within the layer (channel, channel_x, …).
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
    """A request for decisions: (presentation,) labels, or (presentation, choice) probabilities, with stimulus_id."""

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
    """A request to fit the model to examples; the answer is a network or estimator in the form that the family defines.

    ``before`` is the result of fitting earlier examples, for continued learning; it is not modified.
    """

    asks: str
    training: Any
    before: Any = None


Question = Record | Perform | Fit | Embed


@runtime_checkable
class Model(Protocol):
    """Anything that takes and gives channels, without state between one question and the next.

    A new sense or readout is a new channel (:mod:`neuroledger.spec.channels`), not a new method.
    """

    @property
    def id(self) -> str:
        """The id under which scores are recorded."""
        ...

    @property
    def takes(self) -> Channels:
        """Input channels."""
        ...

    @property
    def gives(self) -> Channels:
        """Output channels; ``responses`` means every region, ``responses:IT`` a single one."""
        ...

    def answer(self, question: Any) -> Any:
        """Answer a question on one of the output channels.

        A model with a field of view places the stimuli in it (:func:`neuroledger.data.screen.place`).
        """
        ...


@runtime_checkable
class ShufflesLabels(Protocol):
    """A model that is trained on permuted labels if ``shuffles_labels``: a control of which each seed gives another draw."""

    @property
    def shuffles_labels(self) -> bool:
        """Whether the labels of the training part are permuted."""
        ...


def record(
    model: Model,
    stimuli: StimulusSet,
    region: str,
    time_bins: Sequence[Bin] | None = None,
    trials: int = 1,
) -> xr.DataArray:
    """Return the responses of a region; see :class:`Record`.

    Raises
    ------
    ModelError
        The model gives no responses of the region, or its answer is not an assembly.
    """
    return _assembly(model, Record(stimuli, region, time_bins, trials))


def perform(
    model: Model,
    task: Task,
    stimuli: StimulusSet,
    fitting_stimuli: StimulusSet | None = None,
    trials: int = 1,
) -> xr.DataArray:
    """Return decisions about stimuli; see :class:`Perform`.

    Raises
    ------
    ModelError
        The model makes no such decisions, or its answer is not an assembly.
    """
    return _assembly(model, Perform(task, stimuli, fitting_stimuli, trials))


def fit(model: Model, asks: str, training: Any, before: Any = None) -> Any:
    """Fit the model to examples, to answer on the channel ``asks``; see :class:`Fit`.

    Raises
    ------
    ModelError
        The model cannot be fitted for this channel.
    """
    return asked(model, Fit(asks, training, before))


def embed(
    model: Model,
    stimuli: Sequence[Shown],
    states: tuple[int, ...] | None = None,
    tell: Tell = lambda done: None,
) -> Embedded:
    """Return embeddings of stimuli; see :class:`neuroledger.models.embedder.Embed`.

    Raises
    ------
    ModelError
        The model gives no embeddings.
    """
    answer = asked(model, Embed(stimuli, states, tell))
    if not isinstance(answer, Embedded):
        raise ModelError(
            f"model {model.id!r} returned {type(answer).__name__} as embeddings, not an `Embedded`"
        )
    return answer


def asked(model: Model, question: Question) -> Any:
    """Return the model's answer, or refuse a question on a channel that the model does not give."""
    requested = Interface(frozenset(), frozenset({question.asks}))
    _, missing = Interface(model.takes, model.gives).lacking(requested)
    if missing:
        raise ModelError(
            f"model {model.id!r} does not give {question.asks}; it gives {', '.join(sorted(model.gives)) or 'nothing'}"
        )
    return model.answer(question)


def _assembly(model: Model, question: Record | Perform) -> xr.DataArray:
    answer = asked(model, question)
    if not isinstance(answer, xr.DataArray):
        raise ModelError(
            f"model {model.id!r} returned {type(answer).__name__}, not an assembly (xarray.DataArray)"
        )
    return answer


Identity = Mapping[str, object]


class _Observer(Protocol):
    """A model that receives stimuli already placed in its field of view."""

    def record(
        self,
        stimuli: StimulusSet,
        region: str,
        time_bins: Sequence[Bin] | None = None,
        trials: int = 1,
    ) -> xr.DataArray: ...

    def perform(
        self,
        task: Task,
        stimuli: StimulusSet,
        fitting_stimuli: StimulusSet | None = None,
        trials: int = 1,
    ) -> xr.DataArray: ...


def shown_to(
    model: _Observer, question: Record | Perform, degrees: float | None
) -> xr.DataArray:
    """Return the answer of a model whose field of view spans ``degrees`` (None: stimuli are shown unchanged)."""
    stimuli = place(question.stimuli, degrees)
    if isinstance(question, Record):
        return model.record(
            stimuli, question.region, question.time_bins, question.trials
        )
    fitting = question.fitting_stimuli
    if fitting is None:
        fitting = None
    else:
        fitting = place(fitting, degrees)
    return model.perform(question.task, stimuli, fitting, question.trials)


def of_layers(
    values: Mapping[str, Any],
    *,
    decisions: Sequence[str] = DECISIONS,
    layers: Sequence[str] = (),
    dynamics: bool | None = None,
) -> Channels:
    """Return the output channels of a model made of layers, from its parameters and the fields of its spec.

    Parameters
    ----------
    values
        ``regions``, ``layers``, ``commit`` (a rule whose ``on`` names regions) and ``times``, each optional.
    decisions
        Tasks that can be read out; ``label`` needs a layer of logits.
    layers
        The layers to assume if ``values`` names none.
    dynamics
        Whether responses vary in time; if None, they do when ``times`` is given.
    """
    regions = {
        *(values.get("regions") or {}),
        *((values.get("commit") or {}).get("on") or {}),
    }
    names = {f"responses:{region}" for region in regions}
    if not regions and len(values.get("layers") or layers) <= 1:
        names = {"responses"}
    if names and (values.get("times") is not None if dynamics is None else dynamics):
        names.add("dynamics")
    return frozenset(names | {f"decisions:{name}" for name in decisions})


@dataclass(frozen=True, kw_only=True)
class LayeredModel:
    """A model made of named layers: a function that computes activations, and a commitment of regions to layers.

    ``layers`` are all layers that one pass records; ``regions`` commits each region to one or several of them (a
    model with a single layer uses it for every region). ``decisions`` are the tasks that can be read out of
    ``readout``, by default the last layer; labels are read from ``logits`` if it is given, and ``labels`` names the
    features of that layer. ``identity`` is plain data that determines the activations or, for a model in memory, a
    function that returns it (with the key ``process``) for the model's present state; without it nothing is cached.
    ``times`` are the model's own time bins in ms: its activations are then (stimulus, time bin, …).
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
        uses = {
            layer: f"region {region}"
            for region in self.regions
            for layer in self.committed(region)
        }
        uses |= {
            layer: name
            for name, layer in (("readout", self.readout), ("logits", self.logits))
            if layer
        }
        for layer, use in uses.items():
            if layer not in self.layers:
                raise ModelError(
                    f"model {self.id!r}, {use}: it records no {unknown('layer', layer, self.layers)}"
                )

    @property
    def gives(self) -> Channels:
        """Responses of the committed regions, and decisions."""
        return of_layers(vars(self), decisions=self.decisions)

    @property
    def only_commits(self) -> bool:
        """Whether the model names no layers but those of its regions, readout and logits."""
        used = {layer for region in self.regions for layer in self.committed(region)}
        used |= {layer for layer in (self.readout, self.logits) if layer is not None}
        return set(self.layers) <= (used or {"output"})

    def answer(self, question: Any) -> xr.DataArray:
        """Return responses or decisions for stimuli as they appear in the field of view; see :class:`Model`."""
        return shown_to(self, question, self.visual_degrees)

    def committed(self, region: str) -> tuple[str, ...]:
        """Return the layers that are committed to a region.

        Raises
        ------
        RequestError
            The model is not committed to the region.
        """
        if region in self.regions:
            layers = self.regions[region]
            if isinstance(layers, str):
                return (layers,)
            return tuple(layers)
        if not self.regions and len(self.layers) == 1:
            return self.layers
        raise RequestError(
            f"model {self.id!r} commits no layer to {unknown('region', region, tuple(self.regions))}; "
            f"add `regions: {{{region}: <layer>}}` to its spec"
        )

    def record(
        self,
        stimuli: StimulusSet,
        region: str,
        time_bins: Sequence[Bin] | None = None,
        trials: int = 1,
    ) -> xr.DataArray:
        """Return responses of the layers committed to ``region``; see :class:`Record`.

        Those of one layer of a model with a store are recorded when they are first used.
        """
        deferred = self._deferred(stimuli, self.committed(region), trials)
        if deferred is not None:
            (shape, values) = deferred
            once = values if time_bins is None else Repeated(values, len(time_bins))
            return labelled(
                once,
                {self.committed(region)[0]: shape},
                stimuli.ids,
                model=self.id,
                region=region,
                time_bins=time_bins,
            )
        activations = self.activations(stimuli, self.committed(region), trials)
        responses = [
            self._responses(values, time_bins) for values in activations.values()
        ]
        if len(responses) == 1:
            joined = responses[0]
        else:
            joined = self._join(responses)
        if time_bins is not None and self.times is None:
            joined = np.broadcast_to(
                joined[:, :, None], (*joined.shape, len(time_bins))
            )
        axes = 1 if self.times is None else 2
        shapes = {
            layer: tuple(values.shape[axes:]) for layer, values in activations.items()
        }
        return labelled(
            joined,
            shapes,
            stimuli.ids,
            model=self.id,
            region=region,
            time_bins=time_bins,
        )

    def perform(
        self,
        task: Task,
        stimuli: StimulusSet,
        fitting_stimuli: StimulusSet | None = None,
        trials: int = 1,
    ) -> xr.DataArray:
        """Return decisions read out from ``readout`` or the last layer, labels from ``logits``; see :class:`Perform`."""
        layer = (
            (self.logits if task.name == "label" else None)
            or self.readout
            or self.layers[-1]
        )
        features = self._features(stimuli, layer, trials)
        if task.name == "odd_one_out":
            return readout.odd_one_out(
                features,
                stimuli.ids,
                similarity=task.similarity,
                triplets=task.triplets,
            )
        if task.name == "label":
            return readout.label(
                features, stimuli.ids, task.choices, model=self.id, labels=self.labels
            )
        if fitting_stimuli is None:
            raise RequestError(
                f"model {self.id!r}: probabilities need fitting stimuli with labels; none were given"
            )
        if task.label_column not in fitting_stimuli.table:
            raise RequestError(
                f"fitting stimuli {fitting_stimuli.id!r} have no column {task.label_column!r}"
            )
        labels = list(map(str, fitting_stimuli.table[task.label_column]))
        return readout.probabilities(
            self._features(fitting_stimuli, layer, 1), labels, features, stimuli.ids
        )

    def activations(
        self, stimuli: StimulusSet, layers: Sequence[str], trials: int = 1
    ) -> dict[str, Array]:
        """Return layer → array (presentation, …), from the store or from one pass that records and stores all layers."""
        if len(stimuli.table) == 0:
            raise RequestError(
                f"stimulus set {stimuli.id!r} is empty: there is nothing to show to model {self.id!r}"
            )
        if not self.stochastic:
            trials = 1
        rows = len(stimuli.table) * trials
        identity = self.identity() if callable(self.identity) else self.identity
        if self.store is None or identity is None:
            seen, passes = self._present(stimuli, layers, trials)
            require_memory(
                rows * seen.bytes_per_stimulus,
                f"model {self.id!r}, {len(layers)} layers for {rows:,} presentations,",
                "score it with nl.score, which stores activations on disk, or name fewer layers",
            )
            return collect(passes, seen, rows)
        identity = {**identity, "trials": trials}
        stored = self._stored(self.store, identity, stimuli, layers, rows)
        if stored is None:
            # The lock within this process is taken before the one between processes, always in this order.
            with exclusive(), self.store.computing(identity, stimuli):
                stored = self._stored(self.store, identity, stimuli, layers, rows)
                if stored is None:
                    known = (
                        {}
                        if "process" in identity
                        else self.store.get(identity, stimuli, self.layers)
                    )
                    missing = [layer for layer in self.layers if layer not in known]
                    seen, passes = self._present(stimuli, missing, trials)
                    stored = {
                        **known,
                        **self.store.put(
                            identity, stimuli, seen, rows, passes, model=self.id
                        ),
                    }
        return {layer: stored[layer] for layer in layers}

    def _deferred(
        self, stimuli: StimulusSet, layers: Sequence[str], trials: int
    ) -> tuple[tuple[int, ...], Recorded] | None:
        """Return the shape of a layer's answer to a stimulus, and its responses (presentation, feature), to be recorded.

        None for responses that need all activations: of several layers, time steps or trials.
        """
        store = self.store
        if not isinstance(store, SummaryStore) or len(layers) != 1:
            return None
        if self.times is not None or (self.stochastic and trials > 1):
            return None
        known = self.identity() if callable(self.identity) else self.identity
        if known is None or not len(stimuli.table):
            return None
        identity = {**known, "trials": 1}
        (layer,) = layers
        form = self._form(store, identity, stimuli, layer)
        shape, dtype = form.shape, form.dtype
        if dtype.kind != "f":
            return None
        size = (len(stimuli.table), int(np.prod(shape)))
        content = sha256_of([identity, stimuli.content_sha256, layer, form.asked])

        def read() -> Array:
            return self.activations(stimuli, [layer])[layer].reshape(size)

        def sum_up(made: Summary) -> Entry | None:
            if form.asked:
                made = replace(made, made_of={**made.made_of, "asked": form.asked})
            return self._summary(store, identity, stimuli, layer, made)

        return shape, Recorded(Deferred(size, dtype, read, content), sum_up)

    def _form(
        self,
        store: SummaryStore,
        identity: Identity,
        stimuli: StimulusSet,
        layer: str,
    ) -> Form:
        """Return what is known of a layer; all are probed if it is unknown, or a model in memory now answers differently."""
        with exclusive():
            form = store.forms(identity, stimuli, layer)
            if form is not None and form.first is not None and not self.stochastic:
                ids = stimuli.ids[:PROBE]
                answer = self.extract(stimuli, ids, [layer], Trial())
                now = checked(answer, ids, [layer], self.id)
                if differing({layer: form.first}, now) is not None:
                    form = None
            if form is None:
                seen, _ = self._present(stimuli, self.layers, 1)
                store.keep_forms(identity, stimuli, seen)
                form = store.forms(identity, stimuli, layer)
        if form is None:
            raise StorageError(
                f"what was stored about model {self.id!r} is gone at once: do not empty the store while it is used"
            )
        return form

    def _summary(
        self,
        store: SummaryStore,
        identity: Identity,
        stimuli: StimulusSet,
        layer: str,
        made: Summary,
    ) -> Entry | None:
        """Return the summary of a layer, from the store or a pass that sums up all layers; None for a narrow layer."""
        found = store.summaries(identity, stimuli, [layer], made)
        if layer in found:
            return found[layer]
        with exclusive(), store.computing(identity, stimuli):
            found = store.summaries(identity, stimuli, self.layers, made)
            if layer not in found:
                missing = [name for name in self.layers if name not in found]
                kept: Mapping[str, Array] = {}
                if "process" not in identity:  # such a model may have changed since
                    kept = store.get(identity, stimuli, missing)
                for name, values in kept.items():
                    store.sum_up_kept(identity, stimuli, name, values, made)
                missing = [name for name in missing if name not in kept]
                if missing:
                    seen, passes = self._present(stimuli, missing, 1)
                    rows = len(stimuli.table)
                    store.sum_up(
                        identity, stimuli, seen, rows, passes, made, model=self.id
                    )
                found = store.summaries(identity, stimuli, [layer], made)
        return found[layer]

    def _present(
        self, stimuli: StimulusSet, layers: Sequence[str], trials: int
    ) -> tuple[Probe, Passes]:
        """Probe the first stimuli; return the probe, and what starts a pass over all of them."""
        probed = probe(
            self.extract, stimuli, layers, model=self.id, stochastic=self.stochastic
        )
        return probed, partial(
            stream,
            self.extract,
            stimuli,
            probed,
            model=self.id,
            trials=trials,
            batch=self.batch,
            stochastic=self.stochastic,
        )

    def _stored(
        self,
        store: Store,
        identity: Identity,
        stimuli: StimulusSet,
        layers: Sequence[str],
        rows: int,
    ) -> dict[str, Array] | None:
        """Return the layers from the store; None if one is missing or a model in memory now answers differently."""
        stored = dict(store.get(identity, stimuli, layers))
        if any(layer not in stored or len(stored[layer]) != rows for layer in layers):
            return None
        if "process" not in identity or self.stochastic:
            return stored
        ids = stimuli.ids[:PROBE]
        now = checked(self.extract(stimuli, ids, layers, Trial()), ids, layers, self.id)
        first = {layer: np.asarray(stored[layer][: len(ids)]) for layer in layers}
        if differing(first, now) is None:
            return stored
        return None

    def _features(self, stimuli: StimulusSet, layer: str, trials: int) -> Array:
        """Return the features (stimulus, feature) of one layer: time bins concatenated, trials averaged."""
        values = self.activations(stimuli, [layer], trials)[layer]
        count = len(stimuli.table)
        flat = values.reshape(len(values), -1)
        require_memory(
            FIT_COPIES * flat.size * np.dtype(float).itemsize,
            f"model {self.id!r}: deciding from layer {layer!r}, {flat.shape[1]:,} features for {count:,} stimuli,",
            "name a smaller layer as `readout`, or fewer stimuli",
        )
        if len(flat) == count:
            return flat
        mean: Array = flat.reshape(-1, count, flat.shape[1]).mean(axis=0)
        return mean

    def _responses(self, values: Array, time_bins: Sequence[Bin] | None) -> Array:
        """Return activations of one layer as (presentation, neuroid), or (presentation, neuroid, time_bin) if binned."""
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
        responses: Array = aligned.reshape(len(values), len(time_bins), -1).swapaxes(
            1, 2
        )
        return responses

    def _join(self, responses: Sequence[Array]) -> Array:
        if self.store is not None and all(values.ndim == 2 for values in responses):
            return self.store.join(responses)
        return np.concatenate(responses, axis=1)


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Describe a name that does not exist, with the most similar known names."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"{kind} {name!r} (did you mean {', '.join(near)}?)"
    listed = ", ".join(list(known)[:8]) + (" …" if len(known) > 8 else "")
    return f"{kind} {name!r} (there are: {listed or 'none'})"
