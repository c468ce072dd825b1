"""Controls: models that must reach the ceiling or floor, the data as their own prediction, and permuted stimuli."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

from neuroledger.data.assembly import any_for_each, taken
from neuroledger.data.factorize import encode
from neuroledger.engine.control import (
    Control,
    Role,
    bounded,
    floor_of,
    in_words,
    shuffled,
    undefined,
)
from neuroledger.engine.measurement import Measurement
from neuroledger.engine.resolve import Resolved, model_of
from neuroledger.engine.score import headline
from neuroledger.engine.session import SHUFFLED, Session
from neuroledger.errors import MetricError, about_pair
from neuroledger.models.model import ShufflesLabels
from neuroledger.spec.components import Side
from neuroledger.spec.kinds import BenchmarkSpec, MetricSpec
from neuroledger.stats.score import Score

__all__ = [
    "chance_control",
    "controlled",
    "departures",
    "itself_control",
    "mismatched",
    "require_passed",
]


def controlled(
    job: Resolved,
    measured: Measurement,
    session: Session,
    dummy: float | None,
    own: Score,
    score_of: Callable[[Session, str], Score],
) -> dict[str, Control]:
    """Judge every control of the benchmark: declared models, the data as their own prediction, permuted stimuli.

    All controls except permuted stimuli are independent of the model and computed once per session. A control that a
    metric cannot score fails; other errors are not about the control, and are raised.

    Parameters
    ----------
    dummy
        The score of the benchmark's dummy, if the benchmark normalises by a floor.
    own
        The headline of the job's model, which may itself be a control.
    score_of
        Returns the headline of another model with the data and seed of a session.

    Raises
    ------
    NeuroLedgerError
        A control cannot be computed here: its files, its model or a package are missing or invalid.
    """
    benchmark = job.benchmark
    results = dict[str, Control]()
    rules = benchmark.controls
    chance = chance_control(job, measured) if benchmark.normalised_by == "none" else 0.0
    floor = floor_of(rules, chance)

    def score_from(source: xr.DataArray, target: xr.DataArray) -> Score:
        replaced = Measurement(source, target, measured.repeated, measured.splits)
        return headline(job, replaced, session, dummy)

    def model_control(role: Role, id: str) -> Control:
        is_own = job.control and id == job.model.id
        bound = rules.ceiling_at_least if role == "positive" else floor
        first = (lambda: own) if is_own else (lambda: score_of(session, id))
        if not _shuffles_labels(session, id):
            return _one(role, first, bound)
        return _many(
            role, first, lambda number: score_of(session.reshuffled(number), id), bound
        )

    models: tuple[tuple[Role, tuple[str, ...]], ...]
    models = (("positive", rules.positive), ("negative", rules.negative))
    for role, ids in models:
        for id in ids:
            key = (benchmark.id, id)
            if key not in session.controls:
                session.controls[key] = model_control(role, id)
            results[id] = session.controls[key]
    if job.paradigm.itself and _can_be_recorded(measured.target):
        key = (benchmark.id, "itself")
        if key not in session.controls:
            session.controls[key] = _one(
                "positive",
                lambda: score_from(itself_control(measured), measured.target),
                rules.ceiling_at_least,
                rules.itself_at_most,
            )
        results["itself"] = session.controls[key]
    side = job.paradigm.permuted
    if side is not None:
        seed = session.request.seed

        def permuted(number: int) -> Score:
            return score_from(*mismatched(measured, side, seed, number))

        results["permuted"] = _many("negative", lambda: permuted(0), permuted, floor)
    return results


def require_passed(benchmark: str, controls: Mapping[str, Control]) -> None:
    """Return if no control failed.

    Raises
    ------
    MetricError
        A control failed, so the scores of the benchmark are not meaningful. Undecided ones refuse nothing.
    """
    failed = {
        name: control
        for name, control in controls.items()
        if control.verdict == "failed"
    }
    if not failed:
        return
    words = "; ".join(
        f"{name} ({control.role}): {in_words(control)}"
        for name, control in failed.items()
    )
    chance = any(
        control.role == "negative" and control.value is not None
        for control in failed.values()
    )
    if chance:
        hint = "; if chance reaches this value, declare it in `controls: {floor_at_most: …}`"
    else:
        hint = ""
    raise MetricError(
        f"controls of {benchmark!r} failed, so its scores mean nothing: {words}{hint}"
    )


def departures(
    benchmark: BenchmarkSpec, controls: Mapping[str, Control], model: str
) -> list[str]:
    """Return in what the controls of a model's record are not those that its benchmark declares."""
    rules = benchmark.controls
    declared = (*rules.positive, *rules.negative)
    present = {*controls, model}
    problems = [
        f"the control {id} of its benchmark is missing"
        for id in declared
        if id not in present
    ]
    # The bound of a score that nothing normalises is counted from chance, which a record does not tell.
    is_known = (
        benchmark.normalised_by != "none" or "floor_at_most" in rules.model_fields_set
    )
    floor = floor_of(rules, 0.0) if is_known else None
    bounds: dict[Role, float | None] = {
        "positive": rules.ceiling_at_least,
        "negative": floor,
    }
    wrong = [
        id
        for id, control in controls.items()
        if bounds[control.role] not in (None, control.bound)
    ]
    return problems + [
        f"the bound of the control {id} is not that of its benchmark" for id in wrong
    ]


def chance_control(job: Resolved, measured: Measurement) -> float:
    """Return the chance level of the headline metric; for one class in n, n is counted in the target."""
    if job.first not in job.metrics or not isinstance(
        spec := job.metrics[job.first].spec, MetricSpec
    ):
        return 0.0
    if not isinstance(spec.chance_level, str):
        return spec.chance_level
    target = measured.target
    if "truth" in target.coords:
        labels = target.coords["truth"].values
    else:
        labels = target.values
    if labels.dtype.kind in "UOSbiu" and labels.size:
        return 1 / len(encode(labels).labels)
    return 0.0


def _shuffles_labels(session: Session, id: str) -> bool:
    """Whether a control model permutes its training labels by the seed, so that another seed is another shuffle."""
    model = model_of(session, id)
    return isinstance(model, ShufflesLabels) and model.shuffles_labels


def _one(
    role: Role,
    score_of: Callable[[], Score],
    bound: float,
    at_most: float | None = None,
) -> Control:
    """Judge a control that has one score; if its metric is undefined, it failed."""
    try:
        return bounded(role, score_of(), bound, at_most)
    except MetricError as error:
        if not about_pair(
            error
        ):  # the machine's state says nothing about the benchmark
            raise
        return undefined(role, bound, str(error), at_most)


def _many(
    role: Role,
    first: Callable[[], Score],
    score_of: Callable[[int], Score],
    bound: float,
) -> Control:
    """Judge a control that has one score for each shuffle; if the metric is undefined in the first, it failed."""

    def value_of(number: int) -> float:
        try:
            return score_of(number).value
        except MetricError as error:
            if not about_pair(error):
                raise
            return math.nan

    try:
        return shuffled(role, first(), value_of, bound)
    except MetricError as error:
        if not about_pair(error):
            raise
        return undefined(role, bound, str(error))


def _can_be_recorded(target: xr.DataArray) -> bool:
    """Whether the target is itself a response; solution times, which follow from responses, are not."""
    return bool({"neuroid", "stimulus"} & set(target.dims))


def itself_control(measured: Measurement) -> xr.DataArray:
    """Return the target as a source: RDMs averaged over subjects, without neuroids that lack responses."""
    target = measured.target
    if "subject" in target.dims:
        return target.mean("subject")
    if "neuroid" not in target.dims:
        return target
    valid = ~any_for_each(target, "neuroid", lambda values: ~np.isfinite(values))
    if not valid.any():
        target = target.fillna(0.0)
    elif not valid.all():
        target = taken(target, "neuroid", np.flatnonzero(valid))
    # Readouts that need the position of features get neuroids as channels at one position.
    number = np.arange(target.sizes["neuroid"])
    places = {"channel": number, "channel_x": 0 * number, "channel_y": 0 * number}
    return target.assign_coords(
        {name: ("neuroid", values) for name, values in places.items()}
    )


def mismatched(
    measured: Measurement, side: Side, seed: int, number: int = 0
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return source and target, with the values of one side assigned to the wrong stimuli by shuffle ``number``.

    Either side gives the same pairs. For recordings the target is permuted: the source may exceed memory, and results
    computed from it remain valid.
    """
    answers = getattr(measured, side)
    dim = "presentation" if "presentation" in answers.dims else "stimulus"
    entropy = [seed, SHUFFLED] if number == 0 else [seed, SHUFFLED, number]
    order = np.random.default_rng(entropy).permutation(answers.sizes[dim])
    permuted = taken(answers, dim, order)
    if "stimulus_b" in answers.dims:
        permuted = permuted.isel(stimulus_b=order)
    row_dims = {"presentation", "stimulus", "stimulus_b"}
    coords = {
        name: coord
        for name, coord in answers.coords.items()
        if row_dims & set(coord.dims)
    }
    permuted = permuted.assign_coords(
        {name: (coord.dims, coord.values) for name, coord in coords.items()}
    )
    if side == "target":
        return (measured.source, permuted)
    return (permuted, measured.target)
