"""Public functions find specs and records, and refuse unknown names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from neuroledger.engine import public
from neuroledger.engine.public import find, load, records, run, score
from neuroledger.engine.session import Request, Session
from neuroledger.errors import NeuroLedgerError, RequestError
from neuroledger.spec.kinds import BenchmarkSpec
from tests.engine.lab import Lab
from tests.report.ledger import keep, record

RIDGE = "lab.V4-ridge"


def test_find_filters_specs_by_kind_and_fields(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.benchmark("lab.IT", parent="IT", version=2)
    monkeypatch.chdir(lab.root)
    assert find().index.tolist() == sorted(find("benchmark").index)
    own = find("benchmarks", dataset="lab")
    assert own.index.name == "id" and own.index.tolist() == ["lab.IT", RIDGE]
    assert find(dataset="lab", parent="IT").index.tolist() == ["lab.IT"]
    assert find(dataset="lab", version="2").index.tolist() == [
        "lab.IT"
    ]  # fields are compared as text
    assert find(dataset="nosuch").empty
    assert find("dataset").loc["lab", "license"] == "CC0-1.0"
    with pytest.raises(
        RequestError,
        match="no kind 'colour'; kinds are datasets, metrics, ceilings, benchmarks",
    ):
        find("colour")
    with pytest.raises(
        RequestError,
        match="benchmarks have no field 'colour'; fields are id, version, title",
    ):
        find("benchmark", colour="red")


def test_records_are_read_from_the_repository_or_a_folder(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.root)
    assert records() == []
    keep(lab.open(), record("pixels4", RIDGE, 0.5), record("noise", RIDGE, None))
    assert [(item.model, item.status) for item in records()] == [
        ("noise", "failed"),
        ("pixels4", "scored"),
    ]
    assert records(lab.root / "results" / "records" / RIDGE) == records()
    assert records(lab.root / "specs") == []


def test_unknown_ids_are_refused_before_any_computation(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.root)
    for call in (
        lambda: load("nosuch"), lambda: score("pixels4", "nosuch"), lambda: score("nosuch", RIDGE),
        lambda: run(["nosuch"]), lambda: run(benchmarks=["nosuch"]), lambda: run(suite="nosuch"),
    ):  # fmt: skip
        with pytest.raises(NeuroLedgerError, match="nosuch"):
            call()
    assert not (lab.root / "results" / "records").exists()


def test_default_arguments_of_score(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.root)
    seen: list[tuple[object, ...]] = []

    def asked(
        session: Session, benchmark: BenchmarkSpec, model: object, *more: object
    ) -> SimpleNamespace:
        seen.append((session.request, benchmark.id, model, *more))
        return SimpleNamespace(headline=0.25)

    monkeypatch.setattr(public, "evaluate", asked)
    monkeypatch.setattr(public, "require_device", lambda name: None)
    result: object = public.score("pixels4", RIDGE)
    assert result == 0.25
    public.score("pixels4", RIDGE, seed=3, limit=40, device="cuda")
    usual, other = (
        Request(seed=0, limit=None, device="cpu"),
        Request(seed=3, limit=40, device="cuda"),
    )
    assert seen == [(usual, RIDGE, "pixels4"), (other, RIDGE, "pixels4")]
