"""Figures contain the numbers of the board, and equal numbers give equal bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger import plot as plots
from neuroledger.data.load import load_dataset
from neuroledger.engine.compare import Comparison
from neuroledger.errors import MetricError, RequestError
from neuroledger.report.board import Leaderboard
from neuroledger.report.pareto import front
from neuroledger.report.plots import boards
from neuroledger.report.table import leaderboard
from neuroledger.stats.calibration import Calibration, share
from neuroledger.stats.differences import Difference
from neuroledger.stats.score import Score
from tests.engine.lab import Lab
from tests.report.ledger import record, score
from tests.varying import exactly

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"


@pytest.fixture
def board(lab: Lab) -> Leaderboard:
    def priced(model: str, value: float) -> object:
        plain = score(value, None, scale="bytes", direction="lower", ceiling=None)
        return record(model, PLS, 0.1, score=plain, scores={"footprint": plain})

    records = [
        record("ant", RIDGE, 0.9), record("bee", RIDGE, 0.4), record("cat", RIDGE, None), record("noise", RIDGE, 0.0),
        priced("ant", 4e6), priced("bee", 1e6), priced("dog", 9e6),
    ]  # fmt: skip
    return leaderboard(records, catalog=lab.open())


def test_bars_have_values_floor_and_ceiling(board: Leaderboard) -> None:
    ax = plots.bars(RIDGE, board)
    assert ax.data == {"ant": 0.9, "bee": 0.4, "noise": 0.0}
    assert {line.get_label() for line in ax.lines} >= {"floor", "ceiling"}
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [
        "noise",
        "2  bee",
        "1  ant",
    ]  # best on top


def test_the_heat_map_marks_failures_and_the_best(board: Leaderboard) -> None:
    ax = plots.heat_map(board)
    assert set(ax.data) == {"ant", "bee", "cat", "dog"}
    assert ax.data["cat"][RIDGE] is None
    assert any(patch.get_hatch() for patch in ax.patches)
    bold = {text.get_text() for text in ax.texts if text.get_weight() == "bold"}
    assert bold == {"0.90", "1,000,000"}


def test_controls(board: Leaderboard) -> None:
    assert plots.controls(RIDGE, board).data == {"noise": 0.0}
    with pytest.raises(RequestError, match="no control has a score"):
        plots.controls(PLS, board)


def test_tradeoff_draws_the_pareto_front(board: Leaderboard) -> None:
    ax = plots.tradeoff(RIDGE, PLS, board)
    assert ax.data == {"ant": (4e6, 0.9), "bee": (1e6, 0.4)}
    assert ax.get_xscale() == "log"
    assert [list(map(float, line.get_xdata())) for line in ax.lines] == [[1e6, 4e6]]
    assert [list(map(float, line.get_ydata())) for line in ax.lines] == [[0.4, 0.9]]
    assert front([0.4, 0.9, 0.8, 0.3], [1, 4, 5, 1]) == [True, True, False, False]


def test_scatter_pairs_neuroids() -> None:
    def scored(values: list[float]) -> Score:
        return Score(
            0.0,
            samples=xr.DataArray(np.array([values, values]), dims=("split", "neuroid")),
        )

    ax = plots.scatter(
        scored([0.1, 0.5, np.nan]), scored([0.2, 0.4, 0.3]), labels=("p", "q")
    )
    assert ax.data == {"p": [0.1, 0.5], "q": [0.2, 0.4]}
    assert ax.get_xlabel() == "p, score (higher for 1 of 2)"
    with pytest.raises(MetricError, match="cannot be paired"):
        plots.scatter(scored([0.1]), scored([0.1, 0.2]))
    with pytest.raises(MetricError, match="no samples"):
        plots.scatter(Score(0.1), Score(0.1))


def test_svg_contains_text_and_is_reproducible(
    board: Leaderboard, tmp_path: Path
) -> None:
    first = plots.save(plots.bars(RIDGE, board), tmp_path / "a.svg").read_bytes()
    second = plots.save(plots.bars(RIDGE, board), tmp_path / "b.svg").read_bytes()
    assert first == second
    assert re.search(rb"<text[^>]*>[^<]*ant", first)


def test_an_unknown_benchmark_is_named(board: Leaderboard) -> None:
    with pytest.raises(RequestError, match="not in suite 'lab'"):
        plots.bars("nosuch", board)


def test_ranks_are_intervals(lab: Lab) -> None:
    records = [
        record(m, b, v)
        for m, v in (("ant", 0.9), ("bee", 0.5), ("cat", 0.51))
        for b in (RIDGE, PLS)
    ]
    ax = plots.ranks(leaderboard(records, catalog=lab.open()))
    assert ax.data == {"ant": (1, 1), "cat": (2, 3), "bee": (2, 3)}
    with pytest.raises(RequestError, match="no model of suite 'lab' is ranked"):
        plots.ranks(leaderboard([], catalog=lab.open()))


def test_benchmarks_agree_if_they_rank_models_in_the_same_order(lab: Lab) -> None:
    values = {"ant": (0.9, 0.1), "bee": (0.5, 0.2), "cat": (0.4, 0.3)}
    records = [
        record(m, b, v)
        for m, both in values.items()
        for b, v in zip((RIDGE, PLS), both, strict=True)
    ]
    ax = plots.agreement(leaderboard(records, catalog=lab.open()))
    assert sorted(ax.data["benchmarks"]) == [PLS, RIDGE]
    assert np.array(ax.data["r"]) == pytest.approx(np.array([[1, -1], [-1, 1]]))
    with pytest.raises(RequestError, match="two benchmarks with three"):
        plots.agreement(leaderboard(records[:2], catalog=lab.open()))


def test_layers_are_drawn_over_depth_and_the_committed_one_is_marked() -> None:
    curve = {
        name: Score(value, varies=exactly(0.05))
        for name, value in (("a", 0.2), ("b", 0.6))
    }
    assert plots.layers(curve).data == {"score": {"a": 0.2, "b": 0.6}}
    ax = plots.layers({"V4": curve, "IT": curve}, committed={"IT": "b"})
    assert sum(line.get_marker() == "D" for line in ax.lines) == 1
    with pytest.raises(
        RequestError, match="layer 'c' of 'IT' has no score; there are a, b"
    ):
        plots.layers({"IT": curve}, committed={"IT": "c"})
    with pytest.raises(RequestError, match="no layers to draw"):
        plots.layers({})


def test_time_shows_the_median_of_each_bin_beside_its_ceiling() -> None:
    def course(values: list[float]) -> xr.DataArray:
        coords = {
            "time_bin_start": ("time_bin", [70, 90]),
            "time_bin_end": ("time_bin", [90, 110]),
        }
        return xr.DataArray(
            [[[v, v, v + 1] for v in values]],
            dims=("split", "time_bin", "neuroid"),
            coords=coords,
        )

    score = Score(
        0.0, samples=course([0.2, 0.4]), ceiling=Score(1.0, samples=course([0.8, 0.9]))
    )
    assert plots.time(score).data == {
        "time": [80.0, 100.0],
        "ceiling": [0.8, 0.9],
        "score": [0.2, 0.4],
    }
    with pytest.raises(MetricError, match="no samples over time bins"):
        plots.time(Score(0.1))


def test_reliability_draws_each_neuroid_against_its_ceiling() -> None:
    def sites(values: list[float]) -> xr.DataArray:
        return xr.DataArray([values, values], dims=("split", "neuroid"))

    score = Score(
        0.5,
        scale="correlation",
        samples=sites([0.4, 0.6]),
        ceiling=Score(0.8, scale="reliability", samples=sites([0.25, 1])),
    )
    ax = plots.reliability(score)
    assert ax.data == {"ceiling": [0.25, 1.0], "score": [0.4, 0.6]}
    # A correlation with responses of reliability ρ is at most √ρ.
    x, y = ax.lines[0].get_data()
    assert y == pytest.approx(np.sqrt(x))
    with pytest.raises(MetricError, match="no ceiling"):
        plots.reliability(Score(0.5, samples=sites([0.4, 0.6])))


def test_rdm_ranks_every_pair_and_groups_the_stimuli() -> None:
    values = np.array([[1.0, 2.0, 4.0], [4.0, 2.0, 1.0], [1.0, 2.0, 3.9]])
    coords = {
        "stimulus_id": ("presentation", list("abc")),
        "kind": ("presentation", ["x", "y", "x"]),
    }
    responses = xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)
    distances = xr.DataArray(1 - np.corrcoef(values), dims=("stimulus", "stimulus_b"))
    first, second = plots.rdm({"responses": responses, "distances": distances})
    # Rows 0 and 2 are most alike, rows 0 and 1 least.
    assert np.array(first.data["percentile"]) == pytest.approx(
        np.array(second.data["percentile"])
    )
    assert (
        first.data["percentile"][0][2] == 0 and max(first.data["percentile"][1]) == 100
    )
    grouped = plots.rdm({"responses": responses}, by="kind")[0]
    assert grouped.data["percentile"][0][1] == 0
    with pytest.raises(RequestError, match="no coordinate 'colour'"):
        plots.rdm({"responses": responses}, by="colour")
    with pytest.raises(RequestError, match="an RDM is drawn of"):
        plots.rdm({"odd": distances.rename(stimulus="row")})


def subjects(values: list[float], dim: str = "subject") -> Score:
    coords = {dim: [f"s{i}" for i in range(len(values))]}
    return Score(
        float(np.mean(values)),
        scale="accuracy",
        samples=xr.DataArray([values], dims=("split", dim), coords=coords),
    )


def test_a_notebook_displays_every_figure(board: Leaderboard, tmp_path: Path) -> None:
    from IPython.core.formatters import DisplayFormatter

    rdm = plots.rdm(
        {"a": xr.DataArray(np.eye(4) + 1, dims=("presentation", "neuroid"))}
    )
    for figure in (plots.bars(RIDGE, board), plots.heat_map(board), rdm):
        shown, _ = DisplayFormatter().format(figure)
        assert shown["image/png"][:4] == b"\x89PNG" and len(shown["image/png"]) > 3000
    assert plots.save(rdm, str(tmp_path / "rdm.svg")).is_file()


def test_lines_have_names_and_axes_name_models_and_units(board: Leaderboard) -> None:
    legend = plots.bars(RIDGE, board).get_legend()
    assert {text.get_text() for text in legend.get_texts()} == {"ceiling", "floor"}
    ax = plots.scatter({"gabor": subjects([0.1, 0.6]), "cnn": subjects([0.2, 0.5])})
    assert (
        ax.get_xlabel() == "gabor, accuracy (higher for 1 of 2)"
        and ax.get_ylabel().startswith("cnn, accuracy")
    )
    with pytest.raises(RequestError, match="needs two scores"):
        plots.scatter({"gabor": subjects([0.1, 0.6])})


def test_subjects_are_paired_by_name() -> None:
    other = Score(0.4, samples=subjects([0.3, 0.2, 0.9]).samples.isel(subject=[2, 1]))  # type: ignore[union-attr]
    ax = plots.paired({"a": subjects([0.1, 0.6, 0.5]), "b": other})
    assert ax.data == {"items": ["s1", "s2"], "a": [0.6, 0.5], "b": [0.2, 0.9]}
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {
        "one subject",
        "median of 2",
    }
    with pytest.raises(MetricError, match="no samples along 'neuroid'"):
        plots.paired({"a": subjects([0.1]), "b": subjects([0.2])}, by="neuroid")


def test_confusion_counts_the_true_class() -> None:
    truth = ("presentation", ["left", "left", "left", "right"])
    held = xr.DataArray(
        ["left", "right", "left", "right"], dims="presentation", coords={"truth": truth}
    )
    assert plots.confusion(held).data["percent"] == [
        [pytest.approx(200 / 3), pytest.approx(100 / 3)],
        [0, 100],
    ]
    sure = xr.DataArray(
        [[0.9, 0.1], [0.2, 0.8]], dims=("presentation", "class"),
        coords={"class": ["left", "right"], "truth": ("presentation", ["left", "left"])},
    )  # fmt: skip
    assert plots.confusion(sure).data["percent"] == [[50, 50], [0, 0]]
    with pytest.raises(MetricError, match="no predictions"):
        plots.confusion(Score(0.5))


def test_the_layer_map_marks_the_committed_layer() -> None:
    scores = {region: {"a": Score(0.2), "b": Score(0.6)} for region in ("V4", "IT")}
    ax = plots.layer_map(scores, committed={"IT": "b"})
    assert ax.data == {"V4": {"a": 0.2, "b": 0.6}, "IT": {"a": 0.2, "b": 0.6}}
    assert [(box.get_x(), box.get_y()) for box in ax.patches] == [(0.5, 0.5)]
    with pytest.raises(RequestError, match="the same layers"):
        plots.layer_map({"V4": {"a": Score(0.2)}, "IT": {"b": Score(0.2)}})


def test_differences_are_starred_by_the_corrected_p() -> None:
    found = (
        Difference("one", 0.9, 0.5, 0.4, 0.3, 0.5, p=1e-6, p_corrected=2e-6),
        Difference("two", 0.5, 0.6, -0.1, -0.3, 0.1, p=0.3, p_corrected=0.3),
    )
    ax = plots.differences(Comparison("ant", "bee", "lab", 1, found, Difference("lab")))
    assert (
        ax.data == {"one": 0.4, "two": -0.1}
        and ax.get_xlabel() == "score of ant minus score of bee"
    )
    assert [text.get_text() for text in ax.texts] == ["", "***"]


def test_every_public_value_has_a_card(lab: Lab) -> None:
    text = "<b>loud</b>"
    scored = Score(0.5, varies=exactly(0.05), notes=(text,))
    one = record("ant", RIDGE, None, error={"type": "MetricError", "message": text})
    versus = Comparison(
        text,
        "bee",
        "lab",
        1,
        (Difference("one", 0.9, 0.5, 0.4),),
        Difference("lab", reason=text),
    )
    rate = share(95, 100, 100)
    certificate = Calibration(text, {}, 0.5, rate, rate, rate, rate, rate)
    catalog = lab.open()
    held = load_dataset(catalog, "lab")
    assert held.stimuli is not None
    board_ = leaderboard([record("ant", RIDGE, 0.9)], catalog=catalog)
    for value in (scored, one, versus, certificate, board_, held, held.stimuli):
        shown = value._repr_html_()  # type: ignore[attr-defined]
        assert "<table" in shown and text not in shown
    assert (
        "&lt;b&gt;loud" in certificate._repr_html_()
        and "data:image/png;base64" in held.stimuli._repr_html_()
    )


def test_an_empty_table_is_refused_and_no_other_board_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        boards, "leaderboard", lambda **_: pytest.fail("another board was read")
    )
    empty: Any = {}
    figures: list[Callable[[], Any]] = [
        lambda: plots.heat_map(empty), lambda: plots.ranks(empty), lambda: plots.agreement(empty),
        lambda: plots.bars("lab.V4", empty), lambda: plots.tradeoff("lab.V4", "lab.cost", empty),
    ]  # fmt: skip
    for draw in figures:
        with pytest.raises(RequestError, match=r"^an empty dict is not a board"):
            draw()
    with pytest.raises(RequestError, match=r"^list is not a board"):
        plots.heat_map([1])  # type: ignore[arg-type]
