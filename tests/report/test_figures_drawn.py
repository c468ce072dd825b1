"""Positions of marks, intervals, stars and texts in the figures of boards and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger import plot as plots
from neuroledger.engine.compare import Comparison
from neuroledger.errors import MetricError, RequestError
from neuroledger.report.board import Leaderboard
from neuroledger.report.plots.style import ACCENT, LIGHT, PALETTE, SOFT
from neuroledger.report.table import leaderboard
from neuroledger.stats.differences import Difference
from neuroledger.stats.score import Score
from tests.engine.lab import Lab
from tests.report.ledger import record, score

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"


@pytest.fixture
def board(lab: Lab) -> Leaderboard:
    """Return a board of two benchmarks, the second a cost (lower is better), with three models and two controls."""
    lab.benchmark(PLS, metric="pls", ceiling=None)
    lab.spec(
        "models", "pixels4", builder={"name": "pixels", "size": 4}, control="positive"
    )
    for model in ("ant", "bee", "cat"):
        lab.spec("models", model, builder={"name": "pixels", "size": 8})
    lab.spec("suites", "lab", benchmarks=[RIDGE, PLS], models=["ant", "bee", "cat"])

    def priced(model: str, value: float) -> Any:
        plain = score(value, None, scale="bytes", direction="lower", ceiling=None)
        return record(model, PLS, 0.1, score=plain, scores={"footprint": plain})

    records = [
        record("ant", RIDGE, 0.9), record("bee", RIDGE, 0.4), record("cat", RIDGE, None),
        record("noise", RIDGE, 0.0), record("pixels4", RIDGE, 0.95), priced("ant", 400.0), priced("bee", 100.0),
    ]  # fmt: skip
    return leaderboard(records, catalog=lab.open())


def lines(ax: Any) -> list[tuple[list[float], list[float], Any]]:
    return [
        (
            [float(x) for x in line.get_xdata()],
            [float(y) for y in line.get_ydata()],
            line.get_color(),
        )
        for line in ax.lines
    ]


def ticks(ax: Any) -> tuple[list[str], list[str]]:
    return [one.get_text() for one in ax.get_xticklabels()], [
        one.get_text() for one in ax.get_yticklabels()
    ]


def test_bars_are_points_with_intervals_from_worst_to_best(board: Leaderboard) -> None:
    ax: Any = plots.bars(RIDGE, board)
    drawn = lines(ax)
    assert drawn[:8] == [
        ([-0.02, 0.02], [0.0, 0.0], SOFT), ([0.0], [0.0], SOFT),
        ([0.4 - 0.02, 0.4 + 0.02], [1.0, 1.0], ACCENT), ([0.4], [1.0], ACCENT),
        ([0.88, 0.92], [2.0, 2.0], ACCENT), ([0.9], [2.0], ACCENT),
        ([0.95 - 0.02, 0.95 + 0.02], [3.0, 3.0], SOFT), ([0.95], [3.0], SOFT),
    ]  # fmt: skip
    limits = {
        line.get_label(): (line.get_xdata()[0], line.get_linestyle())
        for line in ax.lines[8:]
    }
    assert limits["ceiling"] == (1.0, "--")
    assert [(text.get_text(), text.xy, text.xyann) for text in ax.texts] == [
        ("*", (0.92, 2), (5, -5))
    ]
    assert (
        ax.get_title(loc="left")
        and ax.get_xlim()[0] <= -0.02
        and ax.get_xlim()[1] >= 0.97
    )
    assert (
        ticks(ax)[1][0] == "noise"
        and ticks(ax)[1][3] == "pixels4"
        and ticks(ax)[1][2].endswith("ant")
    )
    assert list(ax.data) == ["noise", "bee", "ant", "pixels4"]
    cheap: Any = plots.bars(PLS, board)
    assert list(cheap.data) == ["ant", "bee"]  # the best on top, where less is better
    assert "ceiling" not in {line.get_label() for line in cheap.lines}
    assert cheap.texts[0].xy == (
        100.0,
        1,
    )  # without an interval the star is beside the point
    mine: Any = plots.bars(RIDGE, board, ax=cheap)
    assert mine is cheap


def test_controls_have_the_colours_of_their_roles(board: Leaderboard) -> None:
    ax: Any = plots.controls(RIDGE, board)
    assert {one: colour for (one, *_), _, colour in lines(ax) if one in (0.0, 0.95)} == {
        0.0: PALETTE[1], 0.95: PALETTE[2],
    }  # fmt: skip
    assert set(ticks(ax)[1]) == {"noise (negative)", "pixels4 (positive)"} and set(
        ax.data
    ) == {
        "noise",
        "pixels4",
    }
    with pytest.raises(
        RequestError,
        match=f"no control has a score on '{PLS}'; run `neuroledger run --benchmark {PLS}`",
    ):
        plots.controls(PLS, board)
    with pytest.raises(
        RequestError,
        match=f"benchmark 'nosuch' is not in suite 'lab'; it contains {RIDGE}, {PLS}",
    ):
        plots.controls("nosuch", board)


def test_the_heat_map_has_a_square_for_each_score(board: Leaderboard) -> None:
    ax: Any = plots.heat_map(board)
    assert ticks(ax)[0] == [RIDGE, PLS]
    rows = [name.split()[-1] for name in ticks(ax)[1]]
    assert sorted(rows) == ["ant", "bee", "cat"] == sorted(ax.data)
    words = {
        (round(text.get_position()[0]), rows[round(text.get_position()[1])]): text
        for text in ax.texts
    }
    assert {place: (text.get_text(), text.get_weight()) for place, text in words.items()} == {
        (0, "ant"): ("0.90", "bold"), (0, "bee"): ("0.40", "normal"),
        (1, "ant"): ("400.00", "normal"), (1, "bee"): ("100.00", "bold"),
    }  # fmt: skip
    (hatched,) = ax.patches
    assert (
        hatched.get_xy() == (-0.5, rows.index("cat") - 0.5)
        and hatched.get_hatch() == "////"
    )
    assert (hatched.get_width(), hatched.get_height()) == (1, 1)
    (image,) = ax.images
    shares = np.ma.filled(image.get_array(), np.nan)
    held = {name: shares[i].tolist() for i, name in enumerate(rows)}
    assert held["ant"] == [0.9, 0.0] and held["bee"] == [
        0.4,
        1.0,
    ]  # of costs, the place between worst and best
    assert np.isnan(held["cat"]).all() and image.get_clim() == (0, 1)
    assert ax.get_title(loc="left") == "The suite lab (suite lab, version 1)"
    assert not any(spine.get_visible() for spine in ax.spines.values())


def test_a_trade_off_joins_the_pareto_front(board: Leaderboard) -> None:
    ax: Any = plots.tradeoff(RIDGE, PLS, board)
    assert ax.data == {"ant": (400.0, 0.9), "bee": (100.0, 0.4)}
    assert (
        lines(ax) == [([100.0, 400.0], [0.4, 0.9], LIGHT)] and ax.get_xscale() == "log"
    )
    assert sorted(
        tuple(map(float, one.get_offsets()[0])) for one in ax.collections
    ) == [
        (100.0, 0.4),
        (400.0, 0.9),
    ]
    assert sorted((text.get_text(), text.xy) for text in ax.texts) == [
        ("ant", (400.0, 0.9)),
        ("bee", (100.0, 0.4)),
    ]
    assert ax.get_legend().get_texts()[0].get_text() == "Pareto front"
    turned: Any = plots.tradeoff(PLS, RIDGE, board)
    assert lines(turned)[0][:2] == (
        [0.4],
        [100.0],
    )  # fewer bytes are better, and less is cheaper
    assert ax.get_xlabel().startswith("The benchmark lab.V4-pls (")


def test_ranks_are_bars_from_first_to_last(board: Leaderboard) -> None:
    ranked = [row for row in board.rows if row.rank is not None]
    if not ranked:
        with pytest.raises(
            RequestError,
            match="no model of suite 'lab' is ranked; run `neuroledger run --suite lab`",
        ):
            plots.ranks(board)
        return
    ax: Any = plots.ranks(board)
    assert ticks(ax)[1] == [row.model for row in reversed(ranked)]
    for row, (bar, point) in zip(
        reversed(ranked), zip(lines(ax)[::2], lines(ax)[1::2], strict=True), strict=True
    ):
        assert (
            row.rank is not None
            and bar[0] == list(row.rank)
            and point[0] == [sum(row.rank) / 2]
        )
    assert ax.get_xlim()[0] > ax.get_xlim()[1] and ax.get_xlabel() == "rank"


def test_differences_have_colours_and_stars_by_p() -> None:
    found = [
        Difference("a", 0, 0, 0.2, 0.1, 0.3, p_corrected=0.0009), Difference("b", 0, 0, -0.2, -0.3, -0.1, p_corrected=0.009),
        Difference("c", 0, 0, 0.1, None, None, p_corrected=0.049), Difference("d", 0, 0, 0.1, p_corrected=0.05),
        Difference("e", reason="failed"), Difference("f", 0, 0, 0.3),
    ]  # fmt: skip
    made = Comparison(
        "ant",
        "bee",
        "lab",
        1,
        tuple(found),
        Difference("suite", 0, 0, 0.15, 0.1, 0.2, p_corrected=0.001),
    )
    ax: Any = plots.differences(made)
    assert ticks(ax)[1] == ["suite", "f", "d", "c", "b", "a"]
    assert [text.get_text() for text in ax.texts] == ["**", "", "", "*", "**", "***"]
    assert [text.xy for text in ax.texts] == [
        (0.2, 0),
        (0.3, 1),
        (0.1, 2),
        (0.1, 3),
        (-0.1, 4),
        (0.3, 5),
    ]
    points = [colour for x, _, colour in lines(ax)[:-1] if len(x) == 1]
    assert points == [PALETTE[0], SOFT, SOFT, PALETTE[0], PALETTE[1], PALETTE[0]]
    assert ax.get_xlabel() == "score of ant minus score of bee" and lines(ax)[-1][
        0
    ] == [0.0, 0.0]
    assert ax.data == {"a": 0.2, "b": -0.2, "c": 0.1, "d": 0.1, "f": 0.3, "suite": 0.15}
    with pytest.raises(RequestError, match="ant and bee share no scored benchmark"):
        plots.differences(
            Comparison("ant", "bee", "", 0, (Difference("e"),), Difference("suite"))
        )


def test_benchmarks_that_agree_are_neighbours(lab: Lab) -> None:
    orders: dict[str, list[Any]] = {
        "one": [1, 2, 3, 4],
        "two": [4, 3, 2, 1],
        "three": [1, 2, 4, 3],
        "few": [1, 2, None, None],
    }
    records, ids = [], []
    for name, values in orders.items():
        lab.benchmark(f"lab.{name}")
        ids.append(f"lab.{name}")
        for model, value in zip(("ant", "bee", "cat", "dog"), values, strict=True):
            if value is not None:
                records.append(record(model, f"lab.{name}", value / 10))
    for model in ("ant", "bee", "cat", "dog"):
        lab.spec("models", model, builder={"name": "pixels", "size": 8})
    lab.spec("suites", "lab", benchmarks=ids, models=["ant", "bee", "cat", "dog"])
    ax: Any = plots.agreement(leaderboard(records, catalog=lab.open()))
    names, r = ax.data["benchmarks"], np.array(ax.data["r"])
    assert (
        sorted(names) == ["lab.one", "lab.three", "lab.two"]
        and names.index("lab.two") != 1
    )
    at = {name.removeprefix("lab."): i for i, name in enumerate(names)}
    assert r[at["one"], at["two"]] == pytest.approx(-1) and r[
        at["one"], at["three"]
    ] == pytest.approx(0.8)
    assert (
        r[at["two"], at["three"]] == pytest.approx(-0.8)
        and np.allclose(np.diag(r), 1)
        and np.allclose(r, r.T)
    )
    inks = {text.get_text(): text.get_color() for text in ax.texts}
    assert (
        len(ax.texts) == 9
        and inks["0.80"] == "white"
        and ax.images[0].get_clim() == (-1, 1)
    )
    assert ticks(ax) == (names, names)


def sampled(values: Any, dims: tuple[str, ...], **fields: Any) -> Score:
    coords = fields.pop("coords", None)
    return Score(
        0.0,
        samples=xr.DataArray(np.array(values, float), dims=dims, coords=coords),
        **fields,
    )


def test_scatter_counts_each_side_and_draws_the_diagonal() -> None:
    one = sampled(
        [[0.1, 0.5, np.nan, 0.3], [0.3, 0.7, np.nan, 0.3]],
        ("split", "neuroid"),
        scale="half_reliability",
    )
    other = sampled([0.4, 0.1, 0.9, 0.3], ("neuroid",))
    ax: Any = plots.scatter({"ant": one, "bee": other})
    assert ax.data == {"ant": [0.2, 0.6, 0.3], "bee": [0.4, 0.1, 0.3]}
    assert (
        ax.get_xlabel() == "ant, half reliability (higher for 1 of 3)"
        and ax.get_ylabel().endswith("(higher for 1 of 3)")
    )
    assert lines(ax) == [([0.0, 0.6], [0.0, 0.6], SOFT)] and ax.get_aspect() == 1.0
    assert ax.get_legend().get_texts()[0].get_text() == "one neuroid"
    splits: Any = plots.scatter(
        sampled([-0.5, 0.2], ("split",)), sampled([0.1, 0.3], ("split",))
    )
    assert lines(splits)[0][0] == [-0.5, 0.3] and splits.get_xlabel().startswith(
        "first, "
    )
    assert splits.get_legend().get_texts()[0].get_text() == "one split"
    with pytest.raises(RequestError, match="a scatter needs two scores, not 1"):
        plots.scatter({"ant": one})
    with pytest.raises(RequestError, match="a scatter needs two scores, not 2"):
        plots.scatter(one)
    with pytest.raises(MetricError, match="no sample has a value in both scores"):
        plots.scatter(
            sampled([np.nan, 1.0], ("neuroid",)), sampled([1.0, np.nan], ("neuroid",))
        )


def test_subjects_are_lines_and_the_median_is_thick() -> None:
    first = sampled(
        [[0.1, 0.3], [0.5, 0.7], [0.2, 0.2]],
        ("subject", "split"),
        coords={"subject": ["s", "t", "u"]},
        scale="explained_variance",
    )
    second = sampled([0.9, 0.3, 0.4], ("subject",), coords={"subject": ["t", "v", "s"]})
    ax: Any = plots.paired({"ant": first, "bee": second})
    assert ax.data["items"] == ["s", "t"]
    assert ax.data["ant"] == pytest.approx([0.2, 0.6]) and ax.data["bee"] == [0.4, 0.9]
    drawn = lines(ax)
    assert [colour for _, _, colour in drawn] == [SOFT, SOFT, ACCENT] and drawn[2][
        1
    ] == pytest.approx([0.4, 0.65])
    assert [line.get_label() for line in ax.lines[::2]] == [
        "one subject",
        "median of 2",
    ]
    assert (
        ax.lines[1].get_label().startswith("_")
        and ax.get_ylabel() == "explained variance"
    )
    assert ticks(ax)[0] == ["ant", "bee"] and ax.get_xlim() == pytest.approx(
        (-0.3, 1.3)
    )
    assert ax.get_xticklabels()[0].get_rotation() == 0
    many: Any = plots.paired(dict.fromkeys("abcd", second))
    assert many.get_xticklabels()[0].get_rotation() == 20
    bare = sampled([0.1, 0.2], ("subject",))
    assert plots.paired({"a": bare, "b": bare}).data["items"] == ["0", "1"]  # type: ignore[attr-defined]
    with pytest.raises(RequestError, match="a paired figure needs two scores or more"):
        plots.paired({"a": bare})
    with pytest.raises(
        MetricError,
        match="score 'b' has no samples along 'subject'; its dimensions: split, neuroid",
    ):
        plots.paired({"a": bare, "b": sampled([[1.0]], ("split", "neuroid"))})
    with pytest.raises(MetricError, match="its dimensions: none"):
        plots.paired({"a": Score(1.0), "b": bare})
    with pytest.raises(
        MetricError, match="the scores share no subject: score all on one benchmark"
    ):
        plots.paired({"a": bare, "b": second})


@pytest.mark.parametrize(
    ("scale", "best"), [("reliability", [0.5, 0.9]), ("correlation", [0.25, 0.81])]
)
def test_the_best_that_the_data_allow_is_drawn(scale: str, best: list[float]) -> None:
    ceiling = sampled([0.25, 0.81], ("neuroid",), scale=scale)
    ax: Any = plots.reliability(
        sampled([0.1, 0.6], ("neuroid",), scale="correlation", ceiling=ceiling)
    )
    assert ax.data == {"ceiling": [0.25, 0.81], "score": [0.1, 0.6]}
    ((x, y, colour),) = lines(ax)
    assert (len(x), x[0], x[-1], colour) == (100, 0.0, 0.81, SOFT)
    assert np.interp([0.25, 0.81], x, y) == pytest.approx(best, abs=2e-3)
    assert (
        ax.get_xlabel() == f"ceiling ({scale})"
        and ax.get_ylabel() == "score (correlation, before the ceiling)"
    )
    with pytest.raises(MetricError, match="score 'x' has no ceiling"):
        plots.reliability(Score(0.1, id="x"))


def test_a_cost_of_zero_has_a_linear_axis(lab: Lab, board: Leaderboard) -> None:
    plain = score(0.0, None, scale="bytes", direction="lower", ceiling=None)
    free = record("ant", PLS, 0.1, score=plain, scores={"footprint": plain})
    ax: Any = plots.tradeoff(
        RIDGE, PLS, leaderboard([record("ant", RIDGE, 0.9), free], catalog=lab.open())
    )
    assert ax.get_xscale() == "linear" and ax.data == {"ant": (0.0, 0.9)}
    with pytest.raises(
        RequestError, match=f"no model has scores on both '{RIDGE}' and '{PLS}'"
    ):
        plots.tradeoff(RIDGE, PLS, leaderboard([free], catalog=lab.open()))


def size(ax: Any) -> list[float]:
    """Return width and height of the figure in inches."""
    return [round(float(side), 2) for side in ax.figure.get_size_inches()]


def compared(names: str) -> Comparison:
    found = tuple(
        Difference(name, 0, 0, 0.1, 0.05, 0.15, p_corrected=0.02) for name in names
    )
    return Comparison(
        "ant", "bee", "lab", 1, found, Difference("suite", 0, 0, 0.1, 0.0, 0.2)
    )


def test_a_figure_grows_with_its_rows_and_columns(lab: Lab, board: Leaderboard) -> None:
    assert size(plots.bars(RIDGE, board)) == [7.0, 2.56] and size(
        plots.bars(PLS, board)
    ) == [7.0, 1.88]
    assert size(plots.controls(RIDGE, board)) == [7.0, 2.0]
    assert size(plots.heat_map(board)) == [4.32, 2.98]
    assert size(plots.tradeoff(RIDGE, PLS, board)) == [6.0, 4.2]
    assert size(plots.differences(compared("abc"))) == [7.0, 2.66]
    assert size(plots.differences(compared("abcd"))) == [7.0, 3.0]
    one = sampled([0.1, 0.2], ("subject",), ceiling=sampled([0.3, 0.4], ("subject",)))
    assert size(plots.scatter(one, one)) == size(plots.reliability(one)) == [4.2, 4.2]
    assert size(plots.paired({"a": one, "b": one})) == [4.2, 3.8]
    assert size(plots.paired({"a": one, "b": one, "c": one})) == [5.4, 3.8]
    lab.spec("suites", "ridge", benchmarks=[RIDGE], models=["ant", "bee"])
    records = [record("ant", RIDGE, 0.9), record("bee", RIDGE, 0.5)]
    clear = leaderboard(records, suite="ridge", catalog=lab.open())
    assert size(plots.ranks(clear)) == [7.0, 1.88]


def test_intervals_are_wide_and_translucent_and_points_are_opaque(
    lab: Lab, board: Leaderboard
) -> None:
    for ax in (
        plots.bars(RIDGE, board),
        plots.controls(RIDGE, board),
        plots.differences(compared("a")),
    ):
        drawn: Any = ax.lines
        bars = [line for line in drawn if line.get_alpha() is not None]
        points = [line for line in drawn if line.get_marker() == "o"]
        assert len(bars) == len(points) >= 2
        assert {
            (bar.get_linewidth(), bar.get_alpha(), bar.get_solid_capstyle())
            for bar in bars
        } == {(5, 0.4, "round")}
        assert {point.get_markersize() for point in points} == {6.5}
        assert {
            line.get_linewidth()
            for line in drawn
            if line not in bars and line not in points
        } <= {1}
    lab.spec("suites", "ridge", benchmarks=[RIDGE], models=["ant", "bee"])
    records = [record("ant", RIDGE, 0.9), record("bee", RIDGE, 0.5)]
    bar, point, *_ = plots.ranks(
        leaderboard(records, suite="ridge", catalog=lab.open())
    ).lines
    assert (bar.get_linewidth(), bar.get_alpha(), bar.get_solid_capstyle()) == (
        6,
        0.4,
        "round",
    )
    assert (point.get_markersize(), list(point.get_xdata())) == (6.5, [2.0])


def test_points_are_drawn_above_lines_and_names_beside_points(
    board: Leaderboard,
) -> None:
    trade: Any = plots.tradeoff(RIDGE, PLS, board)
    assert {
        (float(one.get_sizes()[0]), one.get_zorder()) for one in trade.collections
    } == {(36.0, 3)}
    assert [(line.get_linewidth(), line.get_zorder()) for line in trade.lines] == [
        (1.4, 2)
    ]
    assert {(text.xyann, text.get_fontsize()) for text in trade.texts} == {
        ((6, 4), 9.0)
    }
    one = sampled([0.1, 0.2], ("neuroid",), ceiling=sampled([0.3, 0.4], ("neuroid",)))
    for ax in (plots.scatter(one, one), plots.reliability(one)):
        (points,), (line,) = ax.collections, ax.lines
        assert (
            float(points.get_sizes()[0]),
            points.get_alpha(),
            points.get_zorder(),
        ) == (18.0, 0.7, 2)
        assert list(points.get_linewidths()) == [0]
        assert (line.get_linewidth(), line.get_linestyle(), line.get_zorder()) == (
            1,
            "--",
            1,
        )
    thin, *_, thick = plots.paired(
        {"a": sampled([1, 2], ("subject",)), "b": sampled([2, 3], ("subject",))}
    ).lines
    assert (thin.get_linewidth(), thin.get_alpha(), thin.get_markersize()) == (
        1,
        0.55,
        3,
    )
    assert (thick.get_linewidth(), thick.get_alpha(), thick.get_marker()) == (
        3,
        None,
        "o",
    )


def test_numbers_are_in_the_middle_of_their_squares(board: Leaderboard) -> None:
    ax: Any = plots.heat_map(board)
    assert {
        (text.get_ha(), text.get_va(), text.get_fontsize()) for text in ax.texts
    } == {("center", "center", 9.0)}
    assert {
        (label.get_rotation(), label.get_ha()) for label in ax.get_xticklabels()
    } == {(40.0, "right")}
    assert ax.xaxis.get_tick_params()["length"] == 0 and ax.get_aspect() == "auto"
    (hatched,) = ax.patches
    assert not hatched.get_fill() and hatched.get_linewidth() == 0


def test_a_benchmark_on_which_all_models_are_equal_agrees_with_none(lab: Lab) -> None:
    orders = {"flat": [5, 5, 5], "one": [1, 2, 3], "two": [1, 3, 2]}
    names = ("ant", "bee", "cat")
    for model in names:
        lab.spec("models", model, builder={"name": "pixels", "size": 8})
    for name in orders:
        lab.benchmark(f"lab.{name}")
    lab.spec(
        "suites",
        "lab",
        benchmarks=[f"lab.{name}" for name in orders],
        models=list(names),
    )
    records = [
        record(model, f"lab.{name}", value / 10)
        for name, values in orders.items()
        for model, value in zip(names, values, strict=True)
    ]
    ax: Any = plots.agreement(leaderboard(records, catalog=lab.open()))
    at = {name.removeprefix("lab."): i for i, name in enumerate(ax.data["benchmarks"])}
    r = np.array(ax.data["r"])
    assert (
        np.isnan(r[at["flat"], [at["one"], at["two"]]]).all()
        and r[at["flat"], at["flat"]] == 1
    )
    assert r[at["one"], at["two"]] == pytest.approx(0.5)
    assert len(ax.texts) == 5 and size(ax) == [
        5.05,
        4.1,
    ]  # blank where there is no order to compare
    (image,) = ax.images
    assert (image.get_cmap().name, image.get_clim()) == ("PuOr_r", (-1, 1))
    assert not any(spine.get_visible() for spine in ax.spines.values())
    assert {
        (label.get_rotation(), label.get_ha()) for label in ax.get_xticklabels()
    } == {(40.0, "right")}
    assert {text.get_fontsize() for text in ax.texts} == {8.0}


def test_an_empty_board_has_an_empty_figure_of_one_row(
    lab: Lab, board: Leaderboard
) -> None:
    empty = leaderboard([], catalog=lab.open())
    assert plots.bars(RIDGE, empty).data == {}  # type: ignore[attr-defined]
    assert size(plots.bars(RIDGE, empty)) == [7.0, 1.54]
    controlled: Any = plots.controls(RIDGE, board)
    assert {
        line.get_color() for line in controlled.lines if line.get_label() == "floor"
    } == {SOFT}
    assert {text.get_text() for text in controlled.get_legend().get_texts()} == {
        "ceiling",
        "floor",
    }
