"""A component is registered once, under a name with a version, and found by it, whatever else is installed."""

from __future__ import annotations

import logging
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from neuroledger.engine.context import BuilderContext, MetricContext, ParadigmContext
from neuroledger.errors import RequestError, UnknownError
from neuroledger.spec import registry
from neuroledger.spec.components import CONTEXT_FIELDS, ReaderContext, text_of
from neuroledger.spec.registry import Family
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace


@pytest.fixture(autouse=True)
def nothing_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_BROKEN", {})


def closeness(
    source: Any, target: Any, *, rng: Any, workspace: Any, power: float = 2.0
) -> Any:
    """How close two arrays are."""


def test_values_that_the_engine_injects_are_not_parameters() -> None:
    registry.metric("closeness", version=3, trials=True)(closeness)
    found = registry.get("metric", "closeness")
    assert (found.name, found.version, found.function, found.trials, found.timed) == (
        "closeness",
        3,
        closeness,
        True,
        False,
    )
    assert found.asks_for == {"rng", "workspace"}
    assert found.bind({}) == {"power": 2.0} and found.bind({"power": 1}) == {
        "power": 1.0
    }
    assert found.canonical({"power": 3}) == {"power": 3.0}
    assert found.parameters.__name__ == "ClosenessParameters"


def test_a_name_belongs_to_one_function_and_a_version_is_positive() -> None:
    registry.metric("closeness", version=1)(closeness)
    registry.metric("closeness", version=2)(closeness)  # imported anew
    assert registry.get("metric", "closeness").version == 2
    with pytest.raises(
        RequestError,
        match=r"'closeness' is registered twice: by .*closeness and by .*other; rename one",
    ):

        @registry.metric("closeness", version=1)
        def other(source: Any, target: Any) -> Any: ...

    with pytest.raises(
        RequestError,
        match="'early': version 0 is invalid: give an integer of at least 1",
    ):
        registry.metric("early", version=0)


def test_components_of_other_distributions_are_listed_unless_they_are_not_wanted() -> (
    None
):
    registry.metric("closeness", version=1)(closeness)
    assert closeness.__module__.split(".")[0] != registry.DISTRIBUTION
    assert "closeness" in registry.names(
        "metric"
    ) and "closeness" not in registry.names("metric", plugins=False)
    assert {"cka", "regression"} <= set(registry.names("metric", plugins=False))
    assert registry.names("metric") == sorted(registry.names("metric"))


def test_an_unknown_name_is_reported_with_near_misses_and_broken_packages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(
        UnknownError,
        match=r"no metric is registered as 'regresion'; did you mean 'regression'",
    ):
        registry.get("metric", "regresion")
    with caplog.at_level(logging.WARNING, "neuroledger"):
        for error in (ImportError("no torch"), ValueError("again")):
            registry.note_broken(Family("theirs", "theirs.parts"), error)
    (line,) = caplog.messages
    words = "the installed package theirs cannot be used: importing theirs.parts raised ImportError: no torch"
    assert line == f"{words}; fix it, or run `pip uninstall theirs`"
    with pytest.raises(
        UnknownError,
        match=r"known: .*pixels.*; the installed package theirs cannot be used",
    ):
        registry.get("builder", "zzzzzz")


def test_without_any_family_the_package_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "families", tuple)
    with pytest.raises(
        RequestError, match="the package neuroledger is not installed: run `pip install"
    ):
        registry.discover.__wrapped__("metric")


def test_a_reader_that_asks_for_its_context_gets_it_also_as_a_function() -> None:
    seen: list[ReaderContext] = []

    @registry.reader("mine", version=1)
    def mine(
        files: Any,
        *,
        size: int = 4,
        name: str = "x",
        context: ReaderContext | None = None,
    ) -> None:
        assert context is not None
        seen.append(context)
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
    assert set(registry.get("reader", "mine").bind({})) == {"size", "name"}


def test_a_misspelt_or_wrongly_annotated_parameter_of_the_context_is_refused() -> None:
    def misspelt(source: Any, target: Any, *, rgn: np.random.Generator) -> Any: ...

    def other(source: Any, target: Any, *, pieces: Sequence[Split]) -> Any: ...

    def wrong(source: Any, target: Any, *, rng: int = 0) -> Any: ...

    def narrower(*, id: str, weights: dict[str, Path]) -> Any: ...

    for function, words in (
        (misspelt, r"metric 'x'.*parameter `rgn` is annotated; did you mean `rng`"),
        (other, r"parameter `pieces` is annotated; did you mean `splits`"),
        (
            wrong,
            r"gives `rng` as numpy.*Generator, and it is annotated as builtins\.int",
        ),
    ):
        with pytest.raises(RequestError, match=words):
            registry.metric("x", version=1)(function)
    registry.builder("narrower", version=1, takes={"images"}, gives={"costs"})(narrower)
    assert registry.get("builder", "narrower").asks_for == {"id", "weights"}


def test_the_fields_of_contexts_are_those_that_components_may_ask_for() -> None:
    classes = {"metric": MetricContext, "ceiling": MetricContext,
               "paradigm": ParadigmContext, "builder": BuilderContext}  # fmt: skip
    for kind, of_kind in classes.items():
        hints = typing.get_type_hints(of_kind)
        stated = dict(CONTEXT_FIELDS[kind])
        assert stated.pop("context") == text_of(of_kind)
        assert {name: text_of(hint) for name, hint in hints.items()} == stated


def test_a_metric_may_ask_for_its_whole_context() -> None:
    seen: list[MetricContext] = []

    def whole(source: Any, target: Any, *, context: MetricContext) -> Any:
        seen.append(context)

    registry.metric("whole", version=1)(whole)
    found = registry.get("metric", "whole")
    given = MetricContext(np.random.default_rng(), Workspace())
    found.call(given, (1, 2), {})
    assert seen == [given] and found.bind({}) == {}


class Entry:
    """An entry point of an installed distribution."""

    def __init__(self, module: str, distribution: str | None) -> None:
        self.module = module
        self.dist = None if distribution is None else SimpleNamespace(name=distribution)


def test_families_of_this_package_are_first_and_each_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [Entry("zeta.parts", "alpha"), Entry("neuroledger.b", "neuroledger"), Entry("beta.parts", None),
               Entry("neuroledger.a", "neuroledger"), Entry("zeta.parts", "alpha")]  # fmt: skip
    asked: list[str] = []
    monkeypatch.setattr(
        registry, "entry_points", lambda *, group: asked.append(group) or entries
    )
    assert registry.families.__wrapped__() == (
        Family("neuroledger", "neuroledger.a"), Family("neuroledger", "neuroledger.b"),
        Family("alpha", "zeta.parts"), Family("beta", "beta.parts"),
    )  # fmt: skip
    assert asked == ["neuroledger.families"]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("own_parts", "other_parts", "bare_parts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "raise RuntimeError('it was run')\n"
        )
    for name in ("own_parts", "other_parts"):
        (tmp_path / name / "specs").mkdir()
    return tmp_path


def test_specs_of_other_packages_are_found_and_nothing_of_them_is_run(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = (Family(registry.DISTRIBUTION, "own_parts"), Family("a", "bare_parts"), Family("b", "other_parts"),
             Family("c", "no_such_parts"), Family("d", "math"), Family("e", "no_such_parts.deeper"))  # fmt: skip
    monkeypatch.setattr(registry, "families", lambda: known)
    assert registry.plugin_specs.__wrapped__() == (
        ("b", packages / "other_parts" / "specs"),
    )
    assert (
        set(registry._BROKEN) == {"e"}
        and "importing no_such_parts.deeper raised" in registry._BROKEN["e"]
    )


def test_a_family_offers_its_package_and_all_modules_of_the_kinds_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = (
        "family_x",
        "family_x.metrics",
        "family_x.metrics.deep",
        "family_x.metrics.deep.one",
        "family_x.readers",
    )
    for module in modules:
        path = tmp_path / module.replace(".", "/")
        if module.endswith("one"):
            path.with_suffix(".py").write_text("")
        else:
            path.mkdir()
            (path / "__init__.py").write_text("")
    (tmp_path / "single_x.py").write_text("")
    (tmp_path / "family_x" / "models.py").write_text("")
    for module in (*modules, "family_x.models", "single_x"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    registry._import_family(Family("x", "family_x"), "metric")
    assert {name for name in modules if name in sys.modules} == set(modules[:4])
    registry._import_family(Family("x", "family_x"), "builder")
    assert "family_x.models" in sys.modules, "a kind may be one module"
    registry._import_family(Family("x", "family_x"), "paradigm")
    registry._import_family(Family("x", "single_x"), "metric")
    assert "single_x" in sys.modules and "family_x.readers" not in sys.modules


def test_parameters_that_do_not_fit_together_are_refused_and_all_others_pass() -> None:
    def apart(given: Any) -> None:
        if given.low >= given.high:
            raise ValueError("low is not below high")

    @registry.metric("apart", version=1, together=apart)
    def between(source: Any, target: Any, *, low: int = 1, high: int) -> Any:
        """Doc of it."""

    found = registry.get("metric", "apart")
    assert (
        found.bind({"high": 2}) == {"low": 1, "high": 2}
        and found.parameters.__doc__ == "Doc of it."
    )
    assert found.parameters.__name__ == "BetweenParameters"
    for wrong, words in (
        ({"high": 1}, "low is not below high"),
        ({}, "Field required"),
        ({"high": 2, "mid": 1}, "Extra"),
    ):
        with pytest.raises(ValidationError, match=words):
            found.bind(wrong)


def test_every_decorator_keeps_what_is_declared_and_knows_only_channels() -> None:
    def called(*_: Any, **__: Any) -> None: ...

    registry.ceiling("c1", version=2, input="behaviour")(called)
    found = registry.get("ceiling", "c1")
    assert (found.input, found.version) == ("behaviour", 2)
    assert not hasattr(found, "timed"), "each kind has its own fields"
    registry.metric("m1", version=1, input="trace", timed=True)(called)
    found = registry.get("metric", "m1")
    assert (found.input, found.timed, found.trials) == ("trace", True, False)
    registry.paradigm("p1", version=1, shows={"stimuli"}, asks=lambda values: {f"responses:{values['region']}"},
                      itself=True, permuted="source")(called)  # fmt: skip
    found = registry.get("paradigm", "p1")
    assert (found.itself, found.permuted, found.simulates) == (True, "source", None)
    assert found.interface({"region": "V4"}).outputs == frozenset({"responses:V4"})
    registry.stimuli("s1")(called)
    assert registry.get("stimuli", "s1").version == 1
    registry.reader("r1", version=1, prepares=True)(called)
    assert (
        registry.get("reader", "r1").prepares
        and registry.get("reader", "r1").pins is None
    )
    with pytest.raises(RequestError, match=r"paradigm 'p2'"):
        registry.paradigm(
            "p2", version=1, shows={"smells"}, asks=set(), itself=False, permuted=None
        )
    with pytest.raises(RequestError, match=r"builder 'b2'"):
        registry.builder("b2", version=1, takes={"images"}, gives={"smells"})


def test_declarations_have_defaults_and_names_and_versions_are_kept() -> None:
    def called(*_: Any, window: tuple[int, int] = (0, 1), **__: Any) -> None: ...

    registry.metric("m2", version=3)(called)
    registry.ceiling("c2", version=4)(called)
    registry.builder("b3", version=5, takes={"images"}, gives={"decisions"})(called)
    registry.reader("r2", version=6)(called)
    metric, ceiling = registry.get("metric", "m2"), registry.get("ceiling", "c2")
    assert (metric.version, metric.input, metric.timed, metric.trials) == (
        3,
        "assemblies",
        False,
        False,
    )
    assert metric.together is None
    assert (ceiling.version, ceiling.input) == (4, "assemblies")
    builder, reader = registry.get("builder", "b3"), registry.get("reader", "r2")
    assert (builder.name, builder.version, builder.outputs) == ("b3", 5, {"decisions"})
    assert (reader.version, reader.prepares, reader.reads, reader.pins) == (
        6,
        False,
        None,
        None,
    )
    assert metric.canonical({"window": (2, 3)}) == {"window": [2, 3]}, (
        "plain data, as in JSON"
    )
    registry.paradigm("p3", version=7, shows={"stimuli"}, asks=lambda _: {"smells"}, itself=False,
                      permuted=None)(called)  # fmt: skip
    assert registry.get("paradigm", "p3").version == 7
    with pytest.raises(RequestError, match="paradigm 'p3'"):
        registry.get("paradigm", "p3").interface({})
