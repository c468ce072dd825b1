"""Each problem of a spec is one finding with code, line, column and fix."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from neuroledger.cli import main
from neuroledger.engine import check as module
from neuroledger.engine.check import check, schema_texts, write_schemas
from neuroledger.engine.control import Control
from neuroledger.engine.plan import BENCHMARK_ONLY_SAYS
from neuroledger.engine.record import record_path
from neuroledger.errors import Finding, RequestError
from neuroledger.spec.base import spec_sha256
from tests.engine.lab import Lab
from tests.report.ledger import keep, record

RIDGE = "lab.V4-ridge"


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """The laboratory without schemas, which take a second to make."""
    shutil.rmtree(lab.root / "specs" / "schema")
    return lab


def found(lab: Lab, *paths: Path) -> list[Finding]:
    return check(lab.open(), paths)[0]


def pinned_by_dvc(lab: Lab) -> dict[str, object]:
    return {name: pin | {"dvc": True, "url": None} for name, pin in lab.pins().items()}


PROBLEMS: dict[str, tuple[Callable[[Lab], object], str, str, str]] = {
    "a reference": (
        lambda lab: lab.benchmark(dataset="lob"), "spec.reference", "dataset: ", "no dataset 'lob' · did you mean 'lab'?",
    ),
    "a component": (
        lambda lab: lab.spec("models", "m", builder={"name": "pixel"}), "spec.component", "name: ",
        "no builder is registered as 'pixel'; did you mean 'pixels'?",
    ),
    "a parameter": (
        lambda lab: lab.spec("models", "m", builder={"name": "pixels", "size": 0}), "spec.value", "size: ",
        "size: 0 is not greater than 0",
    ),
    "an override": (
        lambda lab: lab.benchmark(metric={"name": "ridge", "compare": {"fold": 3}}), "spec.override", "metric:\n  ",
        "metric 'ridge', parameters of regression: fold: there is no such field",
    ),
    "a ceiling's override": (
        lambda lab: lab.benchmark(ceiling={"name": "internal_consistency", "compare": {"fold": 3}}), "spec.override",
        "ceiling:\n  ",
        "ceiling 'internal_consistency', parameters of internal_consistency: fold: there is no such field",
    ),
    "a second metric": (
        lambda lab: lab.benchmark(metric=None, metrics=["ridge", {"name": "pls", "compare": {"fold": 3}}]), "spec.override",
        "- ridge\n- ",
        "metric 'pls', parameters of regression: fold: there is no such field",
    ),
    "a citation": (lambda lab: lab.benchmark(cite=["nobody1999"]), "spec.citation", "cite:\n- ", "nobody1999"),
    "a licence": (lambda lab: lab.dataset(license="CC-1"), "spec.license", "license: ", "CC-1"),
    "no expectations": (
        lambda lab: lab.dataset(expectations={}), "spec.unguarded", "expectations: ",
        "declares no expectations, so nothing checks its data · add `expectations`",
    ),
    "a layer": (
        lambda lab: lab.spec("models", "m", builder={"name": "pixels"}, layers=["conv1"], regions={"V4": "conv2"}),
        "spec.layer", "V4: ", "regions: 'conv2' is not among `layers` · did you mean 'conv1'?",
    ),
    "one layer of several": (
        lambda lab: lab.spec("models", "m", builder={"name": "pixels"}, layers=["a"], regions={"V4": ["a", "zzz"]}),
        "spec.layer", "V4:\n  ", "regions: 'zzz' is not among `layers` · layers: a",
    ),
    "the readout": (
        lambda lab: lab.spec("models", "m", builder={"name": "pixels"}, layers=["a"], readout="zzz"),
        "spec.layer", "readout: ", "readout: 'zzz' is not among `layers`",
    ),
    "a pointer": (
        lambda lab: lab.dataset(files=pinned_by_dvc(lab)), "spec.pointer", "responses.nc:\n    ",
        "no DVC pointer data/lab/responses.nc.dvc · run `dvc add data/lab/responses.nc`",
    ),
    "scales": (
        lambda lab: lab.benchmark(metric="auroc"), "spec.normalisation", "ceiling: ",
        "by a ceiling of scale 'reliability' · choose a ceiling on a matching scale, or `normalise: none`",
    ),
    "an address": (
        lambda lab: lab.dataset(description="See http://user:secret@example.org/x."), "spec.address", "description: ", "",
    ),
    "a file elsewhere": (
        lambda lab: (lab.root / "specs" / "mine.yml").write_text("id: mine\n"), "spec.stray", "",
        "this file is not in a folder for specs",
    ),
}  # fmt: skip


def test_a_repository_without_problems_has_no_findings(lab: Lab) -> None:
    assert found(lab) == []
    assert check(lab.open())[1] == 4, (
        "the data set, the model, the benchmark and the suite; nothing that is shipped"
    )


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_problem_is_found_at_its_place(lab: Lab, name: str) -> None:
    change, code, before, words = PROBLEMS[name]
    change(lab)
    item = next(item for item in found(lab) if item.code == code)
    assert words in f"{item.what} · {item.fix}"
    assert item.where.startswith("specs/") and (
        item.severity == "error" or code == "spec.address"
    )
    if before:
        text = (lab.root / item.where).read_text()
        offset = (
            sum(len(line) for line in text.splitlines(keepends=True)[: item.line - 1])
            + item.column
            - 1
        )
        assert text[:offset].endswith(before), (item.line, item.column)


def test_private_data_are_not_pushed_to_a_public_remote(lab: Lab) -> None:
    lab.dataset(files=pinned_by_dvc(lab), access="private")
    for name in lab.pins():
        (lab.data / f"{name}.dvc").write_text("outs: []\n")
    (item,) = [item for item in found(lab) if item.code == "spec.private"]
    assert "which may be public" in item.what and "`dvc init --subdir`" in item.fix
    (lab.data / ".dvc").mkdir()
    (lab.data / ".dvc" / "config").write_text("")
    assert "spec.private" not in {item.code for item in found(lab)}


def test_circular_successors_are_reported_with_all_members(lab: Lab) -> None:
    for id, after in (
        ("lab.a", "lab.b"),
        ("lab.b", "lab.c"),
        ("lab.c", "lab.b"),
        (RIDGE, None),
    ):
        lab.benchmark(id, superseded_by=after)
    reported = {
        item.where: item.what for item in found(lab) if item.code == "spec.circle"
    }
    assert reported == {
        "specs/benchmarks/lab.a.yaml": "superseded_by is circular: lab.a → lab.b → lab.c → lab.b",
        "specs/benchmarks/lab.b.yaml": "superseded_by is circular: lab.b → lab.c → lab.b",
        "specs/benchmarks/lab.c.yaml": "superseded_by is circular: lab.c → lab.b → lab.c",
    }


def test_the_first_line_names_the_schema(lab: Lab) -> None:
    path = lab.root / "specs" / "models" / "pixels4.yaml"
    whole = path.read_text()
    path.write_text(whole.split("\n", 1)[1])
    assert found(lab) == [], "there is no schema to name"
    (lab.root / "specs" / "schema").mkdir()
    for first in ("", "# yaml-language-server: $schema=../schema/metric.json\n"):
        path.write_text(first + whole.split("\n", 1)[1])
        (item,) = [
            item for item in found(lab, path.parent) if item.code == "spec.schema-line"
        ]
        assert (item.where, item.line, item.severity) == (
            "specs/models/pixels4.yaml",
            1,
            "note",
        )
        assert item.fix == "write: # yaml-language-server: $schema=../schema/model.json"
    deeper = lab.root / "specs" / "models" / "ours" / "pixels4.yaml"
    deeper.parent.mkdir()
    path.unlink()
    deeper.write_text(whole.replace("../schema", "../../schema"))
    assert found(lab, path.parent) == []


def test_only_the_requested_paths_are_checked(lab: Lab) -> None:
    lab.benchmark(dataset="lob")
    lab.spec("models", "m", builder={"name": "pixel"})
    models = lab.root / "specs" / "models"
    assert {item.code for item in found(lab, models)} == {"spec.component"}
    assert found(lab, models / "pixels4.yaml") == []
    assert check(lab.open(), [models, models / "m.yaml"])[1] == 3
    with pytest.raises(RequestError, match="no such thing does not exist"):
        found(lab, Path("no such thing"))
    with pytest.raises(
        RequestError,
        match=re.escape("contains no spec; specs are specs/<kind>/<id>.yaml"),
    ):
        found(lab, lab.data)


@pytest.mark.parametrize(
    ("model", "value", "words"),
    [
        ("pixels4", 0.79, "error · positive control 'pixels4': 0.790 [0.790, 0.790], must be at least 0.8 · the benchmark"),
        ("pixels4", 0.8, None),
        ("noise", 0.11, "error · negative control 'noise': 0.110 [0.110, 0.110], must be at most 0.1 · the benchmark"),
        ("noise", 0.1, None),
        ("noise", None, None),
    ],
)  # fmt: skip
def test_a_benchmark_whose_recorded_controls_fail_is_refused(
    lab: Lab, model: str, value: float | None, words: str | None
) -> None:
    catalog = lab.open()
    now = spec_sha256(catalog.benchmark(RIDGE), without=BENCHMARK_ONLY_SAYS)
    for digest, reported in (
        (now, words),
        ("0" * 64, None),
    ):  # the record of another definition says nothing
        inputs = {"benchmark": {"id": RIDGE, "spec_sha256": digest}}
        keep(catalog, record(model, RIDGE, value, half=0.0, inputs=inputs, controls={}))
        problems = [
            f"{item.severity} · {item.what} · {item.fix}" for item in found(lab)
        ]
        assert [text[: len(reported or "")] for text in problems] == (
            [] if reported is None else [reported]
        )


def test_undecided_controls_are_notes_and_a_control_that_judged_itself_is_not_judged_again(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = lab.open()
    digest = spec_sha256(catalog.benchmark(RIDGE), without=BENCHMARK_ONLY_SAYS)
    inputs = {"benchmark": {"id": RIDGE, "spec_sha256": digest}}
    keep(catalog, record("pixels4", RIDGE, 0.79, half=0.02, inputs=inputs, controls={}))
    (item,) = found(lab)
    assert (item.severity, item.code) == ("note", "spec.control-undecided")
    assert item.what.startswith(
        "positive control 'pixels4': 0.790 [0.770, 0.810], must be at least 0.8, und"
    )
    assert main(["--root", str(lab.root), "check"]) == 0
    assert capsys.readouterr().out.endswith(" spec files: no problems, 1 note\n")
    over_shuffles = asdict(
        Control("positive", 0.85, 0.8, "passed", 0.82, 0.88, shuffles=16)
    )
    keep(
        catalog,
        record(
            "pixels4",
            RIDGE,
            0.5,
            half=0.0,
            inputs=inputs,
            controls={"pixels4": over_shuffles},
        ),
    )
    assert found(lab) == []


def test_an_unreadable_record_is_reported_at_its_control(lab: Lab) -> None:
    path = record_path(lab.root, RIDGE, "noise")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"id": "x"}))
    (item,) = found(lab)
    assert (item.code, item.where) == (
        "record.unreadable",
        f"specs/benchmarks/{RIDGE}.yaml",
    )
    assert "noise.json is not a record" in item.what


SCHEMAS = "import json; from neuroledger.engine.check import schema_texts; print(json.dumps(schema_texts(plugins=False)))"


def test_the_schemas_of_the_repository_are_those_of_its_components(
    repository: Path,
) -> None:
    """In a process of their own: components that other tests register or replace are none of the repository."""
    called = subprocess.run(
        [sys.executable, "-c", SCHEMAS], capture_output=True, text=True, check=True
    )
    folder = repository / "specs" / "schema"
    assert json.loads(called.stdout) == {
        path.name: path.read_text() for path in folder.glob("*.json")
    }


def test_a_schema_offers_every_component_with_its_parameters_and_first_line(
    repository: Path,
) -> None:
    texts = {
        name: json.loads(text) for name, text in schema_texts(plugins=False).items()
    }
    assert set(texts) == {
        f"{kind}.json"
        for kind in (
            "dataset",
            "metric",
            "ceiling",
            "benchmark",
            "model",
            "suite",
            "claim",
            "record",
        )
    }
    metric = texts["metric.json"]
    assert metric["title"] == "NeuroLedger metric" and "2020-12" in metric["$schema"]
    compare = metric["properties"]["compare"]
    assert compare["description"] == "A registered metric and its parameters"
    options = {option["title"]: option for option in compare["oneOf"]}
    regression = options["regression"]
    assert regression["properties"]["name"] == {"const": "regression", "type": "string"}
    assert {"estimator", "correlation", "time", "reverse"} < set(
        regression["properties"]
    )
    assert (
        regression["required"][0] == "name"
        and regression["additionalProperties"] is False
    )
    assert regression["description"] and "\n" not in regression["description"]
    builder = texts["model.json"]["properties"]["builder"]
    assert builder["anyOf"][1] == {"type": "null"} and "small_cnn" in {
        x["title"] for x in builder["anyOf"][0]["oneOf"]
    }
    for schema in texts.values():
        for pointer in re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(schema)):
            assert pointer in schema["$defs"], "every reference has a definition"


def test_schemas_are_written_and_reported_only_where_they_differ(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"metric.json": "{}\n", "model.json": "[]\n"}
    asked: list[bool] = []
    monkeypatch.setattr(
        module, "schema_texts", lambda *, plugins: asked.append(plugins) or texts
    )
    # Another test may have asked for the schemas of these components.
    monkeypatch.setattr(
        module,
        "_shipped_schema_texts",
        lambda *, plugins: module.schema_texts(plugins=plugins),
    )
    assert found(lab) == [] and asked == [], "a repository may have no schemas"
    folder = lab.root / "specs" / "schema"
    folder.mkdir()
    stale = [item for item in found(lab) if item.code == "spec.schema-stale"]
    assert [(item.where, item.severity) for item in stale] == [
        ("specs/schema/metric.json", "warning"), ("specs/schema/model.json", "warning"),
    ]  # fmt: skip
    assert stale[0].fix == "run `neuroledger check --write-schemas`" and asked == [True]
    assert write_schemas(lab.root) == [folder / "metric.json", folder / "model.json"]
    assert write_schemas(lab.root) == [] and found(lab) == []
    (folder / "model.json").write_text("{}")
    assert write_schemas(lab.root) == [folder / "model.json"]
    monkeypatch.setattr(module, "is_checkout", lambda root: True)
    (folder / "model.json").unlink()
    asked.clear()
    [item] = [item for item in found(lab) if item.code == "spec.schema-stale"]
    assert (item.where, item.severity, asked) == (
        "specs/schema/model.json",
        "error",
        [False],
    )


def test_packages_that_cannot_be_imported_are_reported(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module.registry, "broken", lambda: {"their-package": "it cannot be imported"}
    )
    assert found(lab) == [
        Finding("machine.plugin", "error", "their-package", "it cannot be imported")
    ]
    assert found(lab, lab.root / "specs" / "models") == [], (
        "only the requested files are checked"
    )


def test_a_copy_of_a_shipped_definition_is_a_warning(
    lab: Lab, repository: Path
) -> None:
    path = lab.root / "specs" / "metrics" / "ridge.yaml"
    path.parent.mkdir()
    shutil.copy(repository / "specs" / "metrics" / "ridge.yaml", path)
    [item] = [item for item in found(lab) if item.code == "spec.copy"]
    assert (item.severity, item.where) == ("warning", "specs/metrics/ridge.yaml")
    assert (
        item.what
        == "this file is a copy of neuroledger:metrics/ridge.yaml, which every repository knows"
    )
    assert item.fix == "remove it, or give it another id if it should differ"


def test_a_compat_mode_is_applied_only_to_metrics_and_ceilings_that_have_it(
    lab: Lab,
) -> None:
    metrics = ["pls", "auroc"]
    lab.benchmark(
        compat="brainscore",
        metric=None,
        metrics=metrics,
        ceiling=None,
        normalise="none",
    )
    assert found(lab) == []
