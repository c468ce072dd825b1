"""A component is registered once, under a name with a version, and found by it, whatever else is installed."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from neuroledger.errors import RequestError, UnknownError
from neuroledger.spec import registry
from neuroledger.spec.registry import Family


@pytest.fixture(autouse=True)
def nothing_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_BROKEN", {})


def closeness(source: Any, target: Any, *, rng: Any, workspace: Any, power: float = 2.0) -> Any:
    """How close two arrays are."""


def test_what_the_engine_hands_over_is_no_parameter() -> None:
    registry.metric("closeness", version=3, trials=True)(closeness)
    found = registry.get("metric", "closeness")
    assert (found.name, found.version, found.function, found.trials, found.timed) == (
        "closeness",
        3,
        closeness,
        True,
        False,
    )
    assert found.injected == {"rng", "workspace"}
    assert found.bind({}) == {"power": 2.0} and found.bind({"power": 1}) == {"power": 1.0}
    assert found.canonical({"power": 3}) == {"power": 3.0}
    assert found.parameters.__name__ == "ClosenessParameters"


def test_a_name_belongs_to_one_function_and_a_version_is_positive() -> None:
    registry.metric("closeness", version=1)(closeness)
    registry.metric("closeness", version=2)(closeness)  # imported anew
    assert registry.get("metric", "closeness").version == 2
    with pytest.raises(
        RequestError, match=r"'closeness' is registered twice: by .*closeness and by .*other; rename one"
    ):

        @registry.metric("closeness", version=1)
        def other(source: Any, target: Any) -> Any: ...

    with pytest.raises(RequestError, match="'early': a version is an integer from 1"):
        registry.metric("early", version=0)


def test_components_of_other_distributions_are_listed_unless_they_are_not_wanted() -> None:
    registry.metric("closeness", version=1)(closeness)
    assert closeness.__module__.split(".")[0] != registry.DISTRIBUTION
    assert "closeness" in registry.names("metric") and "closeness" not in registry.names(
        "metric", plugins=False
    )
    assert {"cka", "regression"} <= set(registry.names("metric", plugins=False))
    assert registry.names("metric") == sorted(registry.names("metric"))


def test_an_unknown_name_is_told_with_its_neighbours_and_with_packages_that_are_broken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(
        UnknownError, match=r"no metric is registered as 'regresion'; did you mean 'regression'"
    ):
        registry.get("metric", "regresion")
    with caplog.at_level(logging.WARNING, "neuroledger"):
        for error in (ImportError("no torch"), ValueError("again")):
            registry._note_broken(Family("theirs", "theirs.parts"), error)
    (line,) = caplog.messages
    words = "the installed package theirs cannot be used: importing theirs.parts raised ImportError: no torch"
    assert line == f"{words}; fix it, or `pip uninstall theirs`"
    with pytest.raises(UnknownError, match=r"known: .*pixels.*; the installed package theirs cannot be used"):
        registry.get("builder", "zzzzzz")


def test_without_any_family_the_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "families", tuple)
    with pytest.raises(RequestError, match="the package neuroledger is not installed; `pip install"):
        registry.discover.__wrapped__("metric")


def test_a_reader_knows_its_call_and_nobody_else_does() -> None:
    seen: list[registry.Call] = []

    @registry.reader("mine", version=1)
    def mine(files: Any, *, size: int = 4, name: str = "x") -> None:
        seen.append(registry.current_call())
        if size > 4:
            raise ValueError

    files: Any = {"a": "b"}
    mine(files, name="y")
    with pytest.raises(ValueError):
        mine(files, size=5)
    assert [(call.reader.name, call.files, call.parameters) for call in seen] == [
        ("mine", files, {"size": 4, "name": "y"}),
        ("mine", files, {"size": 5, "name": "x"}),
    ]
    with pytest.raises(RequestError, match="windows are stored by registered readers only"):
        registry.current_call()
