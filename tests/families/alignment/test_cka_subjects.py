"""Alignment with each subject and between subjects equals the alignment of pairs of their neuroids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import CeilingError, MetricError
from neuroledger.stats.score import normalise

SUBJECTS = ["C", "A", "C", "B", "A", "B", "C", "A", "B", "C"]


def assembly(values: Any, subjects: list[str] | None = None) -> xr.DataArray:
    coords = {
        "stimulus_id": ("presentation", [f"s{row:02}" for row in range(len(values))]),
        "neuroid_id": ("neuroid", [f"n{column}" for column in range(values.shape[1])]),
    }
    if subjects is not None:
        coords["subject"] = ("neuroid", subjects)
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def lab(seed: int) -> tuple[xr.DataArray, xr.DataArray]:
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(30, 5))
    source = hidden @ rng.normal(size=(5, 8))
    target = hidden @ rng.normal(size=(5, 10)) + rng.normal(size=(30, 10))
    return assembly(source), assembly(target, SUBJECTS)


def of(target: xr.DataArray, name: str) -> xr.DataArray:
    return target.isel(neuroid=np.flatnonzero(target["subject"].values == name))


def aligned(one: xr.DataArray, other: xr.DataArray) -> float:
    return nl.metric("cka")(one, other).value


def test_each_subject_and_each_pair() -> None:
    source, target = lab(1)
    score = nl.metric("cka_subjects")(source, target)
    expected = {name: aligned(source, of(target, name)) for name in "CAB"}
    assert dict(
        zip(score.samples["subject"].values, score.samples.values, strict=True)
    ) == pytest.approx(expected)
    assert score.value == pytest.approx(np.mean(list(expected.values())))
    pairs = [aligned(of(target, a), of(target, b)) for a, b in ("CA", "CB", "AB")]
    top = nl.ceiling("cka_subjects")(target)
    assert top.value == pytest.approx(np.mean(pairs))
    assert float(top.samples.sel(subject="A")) == pytest.approx(
        np.mean([pairs[0], pairs[2]])
    )
    assert normalise(score, top, formula="ratio").value == pytest.approx(
        score.value / np.mean(pairs)
    )


def test_stimuli_not_shown_to_a_subject_are_left_out_for_that_subject_only() -> None:
    source, target = lab(2)
    values = target.values.copy()
    values[4:9, np.array(SUBJECTS) == "A"] = np.nan
    found = nl.metric("cka_subjects")(source, target.copy(data=values)).samples
    rest = np.r_[0:4, 9:30]
    assert float(found.sel(subject="A")) == pytest.approx(
        aligned(source.isel(presentation=rest), of(target, "A").isel(presentation=rest))
    )
    assert float(found.sel(subject="B")) == pytest.approx(
        aligned(source, of(target, "B"))
    )
    top = nl.ceiling("cka_subjects")(target.copy(data=values)).samples
    assert np.isfinite(top.values).all()


def test_repetitions_are_averaged_before_subjects_are_aligned() -> None:
    _, target = lab(3)
    rng = np.random.default_rng(4)
    again = xr.concat(
        [target + noise for noise in rng.normal(size=(2, *target.shape))],
        "presentation",
    )
    again = again.assign_coords(repetition=("presentation", np.repeat([0, 1], 30)))
    mean = target.copy(data=again.values.reshape(2, 30, 10).mean(axis=0))
    assert nl.ceiling("cka_subjects")(again).value == pytest.approx(
        nl.ceiling("cka_subjects")(mean).value
    )


def test_independent_subjects_score_zero_and_identical_subjects_one() -> None:
    rng = np.random.default_rng(5)
    alone = rng.normal(size=(40, 5))
    alike = assembly(np.hstack([alone, alone[:, ::-1] * 3 + 1]), ["A"] * 5 + ["B"] * 5)
    assert nl.ceiling("cka_subjects")(alike).value == pytest.approx(1)
    found = [
        nl.ceiling("cka_subjects")(
            assembly(rng.normal(size=(40, 10)), ["A"] * 5 + ["B"] * 5)
        ).value
        for _ in range(60)
    ]
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(60), "unbiased about 0"


def test_subjects_are_needed() -> None:
    source, target = lab(6)
    with pytest.raises(
        MetricError,
        match="have no coordinate 'subject'; for one alignment with all neuroids use `cka`",
    ):
        nl.metric("cka_subjects")(source, target.drop_vars("subject"))
    with pytest.raises(CeilingError, match="one subject has no other"):
        nl.ceiling("cka_subjects")(of(target, "A"))
    with pytest.raises(
        CeilingError, match="C and A: CKA needs at least 4 stimuli, not 3"
    ):
        nl.ceiling("cka_subjects")(target.isel(presentation=slice(3)))
    with pytest.raises(
        CeilingError,
        match="have no coordinate 'subject'; a ceiling between subjects needs them",
    ):
        nl.ceiling("cka_subjects")(target.drop_vars("subject"))


def several(run: int, count: int = 5, stimuli: int = 40) -> xr.DataArray:
    """Subjects who see the same new stimuli through transformations of their own, which differ between subjects."""
    rng = np.random.default_rng([6, run])
    hidden, parts = rng.normal(size=(stimuli, 8)), []
    for _ in range(count):
        mixed = np.maximum(
            hidden
            @ (np.eye(8) + 0.5 * rng.normal(size=(8, 8)))
            @ rng.normal(size=(8, 12)),
            0,
        )
        parts.append(mixed + np.exp(0.4 * rng.normal()) * rng.normal(size=mixed.shape))
    named = assembly(
        np.hstack(parts), [name for name in "ABCDEFGH"[:count] for _ in range(12)]
    )
    return named.assign_coords(
        stimulus_id=("presentation", [f"{run}s{row:02}" for row in range(stimuli)])
    )


def test_the_ceiling_varies_with_subjects_and_stimuli_as_without_each_of_them() -> None:
    data = several(0)
    known = nl.ceiling("cka_subjects")(data).uncertainty
    assert known is not None
    parts = {part.over: part.variance for part in known.parts}
    subjects = [
        nl.ceiling("cka_subjects")(data[:, data["subject"].values != name]).value
        for name in "ABCDE"
    ]
    assert parts["subject",] == pytest.approx(4 * np.var(subjects))
    stimuli = [
        nl.ceiling("cka_subjects")(data.isel(presentation=np.arange(40) != row)).value
        for row in range(40)
    ]
    assert parts["stimulus",] == pytest.approx(39 * np.var(stimuli))


@pytest.mark.slow
def test_the_interval_of_the_ceiling_covers_new_subjects_and_stimuli() -> None:
    """Numbers of subjects share pairs: taken as independent, they would claim half of the error."""
    scores = [nl.ceiling("cka_subjects")(several(run)) for run in range(30)]
    mean = np.mean([score.value for score in scores])
    assert np.mean([score.low <= mean <= score.high for score in scores]) > 0.85
    error = np.mean(
        [score.uncertainty.error for score in scores if score.uncertainty is not None]
    )
    assert 0.75 < error / np.std([score.value for score in scores]) < 1.6


@pytest.mark.parametrize("count", [2, 3])
def test_the_pairs_of_two_or_three_subjects_say_nothing_about_others(
    count: int,
) -> None:
    top = nl.ceiling("cka_subjects")(several(1, count=count))
    assert top.uncertainty is not None and set(top.uncertainty.factors) == {"stimulus"}
