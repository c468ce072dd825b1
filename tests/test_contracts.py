"""Every registered component keeps the contract of its kind; and the checks find what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger import testing
from neuroledger.errors import CODES, ContractError, MetricError, RequestError
from neuroledger.spec import registry
from neuroledger.spec.catalog import open_definitions
from neuroledger.stats.samples import Samples
from neuroledger.testing import check_component, contract_checks, contract_findings


def is_own(kind: str, name: str) -> bool:
    """Whether a component is of this project, not one that another test registers."""
    return registry.get(kind, name).function.__module__.startswith("neuroledger.")


CHECKS = [check for check in contract_checks() if is_own(check.kind, check.name)]


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_the_contract(check: testing.Check) -> None:
    check()


def test_each_kind_has_its_checks_and_each_metric_at_least_ten() -> None:
    assert {check.code for check in CHECKS} == {
        code for code in CODES if code.startswith("contract.")
    }
    of_cka = [
        check for check in CHECKS if (check.kind, check.spec) == ("metric", "cka")
    ]
    assert len(of_cka) >= 10
    for kind in testing.KINDS:
        own = {name for name in registry.names(kind) if is_own(kind, name)}
        assert {check.name for check in CHECKS if check.kind == kind} == own


@pytest.fixture
def unregistered() -> Iterator[None]:
    """Forget what a test registers."""
    before = dict(registry._REGISTRY)
    yield
    registry._REGISTRY.clear()
    registry._REGISTRY.update(before)


SPEC = """id: planted
version: 1
title: A metric with a planted fault
compare: {{name: planted}}
{aggregate}scale: {scale}
cite: [a2026]
"""


def mean_distance(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Mean distance of responses, ``(neuroid,)``."""
    del source
    return np.abs(target).mean("presentation")


def random_numbers(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Random numbers that no seed controls, ``(neuroid,)``."""
    noise = np.random.default_rng().random(target.sizes["neuroid"])
    return target.isel(presentation=0).copy(data=noise)


def first_rows(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Response to the first row, which depends on the order, ``(neuroid,)``."""
    return abs(target.isel(presentation=0)) / (1 + abs(target.isel(presentation=0)))


def single_precision(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Half precision loses digits, ``(neuroid,)``."""
    return np.abs(target).mean("presentation").astype(np.float32)


def intolerant(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Mean that a missing response crashes, ``(neuroid,)``."""
    if target.isnull().any():
        raise ValueError("Input contains NaN")
    return np.abs(target).mean("presentation")


def crashing(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Variance of the second presentation, ``(neuroid,)``."""
    return np.abs(target.isel(presentation=1, drop=True))


def nameless(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Mean distance."""
    return np.abs(target).mean("presentation")


def beyond(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """An accuracy of more than one, ``(neuroid,)``."""
    return 2 + np.abs(target).mean("presentation")


def hiding(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Mean distance of responses, ``(neuroid,)``."""
    try:
        return np.abs(target).mean("presentation")
    except Exception:
        raise MetricError("the responses are unusable") from None


def undocumented(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    return np.abs(target).mean("presentation")


def with_a_positional_parameter(
    source: xr.DataArray, target: xr.DataArray, power: int = 2
) -> xr.DataArray:
    """Mean distance of responses, ``(neuroid,)``."""
    return np.abs(target).mean("presentation")


def infinite_note(source: xr.DataArray, target: xr.DataArray) -> Samples:
    """Mean distance of responses, ``(neuroid,)``."""
    return Samples(np.abs(target).mean("presentation"), counts={"n": float("inf")})


FAULTS: dict[str, tuple[Callable[..., Any], str]] = {
    "contract.repeatable": (random_numbers, "score"),
    "contract.rows": (first_rows, "score"),
    "contract.precision": (single_precision, "score"),
    "contract.missing": (intolerant, "score"),
    "contract.single": (crashing, "score"),
    "contract.dimensions": (nameless, "score"),
    "contract.limits": (beyond, "accuracy"),
    "contract.pending": (hiding, "score"),
    "contract.docstring": (undocumented, "score"),
    "contract.signature": (with_a_positional_parameter, "score"),
    "contract.json": (infinite_note, "score"),
}


@pytest.fixture
def planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unregistered: None
) -> Callable[[Callable[..., Any], str], None]:
    """Register a metric of another distribution, with a spec in a repository of its own."""
    specs = tmp_path / "specs" / "metrics"
    specs.mkdir(parents=True)
    (tmp_path / "dvc.yaml").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def plant(function: Callable[..., Any], scale: str) -> None:
        registry.metric("planted", version=1)(function)
        text = SPEC.format(
            scale=scale, aggregate="aggregate: [{over: neuroid, with: mean}]\n"
        )
        (specs / "planted.yaml").write_text(text, encoding="utf-8")

    return plant


@pytest.mark.parametrize("code", FAULTS)
def test_a_planted_fault_is_found_by_its_check(
    code: str, planted: Callable[[Callable[..., Any], str], None]
) -> None:
    planted(*FAULTS[code])
    found = {finding.code for finding in contract_findings(open_definitions())}
    assert code in found
    with pytest.raises(ContractError, match=code.replace(".", r"\.")):
        check_component("metric", "planted")


def test_a_metric_without_a_fault_passes(
    planted: Callable[[Callable[..., Any], str], None],
) -> None:
    planted(mean_distance, "score")
    testing.check_metric("planted")
    assert contract_findings(open_definitions()) == []


def test_what_cannot_be_checked_is_said(unregistered: None) -> None:
    with pytest.raises(RequestError, match="no kind 'metrics': choose one of metric, "):
        contract_checks("metrics")
    with pytest.raises(RequestError, match="did you mean 'cka'"):
        contract_checks("metric", "ckaa")
    registry.metric("lonely", version=1)(mean_distance)
    with pytest.raises(
        RequestError, match=r"metric 'lonely' has no spec.*specs/metrics/lonely\.yaml"
    ):
        contract_checks("metric", "lonely")
    (found,) = contract_findings(open_definitions())
    assert (found.code, found.where) == ("spec.component", "metric lonely")
