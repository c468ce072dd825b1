"""Networks from NIR and ONNX files: values of other implementations, and counts of equal networks."""

from __future__ import annotations

import nir
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import neuroledger as nl
from neuroledger.errors import ModelError, RequestError
from neuroledger.families.efficiency.graphs.files import module_from
from neuroledger.families.efficiency.graphs.nir_graph import from_nir
from neuroledger.families.efficiency.graphs.onnx_graph import from_onnx
from neuroledger.families.efficiency.models.graph_file import nir as build_nir
from neuroledger.families.efficiency.models.graph_file import onnx as build_onnx
from neuroledger.families.efficiency.networks.layers import Lif

RNG = np.random.default_rng(0)
METRICS = (
    "effective_macs",
    "effective_acs",
    "dense_operations",
    "membrane_updates",
    "spikes",
    "activation_sparsity",
)


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)


def weights(*shape):
    return RNG.normal(0, 1, shape).astype(np.float32)


def spikes(*shape):
    return torch.as_tensor((RNG.random(shape) < 0.3).astype(np.float32))


def lif(units, *, tau=1e-3, time_step=1e-4):
    """Return neurons with unscaled input: ``r = tau / dt``."""

    def full(x):
        return np.full(units, x, np.float32)

    return nir.LIF(
        tau=full(tau),
        r=full(tau / time_step),
        v_leak=full(0),
        v_threshold=full(1.0),
        v_reset=full(0),
    )


def spiking_graph():
    return nir.NIRGraph.from_list(
        nir.Input({"input": np.array([12])}),
        nir.Affine(weights(20, 12), weights(20)),
        lif(20),
        nir.Linear(weights(5, 20)),
        lif(5),
        nir.Output({"output": np.array([5])}),
    )


def values(costs):
    return {name: score.value for name, score in costs.items()}


class Stepped(nn.Module):
    """The same network in modules of this repository, stepped through (sample, time, …)."""

    def __init__(self, graph):
        super().__init__()
        nodes = [graph.nodes[name] for name in ("affine", "linear")]
        self.layers = nn.ModuleList()
        for node in nodes:
            layer = nn.Linear(
                node.weight.shape[1], node.weight.shape[0], bias=hasattr(node, "bias")
            )
            layer.weight.data = torch.as_tensor(node.weight)
            if layer.bias is not None:
                layer.bias.data = torch.as_tensor(node.bias)
            self.layers += [layer, Instant(0.9)]

    def forward(self, x):
        answers = []
        for step in x.unbind(1):
            for layer in self.layers:
                step = layer(step)
            answers.append(step)
        return torch.stack(answers, 1)


class Instant(Lif):
    """Leaky neurons that are reset to zero in the step in which they spike."""

    def forward(self, current):
        before = torch.zeros_like(current) if self.membrane is None else self.membrane
        now = before + 0.1 * (0 - before) + current
        fired = (now > 1).float()
        self.membrane = torch.where(fired > 0, 0.0, now)
        return fired


def test_a_nir_file_costs_what_the_same_network_costs_by_hand(tmp_path):
    graph, inputs = spiking_graph(), spikes(6, 10, 12)
    nir.write(tmp_path / "net.nir", graph)
    for source in (tmp_path / "net.nir", str(tmp_path / "net.nir"), graph):
        costs = nl.cost(source, [inputs], METRICS)
        assert all(score.status == "scored" for score in costs.values())
        assert values(costs) == pytest.approx(
            values(nl.cost(Stepped(graph), [inputs], METRICS))
        )
        assert costs["dense_operations"].value == 10 * (12 * 20 + 20 * 5)
        assert costs["membrane_updates"].n["samples"] == 6
        assert costs["effective_acs"].n["time_steps"] == 10
        assert any(
            "time step: 0.0001 (assumed)" in note for note in costs["spikes"].notes
        )
    torch.testing.assert_close(from_nir(graph)(inputs), Stepped(graph)(inputs))
    one = values(nl.cost(graph, [x[None] for x in inputs], METRICS))
    assert one == pytest.approx(
        values(nl.cost(graph, [inputs], METRICS))
    )  # batches of 1 and of 6


def test_a_graph_costs_the_same_as_the_snntorch_network():
    snntorch = pytest.importorskip("snntorch")
    graph, given = spiking_graph(), spikes(6, 10, 12)
    first, second = nn.Linear(12, 20), nn.Linear(20, 5, bias=False)
    for layer, name in ((first, "affine"), (second, "linear")):
        layer.weight.data = torch.as_tensor(graph.nodes[name].weight)
    first.bias.data = torch.as_tensor(graph.nodes["affine"].bias)
    leaky = {
        "beta": 0.9,
        "reset_mechanism": "zero",
        "reset_delay": False,
        "init_hidden": True,
    }
    network = nn.Sequential(
        first, snntorch.Leaky(**leaky), second, snntorch.Leaky(**leaky, output=True)
    )
    assert values(nl.cost(network, [given], METRICS)) == pytest.approx(
        values(nl.cost(graph, [given], METRICS))
    )


def test_recurrent_graphs_delays_and_synaptic_currents_follow_their_equations():
    units, w = 4, weights(4, 4)
    full = {
        name: np.full(units, x, np.float32)
        for name, x in (("one", 1.0), ("zero", 0.0), ("tau", 2e-3), ("syn", 1e-3))
    }
    neuron = nir.CubaLIF(
        tau_syn=full["syn"],
        tau_mem=full["tau"],
        r=full["one"] * 3,
        v_leak=full["zero"],
        v_threshold=full["one"],
        v_reset=full["one"] * -0.5,
        w_in=np.full(units, 2.0),
    )
    nodes = {
        "in": nir.Input({"input": np.array([units])}),
        "neuron": neuron,
        "recurrent": nir.Linear(w),
        "late": nir.Delay(np.array([0.0, 1e-3, 2e-3, 0.0])),
        "scale": nir.Scale(np.arange(1.0, 5.0)),
        "out": nir.Output({"output": np.array([units])}),
    }
    edges = [
        ("in", "neuron"),
        ("neuron", "recurrent"),
        ("recurrent", "neuron"),
        ("neuron", "late"),
        ("late", "scale"),
        ("scale", "out"),
    ]
    inputs = torch.rand(3, 8, units) * 4
    result = from_nir(nir.NIRGraph(nodes, edges), time_step=1e-3)(inputs).numpy()
    v, current, fired = (np.zeros((3, units)) for _ in range(3))
    history = []
    for step in range(8):
        drive = inputs[:, step].numpy() + fired @ w.T
        current = current + (2.0 * drive - current)
        v = v + 0.5 * (0 - v + 3 * current)
        fired = (v > 1).astype(float)
        v = np.where(fired > 0, -0.5, v)
        history.append(fired)
        late = np.stack(
            [
                history[step - d][:, n] if step >= d else np.zeros(3)
                for n, d in enumerate((0, 1, 2, 0))
            ],
            1,
        )
        np.testing.assert_allclose(result[:, step], late * np.arange(1.0, 5.0))
    assert 0 < np.mean(history) < 1
    costs = nl.cost(nir.NIRGraph(nodes, edges), [inputs], ["dense_operations"])
    assert costs["dense_operations"].value == 8 * 16


def test_a_convolutional_nir_graph_without_neurons_is_not_stepped():
    graph = nir.NIRGraph.from_list(
        nir.Input({"input": np.array([2, 8, 8])}),
        nir.Conv2d((8, 8), weights(4, 2, 3, 3), 1, (1, 1), 1, 1, weights(4)),
        nir.SumPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0])),
        nir.Flatten({"input": np.array([4, 4, 4])}, 0),
        nir.Affine(weights(3, 64), weights(3)),
        nir.Output({"output": np.array([3])}),
        type_check=False,
    )
    x = torch.rand(5, 2, 8, 8)
    node = graph.nodes
    by_hand = nn.functional.conv2d(
        x,
        *(torch.as_tensor(y) for y in (node["conv2d"].weight, node["conv2d"].bias)),
        padding=1,
    )
    by_hand = 4 * nn.functional.avg_pool2d(by_hand, 2)
    by_hand = by_hand.flatten(1) @ torch.as_tensor(
        node["affine"].weight
    ).T + torch.as_tensor(node["affine"].bias)
    torch.testing.assert_close(from_nir(graph)(x), by_hand)
    assert (
        nl.cost(graph, [x], ["dense_operations"])["dense_operations"].value
        == 64 * 4 * 18 + 64 * 3
    )


def test_sources_that_are_not_graphs_are_refused(tmp_path):
    with pytest.raises(RequestError, match=r"end in \.nir or \.onnx"):
        nl.cost(tmp_path / "net.pt", [])
    (tmp_path / "net.nir").write_bytes(b"no graph")
    (tmp_path / "net.onnx").write_bytes(b"no graph")
    for name in ("net.nir", "net.onnx"):
        with pytest.raises(ModelError, match="no"):
            nl.cost(tmp_path / name, [])
    with pytest.raises(ModelError, match="is not a file"):
        nl.cost("missing.onnx", [])
    with pytest.raises(RequestError, match="time_step"):
        from_nir(spiking_graph(), time_step=0)
    failed = nl.cost(spiking_graph(), [spikes(6, 12)], METRICS)  # no axis of time
    assert {score.status for score in failed.values()} == {"failed"}
    assert "(sample, time, 12)" in failed["spikes"].reason
    unknown = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Det", ["x"], ["d"], name="volume"),
                helper.make_node("Mine", ["d"], ["y"], domain="own.ops"),
            ],
            "g",
            [helper.make_tensor_value_info("x", 1, [1, 3, 3])],
            [helper.make_tensor_value_info("y", 1, [1])],
        )
    )
    with pytest.raises(ModelError, match=r"Det \(node 'volume'\), own\.ops\.Mine"):
        nl.cost(unknown, [])


def full(size, value):
    return np.full(size, value, np.float32)


def leaky(size=3, tau=1e-3):
    return nir.LIF(
        tau=full(size, tau),
        r=full(size, 1),
        v_leak=full(size, 0),
        v_threshold=full(size, 0.1),
        v_reset=full(size, 0),
    )


def affine(inputs=4, weight=1.0):
    return nir.Affine(full((3, inputs), weight), full(3, 0))


def chained(first, second):
    nodes = {
        "i": nir.Input({"input": np.array([4])}),
        "a": first,
        "n": second,
        "o": nir.Output({"output": np.array([3])}),
    }
    return nir.NIRGraph(nodes, [("i", "a"), ("a", "n"), ("n", "o")], type_check=False)


BAD_NIR = {
    "tau of 0": (affine(), leaky(tau=0.0), r"'n' \(LIF\): tau is 0 s"),
    "tau below the time step": (affine(), leaky(tau=1e-6), "pass a shorter step"),
    "tau that is no number": (affine(), leaky(tau=np.nan), "tau contains NaN"),
    "weights that are no numbers": (
        affine(weight=np.nan),
        leaky(),
        "'a' .*weight contains NaN",
    ),
    "a matrix that does not fit": (
        affine(5),
        leaky(),
        r"\(4,\) from 'i' to 'a', which takes \(5,\)",
    ),
    "neurons that do not fit": (
        affine(),
        leaky(7),
        r"\(3,\) from 'a' to 'n', which takes \(7,\)",
    ),
}


@pytest.mark.parametrize("case", BAD_NIR)
def test_a_bad_nir_graph_is_one_clear_error(case):
    first, second, words = BAD_NIR[case]
    with pytest.raises(ModelError, match=words):
        nl.cost(chained(first, second), [spikes(2, 4)], METRICS)


def test_a_graph_without_a_path_to_its_output_is_refused():
    graph = chained(affine(), leaky())
    graph.edges.remove(("a", "n"))
    with pytest.raises(ModelError, match="no path"):
        from_nir(graph)


@pytest.mark.parametrize("kind", ["nir", "onnx"])
def test_a_damaged_file_is_refused_or_read_but_never_another_error(kind, tmp_path):
    path, rng = tmp_path / f"net.{kind}", np.random.default_rng(0)
    if kind == "nir":
        nir.write(path, chained(affine(), leaky()))
    else:
        path.write_bytes(image_model()[0].SerializeToString())
    whole = path.read_bytes()
    damaged = [
        b"",
        whole[: len(whole) // 2],
        whole[:-1],
        bytes(len(whole)),
        b"hello " * 99,
    ]
    for _ in range(25):
        changed = bytearray(whole)
        for place in rng.integers(0, len(whole), 5):
            changed[place] = rng.integers(0, 256)
        damaged.append(bytes(changed))
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            module_from(path)
        except ModelError as error:
            refused += 1
            assert len(str(error)) < 4000
    assert refused >= 5


def test_a_bad_onnx_graph_is_one_clear_error():
    relu = node("Relu", "x", "y")
    late = [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")]
    beyond = model([node("Relu", "x", "z")], {"x": [1, 4]}, 2, {})
    short = model(
        [node("Add", "x w", "y")], {"x": [1, 4]}, 2, {"w": np.ones(4, np.float32)}
    )
    short.graph.initializer[0].dims[0] = 10**12
    for graph, words in (
        (
            model([node("Add", "x q", "y")], {"x": [1, 4]}, 2, {}),
            "takes 'q', which no earlier node computes",
        ),
        (
            model(late, {"x": [1, 4]}, 2, {}),
            "takes 'b', which no earlier node computes",
        ),
        (beyond, "returns 'y', which no node computes"),
        (short, "initialiser 'w' cannot be read"),
        (
            model([relu], {"x": [1, 4]}, 2, {}, opset=1),
            "opset 1 is not supported; supported are 7 to",
        ),
        (model([relu], {"x": [1, 4]}, 2, {}, opset=999), "opset 999 is not supported"),
    ):
        with pytest.raises(ModelError, match=words):
            nl.cost(graph, [])


def test_external_weights_of_an_onnx_file_must_be_in_its_folder(tmp_path):
    onnx_model = model(
        [node("Gemm", "x w", "y", transB=1)],
        {"x": ["n", 4]},
        2,
        {"w": np.ones((300, 4), np.float32)},
    )
    path = tmp_path / "net.onnx"
    onnx.save_model(
        onnx_model,
        path,
        save_as_external_data=True,
        location="net.bin",
        size_threshold=0,
    )
    assert nl.cost(path, [torch.ones(2, 4)], METRICS)["dense_operations"].value == 1200
    loaded = onnx.load(path, load_external_data=False)
    (tmp_path / "inner").mkdir()
    for place in ("/etc/passwd", "../net.bin"):
        next(
            x for x in loaded.graph.initializer[0].external_data if x.key == "location"
        ).value = place
        (tmp_path / "inner" / "net.onnx").write_bytes(loaded.SerializeToString())
        with pytest.raises(ModelError, match="not a valid ONNX model"):
            nl.cost(tmp_path / "inner" / "net.onnx", [])


def model(nodes, inputs, rank, initialisers, output="y", opset=17):
    initialisers = [
        numpy_helper.from_array(value, name) for name, value in initialisers.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [*"abcd"][:rank])],
        initialisers,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10
    )


def node(kind, inputs, outputs, **options):
    return helper.make_node(
        kind,
        inputs.split(),
        outputs.split(),
        name=f"{kind}.{outputs.split()[0]}",
        **options,
    )


def image_model():
    initialisers = {
        "w1": weights(4, 2, 3, 3),
        "b1": weights(4),
        "s": weights(4),
        "b": weights(4),
        "m": weights(4),
        "v": np.ones(4, np.float32),
        "w2": weights(3, 64),
        "b2": weights(3),
    }
    nodes = [
        node("Conv", "x w1 b1", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c s b m v", "n"),
        node("Relu", "n", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "p", "f"),
        node("Gemm", "f w2 b2", "y", transB=1),
    ]
    return model(nodes, {"x": ["n", 2, 8, 8]}, 2, initialisers), initialisers


def test_an_onnx_file_costs_what_the_same_modules_cost(tmp_path):
    onnx_model, initialisers = image_model()
    onnx.save(onnx_model, tmp_path / "net.onnx")
    same = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 3),
    ).eval()
    for tensor, name in zip(
        (
            *same[0].parameters(),
            *same[1].parameters(),
            same[1].running_mean,
            same[1].running_var,
            *same[5].parameters(),
        ),
        ("w1", "b1", "s", "b", "m", "v", "w2", "b2"),
        strict=True,
    ):
        tensor.data.copy_(torch.as_tensor(initialisers[name]))
    x = torch.rand(5, 2, 8, 8)
    torch.testing.assert_close(from_onnx(onnx_model)(x), same(x))
    metrics = (
        "effective_macs",
        "effective_acs",
        "dense_operations",
        "activation_sparsity",
        "connection_sparsity",
        "parameter_count",
    )
    costs, expected = (
        nl.cost(source, [x], metrics) for source in (tmp_path / "net.onnx", same)
    )
    assert all(score.status == "scored" for score in costs.values())
    assert costs["dense_operations"].n["coverage"] == 1.0
    own = {
        "parameter_count": 8.0
    }  # running means and variances are initialisers as all others are
    for name, score in costs.items():
        assert score.value == pytest.approx(expected[name].value + own.get(name, 0.0))
    static = nl.cost(tmp_path / "net.onnx")
    assert (
        static["parameter_count"].status == "scored"
        and static["effective_macs"].status == "failed"
    )


def int64(*numbers):
    return np.array(numbers, np.int64)


CASES = {
    "attention": ([
        node("MatMul", "x w", "q"), node("Add", "q b", "qb"), node("Reshape", "qb shape", "h"),
        node("Transpose", "h", "t", perm=[0, 2, 1, 3]), node("Transpose", "h", "k", perm=[0, 2, 3, 1]),
        node("MatMul", "t k", "scores"), node("Softmax", "scores", "soft", axis=-1), node("MatMul", "soft t", "mixed"),
        node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]), node("Reshape", "back whole", "flat"),
        node("LayerNormalization", "flat g b", "y", axis=-1),
    ], {"x": [2, 5, 8]}, {"w": weights(8, 8), "b": weights(8), "g": weights(8), 
        "shape": int64(0, 0, 2, 4), "whole": int64(0, 0, -1)}),
    "shapes": ([
        node("Shape", "x", "s"), node("Gather", "s zero", "first"), node("Unsqueeze", "first zero", "u"),
        node("Concat", "u minus", "target", axis=0), node("Reshape", "x target", "flat"),
        node("Slice", "flat from to axes by", "cut"),
        node("Split", "cut", "a c", axis=1), node("Concat", "c a", "y", axis=1),
    ], {"x": [2, 3, 4]}, {"zero": np.array(0), "minus": int64(-1), "from": int64(-1), "to": int64(-100),
        "axes": int64(1), "by": int64(-2)}),
    "uneven": ([
        node("Conv", "x w", "c", auto_pad="SAME_UPPER", strides=[2]), node("LeakyRelu", "c", "l", alpha=0.3),
        node("AveragePool", "l", "p", kernel_shape=[3], pads=[1, 1]), node("Clip", "p low high", "k"),
        node("ReduceMean", "k", "y", axes=[2], keepdims=0),
    ], {"x": [2, 3, 9]}, {"w": weights(4, 3, 4), "low": np.float32(-0.4), "high": np.float32(0.6)}),
    "lstm": ([node("LSTM", "x w r b", "seq y cell", hidden_size=4, direction="bidirectional")],
             {"x": [6, 2, 3]}, {"w": weights(2, 16, 3), "r": weights(2, 16, 4), "b": weights(2, 32)}),
    "gru": ([node("GRU", "x w r b", "seq last", hidden_size=4, linear_before_reset=1),
             node("Squeeze", "seq axis", "y")],
            {"x": [6, 2, 3]}, {"w": weights(1, 12, 3), "r": weights(1, 12, 4), "b": weights(1, 24), "axis": int64(1)}),
    "activations": ([
        node("Elu", "x", "a"), node("Gemm", "a w", "g", alpha=0.5, transA=1), node("Sigmoid", "g", "s"),
        node("Mul", "g s", "m"), node("PRelu", "m slope", "p"), node("HardSigmoid", "p", "h"), node("Pad", "h pads", "y"),
    ], {"x": [4, 3]}, {"w": weights(4, 5), "slope": weights(1), "pads": int64(0, 1, 2, 0)}),
    "transposed": ([node("ConvTranspose", "x w b", "t", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
                    node("Erf", "t", "y")], {"x": [2, 3, 4, 4]}, {"w": weights(3, 2, 3, 3), "b": weights(2)}),
}  # fmt: skip


RANKS = {"attention": 3, "lstm": 3, "gru": 3, "transposed": 4}


@pytest.mark.parametrize("name", CASES)
def test_operators_equal_onnxs_reference_implementation(name):
    nodes, inputs, initialisers = CASES[name]
    onnx_model = model(nodes, inputs, RANKS.get(name, 2), initialisers)
    onnx.checker.check_model(onnx_model)
    given = {
        key: RNG.normal(0, 1, shape).astype(np.float32) for key, shape in inputs.items()
    }
    if name == "lstm":  # the reference evaluator has one direction only
        expected = _lstm(given["x"], initialisers)
    else:
        expected = ReferenceEvaluator(onnx_model).run(None, given)[0]
    actual = from_onnx(onnx_model)(*(torch.as_tensor(x) for x in given.values()))
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-4, atol=1e-5)


def _lstm(x, initialisers):
    """Last hidden states of both directions, from the equations of the ONNX standard (gates i, o, f, c)."""
    last = []
    for way, steps in enumerate((range(len(x)), reversed(range(len(x))))):
        h = c = np.zeros((x.shape[1], 4))
        for t in steps:
            b = initialisers["b"][way]
            i, o, f, g = np.split(
                x[t] @ initialisers["w"][way].T
                + h @ initialisers["r"][way].T
                + b[:16]
                + b[16:],
                4,
                axis=1,
            )
            i, o, f = (1 / (1 + np.exp(-gate)) for gate in (i, o, f))
            c = f * c + i * np.tanh(g)
            h = o * np.tanh(c)
        last.append(h)
    return np.stack(last)


def test_an_onnx_gru_that_torch_does_not_compute_is_refused():
    _, inputs, initialisers = CASES["gru"]
    other = helper.make_node(
        "GRU", ["x", "w", "r", "b"], ["seq", "last"], hidden_size=4
    )
    with pytest.raises(ModelError, match="linear_before_reset = 0"):
        from_onnx(model([other], inputs, 3, initialisers, "last"))


def test_builders_answer_presentations(tmp_path):
    graph, inputs = spiking_graph(), spikes(6, 12, 10)
    nir.write(tmp_path / "net.nir", graph)
    learner = build_nir(id="stranger", weights={"net.nir": tmp_path / "net.nir"})
    torch.testing.assert_close(
        learner.ready(None)(inputs), Stepped(graph)(inputs.transpose(1, 2)).sum(1)
    )
    onnx.save(image_model()[0], tmp_path / "net.onnx")
    network = build_onnx(
        id="stranger", shape=(2, 8, 8), weights={"net.onnx": tmp_path / "net.onnx"}
    ).ready(None)
    shown = torch.rand(3, 128, 4)
    torch.testing.assert_close(
        network(shown),
        from_onnx(tmp_path / "net.onnx")(shown.mean(2).reshape(3, 2, 8, 8)),
    )
    with pytest.raises(ModelError, match="12 neuroids in 10 time bins"):
        network(inputs)
    with pytest.raises(ModelError, match="one file"):
        build_onnx(id="stranger", shape=(1,))
