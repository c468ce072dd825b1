"""The identity of a job contains everything that can change its outcome, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from neuroledger.engine import bound_metric
from neuroledger.engine.plan import (
    BENCHMARK_ONLY_SAYS,
    DATASET_ONLY_SAYS,
    MODEL_ONLY_SAYS,
    inputs_of,
    plan,
)
from neuroledger.engine.records.inputs import Inputs, ModelIdentity
from neuroledger.engine.session import Request
from neuroledger.spec import registry
from neuroledger.spec.base import canonical, sha256_of, spec_sha256
from neuroledger.spec.kinds import KINDS
from neuroledger.stats import groups, uncertainty, variation
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from neuroledger.store import derived
from tests.engine.lab import Lab


def identity(lab: Lab, request: Request | None = None) -> str:
    catalog = lab.open()
    inputs = inputs_of(
        catalog, catalog.benchmark("lab.V4-ridge"), "pixels4", request or Request()
    )
    return inputs.sha256


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("paradigm", "recording"),
        ("metric", "regression"),
        ("ceiling", "internal_consistency"),
        ("builder", "pixels"),
        ("builder", "noise"),
        ("reader", "netcdf"),
    ],
)
def test_a_component_with_a_higher_version_gives_another_identity(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    before = identity(lab)
    component = registry.get(kind, name)
    monkeypatch.setitem(
        registry._REGISTRY,
        (kind, name),
        replace(component, version=component.version + 1),
    )
    monkeypatch.setattr(derived, "code_sha256", lambda: "code of this version")
    assert identity(lab) != before


@pytest.mark.parametrize(
    "request_", [Request(seed=1), Request(limit=5), Request(device="cuda")]
)
def test_seed_limit_and_kind_of_device_are_part_of_the_identity(
    lab: Lab, request_: Request
) -> None:
    assert identity(lab, request_) != identity(lab)


def test_the_number_of_a_device_is_not_part_of_the_identity(lab: Lab) -> None:
    assert identity(lab, Request(device="cuda:1")) == identity(
        lab, Request(device="cuda:0")
    )


@pytest.mark.parametrize(
    "change",
    [
        {"select": {"region": "V4"}},
        {"metric": {"name": "ridge", "splits": {"folds": 4}}},
        {"ceiling": {"name": "internal_consistency", "splits": {"folds": 4}}},
        {"controls": {"positive": [], "negative": ["noise"]}},
        {"version": 2},
    ],
)
def test_the_fields_of_a_benchmark_are_part_of_the_identity(
    lab: Lab, change: dict[str, object]
) -> None:
    before = identity(lab)
    lab.benchmark(**change)
    assert identity(lab) != before


def test_descriptive_fields_are_not_part_of_the_identity(lab: Lab) -> None:
    before = identity(lab)
    lab.benchmark(title="Another title", description="Words.")
    lab.dataset(title="Another title of the data")
    assert identity(lab) == before


def test_nothing_of_an_interval_is_part_of_the_identity(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its method nor its version, level, groups, natural scale or smallest error."""
    catalog = lab.open()

    def inputs() -> dict[str, Any]:
        benchmark = catalog.benchmark("lab.V4-ridge")
        found = inputs_of(catalog, benchmark, "pixels4", Request())
        return found.model_dump(mode="json")

    before = inputs()
    for module, name, other in (
        (uncertainty, "VERSION", 9), (uncertainty, "LEVEL", 0.9), (uncertainty, "quantile", lambda level, degrees: 3.0),
        (groups, "MOST_GROUPS", 20), (groups, "COARSE", 4), (groups, "DRAWS", 64), (variation, "uncertainty_of", None),
        (variation, "inflation", lambda splits: 1.0), (bound_metric, "natural_scale", lambda scale, limits: "identity"),
        (bound_metric, "LIMITS", {}),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, other)
        assert inputs() == before, name
    plain = json.dumps(before)
    for field in StoredUncertainty.model_fields.keys() - {
        "version",
        "method",
        "controls",
    }:
        assert f'"{field}"' not in plain, f"{field} of an interval"
    assert '"jackknife"' not in plain and '"held-out"' not in plain


def test_data_and_model_are_part_of_the_identity(lab: Lab) -> None:
    before = identity(lab)
    lab.spec("models", "pixels4", builder={"name": "pixels", "size": 8})
    assert identity(lab) != before
    lab.spec("models", "pixels4", builder={"name": "pixels", "size": 4})
    assert identity(lab) == before
    (lab.data / "responses.nc").write_bytes(
        (lab.data / "responses.nc").read_bytes() + b"\0"
    )
    lab.dataset()
    assert identity(lab) != before


DECISIVE = {
    "datasets": (DATASET_ONLY_SAYS, {"degrees", "files", "id", "members", "reader", "version"}),
    "benchmarks": (
        BENCHMARK_ONLY_SAYS,
        {"answers", "ceiling", "compat", "controls", "dataset", "each", "floor", "generalise", "id", "metric", "metrics",
         "normalise", "paradigm", "select", "version"},
    ),
    "models": (
        MODEL_ONLY_SAYS,
        {"builder", "commit", "id", "layers", "logits", "readout", "regions", "version", "visual_degrees", "weights"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", DECISIVE)
def test_a_new_field_is_part_of_the_identity_unless_it_is_descriptive(
    kind: str,
) -> None:
    only_says, decisive = DECISIVE[kind]
    fields = {field.alias or name for name, field in KINDS[kind].model_fields.items()}
    assert fields - only_says == decisive


def test_equal_content_gives_equal_json_and_other_types_are_refused() -> None:
    assert canonical({"b": [1, 2.5, None], "a": "ü"}) == '{"a":"ü","b":[1,2.5,null]}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical({"a": float("nan")})


def test_the_keys_of_inputs_are_fixed(lab: Lab) -> None:
    """Records are found, compared and told stale by these names."""
    lab.benchmark("lab.V4-ridge", version=3)
    catalog = lab.open()
    spec, data, model = (
        catalog.benchmark("lab.V4-ridge"), catalog.dataset("lab"), catalog.model("pixels4"),
    )  # fmt: skip
    result = inputs_of(
        catalog, spec, "pixels4", Request(seed=3, limit=5, device="cuda:1")
    ).model_dump(mode="json")
    assert result["schema_version"] == 1
    assert result["benchmark"] == {
        "id": "lab.V4-ridge", "version": 3, "spec_sha256": spec_sha256(spec, without=BENCHMARK_ONLY_SAYS),
    }  # fmt: skip
    version = {
        (kind, name): f"{name}@{registry.get(kind, name).version}"
        for kind, name in (
            ("reader", "netcdf"), ("paradigm", "recording"), ("metric", "regression"),
            ("ceiling", "internal_consistency"), ("builder", "pixels"),
        )
    }  # fmt: skip
    assert result["dataset"] == {
        "id": "lab", "version": 1, "spec_sha256": spec_sha256(data, without=DATASET_ONLY_SAYS),
        "files": {name: pin.sha256 for name, pin in data.files.items()}, "component": version["reader", "netcdf"],
    }  # fmt: skip
    assert result["paradigm"] == version["paradigm", "recording"]
    assert (result["seed"], result["limit"], result["device"]) == (3, 5, "cuda")
    assert result["model"] == result["controls"]["pixels4"] == {
        "id": "pixels4", "version": 1, "spec_sha256": spec_sha256(model, without=MODEL_ONLY_SAYS), "weights": {},
        "component": version["builder", "pixels"],
    }  # fmt: skip
    assert list(result["controls"]) == ["noise", "pixels4"]
    (metric,) = result["metrics"]
    for bound, id in ((metric, "ridge"), (result["ceiling"], "internal_consistency")):
        assert (
            set(bound) == {"id", "spec_sha256", "parameters_sha256", "component"}
            and bound["id"] == id
        )
    assert metric["component"] == version["metric", "regression"]
    assert result["ceiling"]["component"] == version["ceiling", "internal_consistency"]
    assert set(result) == {
        "schema_version", "benchmark", "dataset", "paradigm", "metrics", "ceiling", "seed", "limit", "device",
        "controls", "model",
    }  # fmt: skip
    shared = inputs_of(catalog, spec, None, Request())
    assert "model" not in shared.model_dump(mode="json")
    for job in plan(catalog, benchmarks=["lab.V4-ridge"], request=Request()).jobs:
        inputs = inputs_of(catalog, spec, job.model, Request())
        assert job.inputs == inputs and job.id == inputs.sha256


def test_an_identity_is_hashed_by_its_parts_as_a_whole(lab: Lab) -> None:
    catalog = lab.open()
    inputs = inputs_of(catalog, catalog.benchmark("lab.V4-ridge"), "pixels4", Request())
    prepared = {"rate": 100.0, "named": {"b": [1, None], "a": "ü"}}
    changed = inputs.model_copy(
        update={"preparation": prepared, "commitment": {"z": inputs, "a": inputs}}
    )
    assert changed.sha256_with({"model": ModelIdentity(id="b")}) == sha256_of(
        {**changed.model_dump(mode="json"), "model": {"id": "b"}}
    )
    for each in (inputs, changed, inputs.model_copy(update={"seed": 5})):
        assert each.sha256 == sha256_of(each.model_dump(mode="json"))
        again = Inputs.model_validate(json.loads(canonical(each.model_dump())))
        assert again == each and again.sha256 == each.sha256


@pytest.mark.parametrize(
    "plain",
    [
        {"seed": 1.0},
        {"seed": True},
        {"benchmark": {"version": "1"}},
        {"dataset": {"files": {"a": 1.0}}},
        {"dataset": {"members": [{"version": 1.0}]}},
        {"metrics": [{"id": 1}]},
        {"commitment": {"a": {"limit": 2.0}}},
    ],
)
def test_no_type_of_an_identity_is_converted(plain: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="valid"):
        Inputs.model_validate(plain)
