"""The layer curve in one call: a torch module as it is, its twin, the mapping, the table, the figure and the plain form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import neuroledger as nl
from neuroledger.cli import main
from neuroledger.data.gate.validate import validate
from neuroledger.engine.session import Request, Session
from neuroledger.errors import MetricError, RequestError
from neuroledger.families.alignment.layer_curves.curve import COLUMNS, Layers, curve
from neuroledger.models.activation_store import open_store
from neuroledger.report.drawings import layer_curve
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.stats.score import Score
from tests.engine.lab import Lab
from tests.engine.test_commit import network

torch = pytest.importorskip("torch")
nn = torch.nn
STEPS = {"resize": 8, "colour": "rgb", "mean": [0.5], "std": [0.5]}


class Net(nn.Module):  # type: ignore[misc, name-defined]
    """Two named convolutions and a head; it counts the stimuli that it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.late = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.head = nn.Linear(4, 3)
        self.shown = 0

    def forward(self, x: Any) -> Any:
        self.shown += len(x)
        return self.head(self.late(self.early(x)).mean((2, 3)))


def session_of(lab: Lab) -> Session:
    lab.dataset()
    lab.benchmark("lab.V4-ridge", metric={"name": "ridge", "splits": {"folds": 3}})
    catalog = lab.open()
    validate(catalog, "lab")
    return Session(catalog, Request(), open_store(catalog.root))


def test_a_module_is_scored_as_it_is_and_left_as_it_was(lab: Lab) -> None:
    session = session_of(lab)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    net = Net().train()
    net.late.eval()
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    result = curve(session, benchmark, net, preprocessing=STEPS)
    assert [part.training for part in (net, net.early, net.late, net.head)] == [
        True,
        True,
        False,
        True,
    ]
    assert all(
        torch.equal(value, weights[name]) for name, value in net.state_dict().items()
    )
    assert list(result) == ["early", "late", "head"] == list(result.untrained)
    assert list(result.depths.values()) == pytest.approx([1 / 3, 2 / 3, 1])
    assert isinstance(result, Mapping) and dict(result)["late"] is result["late"]
    assert (
        isinstance(result["late"], Score)
        and len(result) == 3
        and "late" in result
        and "early.x" not in result
    )
    assert (result.model, result.region, result.committed) == ("net", "V4", None)
    assert any(result[layer].value != result.untrained[layer].value for layer in result)
    assert any(note.startswith("untrained: a copy") for note in result.notes)
    shown = net.shown
    again = curve(session, benchmark, net, preprocessing=STEPS)
    assert again.to_dict() == result.to_dict()  # the twin repeats by its seed
    assert (
        net.shown - shown < 25 < shown
    )  # the second call shows a few stimuli to check the store, and no more
    bare = curve(
        session, benchmark, net, ["late"], untrained=False, preprocessing=STEPS
    )
    assert list(bare) == ["late"] and not bare.untrained
    assert bare["late"].value == result["late"].value
    given = curve(
        session, benchmark, net, ["late"], untrained=Net(), preprocessing=STEPS
    )
    assert given.untrained["late"].value != result.untrained["late"].value


def test_what_is_assumed_is_said_and_what_cannot_be_is_refused(lab: Lab) -> None:
    session = session_of(lab)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    pooled = nn.Sequential(
        nn.Conv2d(3, 2, 9, 16), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 4)
    )
    result = curve(session, benchmark, pooled, untrained=False)
    assert result.notes == (
        "preprocessing assumed: 224 x 224 pixels, mean and standard deviation of ImageNet",
    )
    assert result.notes[0] in str(result) and result.notes[0] in result._repr_html_()
    with pytest.raises(RequestError, match="comes without preprocessing"):
        curve(session, benchmark, nn.Sequential(nn.Flatten(), nn.Linear(192, 3)))
    with pytest.raises(RequestError, match="only a torch module takes declarations"):
        curve(session, benchmark, "pixels4", preprocessing=STEPS)
    one = curve(session, benchmark, "pixels4")
    assert len(one) == 1 and one.notes == (
        "no untrained twin: the model has no trained weights",
    )


def test_a_layer_without_a_score_is_named(lab: Lab) -> None:
    session = session_of(lab)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    net = Net()
    nn.init.zeros_(net.late.weight)
    layers = ["early", "late"]
    with pytest.raises(MetricError, match=r"layer 'late'.*: ridge is undefined"):
        curve(session, benchmark, net, layers, untrained=False, preprocessing=STEPS)


def test_the_spec_of_a_model_names_its_twin(lab: Lab) -> None:
    network(
        lab, layers=["conv1", "logits"], regions={"V4": "logits"}, untrained="other"
    )
    network(lab)
    path = lab.root / "specs" / "models"
    (path / "net.yaml").rename(path / "other.yaml")
    (path / "other.yaml").write_text(
        (path / "other.yaml").read_text().replace("id: net", "id: other")
    )
    builder = {"name": "small_cnn", "channels": 1, "seed": 5}
    preprocessing = {"resize": 8, "colour": "grey", "mean": [0.5], "std": [0.5]}
    network(
        lab,
        layers=["conv1", "logits"],
        regions={"V4": "logits"},
        untrained="other",
        builder={**builder, "preprocessing": preprocessing},
    )
    session = session_of(lab)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    result = curve(session, benchmark, "net")
    assert (
        result.notes == ("untrained: the model other",) and result.committed == "logits"
    )
    assert (
        result.untrained["conv1"].value
        == curve(session, benchmark, "other", untrained=False)["conv1"].value
    )


def test_table_text_page_and_plain_form(lab: Lab, tmp_path: Path) -> None:
    network(lab)
    session = session_of(lab)
    result = curve(
        session, session.catalog.benchmark("lab.V4-ridge"), "net", untrained="net"
    )
    frame = result.to_frame()
    assert tuple(frame.columns) == COLUMNS and list(frame["layer"]) == [
        "conv1",
        "logits",
    ]
    assert frame["chosen"].tolist() == [True, False] and result.best == "conv1"
    assert (
        frame["ceiling"].nunique() == 1
        and frame["ceiling"][0] == result["conv1"].ceiling.value
    )  # type: ignore[union-attr]
    assert result.commitment == "regions: {V4: conv1}"
    assert result.nested is not None and result.nested.value != result["conv1"].value
    for text in (str(result), repr(result)):
        assert (
            "conv1 was chosen on 30 stimuli; on the 30 others, which had no part in the choice"
            in text
        )
        assert "regions: {V4: conv1}" in text and "untrained" in text
    assert (
        "<table" in result._repr_html_()
        and "regions: {V4: conv1}" in result._repr_html_()
    )
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain == result.to_dict()
    assert (
        plain["chosen"],
        plain["choice"]["chosen_on"],
        plain["ceiling"]["value"],
    ) == ("conv1", 30, 1.0)
    assert plain["layers"][0]["untrained"] == {
        name: plain["layers"][0][name] for name in ("value", "low", "high")
    }
    assert "conv1, chosen on other stimuli than these" in str(layer_curve(plain))
    ax = result.plot()
    assert ax.data == result.to_dict()  # type: ignore[attr-defined]
    labels = ax.get_legend_handles_labels()[1]
    assert {
        "ceiling",
        "untrained",
        "trained",
        "chosen: conv1",
        "on other stimuli",
        "nothing explained",
    } <= set(labels)
    assert (
        "Layer chosen on 30 stimuli; diamond: its score on the 30 others"
        in ax.get_title("left")
    )
    assert nl.plot.save(ax, tmp_path / "a.svg").stat().st_size > 1000
    assert set(nl.plot.layers({"one": result, "two": result}).data) == {"one", "two"}  # type: ignore[attr-defined]


def test_the_command_prints_the_table_the_commitment_and_json_and_writes_the_figure(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    network(lab)
    session_of(lab)
    figure = tmp_path / "curve.svg"
    call = ["--root", str(lab.root), "score", "net", "lab.V4-ridge"]
    assert main([*call, "--layers", "--out", str(figure)]) == 0
    out = capsys.readouterr().out
    assert (
        "regions: {V4: conv1}" in out
        and "which had no part in the choice" in out
        and figure.is_file()
    )
    assert main([*call, "--layers", "logits", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [stage["layer"] for stage in plain["layers"]] == ["logits"] and plain[
        "chosen"
    ] == "logits"
    assert main([*call, "--layers", "all", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]) > 5
    assert main([*call, "--out", str(figure)]) == 2
    assert "--out writes the figure of --layers" in capsys.readouterr().err


@pytest.fixture(scope="module")
def digits() -> Catalog:
    catalog = open_catalog(Path(__file__).parents[3])
    if not (catalog.root / "data" / "Digits.simulated" / "responses.nc").exists():
        pytest.skip("the embedded data are not here: dvc pull")
    return catalog


@pytest.mark.slow
def test_the_curve_of_simulated_neurons_peaks_at_the_depth_that_generated_them(
    digits: Catalog, tmp_path: Path
) -> None:
    """V4 detects corners, IT objects: V4 peaks early in a network trained on digits, IT late, and untrained IT nowhere."""
    session = Session(digits, Request(), open_store(tmp_path))
    early = curve(
        session,
        digits.benchmark("Digits.simulated.V4-pls"),
        "small_cnn.digits",
        untrained=False,
    )
    late = curve(
        session, digits.benchmark("Digits.simulated.IT-rdm"), "small_cnn.digits"
    )
    assert early.best in {"conv2", "conv3"} and late.best in {"hidden", "logits"}
    assert isinstance(late, Layers) and late.nested is not None
    assert late.nested.low > 0.1 > max(score.value for score in late.untrained.values())
    assert early.choice.values[early.best] == max(early.choice.values.values())
