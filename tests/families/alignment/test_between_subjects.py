"""Functional alignment on known rotations, cross-validated; and readouts inside and outside of a distribution."""

import numpy as np
import pytest
from scipy.linalg import expm

import neuroledger as nl
from neuroledger.errors import AssemblyError, MetricError
from neuroledger.families.alignment.between_subjects import (
    Align,
    hyperalignment,
    shared_response,
)
from neuroledger.families.alignment.preparation import prepared
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import Split, draw
from tests.families.alignment.neural_cases import assembly

METHODS = {"procrustes": hyperalignment, "shared_response": shared_response}


def people(noise, *, count=4, rows=80, dimensions=5, neuroids=12, seed=0):
    """Responses of subjects who share dimensions that each has rotated, (row × neuroid) for each, and the shared ones."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((rows, dimensions)) * np.arange(dimensions, 0, -1)
    parts = []
    for _ in range(count):
        basis = np.linalg.qr(rng.standard_normal((neuroids, dimensions)))[0]
        parts.append(shared @ basis.T + noise * rng.standard_normal((rows, neuroids)))
    return parts, shared


def together(parts):
    labels = np.repeat([f"s{i}" for i in range(len(parts))], parts[0].shape[1])
    half = np.where(np.arange(len(parts[0])) % 2, "test", "train")
    return assembly(np.concatenate(parts, axis=1)).assign_coords(
        subject=("neuroid", labels), half=("presentation", half)
    )


@pytest.mark.parametrize("method", METHODS)
def test_rotations_undo_known_rotations(method):
    parts, shared = people(0.0)
    rotations = METHODS[method](parts, 5)
    found = [part @ rotation for part, rotation in zip(parts, rotations, strict=True)]
    for rotation in rotations:
        np.testing.assert_allclose(rotation.T @ rotation, np.eye(5), atol=1e-9)
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], atol=1e-6)
    np.testing.assert_allclose(found[0] @ found[0].T, shared @ shared.T, atol=1e-6)


def test_the_shared_response_has_the_least_error():
    parts, _ = people(1.0)
    centred = [part - part.mean(axis=0) for part in parts]

    def error(rotations):
        S = np.mean([p @ w for p, w in zip(centred, rotations, strict=True)], axis=0)
        return sum(
            ((p - S @ w.T) ** 2).sum() for p, w in zip(centred, rotations, strict=True)
        )

    found = shared_response(parts, 3)
    rng = np.random.default_rng(1)
    for _ in range(30):  # small rotations of one subject make it worse
        other = [w.copy() for w in found]
        skew = 0.05 * rng.standard_normal((12, 12))
        subject = rng.integers(4)
        other[subject] = expm(skew - skew.T) @ found[subject]
        assert error(other) > error(found)


@pytest.mark.parametrize("method", METHODS)
def test_held_out_stimuli_agree_between_subjects_after_alignment(method):
    parts, _ = people(1.0)
    step = Align(
        step="align",
        method=method,
        dimensions=5,
        fitted_by="half",
        fitted_values=("train",),
    )
    whole = together(parts)
    found = prepared(whole, [step])
    assert found.sizes == {"presentation": 80, "neuroid": 20}
    assert (
        found["subject"].values.tolist()
        == ["s0"] * 5 + ["s1"] * 5 + ["s2"] * 5 + ["s3"] * 5
    )
    held = found["half"].values == "test"

    def agreement(values):
        first, second = values[held, :5], values[held, 5:10]
        return np.mean(
            [np.corrcoef(a, b)[0, 1] for a, b in zip(first.T, second.T, strict=True)]
        )

    before = np.concatenate([part[:, :5] for part in parts], axis=1)
    assert agreement(found.values) > agreement(before) + 0.3
    # The held-out stimuli decide nothing: other responses to them leave the rotations as they are.
    other = whole.copy(deep=True)
    other[held] = np.random.default_rng(3).standard_normal(other[held].shape)
    np.testing.assert_allclose(
        prepared(other, [step]).values[~held], found.values[~held], atol=1e-12
    )
    mean = prepared(whole, [step.model_copy(update={"average": True})])
    expected = found.values.reshape(80, 4, 5).mean(axis=1)
    np.testing.assert_allclose(mean.values, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dimensions": 13}, "a subject has 12 neuroids, fewer than 13"),
        ({"fitted_by": "part"}, "no coordinate 'part'"),
        ({"fitted_values": ("none",)}, "0 presentations have 'half' in none"),
    ],
)
def test_alignment_that_cannot_be_fitted_is_refused(change, message):
    parts, _ = people(1.0)
    given = {"dimensions": 5, "fitted_by": "half", "fitted_values": ("train",)}
    step = Align(step="align", **(given | change))
    with pytest.raises(AssemblyError, match=message):
        prepared(together(parts), [step])


def test_one_subject_and_missing_responses_are_refused():
    parts, _ = people(1.0)
    step = Align(step="align", dimensions=2, fitted_by="half", fitted_values=("train",))
    with pytest.raises(AssemblyError, match="there is only one"):
        prepared(together(parts[:1]), [step])
    lacking = together(parts)
    lacking[3, 3] = np.nan
    with pytest.raises(AssemblyError, match="responses are missing"):
        prepared(lacking, [step])


def shifted(seed, loss):
    """Stimuli of two kinds; outside, the responses follow the features with a share ``loss`` of other weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 8))
    inside = np.arange(120) % 2 == 0
    W, V = rng.standard_normal((2, 8, 6))
    Y = X @ W
    Y[~inside] = X[~inside] @ ((1 - loss) * W + loss * V)
    Y += 1.5 * rng.standard_normal(Y.shape)
    labels = np.where(inside, "in", "noise")
    return assembly(X), assembly(Y).assign_coords(distribution=("presentation", labels))


def test_both_parts_and_their_difference():
    source, target = shifted(0, 0.7)
    parts = {
        name: nl.metric(f"generalisation_{name}")(source, target)
        for name in ("inside", "outside", "gap")
    }
    np.testing.assert_allclose(
        parts["gap"].samples, parts["outside"].samples - parts["inside"].samples
    )
    assert parts["gap"].value == pytest.approx(
        parts["outside"].value - parts["inside"].value
    )
    assert parts["gap"].high < 0
    rule = SplitsSpec(name="kfold", folds=5)
    own = target["distribution"].values == "in"
    splits = [
        Split(s.train[own[s.train]], s.test[~own[s.test]]) for s in draw(rule, target)
    ]
    expected = nl.metric("ridgecv", relative=True)(source, target, splits=splits)
    np.testing.assert_allclose(parts["outside"].samples, expected.samples)


def test_the_interval_of_no_loss_contains_zero():
    covered = [
        nl.metric("generalisation_gap")(*shifted(seed, 0.0)) for seed in range(6)
    ]
    assert sum(score.low <= 0 <= score.high for score in covered) >= 5


def test_a_distribution_that_is_missing_is_refused():
    source, target = shifted(0, 0.0)
    with pytest.raises(MetricError, match="no coordinate 'distribution'"):
        nl.metric("generalisation_gap")(source, target.drop_vars("distribution"))
    alike = target.assign_coords(distribution=("presentation", ["in"] * 120))
    with pytest.raises(MetricError, match="120 of 120 presentations"):
        nl.metric("generalisation_gap")(source, alike)
