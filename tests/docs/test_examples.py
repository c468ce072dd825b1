"""Every public name has an example in its docstring, which runs as it is shown."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import neuroledger as nl

WITHOUT = {
    "Record": "its docstring is the description of its JSON schema: `nl.records` shows one",
    "decoding.recorded": "it reads predictions, which only the machine that scored has",
    "start": "it writes a folder and asks: the tutorial on own recordings shows it",
}
LONG = {"evaluate_decoder"}  # it trains networks
MODULES = ("decoding", "models", "plot")
LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each public function and class, by name; names of types that only annotate are left out."""
    for name in nl.__all__:
        found = getattr(nl, name)
        if name in MODULES:
            for inner in found.__all__:
                part = getattr(found, inner)
                if inspect.isfunction(part):
                    yield f"{name}.{inner}", part
        elif not inspect.ismodule(found):
            yield name, found


PUBLIC = dict(public())


SHOWN = [
    pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
    for name in sorted(PUBLIC.keys() - WITHOUT.keys())
]


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.filterwarnings("ignore")
def test_the_example_of_a_public_name_runs_as_it_is_shown(
    name: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib.pyplot as plt

    monkeypatch.chdir(repository)
    plt.switch_backend("Agg")
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert "\nExamples\n--------\n" in text, f"nl.{name} has no example"
    example = doctest.DocTestParser().get_doctest(text, {}, f"nl.{name}", None, 0)
    assert example.examples, f"nl.{name}: the example shows no call"
    said: list[str] = []
    found = doctest.DocTestRunner(optionflags=LIKE).run(example, out=said.append)
    plt.close("all")
    assert found.failed == 0, "".join(said)


def test_only_names_with_a_reason_have_no_example() -> None:
    assert WITHOUT.keys() <= PUBLIC.keys()
