"""The programs that stand beside our metrics in the speed tables compute the same numbers."""

import numpy as np
import pytest

import neuroledger as nl
from perf import peers, procedure, trial_loops, trial_procedure
from perf.assemblies import WARM, arrays, recorded, repeated
from perf.trials import naming_task, object_task

RULE = {"stratify": "object_name"}


@pytest.mark.parametrize(
    ("id", "make", "tolerance"),
    [
        ("pls", peers.pls, 1e-6),
        ("ridge", peers.ridge, 1e-9),
        ("linear_predictivity", peers.linear, 1e-9),
        ("neuron_to_neuron", procedure.OneByOne, 1e-9),
    ],
)
def test_readouts(id, make, tolerance):
    source, target = recorded(WARM, "float64")
    found = procedure.regressed(
        make, procedure.indexed(source), procedure.indexed(target), 10
    )
    np.testing.assert_allclose(
        nl.metric(id, splits=RULE)(source, target).samples, found, atol=tolerance
    )


@pytest.mark.parametrize(
    ("id", "whole", "lean"),
    [("rdm", procedure.rdm, peers.rdm_plain), ("cka", procedure.cka, peers.cka_plain)],
)
def test_similarities(id, whole, lean):
    source, target = recorded(WARM, "float64")
    mine = nl.metric(id)(source, target).value
    assert mine == pytest.approx(
        whole(procedure.indexed(source), procedure.indexed(target)), abs=1e-9
    )
    assert mine == pytest.approx(lean(*arrays(WARM)), abs=1e-9)


def test_internal_consistency():
    trials = repeated(WARM)
    mine = nl.ceiling("internal_consistency")(trials).samples
    np.testing.assert_allclose(
        mine, procedure.consistent(procedure.indexed(trials), 10), atol=1e-9
    )
    np.testing.assert_allclose(mine, peers.halves_loop(trials, 10), atol=1e-9)


@pytest.mark.parametrize(
    ("id", "normalise", "mean"), [("i1", False, True), ("i2n", True, False)]
)
def test_object_task(id, normalise, mean):
    source, target = object_task(images=48, trials=20_000)
    mine = [nl.metric(id)(source, target).value, nl.ceiling(id)(target).value]
    sides = (
        source.set_index(presentation=["stimulus_id", "filename"]),
        procedure.indexed(target),
    )
    found = trial_procedure.discriminated(*sides, normalise=normalise, mean=mean)
    np.testing.assert_allclose(mine, found, atol=1e-12)
    lean = trial_loops.loop_object_task(source, target, normalise=normalise, mean=mean)
    np.testing.assert_allclose(mine, lean, atol=1e-12)


def test_error_consistency():
    source, target = naming_task(shown_images=160, subjects=3)
    mine = [
        nl.metric("error_consistency", compat="brainscore")(source, target).value,
        nl.ceiling("error_consistency", compat="brainscore")(target).value,
    ]
    found = trial_procedure.agreed(procedure.indexed(source), procedure.indexed(target))
    np.testing.assert_allclose(mine, found, atol=1e-12)
    np.testing.assert_allclose(
        mine, np.abs(trial_loops.loop_agreement(source, target)), atol=1e-12
    )
