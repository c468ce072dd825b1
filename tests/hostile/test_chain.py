"""From a clean review to the published page: what the documents call safe is safe, and the chain sees what is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.proposals.chain import CLEAN, Live, Worker, follow, prepare
from tests.hostile.proposals.corpus import PROPOSALS, Proposal

# Of these, one brings data and a benchmark, one a page: together they pass every call.
IN_BRIEF = ("a_data_set_with_a_benchmark_of_it", "a_table_and_a_formula_in_a_page")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("chain") / "start"
    prepare(root)
    return root


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    process = Worker(tmp_path_factory.mktemp("worker"))
    yield process
    process.close()


@pytest.mark.parametrize(
    "one",
    [pytest.param(one, id=one.name, marks=() if one.name in IN_BRIEF else pytest.mark.slow) for one in CLEAN],
)
def test_what_follows_a_clean_review_is_safe(
    one: Proposal, start: Path, tmp_path: Path, worker: Worker
) -> None:
    assert follow(one, start, tmp_path.resolve(), worker) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [("a_data_set_whose_file_python_imports", "executed")],
)
def test_the_chain_sees_attacks_that_the_review_refuses(
    name: str, words: str, start: Path, tmp_path: Path, worker: Worker
) -> None:
    (one,) = [proposal for proposal in PROPOSALS if proposal.name == name]
    assert one.verdict != "clean"
    assert words in " ".join(follow(one, start, tmp_path.resolve(), worker))


@pytest.mark.parametrize(
    ("page", "live"),
    [
        ("<img src=x onerror=alert(1)>", True),
        ("<a href='java\tscript:alert(1)'>x</a>", True),
        ("<img src='https://example.org/x.png'>", True),
        ("<script src='//example.org/x.js'></script>", True),
        ("<iframe srcdoc='x'></iframe>", True),
        ("<script>brought()</script>", True),
        ("<script>own()</script><img src='x.png'><a href='https://example.org'>x</a>", False),
        ("&lt;img src=x onerror=alert(1)&gt;", False),
    ],
)
def test_live_elements_are_told_from_text(page: str, live: bool) -> None:
    parser = Live("a page with brought()")
    parser.feed(page)
    assert bool(parser.found) == live, parser.found
