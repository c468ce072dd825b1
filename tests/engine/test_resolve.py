"""Resolution of jobs: selected and limited data, and models built from specs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neuroledger.display import NoDisplay
from neuroledger.engine import resolve as module
from neuroledger.engine.resolve import Resolved, model_of, resolve
from neuroledger.engine.session import Request, Session
from neuroledger.errors import (
    DataError,
    NeuroLedgerError,
    RequestError,
    UnavailableError,
)
from neuroledger.models.devices import Training
from neuroledger.models.model import LayeredModel
from neuroledger.spec.components import CONTEXT_FIELDS, Builder
from tests.engine.lab import IMAGES, NEUROIDS, REPETITIONS, Lab


def resolved(
    lab: Lab, request: Request | None = None, model: str = "pixels4", **benchmark: Any
) -> Resolved:
    lab.benchmark(**benchmark)
    catalog = lab.open()
    session = Session(catalog, request or Request())
    return resolve(
        session,
        catalog.benchmark("lab.V4-ridge"),
        model,
        lambda *_: pytest.fail("nothing is scored"),
    )


def test_a_limit_keeps_every_repetition_of_the_first_stimuli(valid: Lab) -> None:
    whole, cut = (
        resolved(valid, request).data.assembly
        for request in (Request(), Request(limit=7))
    )
    assert whole is not None and cut is not None
    assert whole.shape == (IMAGES * REPETITIONS, NEUROIDS) and cut.shape == (
        7 * REPETITIONS,
        NEUROIDS,
    )
    assert set(cut["stimulus_id"].values) == {f"im{number:02d}" for number in range(7)}
    first = whole.isel(presentation=np.isin(whole["stimulus_id"], cut["stimulus_id"]))
    np.testing.assert_array_equal(cut.values, first.values)


def test_only_what_the_benchmark_selects_is_scored(valid: Lab) -> None:
    result = resolved(valid, select={"repetition": [0, 2]}).data.assembly
    assert result is not None and set(result["repetition"].values) == {0, 2}
    assert result.sizes["presentation"] == 2 * IMAGES


def test_control_models_are_recognised(valid: Lab) -> None:
    valid.spec("models", "pixels2", builder={"name": "pixels", "size": 2})
    known = {
        model: resolved(valid, model=model).control
        for model in ("pixels4", "noise", "pixels2")
    }
    assert known == {"pixels4": True, "noise": True, "pixels2": False}


def test_unavailable_benchmarks_and_models_are_refused_with_the_reason(
    valid: Lab,
) -> None:
    with pytest.raises(
        UnavailableError,
        match=r"benchmark 'lab\.V4-ridge' is unavailable: the data are withdrawn",
    ):
        resolved(valid, unavailable="the data are withdrawn")
    valid.spec(
        "models",
        "away",
        builder={"name": "pixels"},
        unavailable="its weights are not public",
    )
    with pytest.raises(
        UnavailableError,
        match="model 'away' is unavailable: its weights are not public",
    ):
        model_of(Session(valid.open(), Request()), "away")


@pytest.mark.parametrize(
    "field", [{"layers": ["units"]}, {"readout": "units"}, {"logits": "units"}]
)
def test_fields_that_a_builder_does_not_use_are_refused(
    valid: Lab, field: dict[str, Any]
) -> None:
    valid.spec("models", "more", builder={"name": "noise"}, **field)
    with pytest.raises(
        RequestError,
        match=f"builder 'noise' does not use `{next(iter(field))}`; remove it",
    ):
        model_of(Session(valid.open(), Request()), "more")


def test_a_model_is_built_once_per_session(valid: Lab) -> None:
    session = Session(valid.open(), Request())
    assert model_of(session, "pixels4") is model_of(session, "pixels4")


def test_data_that_were_not_validated_are_refused(lab: Lab) -> None:
    with pytest.raises(
        NeuroLedgerError,
        match="it has not been validated: run `neuroledger validate lab`",
    ):
        resolved(lab)


def test_each_selection_of_a_session_is_read_once(valid: Lab) -> None:
    valid.benchmark("lab.V4-first", select={"repetition": [0]})
    valid.benchmark("lab.V4-second", select={"repetition": [1, 2]})
    valid.benchmark("lab.V4-again", select={"repetition": [1, 2]})
    valid.benchmark("lab.V4-none", select={"repetition": [99]})
    session = Session(valid.open(), Request())
    first, second, again, whole = (
        module._dataset(session, session.catalog.benchmark(f"lab.V4-{name}"))
        for name in ("first", "second", "again", "ridge")
    )
    parts = [set(data.assembly["repetition"].values) for data in (first, second, whole)]  # type: ignore[index]
    assert parts == [{0}, {1, 2}, set(range(REPETITIONS))]
    assert again is second and whole is session.datasets["lab"]
    with pytest.raises(NeuroLedgerError, match="data set 'lab'"):
        module._dataset(session, session.catalog.benchmark("lab.V4-none"))


def test_a_limit_leaves_data_without_stimuli_unchanged(valid: Lab) -> None:
    session = Session(valid.open(), Request(limit=2))
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    data = module.load_dataset(session.catalog, "lab")
    assert data.assembly is not None
    bare = data.assembly.drop_vars("stimulus_id")
    session.datasets["lab"] = replace(data, assembly=bare)
    assert module._dataset(session, benchmark).assembly.shape == bare.shape  # type: ignore[union-attr]
    session.datasets["lab"] = without = replace(data, assembly=None)
    assert module._dataset(session, benchmark) is without


def test_metrics_and_ceiling_have_the_seed_and_device_of_the_request(
    valid: Lab,
) -> None:
    valid.benchmark(
        metrics=["ridge", {"name": "pls", "splits": {"folds": 3}}], metric=None
    )
    catalog = valid.open()
    session = Session(catalog, Request(seed=4))
    result = resolve(
        session,
        catalog.benchmark("lab.V4-ridge"),
        "pixels4",
        lambda *_: pytest.fail("scored"),
    )
    assert list(result.metrics) == ["ridge", "pls"] and result.first == "ridge"
    assert result.metrics["pls"].spec.splits.folds == 3  # type: ignore[union-attr]
    bound = result.ceiling
    assert bound is not None and bound.spec.id == "internal_consistency"
    for item in (bound, *result.metrics.values()):
        assert item.seed == 4 and item.workspace is session.workspace
    assert result.parameters["region"] == "V4" and result.paradigm.name == "recording"
    assert resolved(valid, ceiling=None, normalise="none").ceiling is None


def test_a_model_in_memory_is_no_control_and_has_no_declared_pretraining(
    valid: Lab,
) -> None:
    catalog = valid.open()
    model = LayeredModel(
        id="pixels4",
        takes=frozenset({"images"}),
        extract=lambda *_: {},
        layers=("one",),
        regions={"V4": "one"},
    )
    session = Session(catalog, Request())
    result = resolve(
        session,
        catalog.benchmark("lab.V4-ridge"),
        model,
        lambda *_: pytest.fail("scored"),
    )
    assert (result.model.id, result.control, result.pretraining) == (
        "pixels4",
        False,
        (),
    )
    valid.spec(
        "models",
        "read",
        builder={"name": "pixels", "size": 4},
        pretraining=["ImageNet"],
    )
    assert resolved(valid, model="read").pretraining == ("ImageNet",)


def test_a_model_with_a_rule_is_committed_by_the_scores_of_its_layers(
    valid: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {"on": {"V4": "lab.V4-other"}}
    valid.benchmark("lab.V4-other")
    valid.spec(
        "models", "net", builder={"name": "small_cnn", "channels": 1}, commit=rule
    )
    catalog = valid.open()
    session, benchmark = Session(catalog, Request()), catalog.benchmark("lab.V4-ridge")
    asked: list[Any] = []

    def committed(*given: Any) -> str:
        asked.append(given)
        return "the committed model"

    monkeypatch.setattr(module, "committed", committed)
    result = resolve(session, benchmark, "net", lambda *given: given)  # type: ignore[arg-type, return-value]
    assert result.model == "the committed model"
    [(of, model, declared, scored, data, load, score)] = asked
    assert (of, model.id, declared.on, scored) == (
        session,
        "net",
        rule["on"],
        benchmark,
    )
    assert data is result.data and load(catalog.benchmark("lab.V4-other")) is data
    assert score(benchmark, model) == (session, benchmark, model)


class Built:
    """A model spec and its builder, which returns its arguments."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, files: dict[str, Path], **fields: Any
    ) -> None:
        known = {
            "weights": {},
            "regions": {},
            "layers": (),
            "readout": None,
            "logits": None,
            "visual_degrees": 8,
        }
        builder = SimpleNamespace(name="net")
        spec = SimpleNamespace(builder=builder, unavailable=None, **(known | fields))
        asks_for = frozenset(CONTEXT_FIELDS["builder"]) - {"context"}
        self.component = Builder("net", 1, lambda **given: given, asks_for)
        catalog: Any = SimpleNamespace(
            model=lambda id: spec, entry=lambda kind, id: None
        )
        self.session: Any = SimpleNamespace(
            catalog=catalog,
            models={},
            store="store",
            request=SimpleNamespace(
                device="cuda", seed=6, training=Training(workers=3)
            ),
            display=NoDisplay(),
        )
        self.refused: list[Path] = []
        monkeypatch.setattr(module.registry, "get", lambda kind, name: self.component)
        monkeypatch.setattr(module, "verified_files", lambda catalog, kind, id: files)
        monkeypatch.setattr(module, "parameters_of", lambda entry, kind: {"size": 4})
        monkeypatch.setattr(module, "refuse_outside_storage", self.refused.append)
        monkeypatch.setattr(module, "confined", self.confined)
        self.limits: list[tuple[Any, str]] = []

    def confined(self, work: Any, limits: Any, name: str) -> None:
        self.limits.append((limits, name))
        work()


def test_a_builder_gets_its_fields_parameters_and_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weights = {"a": tmp_path / "a.h5", "b": tmp_path / "b.pt"}
    for path in weights.values():
        path.write_bytes(b"0" * 10)
    case = Built(
        monkeypatch,
        weights,
        regions={"V4": "one"},
        layers=("one",),
        readout="r",
        logits="l",
    )
    model: Any = model_of(case.session, "net")
    rng = model.pop("rng")
    assert rng.random() == np.random.default_rng(6).random()
    training = model.pop("training")
    assert training == Training(workers=3)
    assert training.tell == case.session.display.progress
    assert model == {
        "id": "net", "weights": weights, "regions": {"V4": "one"}, "layers": ("one",), "readout": "r", "logits": "l",
        "visual_degrees": 8, "device": "cuda", "store": "store", "size": 4,
    }  # fmt: skip
    assert case.refused == list(weights.values()) and [
        name for _, name in case.limits
    ] == ["model 'net': its weights"]
    assert case.session.models == {"net": model}


def test_a_builder_gets_only_what_it_asks_for_and_nothing_is_read_without_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Built(monkeypatch, {})
    case.component = replace(case.component, asks_for=frozenset({"id", "device"}))
    model: Any = model_of(case.session, "net")
    assert model == {"id": "net", "device": "cuda", "size": 4} and case.limits == []


def test_the_reason_for_refused_data_contains_place_and_fix(lab: Lab) -> None:
    with pytest.raises(
        DataError, match=r"^.*lab.*: .*: run `neuroledger validate lab`"
    ):
        resolved(lab)
