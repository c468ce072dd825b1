"""A metric or ceiling spec bound to its function: a callable that aligns assemblies and returns a Score."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import xarray as xr
from pydantic import BaseModel

from neuroledger.data.arrays import Array
from neuroledger.data.assembly import any_for_each, part_of_rows, rows_of
from neuroledger.data.factorize import encode
from neuroledger.data.normalise_input import as_text, in_numpy, received
from neuroledger.data.plain_arrays import alike, is_plain, labelled
from neuroledger.display import card
from neuroledger.engine.context import MetricContext
from neuroledger.engine.overrides import Comparison, resolve
from neuroledger.errors import CeilingError, MetricError, RequestError
from neuroledger.spec.base import Override, spec_sha256
from neuroledger.spec.catalog import Catalog, open_definitions
from neuroledger.spec.components import Ceiling, Metric
from neuroledger.spec.kinds import CeilingSpec, MetricSpec
from neuroledger.stats.aggregate import aggregate, error_of
from neuroledger.stats.left_out import general, with_subjects
from neuroledger.stats.samples import NotKnown, Samples
from neuroledger.stats.score import LIMITS, Score, natural_scale
from neuroledger.stats.splits import (
    Split,
    draw,
    first_values,
    given,
    predefined,
    rows_of_stimuli,
    testing,
)
from neuroledger.stats.uncertainty import NOWHERE, Uncertainty
from neuroledger.stats.variation import uncertainty_of
from neuroledger.stats.workspace import Memo, Workspace

__all__ = [
    "BoundCeiling",
    "BoundMetric",
    "aligned",
    "ceiling",
    "check_repeated",
    "joined",
    "metric",
    "resolve",
]

INCOMPLETE: Final = "neuroids_with_missing_responses"


def aligned(
    array: xr.DataArray,
    reference: xr.DataArray,
    name: str,
    other: str,
    *,
    trials: bool = False,
) -> xr.DataArray:
    """Return ``array`` with its rows reordered to match the ``stimulus_id`` of ``reference``; unchanged without ids.

    With ``trials``, one row of ``array`` may match several repetitions in ``reference``.

    Raises
    ------
    MetricError
        Only one side has stimulus ids, or ``reference`` has several rows of a stimulus and ``array`` one.
    AssemblyError
        ``array`` lacks a stimulus of ``reference``, or has a different number of rows for it.
    """
    if not all("presentation" in side.dims for side in (array, reference)):
        return array
    has_ids = ["stimulus_id" in side.coords for side in (array, reference)]
    if not any(has_ids):
        return array
    if not all(has_ids):
        raise MetricError(
            f"the {other if has_ids[0] else name} has no coordinate 'stimulus_id', so its rows cannot be matched; "
            "add it with assign_coords(stimulus_id=('presentation', ids))"
        )
    own_ids, ids = (
        as_text(side.coords.variables["stimulus_id"].values)
        for side in (array, reference)
    )
    if np.array_equal(own_ids, ids):
        return array
    rows = rows_of(array, ids, name=name)
    if not trials and len(np.unique(rows)) < len(rows):
        repeated, count = np.unique(ids, return_counts=True)
        raise MetricError(
            f"the {other} has {count.max()} rows of stimulus {str(repeated[count.argmax()])!r} and the {name} has "
            "one row; rows must match one to one: average the repetitions first with "
            f"neuroledger.data.assembly.average_repetitions({other})"
        )
    return array.isel(presentation=rows)


def check_repeated(assembly: xr.DataArray, spec: MetricSpec | CeilingSpec) -> None:
    """Require at least two distinct values where the splits of ``spec`` divide distinct values.

    Raises
    ------
    CeilingError
        The coordinate is missing or has only one value (no repetitions).
    """
    if spec.splits is None or not spec.splits.unique:
        return
    by = spec.splits.by
    if by not in assembly.coords:
        raise CeilingError(
            f"{spec.id} compares halves of the {by!r} values, and the assembly has no such coordinate: "
            "pass responses that are not averaged, or choose another coordinate with splits={'by': …}"
        )
    distinct = encode(assembly[by].values).labels
    if len(distinct) < 2:
        raise CeilingError(
            f"no repetitions: {by!r} has only the value {str(distinct[0])!r}, so the reliability of the responses cannot be "
            "estimated; use an assembly with repetitions, or a constant ceiling with a source"
        )


def joined(train: xr.DataArray, test: xr.DataArray) -> xr.DataArray:
    """Concatenate train and test rows, which must have the same neuroids in any order.

    Raises
    ------
    MetricError
        Train and test have different neuroids or different sizes.
    """
    shared = [name for name in train.coords if name in test.coords]
    if train.dims != test.dims:
        test = test.transpose(*train.dims)
    for dim in train.dims:
        if dim != "presentation" and train.sizes[dim] != test.sizes[dim]:
            raise MetricError(
                f"train and test differ along {dim!r}: {train.sizes[dim]} and {test.sizes[dim]}"
            )
    test = _same_neuroids(train, test)
    axis = train.dims.index("presentation")
    coords: dict[object, object] = {}
    for name in shared:
        values = train[name]
        if values.dims == ("presentation",):
            coords[name] = (
                "presentation",
                np.concatenate([values.values, test[name].values]),
            )
        elif "presentation" not in values.dims:
            coords[name] = (values.dims, values.values)
    joined = np.concatenate([train.values, test.values], axis=axis)
    return xr.DataArray(joined, dims=train.dims, coords=coords, attrs=dict(train.attrs))


def _same_neuroids(train: xr.DataArray, test: xr.DataArray) -> xr.DataArray:
    """Return ``test`` with its neuroids in the order of ``train``."""
    if not all(
        "neuroid" in side.dims and "neuroid_id" in side.coords for side in (train, test)
    ):
        return test
    train_ids = as_text(train["neuroid_id"].values)
    test_ids = as_text(test["neuroid_id"].values)
    if np.array_equal(train_ids, test_ids):
        return test
    order = np.argsort(test_ids, kind="stable")
    rank = np.argsort(np.argsort(train_ids, kind="stable"))
    columns = order[rank]
    if not np.array_equal(test_ids[columns], train_ids):
        unshared = sorted(set(test_ids.tolist()) ^ set(train_ids.tolist()))
        raise MetricError(
            f"train and test have different neuroids, such as {unshared[0] if unshared else test_ids[0]!r}; "
            "select the same neuroids on both sides"
        )
    return test.isel(neuroid=columns)


@dataclass(frozen=True, repr=False)
class _Bound:
    """A spec, the function it names, and the validated parameters."""

    spec: Comparison
    component: Metric | Ceiling
    parameters: Mapping[str, object]
    workspace: Workspace = field(repr=False)
    seed: int = 0

    @property
    def identity(self) -> dict[str, object]:
        """The id, the hash of the spec with all overrides, and the name and version of the component."""
        return {
            "id": self.spec.id,
            "spec_sha256": spec_sha256(self.spec),
            "component": f"{self.component.kind}:{self.component.name}",
            "component_version": self.component.version,
        }

    def __repr__(self) -> str:
        splits = self.spec.splits
        if splits is None:
            resampling = ""
        else:
            resampling = f", splits {splits.name} × {splits.folds}, seed {splits.seed}"
        values = ", ".join(
            f"{name}={_short(value)}" for name, value in self.parameters.items()
        )
        return f"<{self.component.kind} {self.spec.id}: {self.component.name}({values}){resampling}>"

    def _repr_html_(self) -> str:
        rows = [
            ("title", self.spec.title),
            ("scale", f"{self.spec.scale}, {self.spec.direction} is better"),
            *((name, _short(value)) for name, value in self.parameters.items()),
        ]
        return card(f"{self.component.kind} {self.spec.id}", rows)

    def _compute(
        self,
        arrays: Sequence[xr.DataArray],
        splits: Iterable[tuple[object, object]] | None,
        rows: xr.DataArray,
        tested: Collection[str] | None = None,
    ) -> Score:
        drawn = self._splits(splits, rows)
        if tested is not None and drawn is None:
            arrays = [_of_stimuli(array, tested) for array in arrays]
            rows = _of_stimuli(rows, tested)
        elif tested is not None and drawn is not None:
            drawn = testing(drawn, rows, tested)
        samples = self.samples(arrays, drawn)
        return _score(self, samples, arrays, drawn, rows)

    def _splits(
        self, splits: Iterable[tuple[object, object]] | None, rows: xr.DataArray
    ) -> Sequence[Split] | None:
        """Return the splits of the rows that the component takes, or None."""
        if not self.component.takes("splits"):
            return None
        if splits is not None:
            return given(splits, rows.sizes["presentation"])
        if self.spec.splits is None and "splits" not in self.component.asks_for:
            return None
        if self.spec.splits is None:
            raise MetricError(
                f"{self.spec.id}: {self.component.name} needs `splits`, and the spec declares none"
            )
        return draw(self.spec.splits, rows)

    def samples(
        self, arrays: Sequence[xr.DataArray], splits: Sequence[Split] | None
    ) -> Samples:
        """Return what the component computes from the arrays."""
        rng = np.random.default_rng(self.seed)
        context = MetricContext(rng, self.workspace, splits or ())
        # Undefined samples are NaN, and the notes report them.
        with (
            self.workspace.limits(),
            np.errstate(over="ignore", invalid="ignore", divide="ignore"),
        ):
            try:
                return Samples.of(self.component.call(context, arrays, self.parameters))
            except (AttributeError, TypeError, ValueError) as error:
                bare = [
                    type(side).__name__
                    for side in arrays
                    if not isinstance(side, xr.DataArray | Mapping)
                ]
                if not bare:
                    raise
                raise RequestError(
                    f"{self.spec.id} cannot be computed from a {bare[0]} ({error}); pass an xarray.DataArray with the "
                    "dimensions and coordinates listed in docs/behaviour.md"
                ) from error

    def uncertainty(
        self,
        samples: Samples,
        arrays: Sequence[xr.DataArray],
        splits: Sequence[Split] | None,
        factors: Sequence[str] | None,
    ) -> Uncertainty | None:
        """Return how the aggregated samples vary over new items of the factors (default: all that the spec names)."""
        variation = samples.variation
        if isinstance(variation, NotKnown):
            return None
        if variation is None and all(isinstance(each, xr.DataArray) for each in arrays):
            whole = samples.values

            def compute(
                fewer: Sequence[xr.DataArray], parts: Sequence[Split] | None
            ) -> xr.DataArray:
                try:
                    return self.samples(fewer, parts).values
                except MetricError:  # undefined without these items
                    return xr.full_like(whole, np.nan, dtype=np.float64)

            halves = self.spec.splits is not None and self.spec.splits.unique
            variation = general(arrays, splits, compute, whole, halves=halves)
        if variation is not None and isinstance(arrays[-1], xr.DataArray):
            variation = with_subjects(variation, arrays[-1])
        limits = samples.limits or LIMITS.get(self.spec.scale, NOWHERE)
        steps = [(step.over, step.with_) for step in self.spec.aggregate]
        natural = natural_scale(self.spec.scale, limits)
        found = uncertainty_of(samples, steps, variation, natural, factors)
        if factors is None and found is not None and self.spec.interval is not None:
            return found.only(self.spec.interval.over)
        return found


@dataclass(frozen=True, repr=False)
class BoundMetric(_Bound):
    """A metric, callable on assemblies."""

    component: Metric

    def __call__(
        self,
        source: xr.DataArray | None = None,
        target: xr.DataArray | None = None,
        *,
        splits: Iterable[tuple[object, object]] | None = None,
        source_train: xr.DataArray | None = None,
        source_test: xr.DataArray | None = None,
        target_train: xr.DataArray | None = None,
        target_test: xr.DataArray | None = None,
        tested: Collection[str] | None = None,
    ) -> Score:
        """Score ``source`` against ``target``.

        Parameters
        ----------
        source, target
            Assemblies ``(presentation, …)``. Rows of ``source`` may come in any order: they are matched to
            ``target`` by ``stimulus_id``.
        splits
            Pairs of train and test row numbers of ``target``, as scikit-learn's splitters yield them; default: the
            splits of the spec.
        source_train, source_test, target_train, target_test
            For metrics with a predefined split, instead of ``source`` and ``target``.
        tested
            Ids of the stimuli on which the metric is computed: in the test parts of splits, or, for a metric without
            splits, in both assemblies. The other stimuli may only train a readout. By default all stimuli.

        Raises
        ------
        MetricError, AssemblyError
            The metric cannot be computed on these data.
        """
        parts = (source_train, source_test, target_train, target_test)
        if any(part is not None for part in parts):
            if (
                source is not None
                or target is not None
                or any(part is None for part in parts)
            ):
                raise RequestError(
                    f"{self.spec.id}: give source and target, or source_train, source_test, target_train, target_test"
                )
            train = self._matched(source_train, target_train)  # type: ignore[arg-type]
            test = self._matched(source_test, target_test)  # type: ignore[arg-type]
            splits = predefined(
                train[1].sizes["presentation"], test[1].sizes["presentation"]
            )
            source = joined(train[0], test[0])
            target = joined(train[1], test[1])
            return self._compute((source, target), splits, target, tested)
        if source is None or target is None:
            raise RequestError(
                f"{self.spec.id} compares two assemblies: give source and target"
            )
        if (
            splits is None
            and self.spec.splits is not None
            and self.spec.splits.name == "predefined"
        ):
            raise RequestError(
                f"{self.spec.id} has a predefined split: give source_train, source_test, target_train and target_test"
            )
        if (
            self.parameters.get("reverse") is True
        ):  # the source is predicted, so splits divide its rows
            target, source = self._matched(target, source, "target", "source")
            # Splits may need coordinates that the model's responses lack.
            coords = {
                name: coord
                for name, coord in target.coords.items()
                if coord.dims == ("presentation",)
            }
            new = {
                name: ("presentation", c.values)
                for name, c in coords.items()
                if name not in source.coords
            }
            return self._compute(
                (source, target), splits, source.assign_coords(new), tested
            )
        source, target = self._matched(source, target)
        return self._compute((source, target), splits, target, tested)

    def as_scorer(self) -> Scorer:
        """Return the metric as a scorer of scikit-learn, for ``cross_val_score`` and searches of parameters.

        A classifier is scored by the scores of its classes, another estimator by its predictions.

        Examples
        --------
        >>> from sklearn.dummy import DummyClassifier
        >>> scorer = metric("balanced_accuracy").as_scorer()
        >>> x, y = [[0], [1], [2], [3]], ["a", "a", "a", "b"]
        >>> scorer(DummyClassifier().fit(x, y), x, y)
        0.5
        """
        return Scorer(self)

    def _matched(
        self,
        array: xr.DataArray,
        reference: xr.DataArray,
        name: str = "source",
        other: str = "target",
    ) -> tuple[xr.DataArray, xr.DataArray]:
        """Normalise both sides and reorder the rows of ``array`` to match ``reference``."""
        if self.component.input != "assemblies":
            return _in_numpy(array), _in_numpy(reference)
        timed = self.parameters.get("time", "none") != "none" or self.component.timed
        array, reference = alike(array, reference)
        array = received(array, name=name, bins=timed)
        reference = received(reference, name=other, bins=timed)
        return aligned(
            array, reference, name, other, trials=self.component.trials
        ), reference


@dataclass(frozen=True, repr=False)
class BoundCeiling(_Bound):
    """A ceiling, callable on an assembly."""

    component: Ceiling

    def __call__(self, assembly: xr.DataArray) -> Score:
        """Compute the ceiling of ``assembly`` ``(presentation, …)``, whose repetitions are not averaged.

        Raises
        ------
        CeilingError
            The data do not support this ceiling, for example because nothing was repeated.
        """
        if self.component.input == "assemblies":
            assembly = received(assembly, name="the assembly", repeats=True)
            check_repeated(assembly, self.spec)
        else:
            assembly = _in_numpy(assembly)
        count = self.parameters.get("repetitions")
        if isinstance(count, int) and self.spec.splits is not None:
            # Splits divide only the repetitions in use.
            assembly = first_values(assembly, self.spec.splits.by, count)
        return self._compute((assembly,), None, assembly)


@dataclass(frozen=True)
class Scorer:
    """A scorer for ``scoring=`` of scikit-learn; a metric of which less is better is negated, as scikit-learn does."""

    metric: BoundMetric

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        """Return the score of the predictions for ``X`` ``(sample, …)`` against ``y`` ``(sample,)`` or ``(sample, output)``.

        Raises
        ------
        MetricError
            The metric cannot be computed from these predictions.
        """
        true = np.asarray(y)
        if self.metric.component.input != "predictions":
            predicted = np.asarray(estimator.predict(X))
            score = self.metric(_columns(predicted), _columns(true))
        elif hasattr(estimator, "classes_"):
            classes = _class_scores(estimator, X)
            score = self.metric(classes, _rows(true.astype(str)))
        else:
            predicted = np.asarray(estimator.predict(X))
            score = self.metric(_rows(predicted), _rows(true))
        is_better = self.metric.spec.direction == "higher"
        if is_better:
            return score.value
        return -score.value


def _columns(values: Array) -> xr.DataArray:
    """Return numbers, of one or several outputs per sample, as responses to numbered stimuli."""
    table = values[:, None] if values.ndim == 1 else values
    return labelled(table, "the outputs")


def _rows(values: Array) -> xr.DataArray:
    """Return one label, number or row of numbers per sample, as metrics of predictions take them."""
    return xr.DataArray(values, dims=("presentation", "neuroid")[: values.ndim])


def _class_scores(estimator: Any, X: Any) -> xr.DataArray:
    """Return the scores (sample, class) of a classifier; without scores, 1 for the class that it predicts."""
    classes = np.asarray(estimator.classes_)
    if hasattr(estimator, "predict_proba"):
        scores = np.asarray(estimator.predict_proba(X))
    elif hasattr(estimator, "decision_function"):
        margin = np.asarray(estimator.decision_function(X))
        scores = np.stack([-margin, margin], axis=1) if margin.ndim == 1 else margin
    else:
        scores = (np.asarray(estimator.predict(X))[:, None] == classes).astype(float)
    choices = {"choice": classes.astype(str)}
    return xr.DataArray(scores, dims=("presentation", "choice"), coords=choices)


def metric(
    id: str | Override,
    *,
    catalog: Catalog | None = None,
    workspace: Workspace | None = None,
    seed: int = 0,
    **overrides: object,
) -> BoundMetric:
    """Return the metric ``id``, with fields of its spec or parameters of its function overridden.

    ``metric("pls", splits={"folds": 4})`` overrides a nested field, ``metric("pls", splits="kfold")`` chooses a component
    by name, ``metric("i2n", compat="brainscore")`` chooses a compat mode. Nested mappings are merged into the spec; other
    values replace those of the spec. ``seed`` is that of resampling. ``workspace`` determines device and precision;
    metrics with the same workspace share Gram matrices.

    Raises
    ------
    RequestError
        The id, a field or the compat is unknown; the message suggests near misses.

    Examples
    --------
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> features = rng.standard_normal((80, 6))
    >>> brain = features @ rng.standard_normal((6, 4)) + rng.standard_normal((80, 4))
    >>> print(f"{nl.metric('ridge')(features, brain):.2f}")
    0.92 [0.82, 0.97]
    >>> nl.metric("rdm", compare={"distance": "cosine"})(features, features).value
    1.0
    """
    spec, component, parameters = resolve(
        "metrics", id, catalog or open_definitions(), overrides
    )
    return BoundMetric(spec, component, parameters, _workspace(workspace), seed)


def ceiling(
    id: str | Override,
    *,
    catalog: Catalog | None = None,
    workspace: Workspace | None = None,
    seed: int = 0,
    **overrides: object,
) -> BoundCeiling:
    """Return the ceiling ``id``, overridden as in :func:`metric`.

    Examples
    --------
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> trials = rng.standard_normal((1, 60, 5)) + rng.standard_normal((8, 60, 5))  # repetition, stimulus, neuroid
    >>> ceiling = nl.ceiling("internal_consistency")(trials)
    >>> print(f"{ceiling:.2f}")
    0.89 [0.83, 0.93]
    """
    spec, component, parameters = resolve(
        "ceilings", id, catalog or open_definitions(), overrides
    )
    return BoundCeiling(spec, component, parameters, _workspace(workspace), seed)


def _workspace(workspace: Workspace | None) -> Workspace:
    if workspace is not None and not isinstance(workspace, Workspace):
        raise RequestError(
            f"workspace is a {type(workspace).__name__}; pass neuroledger.stats.workspace.Workspace(device=…, dtype=…)"
        )
    return workspace or Workspace(memo=Memo(0))


def _of_stimuli(assembly: xr.DataArray, stimuli: Collection[str]) -> xr.DataArray:
    """Return the presentations of some stimuli."""
    return part_of_rows(assembly, rows_of_stimuli(assembly, stimuli))


def _in_numpy(side: Any) -> Any:
    """Return what a metric of behaviour or tuning receives, which may be a single number, with arrays of NumPy.

    Plain predictions or true values of one dimension are rows in the same order.
    """
    if is_plain(side) and np.ndim(side) == 1:
        return xr.DataArray(np.asarray(side), dims="presentation")
    if isinstance(side, xr.DataArray):
        return in_numpy(side)
    return side


def _short(value: object) -> str:
    """Format a parameter value; of a long list, the first and the last item."""
    if isinstance(value, BaseModel):
        inside = ", ".join(
            f"{name}={_short(item)}" for name, item in value if name != "name"
        )
        return f"{getattr(value, 'name', type(value).__name__)}({inside})"
    if isinstance(value, tuple | list) and len(value) > 4:
        return f"({_short(value[0])}, …, {_short(value[-1])})"
    return repr(value)


def _subjects(rows: xr.DataArray) -> int:
    """Return the number of subjects to whom the neuroids belong, or 0."""
    if "subject" not in getattr(rows, "coords", ()) or rows["subject"].dims != (
        "neuroid",
    ):
        return 0
    return len(encode(rows["subject"].values).labels)


def _incomplete_neuroids(spec: Comparison, rows: xr.DataArray) -> dict[str, float]:
    """The number of neuroids that lack a response to some stimulus, for the score to say; {} if there are none.

    Means over presentations exist as soon as one presentation does. Metrics that need complete neuroids leave the others
    out; their notes say so. Ceilings see single presentations, and count what they leave out themselves.
    """
    dims = getattr(rows, "dims", ())
    if not isinstance(spec, MetricSpec) or not {"presentation", "neuroid"} <= set(dims):
        return {}
    array = in_numpy(rows)
    if array.dtype.kind != "f":
        return {}
    incomplete = int(any_for_each(array, "neuroid", np.isnan).sum())
    if incomplete:
        return {INCOMPLETE: float(incomplete)}
    return {}


def _score(
    bound: _Bound,
    samples: Samples,
    arrays: Sequence[xr.DataArray],
    splits: Sequence[Split] | None,
    rows: xr.DataArray,
) -> Score:
    spec = bound.spec
    steps = [(step.over, step.with_) for step in spec.aggregate]
    notes = tuple(map(str, samples.notes))
    value = aggregate(samples.values, steps)
    if not np.isfinite(value):
        reason = "; ".join(notes) or "predictions or responses do not vary"
        if not notes and "alpha" in (spec.compare.model_dump().get("estimator") or {}):
            reason += "; rescale features in very small units, whose predictions a penalty removes: `relative: true`"
        raise MetricError(
            f"{spec.id} is undefined on these data: no finite sample is left ({reason})"
        )
    error = float("nan")
    if spec.error is not None:
        error = error_of(samples.values, steps, spec.error.over, spec.error.with_)

    # Every score that is normalised by a ceiling asks for the deviations of the same ceiling.
    @lru_cache(maxsize=4)
    def varies(factors: tuple[str, ...] | None) -> Uncertainty | None:
        return bound.uncertainty(samples, arrays, splits, factors)

    return Score(
        value,
        error=error,
        scale=spec.scale,
        direction=spec.direction,
        unit=spec.unit,
        samples=samples.values,
        predictions=samples.predictions,
        n=_counts(samples, rows) | _incomplete_neuroids(spec, rows),
        facts=dict(samples.facts),
        notes=notes,
        id=spec.id,
        limits=samples.limits or LIMITS.get(spec.scale, NOWHERE),
        varies=varies,
    )


def _counts(samples: Samples, rows: xr.DataArray) -> dict[str, float]:
    """Return the numbers of stimuli, of entries of the samples' dimensions, of subjects, and those of the metric."""
    counts: dict[str, float] = {}
    dims = getattr(rows, "dims", ())  # thresholds and single values have no dims
    if "presentation" in dims and "stimuli" not in samples.counts:
        counts["stimuli"] = rows.sizes["presentation"]
        if "stimulus_id" in rows.coords:
            ids = rows.coords.variables["stimulus_id"].values
            counts["stimuli"] = len(encode(ids).labels)
    elif "stimulus" in dims:
        counts["stimuli"] = rows.sizes["stimulus"]
    counts |= {str(dim): size for dim, size in samples.values.sizes.items()}
    subjects = _subjects(rows)
    if subjects > 1:
        counts.setdefault("subject", subjects)
    return counts | {name: float(count) for name, count in samples.counts.items()}
