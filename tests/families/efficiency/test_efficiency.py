"""Exports in other projects' layouts, and the Pareto front of score and cost."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.data.facts import Fact
from neuroledger.families.efficiency.exports import flat, nested
from neuroledger.report.pareto import front
from neuroledger.stats.score import Score
from neuroledger.stats.stored_score import StoredScore

STRICT = {"counting_mode": Fact("strict", "declared")}
SCORES = {
    "accuracy": Score(0.5, raw=0.75, scale="accuracy"),
    "parameter_count": Score(2410.0),
    "footprint": Score(9640.0),
    "activation_sparsity": Score(
        0.25, samples=xr.DataArray([0.25], dims=("layer",), coords={"layer": ["1"]})
    ),
    "effective_macs": Score(1299.72, n={"samples": 450}),
    "effective_acs": Score(0.0, n={"samples": 450}),
    "dense_operations": Score(2368.0, n={"time_steps": 10}),
    "r2": Score(float("nan"), status="failed", reason="diverged"),
}


def test_the_flat_layout_has_neurobenchs_keys_and_no_false_numbers():
    exported = flat(SCORES)
    assert exported == {
        "ParameterCount": 2410,
        "Footprint": 9640,
        "ClassificationAccuracy": 0.75,
        "ActivationSparsity": 0.25,
        "R2": None,
        "ActivationSparsityByLayer": {"1": 0.25},
        "SynapticOperations": {
            "Effective_MACs": 1299.72,
            "Effective_ACs": 0.0,
            "Dense": 2368.0,
        },
    }
    assert isinstance(exported["ParameterCount"], int)
    assert "NaN" not in json.dumps(exported)
    assert set(flat(SCORES, version="v1")) >= {
        "footprint",
        "synaptic_operations",
        "classification_accuracy",
    }
    partial = {"effective_macs": Score(5.0, status="partial", reason="half")}
    assert flat(partial) == {"SynapticOperations": {"Effective_MACs": None}}


def test_extra_values_cannot_overwrite_a_group():
    extra = {
        "correctness": {"accuracy": 1.0},
        "metrics": 3,
        "array": np.float32(0.5),
        "nan": float("nan"),
    }
    exported = nested("digits", "m", SCORES, extra=extra)
    assert exported["metrics"]["correctness"] == {"accuracy": 0.75, "r2": None}
    assert exported["metrics"]["complexity"] == {
        "total_parameters": 2410,
        "synaptic_operations": 584874,
        "activation_sparsity": 0.25,
        "total_spikes": None,
        "timesteps": 10,
    }
    assert exported["metrics"]["system"] == {"latency_ms": None, "energy_nj": None}
    assert (
        exported["extra"]["correctness"] == {"accuracy": 1.0}
        and exported["extra"]["nan"] is None
    )
    assert json.loads(json.dumps(exported, allow_nan=False)) == exported
    counted = nested("digits", "m", {"spikes": Score(2.5, n={"samples": 4})})
    assert counted["metrics"]["complexity"]["total_spikes"] == 10


def test_an_export_states_the_counting_mode():
    def score(mode):
        return Score(5.0, facts={"counting_mode": Fact(mode, "declared")})

    assert "CountingMode" not in flat(
        {"footprint": score("neurobench-2.3"), "accuracy": Score(0.5)}
    )
    assert flat({"footprint": score("strict")}) == {
        "Footprint": 5,
        "CountingMode": "strict",
    }
    assert (
        flat({"footprint": StoredScore.of(score("strict"))}, version="v1")[
            "counting_mode"
        ]
        == "strict"
    )
    both = flat(
        {
            "footprint": score("strict"),
            "mse": score("neurobench-2.3"),
            "execution_rate": Score(250.0),
        }
    )
    assert both["CountingMode"] == "mixed" and both["ModelExecutionRate"] == 250


def test_partial_and_failed_scores_are_null_in_the_nested_layout():
    counted = {"samples": 4, "time_steps": 3}
    half = Score(5.0, status="partial", reason="half", n=counted, facts=STRICT)
    scores = {
        "effective_macs": half,
        "effective_acs": Score(1.0, n=counted),
        "spikes": half,
        "activation_sparsity": half,
    }
    exported = nested("digits", "m", scores)
    assert exported["metrics"]["complexity"] == {
        "total_parameters": None,
        "synaptic_operations": None,
        "activation_sparsity": None,
        "total_spikes": None,
        "timesteps": 3,
    }
    assert exported["counting_mode"] == "strict"
    still = nested("digits", "m", {"dense_operations": Score(9.0, n={"samples": 4})})
    assert still["metrics"]["complexity"]["timesteps"] == 1
    bare = nested("digits", "m", {"accuracy": Score(0.5)})
    assert (
        bare["metrics"]["complexity"]["timesteps"] is None
        and "counting_mode" not in bare
    )


def test_modelled_energy_is_never_in_the_field_of_measured_energy():
    modelled = Score(2e-6, facts=STRICT | {"evidence": Fact("modelled", "declared")})
    measured = Score(3e-6, facts=STRICT | {"evidence": Fact("measured", "stated")})
    exported = nested("digits", "m", {"energy_45nm": modelled, "energy": modelled})
    assert exported["metrics"]["system"]["energy_nj"] is None
    assert exported["extra"]["modelled"] == {
        "energy_45nm_nj": pytest.approx(2000),
        "energy_nj": pytest.approx(2000),
    }
    exported = nested(
        "digits",
        "m",
        {"energy_45nm": modelled, "energy_measured": measured, "latency": Score(0.5)},
    )
    assert exported["metrics"]["system"] == {
        "latency_ms": 500,
        "energy_nj": pytest.approx(3000),
    }
    assert exported["extra"] == {"modelled": {"energy_45nm_nj": pytest.approx(2000)}}
    assert exported["units"]["energy_nj"] == "one sample, measured"


def test_neuron_operations_have_neurobenchs_names():
    scores = {"neuron_operations": Score(8.0), "dense_neuron_operations": Score(9.0)}
    assert flat(scores) == {
        "NeuronOperations": {"Effective Neuron Ops": 8.0, "Neuron Dense Ops": 9.0}
    }


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)
)
def test_exactly_the_models_on_the_front_are_not_dominated(points):
    scores, costs = [float(s) for s, _ in points], [float(c) for _, c in points]
    on = front(scores, costs)
    assert any(on)

    def beats(a, b):
        return (
            scores[a] >= scores[b]
            and costs[a] <= costs[b]
            and (scores[a], costs[a]) != (scores[b], costs[b])
        )

    for i, best in enumerate(on):
        assert best == (not any(beats(j, i) for j in range(len(points))))
    assert front([-s for s in scores], costs, lower=True) == on


def test_a_table_of_the_same_model_across_families(repository, monkeypatch):
    from neuroledger.report.pareto import pareto, pareto_figure

    monkeypatch.chdir(repository)
    costs = {
        "pixels16": 10.0,
        "noise": Score(1.0, unit="operations/sample"),
        "gabor": Score(5.0, status="partial"),
    }
    table = pareto("Digits.simulated.IT-pls", "synaptic_operations", costs=costs)
    assert (
        set(table["model"]) == {"pixels16", "noise"}
        and table["cost"].is_monotonic_increasing
    )
    axes = pareto_figure(table)
    assert "synaptic_operations" in axes.get_xlabel()
    with pytest.raises(Exception, match="no model has both"):
        pareto("Digits.simulated.IT-pls", "membrane_updates", records=[])
