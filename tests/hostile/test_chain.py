"""From a clean review to the published page: what the documents call safe is safe, and the chain sees what is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.proposals.chain import CLEAN, Live, Maintainer, follow, obeyed
from tests.hostile.proposals.corpus import PROPOSALS, Proposal


@pytest.fixture(scope="module")
def maintainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maintainer]:
    one = Maintainer(tmp_path_factory.mktemp("chain").resolve())
    yield one
    one.close()


# `make test-slow` and `make hostile` follow them: a review, a merge and every verb take a minute.
@pytest.mark.slow
@pytest.mark.parametrize("one", CLEAN, ids=lambda one: one.name)
def test_what_follows_a_clean_review_is_safe(
    one: Proposal, maintainer: Maintainer, tmp_path: Path
) -> None:
    assert follow(one, maintainer, tmp_path.resolve()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [("a_data_set_whose_file_python_imports", "executed")],
)
def test_the_chain_sees_attacks_that_the_review_refuses(
    name: str, words: str, maintainer: Maintainer, tmp_path: Path
) -> None:
    (one,) = [proposal for proposal in PROPOSALS if proposal.name == name]
    assert one.verdict != "clean"
    problems = " ".join(follow(one, maintainer, tmp_path.resolve()))
    assert words in problems and ".ci/review: exit 1" in problems


@pytest.mark.parametrize(
    ("page", "live"),
    [
        ("<img src=x onerror=alert(1)>", True),
        ("<a href='java\tscript:alert(1)'>x</a>", True),
        ("<img src='https://example.org/x.png'>", True),
        ("<script src='//example.org/x.js'></script>", True),
        ("<iframe srcdoc='x'></iframe>", True),
        ("<script>brought()</script>", True),
        (
            "<script>own()</script><img src='x.png'><a href='https://example.org'>x</a>",
            False,
        ),
        ("&lt;img src=x onerror=alert(1)&gt;", False),
    ],
)
def test_live_elements_are_told_from_text(page: str, live: bool) -> None:
    parser = Live("a page with brought()")
    parser.feed(page)
    assert bool(parser.found) == live, parser.found


def test_formulas_and_commands_in_published_tables_are_seen(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("rank,'=A1,V4\n1,-0.5,0.25\n")
    (tmp_path / "a.tex").write_text(r"\caption{a\_b \textasciicircum{}}")
    assert list(obeyed(tmp_path)) == []
    (tmp_path / "a.csv").write_text('rank,"=HYPERLINK(A1;A2)",-x\n1,+A1,.5\n')
    (tmp_path / "a.tex").write_text(r"\caption{^^5cinput x \input y}")
    found = [one.partition(": ")[2] for one in obeyed(tmp_path)]
    assert found == ["=HYPERLINK(A1;A2)", "-x", "+A1", "^^5cinput", r"\input"]
