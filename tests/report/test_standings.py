"""Ranks of a suite: failures are last, weights and tasks are used, and two suites are compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import kendalltau

from neuroledger.cli import main
from neuroledger.engine.record import Record
from neuroledger.errors import RequestError
from neuroledger.report.table import Standings, agreement_of, basis_of, standings
from tests.engine.lab import Lab
from tests.report.ledger import keep, record, score

RIDGE, PLS, OTHER = "lab.V4-ridge", "lab.V4-pls", "lab.V4-other"
MODELS = ("ant", "bee", "cat", "dog")


def row(benchmark: str, values: dict[str, float | None]) -> list[Record]:
    return [record(model, benchmark, value) for model, value in values.items()]


@pytest.fixture
def suites(lab: Lab) -> Lab:
    """Return a core suite of one benchmark and a full suite of three, the last of which has no data."""
    lab.benchmark(OTHER)
    lab.spec("datasets", "gone", license="CC0-1.0", unavailable="not here")
    lab.benchmark("gone.V4-ridge", dataset="gone")
    lab.spec("suites", "small", benchmarks=[RIDGE], models=[*MODELS, "noise"])
    lab.spec(
        "suites",
        "full",
        benchmarks=[RIDGE, PLS, OTHER, "gone.V4-ridge"],
        models=[*MODELS, "noise"],
    )
    return lab


RECORDS = [
    *row(RIDGE, {"ant": 0.9, "bee": 0.5, "cat": 0.4, "dog": 0.1, "noise": 0.0}),
    *row(PLS, {"ant": None, "bee": 0.6, "cat": 0.7, "dog": 0.2, "noise": 0.0}),
    *row(OTHER, {"ant": 0.8, "bee": 0.3, "cat": 0.2, "noise": 0.0}),
    record("pixels4", RIDGE, 0.97),
]


def of(lab: Lab, suite: str) -> Standings:
    return standings(suite, catalog=lab.open(), records=RECORDS)


def test_a_failed_or_missing_score_is_last_and_never_skipped(suites: Lab) -> None:
    found = of(suites, "full")
    assert found.unscored == ("gone.V4-ridge",)
    assert found.failed == {"ant": 1, "bee": 0, "cat": 0, "dog": 1, "noise": 0}
    # ridge: ant 0, bee 1, cat 2, dog 3, noise 4; pls: cat, bee, dog, noise, ant; other: ant, bee, cat, noise, dog
    expected = {
        "ant": 4 / 12,
        "bee": 3 / 12,
        "cat": 4 / 12,
        "dog": 9 / 12,
        "noise": 10 / 12,
    }
    assert found.ranks == pytest.approx(expected)
    assert "pixels4" not in found.ranks
    assert found.dummies == ("noise",)


def test_a_failure_never_improves_a_rank(suites: Lab) -> None:
    worst = [
        item for item in RECORDS if (item.model, item.benchmark) != ("dog", PLS)
    ] + row(PLS, {"dog": None})
    before = of(suites, "full").ranks["dog"]
    assert (
        standings("full", catalog=suites.open(), records=worst).ranks["dog"] >= before
    )


def test_agreement_of_core_and_full_equals_scipy(suites: Lab) -> None:
    core, full = of(suites, "small"), of(suites, "full")
    whole, without = agreement_of(core, full)
    names = sorted(core.ranks)
    expected = kendalltau(
        [core.ranks[m] for m in names], [full.ranks[m] for m in names]
    )
    assert whole == pytest.approx((expected.statistic, expected.pvalue, 5))
    assert without is not None
    assert without.models == 4
    assert without.tau < whole.tau


def test_the_benchmarks_behind_an_agreement_are_counted(suites: Lab) -> None:
    basis = basis_of(of(suites, "small"), of(suites, "full"))
    assert (
        basis.first_scored,
        basis.first_all,
        basis.second_scored,
        basis.second_all,
    ) == (1, 1, 3, 4)
    assert (basis.shared, basis.trivial) == (1, False)
    # without the other two, full says what small says
    only = [item for item in RECORDS if item.benchmark == RIDGE]
    same = basis_of(
        standings("small", catalog=suites.open(), records=only),
        standings("full", catalog=suites.open(), records=only),
    )
    assert same.trivial
    assert "the same 1 benchmarks (of 1 and of 4)" in str(same)


def test_several_sets_of_one_task_count_as_one(suites: Lab) -> None:
    suites.benchmark(PLS, metric="pls", parent="IT")
    # Two benchmarks of V4 in which ant is first, one of IT in which it failed.
    assert of(suites, "full").ranks["ant"] == pytest.approx((0 + 1) / 2)


def test_the_weights_of_a_suite_are_used(suites: Lab) -> None:
    weighted = [{"id": RIDGE, "weight": 3.0}, PLS]
    suites.spec("suites", "heavy", benchmarks=weighted, models=list(MODELS))
    assert of(suites, "heavy").ranks["bee"] == pytest.approx((3 * 1 + 1) / 4 / 3)


def test_the_lowest_cost_is_first_and_a_cost_after_its_floor_is_a_score(
    suites: Lab,
) -> None:
    suites.spec("suites", "costs", benchmarks=[RIDGE], models=["ant", "bee"])
    plain = {
        model: score(value, None, direction="lower")
        for model, value in (("ant", 0.3), ("bee", 0.2))
    }
    held = [
        record(model, RIDGE, 0.1, score=one, scores={"ridge": one})
        for model, one in plain.items()
    ]
    for normalise, first in (("none", "bee"), (None, "ant")):
        suites.benchmark(RIDGE, normalise=normalise)
        assert (
            next(iter(standings("costs", catalog=suites.open(), records=held).ranks))
            == first
        )


def test_a_suite_without_scores_is_refused_with_the_command(suites: Lab) -> None:
    with pytest.raises(
        RequestError, match="ranks need two: `neuroledger run --suite full`"
    ):
        standings("full", catalog=suites.open(), records=[])
    with pytest.raises(RequestError, match="published figures of 0 models"):
        standings("full", catalog=suites.open(), published=True)


def test_the_command_prints_ranks_and_agreement(
    suites: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(suites.open(), *RECORDS)
    monkeypatch.chdir(suites.root)
    assert main(["ranks", "--suite", "small", "--against", "full"]) == 0
    shown = capsys.readouterr().out
    assert "suite full, version 1: 5 models on 3 benchmarks, records" in shown
    assert "1 benchmarks have no score of any model and do not count" in shown
    assert (
        "compared: small on 1 of its 1 benchmarks with full on 3 of its 4; 1 are in both"
        in shown
    )
    assert "over 5 models\n" in shown
    assert "over 4 models, without dummies" in shown
    assert main(["ranks", "--suite", "small", "--against", "full", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["agreement"]["models"] == 5
    assert plain["basis"]["second_scored"] == 3
    assert plain["standings"][1]["failed"]["ant"] == 1
    assert main(["ranks", "--suite", "nowhere"]) == 2


def test_the_published_ranks_by_command(
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(repository)
    assert (
        main(
            [
                "ranks",
                "--suite",
                "neuralbench.core",
                "--against",
                "neuralbench.full",
                "--published",
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "REVE                   0.201       0" in shown
    assert "61 benchmarks have no score of any model and do not count" in shown
    # the same 36 published tables are in both suites: no tau is made of that
    assert (
        "no tau: neuralbench.core and neuralbench.full have figures on the same 36 benchmarks"
        in shown
    )
    assert "Kendall" not in shown
    both = [
        "ranks",
        "--suite",
        "neuralbench.core",
        "--against",
        "neuralbench.full",
        "--published",
        "--json",
    ]
    assert main(both) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["basis"]["trivial"]
    assert "agreement" not in plain


@pytest.mark.parametrize(("others", "compared"), [(2, None), (3, 3), (4, 4)])
def test_an_agreement_without_dummies_needs_three_other_models(
    others: int, compared: int | None
) -> None:
    names = [*MODELS[:others], "noise"]
    ranks = {name: at / others for at, name in enumerate(names)}
    plain = Standings(
        "small", 1, False, ranks, dict.fromkeys(names, 0), (RIDGE,), (), ("noise",)
    )
    whole, without = agreement_of(plain, plain)
    assert (whole.models, whole.tau) == (others + 1, pytest.approx(1))
    assert (without and without.models) == compared
    assert (
        agreement_of(replace(plain, dummies=()), replace(plain, dummies=()))[1] is None
    )


def test_standings_are_printed_in_order_with_their_failures() -> None:
    shown = str(
        Standings(
            "small",
            2,
            True,
            {"ant": 0.25, "longest": 1.0},
            {"ant": 0, "longest": 3},
            (RIDGE,),
            (),
            (),
        )
    )
    assert shown.splitlines() == [
        "suite small, version 2: 2 models on 1 benchmarks, published figures",
        "",
        "model    mean rank  failed",
        "ant          0.250       0",
        "longest      1.000       3",
    ]
