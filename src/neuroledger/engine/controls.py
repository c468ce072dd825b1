"""Controls: models that must reach the ceiling or floor, the data as their own prediction, and permuted stimuli."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import xarray as xr

from neuroledger.data.factorize import encode
from neuroledger.engine.measurement import Measurement
from neuroledger.engine.resolve import Resolved
from neuroledger.engine.score import headline
from neuroledger.engine.session import Control, Session
from neuroledger.errors import MetricError, NeuroLedgerError, about_pair
from neuroledger.spec.kinds import Controls, MetricSpec
from neuroledger.spec.registry import Side

__all__ = ["controlled", "floor_of", "require_passed"]


def controlled(
    job: Resolved,
    measured: Measurement,
    session: Session,
    dummy: float | None,
    value_of: Callable[[str], float],
) -> dict[str, Control]:
    """Compute every control of the benchmark: declared models, the data as their own prediction, permuted stimuli.

    ``value_of`` returns the headline value of another model. All controls except permuted stimuli are independent of the
    model and computed once per session.
    """
    benchmark, results = job.benchmark, dict[str, Control]()
    rules = benchmark.controls
    chance = _chance(job, measured) if job.benchmark.normalised_by == "none" else 0.0
    bounds = {
        "positive": (rules.ceiling_at_least, math.inf),
        "negative": (-math.inf, floor_of(rules, chance)),
    }
    roles = [("positive", id) for id in benchmark.controls.positive]
    roles += [("negative", id) for id in benchmark.controls.negative]

    def value_from(source: xr.DataArray, target: xr.DataArray) -> float:
        replaced = Measurement(source, target, measured.repeated, measured.splits)
        return headline(job, replaced, session, dummy).value

    for role, id in roles:
        if job.control and id == job.model.id:
            continue
        key = (benchmark.id, id)
        if key not in session.controls:
            session.controls[key] = _judged(role, *bounds[role], partial(value_of, id))
        results[id] = session.controls[key]
    if job.paradigm.itself and _can_be_recorded(measured.target):
        key = (benchmark.id, "itself")
        if key not in session.controls:
            value = lambda: value_from(_itself(measured), measured.target)  # noqa: E731
            session.controls[key] = _judged("positive", rules.ceiling_at_least, rules.itself_at_most, value)
        results["itself"] = session.controls[key]
    side = job.paradigm.permuted
    if side is not None:
        seed = session.request.seed
        results["permuted"] = _judged(
            "negative", *bounds["negative"], lambda: value_from(*_mismatched(measured, side, seed))
        )
    return results


def require_passed(benchmark: str, controls: Mapping[str, Control]) -> None:
    """Return if every control passed.

    Raises
    ------
    MetricError
        A control failed, so the scores of the benchmark are not meaningful.
    """
    failed = {name: control for name, control in controls.items() if not control.passed}
    if not failed:
        return
    words = "; ".join(f"{name} ({control.role}): {control.says}" for name, control in failed.items())
    chance = any(control.role == "negative" and control.value is not None for control in failed.values())
    hint = "; if chance reaches this value, declare it in `controls: {floor_at_most: …}`" if chance else ""
    raise MetricError(f"controls of {benchmark!r} failed, so its scores mean nothing: {words}{hint}")


def floor_of(rules: Controls, chance: float) -> float:
    """Return the largest value allowed for negative controls: as declared, or a share of the way from chance to 1."""
    if "floor_at_most" in rules.model_fields_set:
        return rules.floor_at_most
    return chance + rules.floor_at_most * (1 - chance)


def _chance(job: Resolved, measured: Measurement) -> float:
    """Return the chance level of the headline metric; for one class in n, n is counted in the target."""
    if job.first not in job.metrics or not isinstance(spec := job.metrics[job.first].spec, MetricSpec):
        return 0.0
    if not isinstance(spec.chance_level, str):
        return spec.chance_level
    target = measured.target
    labels = target.coords["truth"].values if "truth" in target.coords else target.values
    return 1 / len(encode(labels).labels) if labels.dtype.kind in "UOSbiu" and labels.size else 0.0


def _judged(role: str, low: float, high: float, value_of: Callable[[], float]) -> Control:
    """Compare a control's value with its bounds; a control that cannot be computed fails, with the reason."""
    bound = low if role == "positive" else high
    try:
        value = value_of()
    except NeuroLedgerError as error:
        if not about_pair(error):  # the machine's state says nothing about the benchmark
            raise
        return Control(role, None, bound, False, str(error))
    if not math.isfinite(value):
        return Control(role, None, bound, False, "its score is undefined")
    if role == "positive" and value > high:
        says = f"{value:.3f}, must be at most {high:g}: the ceiling is too low to normalise by"
        return Control(role, value, high, False, says)
    relation = "at least" if role == "positive" else "at most"
    return Control(role, value, bound, low <= value <= high, f"{value:.3f}, must be {relation} {bound:g}")


def _can_be_recorded(target: xr.DataArray) -> bool:
    """Whether the target is itself a response; solution times, which follow from responses, are not."""
    return bool({"neuroid", "stimulus"} & set(target.dims))


def _itself(measured: Measurement) -> xr.DataArray:
    """Return the target as a source: RDMs averaged over subjects, without neuroids that lack responses."""
    target = measured.target
    if "subject" in target.dims:
        return target.mean("subject")
    if "neuroid" not in target.dims:
        return target
    valid = np.isfinite(target.values).all(axis=tuple(i for i, d in enumerate(target.dims) if d != "neuroid"))
    target = target.isel(neuroid=np.flatnonzero(valid)) if valid.any() else target.fillna(0.0)
    # Readouts that need the position of features get neuroids as channels at one position.
    number = np.arange(target.sizes["neuroid"])
    places = {"channel": number, "channel_x": 0 * number, "channel_y": 0 * number}
    return target.assign_coords({name: ("neuroid", values) for name, values in places.items()})


def _mismatched(measured: Measurement, side: Side, seed: int) -> tuple[xr.DataArray, xr.DataArray]:
    """Return source and target, with the values of one side assigned to the wrong stimuli.

    Either side gives the same pairs. For recordings the target is permuted: the source may exceed memory, and results
    computed from it remain valid.
    """
    answers = getattr(measured, side)
    dim = "presentation" if "presentation" in answers.dims else "stimulus"
    order = np.random.default_rng([seed, 271828]).permutation(answers.sizes[dim])
    permuted = answers.isel({dim: order})
    if "stimulus_b" in answers.dims:
        permuted = permuted.isel(stimulus_b=order)
    row_dims = {"presentation", "stimulus", "stimulus_b"}
    coords = {name: coord for name, coord in answers.coords.items() if row_dims & set(coord.dims)}
    permuted = permuted.assign_coords({name: (coord.dims, coord.values) for name, coord in coords.items()})
    return (measured.source, permuted) if side == "target" else (permuted, measured.target)
