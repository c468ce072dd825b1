"""The board ranks scored models, with shared ranks if their order is not determined."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from neuroledger.engine.check import check
from neuroledger.engine.record import Record
from neuroledger.engine.records.calibrations import calibration_in
from neuroledger.errors import RequestError
from neuroledger.report.board import FORMATS, Leaderboard, Row, leaderboard_text, number
from neuroledger.report.table import boards_of, leaderboard, tidy
from neuroledger.stats.calibration import Calibration, Figure, share
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from neuroledger.store.files import write_json
from tests.engine.lab import Lab
from tests.hostile.proposals.corpus import calibrated
from tests.report.ledger import altered, keep, record, score
from tests.varying import mean_score, of_items

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"


def board_of(lab: Lab, records: list[Record]) -> Leaderboard:
    return leaderboard(records, catalog=lab.open())


def rows(board: Leaderboard) -> dict[str, Row]:
    return {row.model: row for row in board.rows}


def full(model: str, value: float, **fields: Any) -> list[Record]:
    return [record(model, RIDGE, value, **fields), record(model, PLS, value, **fields)]


def test_clear_order_and_a_tie(lab: Lab) -> None:
    board = board_of(
        lab,
        [*full("ant", 0.9), *full("bee", 0.5), *full("cat", 0.51), *full("dog", 0.1)],
    )
    assert [row.model for row in board.rows] == ["ant", "cat", "bee", "dog"]
    assert [row.place for row in board.rows] == ["1", "2–3", "2–3", "4"]
    assert [row.cells[0].top for row in board.rows] == [True, False, False, False]


def test_the_score_is_the_weighted_mean_with_the_interval_of_independent_benchmarks(
    lab: Lab,
) -> None:
    board = board_of(
        lab, [record("ant", RIDGE, 0.8, half=0.08), record("ant", PLS, 0.4, half=0.02)]
    )
    cell = rows(board)["ant"].score
    assert cell.value == pytest.approx((0.8 + 3 * 0.4) / 4)
    assert cell.half_width == pytest.approx(
        math.sqrt(0.08**2 + (3 * 0.02) ** 2) / 4, rel=0.05
    )


def test_a_failed_missing_partial_stale_or_edited_record_has_no_rank(lab: Lab) -> None:
    edited = altered(record("dog", PLS, 0.4), score=score(0.99))
    board = board_of(
        lab,
        [
            *full("ant", 0.9),
            record("bee", RIDGE, 0.8), record("bee", PLS, None),
            record("cat", RIDGE, 0.8), record("cat", PLS, 0.8, status="partial", request={"seed": 0, "limit": 9}),
            record("dog", RIDGE, 0.8, inputs={"benchmark": {"version": 7}}), edited,
        ],
    )  # fmt: skip
    by_model = rows(board)
    assert by_model["ant"].place == "1"
    states = {
        model: [cell.status for cell in row.cells] for model, row in by_model.items()
    }
    assert states["bee"] == ["scored", "failed"]
    assert states["cat"] == ["scored", "partial"]
    assert states["dog"] == ["stale", "edited"]
    for model in ("bee", "cat", "dog"):
        assert by_model[model].rank is None and by_model[model].score.value is None
    assert by_model["bee"].cells[1].reason == "it did not work"
    assert by_model["bee"].score.reason == f"without {PLS}"
    assert by_model["dog"].cells[1].value is None
    assert [cell.reason for cell in by_model["dog"].cells] == [
        "the benchmark has a new version: run it again",
        "the record was edited: run it again",
    ]
    partial = by_model["cat"].cells[1]
    assert (partial.value, partial.raw, partial.low, partial.high) == pytest.approx(
        (0.8, 0.72, 0.78, 0.82)
    )
    assert [row.model for row in board.rows] == ["ant", "bee", "cat", "dog"], (
        "those with most scores first"
    )


def test_a_model_that_does_not_fit_a_benchmark_is_not_expected_there(lab: Lab) -> None:
    lab.spec("models", "cat", builder={"name": "pixels", "size": 8}, benchmarks=[RIDGE])
    by_model = rows(board_of(lab, full("ant", 0.9)))
    assert [cell.reason for cell in by_model["cat"].cells] == [
        "not run yet", "the model does not fit this benchmark"
    ]  # fmt: skip
    assert {cell.status for cell in by_model["cat"].cells} == {"missing"}


def test_a_suite_of_costs_has_no_score_and_the_lowest_costs_are_marked(
    lab: Lab,
) -> None:
    cost = {"scale": "bytes", "direction": "lower", "ceiling": None}
    plain = {value: score(value, None, **cost) for value in (1e6, 2e6)}
    held = [
        record(
            model,
            benchmark,
            0.1,
            score=plain[value],
            scores={"footprint": plain[value]},
        )
        for model, value in (("ant", 1e6), ("bee", 2e6), ("cat", 1e6))
        for benchmark in (RIDGE, PLS)
    ]
    by_model = rows(board_of(lab, held))
    assert [by_model[model].cells[0].top for model in ("ant", "bee", "cat")] == [
        True,
        False,
        True,
    ]
    assert by_model["ant"].score.reason == "the suite's benchmarks have no common scale"
    assert by_model["ant"].score.status == "missing" and by_model["ant"].rank is None


def test_controls_are_shown_separately_and_never_ranked(lab: Lab) -> None:
    board = board_of(
        lab, [*full("ant", 0.5), *full("pixels4", 0.97), *full("noise", 0.0)]
    )
    assert [row.role for row in board.rows][-2:] == ["positive", "negative"]
    by_model = rows(board)
    assert by_model["pixels4"].rank is None and by_model["noise"].rank is None
    assert by_model["ant"].place == "1" and by_model["ant"].cells[0].top
    assert board.columns[0].floor == 0.01 and board.columns[0].ceiling == 0.8


def test_lower_is_better_for_metrics_with_that_direction(lab: Lab) -> None:
    cost = {"scale": "bytes", "direction": "lower", "ceiling": None}

    def priced(model: str, value: float) -> Record:
        plain = score(value, None, **cost)
        return record(model, PLS, 0.1, score=plain, scores={"footprint": plain})

    board = board_of(
        lab,
        [
            record("ant", RIDGE, 0.5),
            priced("ant", 2e6),
            record("bee", RIDGE, 0.5),
            priced("bee", 1e6),
        ],
    )
    by_model = rows(board)
    assert not board.columns[1].counts
    assert (by_model["ant"].cells[1].top, by_model["bee"].cells[1].top) == (False, True)
    assert by_model["ant"].score.value == pytest.approx(0.5)
    assert number(2e6) == "2,000,000"


def test_a_score_without_an_interval_has_no_clear_rank(lab: Lab) -> None:
    records = [
        record(m, b, v, half=None)
        for m, v in (("ant", 0.9), ("bee", 0.1))
        for b in (RIDGE, PLS)
    ]
    board = board_of(lab, records)
    by_model = rows(board)
    assert [by_model[model].place for model in ("ant", "bee")] == ["1–2", "1–2"]
    assert (
        by_model["ant"].score.half_width is None
        and by_model["ant"].cells[0].half_width is None
    )
    assert "±" not in str(board) and "0.900" in str(board)
    plain = score(0.5, None, error=0.1)
    board = board_of(
        lab, [record("ant", RIDGE, 0.5, score=plain, scores={"ridge": plain})]
    )
    assert rows(board)["ant"].cells[0].half_width is None, (
        "an error over splits is no interval"
    )


def test_an_unavailable_benchmark_keeps_its_column_and_leaves_the_rest_ranked(
    lab: Lab,
) -> None:
    lab.benchmark(PLS, metric="pls", unavailable="the stimuli are not public")
    board = board_of(lab, [record("ant", RIDGE, 0.5)])
    assert rows(board)["ant"].place == "1"
    assert rows(board)["ant"].cells[1].status == "unavailable"
    assert "the stimuli are not public" in str(board)


def test_no_records_at_all(lab: Lab) -> None:
    board = board_of(lab, [])
    assert all(row.rank is None for row in board.rows)
    assert "not run yet" in {cell.reason for row in board.rows for cell in row.cells}
    assert "ant" in str(board)


def test_records_are_read_from_the_repository(lab: Lab) -> None:
    catalog = lab.open()
    keep(catalog, *full("ant", 0.9), *full("bee", 0.1))
    assert [row.place for row in leaderboard(catalog=catalog).rows][:2] == ["1", "2"]
    with pytest.raises(RequestError, match="did you mean 'lab'"):
        leaderboard(suite="lob", catalog=catalog)


def of_stimuli(model: str, benchmark: str, values: np.ndarray, dataset: str) -> Record:
    """Return the record of a mean over stimuli of a data set, with the deviation of each."""
    found = mean_score(values)
    assert found.uncertainty is not None
    ends = {"low": found.low, "high": found.high}
    plain = score(
        found.value, uncertainty=StoredUncertainty.of(found.uncertainty), **ends
    )
    inputs = {"dataset": {"id": dataset}}
    return record(
        model, benchmark, 0.0, score=plain, scores={"ridge": plain}, inputs=inputs
    )


def shared(model: str, values: dict[str, np.ndarray], dataset: str) -> list[Record]:
    return [of_stimuli(model, id, each, dataset) for id, each in values.items()]


def test_shared_errors_of_models_and_of_benchmarks_are_taken_into_account(
    lab: Lab,
) -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(0.5, 0.5, 100)

    def values(shift: float) -> dict[str, np.ndarray]:
        own = common + rng.normal(shift, 0.05, 100)
        return {RIDGE: own, PLS: own + rng.normal(0, 0.05, 100)}

    a, b = values(0.03), values(0.0)
    joint = rows(board_of(lab, [*shared("ant", a, "lab"), *shared("bee", b, "lab")]))
    assert (joint["ant"].place, joint["bee"].place) == ("1", "2"), (
        "unpaired, ±0.1 each leaves the order open"
    )
    cell = joint["ant"].score
    mean = (a[RIDGE] + 3 * a[PLS]) / 4
    assert cell.half_width == pytest.approx(
        t.ppf(0.975, 99) * mean.std(ddof=1) / 10, rel=1e-3
    ), "not that of independent ones"
    apart = rows(board_of(lab, [*shared("ant", a, "lab"), *shared("bee", b, "other")]))
    assert apart["ant"].place == "1–2"


def test_benchmarks_of_different_data_add_their_degrees_of_freedom(lab: Lab) -> None:
    """Six stimuli each have five; two data sets have those of Welch's test, and one data set has no more than five."""
    rng = np.random.default_rng(1)
    values = {RIDGE: rng.normal(0.5, 0.3, 6), PLS: rng.normal(0.5, 0.1, 6)}
    weighted = {RIDGE: values[RIDGE] / 4, PLS: 3 * values[PLS] / 4}
    parts = np.array([each.var(ddof=1) / 6 for each in weighted.values()])
    welch = parts.sum() ** 2 / (parts**2 / 5).sum()
    paired = (weighted[RIDGE] + weighted[PLS]).var(ddof=1) / 6
    for second, variance, degrees in (
        ("two", parts.sum(), welch),
        ("one", paired, 5.0),
    ):
        sets = {RIDGE: "one", PLS: second}
        records = [of_stimuli("ant", id, each, sets[id]) for id, each in values.items()]
        found = rows(board_of(lab, records))["ant"].score.half_width
        assert found == pytest.approx(
            t.ppf(0.975, degrees) * math.sqrt(variance), rel=1e-3
        )


def test_the_mean_of_one_benchmark_has_the_interval_of_its_score(lab: Lab) -> None:
    lab.spec("suites", "one", title="One", benchmarks=[RIDGE])
    values = np.linspace(0.8, 1.0, 20) ** 4
    uncertainty = of_items(values, scale="fisher")
    value = float(values.mean())
    low, high = uncertainty.interval(value, (-1.0, 1.0))
    assert value - low > 1.1 * (high - value), "on Fisher's scale, it is not symmetric"
    plain = score(
        value,
        low=low,
        high=high,
        uncertainty=StoredUncertainty.of(uncertainty),
        ceiling=None,
    )
    board = leaderboard(
        [record("ant", RIDGE, 0.0, score=plain)], suite="one", catalog=lab.open()
    )
    cell = rows(board)["ant"].score
    assert (cell.value, cell.low, cell.high) == pytest.approx((value, low, high))


def test_an_interval_whose_coverage_is_shown_to_be_below_90_percent_is_withheld(
    lab: Lab,
) -> None:
    records = [*full("ant", 0.9), *full("bee", 0.1)]
    assert rows(board_of(lab, records))["ant"].place == "1"
    assert share(83, 100, 100).high < 0.9
    path = calibrated(lab, coverage=83)
    ant = rows(board_of(lab, records))["ant"]
    assert (
        ant.cells[0].half_width is None
        and "contains the truth in 83%" in ant.cells[0].reason
    )
    assert (
        ant.cells[1].half_width is not None
        and ant.score.half_width is None
        and ant.place == "1–2"
    )
    plain = json.loads(path.read_text())
    write_json(path, plain | {"identity": {"benchmark": "of another version"}})
    assert rows(board_of(lab, records))["ant"].place == "1"
    path.write_text("{}")
    assert rows(board_of(lab, records))["ant"].place == "1"


@pytest.mark.parametrize(
    ("coverage", "fields"),
    [
        (84, {}),  # 84 of 100 have the interval .75 to .91: coverage may be .90
        (
            95,
            {
                "false_positives": asdict(share(40, 100, 100)),
                "false_ranks": asdict(share(40, 100, 100)),
            },
        ),
        (100, {"length": asdict(Figure(3.0, 2.9, 3.1, 100))}),
    ],
)
def test_no_other_calibration_withholds_an_interval(
    lab: Lab, coverage: int, fields: dict[str, Any]
) -> None:
    path = calibrated(lab, coverage=coverage, **fields)
    assert isinstance(calibration_in(path.read_bytes()).first, Calibration)
    ant = rows(board_of(lab, [*full("ant", 0.9), *full("bee", 0.1)]))["ant"]
    assert (
        ant.cells[0].half_width == pytest.approx(0.02)
        and ant.cells[0].reason == ""
        and ant.place == "1"
    )


def test_tidy_has_one_row_per_metric(lab: Lab) -> None:
    two = {"ridge": score(0.5), "pls": score(0.4)}
    frame = tidy([record("ant", RIDGE, 0.5, scores=two), record("bee", RIDGE, None)])
    assert frame[["model", "metric", "status"]].values.tolist() == [
        ["ant", "ridge", "scored"], ["ant", "pls", "scored"], ["bee", "", "failed"],
    ]  # fmt: skip
    assert frame["headline"].tolist() == [True, False, True]
    assert frame["n_neuroid"].tolist()[:2] == [30, 30]
    assert frame["reason"].tolist()[2] == "it did not work"


def test_every_format_contains_every_model(lab: Lab) -> None:
    board = board_of(lab, [*full("ant", 0.9), *full("bee", 0.5), *full("noise", 0.0)])
    for name, write in FORMATS.items():
        text = write(board)
        assert "ant" in text and "bee" in text and "0.9" in text, name
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"](board))))
    assert [line["model"] for line in lines][:2] == ["ant", "bee"]
    assert float(lines[0][RIDGE]) == 0.9
    assert json.loads(FORMATS["json"](board))["suite"] == "lab"
    assert FORMATS["latex"](board).count(r"\\") == len(board.rows) + 1
    assert FORMATS["markdown"](board).count("\n") == len(board.rows) + 2


def test_a_narrow_terminal_gets_several_tables_with_the_same_numbers(lab: Lab) -> None:
    board = board_of(lab, [*full("ant", 0.9), *full("bee", 0.5)])
    wide, narrow = leaderboard_text(board, 200), leaderboard_text(board, 56)
    assert wide.count("\nrank ") == 1 and narrow.count("\nrank ") == 2
    assert all(len(line) <= 56 for line in narrow.split("[1] lab")[0].splitlines()[1:])
    assert sorted(re.findall(r"0\.\d{3}", wide)) == sorted(
        re.findall(r"0\.\d{3}", narrow)
    )


def test_a_notebook_shows_an_escaped_table(lab: Lab) -> None:
    text = board_of(lab, full("ant", 0.9))._repr_html_()
    assert "<table" in text and "0.900" in text


def test_a_hierarchy_makes_the_score_a_mean_of_means_and_shows_each_group(
    lab: Lab,
) -> None:
    lab.benchmark("lab.IT-ridge", parent="IT")
    listed = [RIDGE, {"id": PLS, "weight": 3}, "lab.IT-ridge"]
    lab.spec(
        "suites",
        "lab",
        benchmarks=listed,
        models=["ant", "bee"],
        hierarchy={"V4": "neural", "IT": "neural"},
    )
    board = board_of(
        lab, [*full("ant", 0.4), record("ant", "lab.IT-ridge", 0.8), *full("bee", 0.6)]
    )
    assert [group.name for group in board.groups] == ["V4", "IT"]
    ant, bee = rows(board)["ant"], rows(board)["bee"]
    assert ant.score.value == pytest.approx((0.4 + 0.8) / 2)
    assert [cell.value for cell in ant.groups] == pytest.approx([0.4, 0.8])
    assert bee.score.value is None and bee.groups[0].value == pytest.approx(0.6)
    assert bee.groups[1].reason == "without lab.IT-ridge"
    assert "V4: mean of [1], [2]" in str(board)
    assert list(board.to_frame().columns[6:8]) == ["V4", "IT"]


def test_check_reports_an_empty_group(lab: Lab) -> None:
    lab.spec("suites", "lab", benchmarks=[RIDGE], hierarchy={"V44": "neural"})
    problems, _ = check(lab.open())
    assert [problem.fix for problem in problems if "V44" in problem.what] == [
        "did you mean 'V4'?"
    ]


def test_tidy_has_the_numbers_of_the_score_and_of_its_ceiling() -> None:
    given, failed = tidy(
        [record("ant", RIDGE, 0.5), record("bee", RIDGE, None)]
    ).to_dict("records")
    assert given == {
        "model": "ant", "benchmark": RIDGE, "metric": "ridge", "headline": True, "status": "scored", "value": 0.5,
        "low": 0.48, "high": 0.52, "error": None, "raw": 0.45, "ceiling": 0.8, "scale": "correlation",
        "direction": "higher", "n_neuroid": 30, "n_split": 10, "n_stimuli": 1, "seed": 0, "limit": None,
        "reason": "", "id": record("ant", RIDGE, 0.5).id,
    }  # fmt: skip
    assert (failed["metric"], failed["scale"], failed["direction"]) == ("", "", "")
    assert math.isnan(failed["value"]) and math.isnan(failed["ceiling"])


def test_a_suite_has_a_board_for_itself_and_for_its_parts(lab: Lab) -> None:
    lab.benchmark("lab.IT-ridge", parent="IT")
    lab.spec("suites", "part", benchmarks=[RIDGE], models=["ant"])
    lab.spec(
        "suites",
        "whole",
        benchmarks=["lab.IT-ridge"],
        includes=["part"],
        models=["ant"],
    )
    boards = boards_of(lab.open(), "whole", full("ant", 0.5))
    assert [board.suite for board in boards] == ["whole", "part"]
    assert [[column.id for column in board.columns] for board in boards][1] == [RIDGE]


def test_a_closed_benchmark_may_have_a_metric_that_does_not_exist_here(
    lab: Lab,
) -> None:
    lab.benchmark(
        PLS, metric="not_here", ceiling=None, unavailable="its code is not public"
    )
    board = board_of(lab, [record("ant", RIDGE, 0.5)])
    column = board.columns[1]
    assert (column.scale, column.direction, column.unit, column.counts) == (
        "not_here",
        "higher",
        None,
        False,
    )
    assert (
        column.unavailable == "its code is not public"
        and rows(board)["ant"].score.value == 0.5
    )
    lab.benchmark(
        PLS, metric="pls", ceiling=None, unavailable="the stimuli are not public"
    )
    assert board_of(lab, []).columns[1].scale == "correlation"


def test_a_score_of_the_suite_is_scored_with_and_without_an_interval(lab: Lab) -> None:
    board = board_of(lab, [*full("ant", 0.9), *full("bee", 0.5, half=None)])
    assert [row.score.status for row in board.rows if row.score.value is not None] == [
        "scored",
        "scored",
    ]
