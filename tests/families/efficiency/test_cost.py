"""Cost metrics in their public form: scores with units, parts by layer, reasons, and modes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import neuroledger as nl
from neuroledger.errors import RequestError
from neuroledger.families.efficiency.cost import DEFAULT, answering_cost
from neuroledger.families.efficiency.counting.counts import ALL, needs_of

MEASURED = ["latency", "throughput", "peak_memory"]


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)


def network():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1.0)
    return module


def test_every_metric_has_a_number_with_its_unit_and_direction():
    costs = nl.cost(
        network(),
        [torch.full((3, 4), 0.5)],
        [*DEFAULT, *MEASURED, "energy_45nm", "synaptic_operations"],
    )
    values = {name: score.value for name, score in costs.items()}
    assert {name for name, score in costs.items() if score.status != "scored"} == {
        "membrane_updates"
    }
    assert (
        "not applicable" in costs["membrane_updates"].reason
    )  # it has no membrane, and none is not 0
    expected = {
        "parameter_count": 44,
        "footprint": 176,
        "connection_sparsity": 0,
        "activation_sparsity": 0,
        "effective_macs": 36,
        "effective_acs": 0,
        "synaptic_operations": 36,
        "dense_operations": 36,
    }
    assert {name: values[name] for name in expected} == expected
    assert values["energy_45nm"] == pytest.approx(36 * 4.6e-12)
    assert (
        costs["effective_macs"].unit == "MAC/sample"
        and costs["effective_macs"].direction == "lower"
    )
    assert costs["effective_macs"].samples.to_series().to_dict() == {"0": 24, "2": 12}
    assert costs["activation_sparsity"].samples["layer"].values.tolist() == ["1"]
    assert costs["latency"].value > 0 and costs["throughput"].value > 0
    assert (
        costs["latency"].n["threads"] == torch.get_num_threads()
        and costs["latency"].n["warm_up"] == 5
    )
    # weights, the input, and the outputs of both linear layers with the rectifier's between
    assert costs["peak_memory"].value >= 176 + 4 * (4 + 6 + 6)
    assert any("measured" in note for note in costs["latency"].notes)
    assert any("modelled" in note for note in costs["energy_45nm"].notes)


def test_order_of_metrics_changes_nothing():
    x = [torch.rand(5, 4, generator=torch.Generator().manual_seed(0)) for _ in range(3)]
    one, other = (
        nl.cost(network(), x, list(DEFAULT)),
        nl.cost(network(), x, list(reversed(DEFAULT))),
    )
    values = {
        name: score.value for name, score in one.items() if score.status == "scored"
    }
    assert values == {
        name: score.value for name, score in other.items() if score.status == "scored"
    }
    for name in values:
        assert nl.cost(network(), x, [name])[name].value == values[name]


def test_energy_needs_a_declared_model_or_meter():
    x = [torch.full((1, 4), 0.5)]
    assert nl.cost(network(), x, ["energy"])["energy"].status == "failed"
    priced = {
        "name": "energy",
        "model": {
            "name": "per_operation",
            "picojoules_per_mac": 2,
            "picojoules_per_ac": 1,
            "source": "test",
        },
    }
    assert nl.cost(network(), x, [priced])["energy"].value == pytest.approx(72e-12)
    metered = {
        "name": "energy",
        "model": {
            "name": "meter",
            "joules_per_sample": 0.5,
            "meter": "a shunt at 1 kHz",
        },
    }
    score = nl.cost(network(), x, [metered])["energy"]
    assert score.value == 0.5 and "measured" in score.notes[0]
    with pytest.raises(RequestError, match="meter"):
        nl.cost(
            network(),
            x,
            [{"name": "energy", "model": {"name": "meter", "joules_per_sample": 0.5}}],
        )


def test_uncounted_parts_make_a_score_partial_with_its_coverage():
    class Distances(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 12)

        def forward(self, x):
            return torch.cdist(self.first(x), self.second.weight)

    score = nl.cost(Distances(), [torch.full((2, 4), 0.5)], ["effective_macs"])[
        "effective_macs"
    ]
    assert score.status == "partial" and score.value == 16
    assert "second" in score.reason and score.n["coverage"] == 0.25


def test_failed_passes_give_failed_scores():
    empty = nl.cost(network(), [], ["effective_macs", "footprint"])
    assert empty["effective_macs"].status == "failed" and math.isnan(
        empty["effective_macs"].value
    )
    assert empty["footprint"].value == 176
    bare = nl.cost(
        nn.Sequential(nn.Linear(4, 2)), [torch.rand(2, 4)], ["activation_sparsity"]
    )["activation_sparsity"]
    assert bare.status == "failed" and "not applicable" in bare.reason
    assert (
        nl.cost(nn.ReLU(), [torch.rand(2, 4)], ["connection_sparsity"])[
            "connection_sparsity"
        ].status
        == "failed"
    )
    lstm = nl.cost(
        nn.Sequential(nn.LSTM(4, 2)),
        [torch.rand(2, 3, 4)],
        ["effective_macs"],
        mode="neurobench-2.3",
    )
    assert (
        lstm["effective_macs"].status == "failed"
        and "strict" in lstm["effective_macs"].reason
    )


def test_wrong_requests_are_refused():
    x = [torch.rand(2, 4)]
    with pytest.raises(RequestError, match="torch"):
        nl.cost(lambda x: x, x)
    with pytest.raises(RequestError, match="mode"):
        nl.cost(network(), x, mode="lenient")
    with pytest.raises(RequestError, match="did you mean"):
        nl.cost(network(), x, ["effective_mac"])
    with pytest.raises(RequestError, match="is not a cost: it compares"):
        nl.cost(network(), x, ["pls"])
    with pytest.raises(RequestError, match="list"):
        nl.cost(network(), x, "footprint")


def test_batches_with_targets_and_keyword_arguments():
    x = torch.full((3, 4), 0.5)
    for batch in (x, (x, torch.zeros(3)), {"input": x}):
        assert (
            nl.cost(network(), [batch], ["effective_macs"])["effective_macs"].value
            == 36
        )
    bare = nl.cost(network(), x, ["effective_macs"])["effective_macs"]
    assert bare.value == 36 and bare.n["samples"] == 3


def test_a_compiled_network_is_counted_like_its_original():
    assert (
        nl.cost(
            torch.compile(network()), [torch.full((3, 4), 0.5)], ["effective_macs"]
        )["effective_macs"].value
        == 36
    )


def test_needs_are_known_for_every_cost_metric(repository):
    from neuroledger.spec import registry

    costs = [
        name
        for name in registry.names("metric")
        if registry.get("metric", name).input == "trace"
    ]
    assert len(costs) >= 12
    for name in costs:
        assert needs_of(name) <= set(ALL)


def test_brain_models_have_costs_too():
    from neuroledger.data.load import load_dataset
    from neuroledger.families.alignment.models.small_cnn import small_cnn
    from neuroledger.spec.catalog import open_catalog

    stimuli = load_dataset(open_catalog(), "Digits.simulated").stimuli
    costs = answering_cost(small_cnn(id="m"), stimuli)
    # 64 × 64 images: three convolutions with padding, halved twice, and two linear layers
    dense = 4096 * 9 * 16 + 1024 * 9 * 16 * 32 + 256 * 9 * 32 * 64 + 256 * 64 + 640
    assert costs["dense_operations"].value == dense
    assert 0 < costs["synaptic_operations"].value < dense


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": 3}, "`metrics` must be a list of ids, such as"),
        (
            {"metrics": [3]},
            "a metric must be an id, or a mapping with the id as `name`, not 3",
        ),
        ({"metrics": {"name": "latency"}}, "`metrics` must be a list of ids: "),
        (
            {"time_axis": 9},
            r"time_axis 9: inputs of shape \(2, 5, 3\) have no such axis",
        ),
        ({"time_axis": 0}, "axis 0 is that of the samples"),
        ({"time_axis": "t"}, "time_axis 't': inputs of shape"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        nl.cost(
            nn.Linear(3, 2),
            [torch.ones(2, 5, 3)],
            **{"metrics": ["effective_macs"], **arguments},
        )


def test_the_time_axis_may_be_negative() -> None:
    net, x = nn.Linear(3, 2), torch.full((2, 5, 3), 0.5)
    stepped = [
        nl.cost(net, [x], ["effective_macs"], time_axis=axis)["effective_macs"]
        for axis in (1, -2)
    ]
    assert [score.value for score in stepped] == [30.0, 30.0]
