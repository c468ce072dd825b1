"""Above the table of a board: a sentence that claims no more than the records, plots at their numbers, differences."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from neuroledger.engine.compare import compare, pairwise
from neuroledger.engine.record import Record, read_all
from neuroledger.engine.records.calibrations import refuted
from neuroledger.report.curves import curves_in
from neuroledger.report.drawings import axis_over
from neuroledger.report.forest import Line, alone, forest
from neuroledger.report.front import (
    MAX_COMPARED,
    front,
    front_picture,
    packed_pairs,
    panels,
)
from neuroledger.report.opening import opening, short
from neuroledger.report.table import board_of
from neuroledger.spec.catalog import open_catalog
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from tests.engine.lab import Lab
from tests.report.ledger import HOSTILE, keep, record, score
from tests.varying import exactly

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"


def said(lab: Lab, *records: Record) -> str:
    """Return the sentence of the board of the lab."""
    catalog = lab.open()
    suite = catalog.suite("lab")
    return opening(catalog, board_of(catalog, suite, records), records).text


def titled(lab: Lab, **twins: str) -> None:
    for model in ("ant", "bee", "cat", "dog"):
        fields = {"untrained": twins[model]} if model in twins else {}
        lab.spec(
            "models",
            model,
            title=model.title(),
            builder={"name": "pixels", "size": 8},
            **fields,
        )


def test_a_clear_first_place_is_stated_with_its_interval_and_its_untrained_twin(
    lab: Lab,
) -> None:
    titled(lab, ant="dog")
    text = said(
        lab,
        record("ant", RIDGE, 0.36, half=0.04),
        record("dog", RIDGE, 0.05),
        record("bee", RIDGE, 0.2),
    )
    assert text == (
        "Ant explains .36 [.32, .40] of what can be explained in V4; untrained, .05 [.03, .07]. The data are simulated."
    )


def test_without_a_twin_the_best_negative_control_is_named(lab: Lab) -> None:
    titled(lab)
    text = said(lab, record("ant", RIDGE, 0.9), record("bee", RIDGE, 0.2))
    assert "; the best negative control, .01." in text and "untrained" not in text
    alone = said(lab, record("ant", RIDGE, 0.9, controls={}))
    assert "; no negative control has a score. No other model has a score." in alone


def test_a_tie_is_said_and_an_untrained_twin_that_is_not_worse_comes_first(
    lab: Lab,
) -> None:
    titled(lab, ant="dog")
    text = said(
        lab, record("ant", RIDGE, 0.5, half=0.2), record("bee", RIDGE, 0.49, half=0.2),
        record("cat", RIDGE, 0.48, half=0.2), record("dog", RIDGE, 0.45, half=0.2),
    )  # fmt: skip
    assert "It is not clearly better than Dog (.45), Bee (.49) and 1 other." in text
    two = said(
        lab, record("ant", RIDGE, 0.5, half=0.2), record("bee", RIDGE, 0.49, half=0.2)
    )
    assert "It is not clearly better than Bee (.49)." in two


def test_a_missing_interval_is_said(lab: Lab) -> None:
    titled(lab)
    text = said(lab, record("ant", RIDGE, 0.9, half=None), record("bee", RIDGE, 0.2))
    assert "explains .90 of what" in text
    assert (
        "This value has no interval, so no model is clearly better than another."
        in text
    )


def test_partial_runs_are_never_the_best_unless_there_is_no_other(lab: Lab) -> None:
    titled(lab)
    text = said(
        lab, record("ant", RIDGE, 0.9, status="partial"), record("bee", RIDGE, 0.5)
    )
    assert (
        text.startswith("Bee explains .50")
        and "Not compared, because the run is partial: Ant." in text
    )
    only = said(lab, record("ant", RIDGE, 0.9, status="partial"))
    assert only.startswith("Ant ") and " The run is partial" in only
    titled(lab, bee="ant")
    twins = said(
        lab, record("ant", RIDGE, 0.9, status="partial"), record("bee", RIDGE, 0.5)
    )
    assert "untrained, .90 [.88, .92] (partial)" in twins


def test_an_untrained_twin_without_a_score_is_said(lab: Lab) -> None:
    titled(lab, ant="dog")
    assert "; its untrained twin has no score." in said(lab, record("ant", RIDGE, 0.9))


def test_a_board_without_scores_says_so_and_the_first_scored_benchmark_speaks(
    lab: Lab,
) -> None:
    titled(lab)
    assert said(lab) == "No model has a score on this board yet."
    assert (
        said(lab, record("noise", RIDGE, 0.0))
        == "No model has a score on this board yet."
    )
    catalog, records = lab.open(), [record("ant", PLS, 0.5)]
    shown = opening(catalog, board_of(catalog, catalog.suite("lab"), records), records)
    assert (shown.benchmark, shown.model) == (PLS, "ant")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"scale": "similarity"},
            "reaches .40 [.38, .42] of the similarity that the noise of the data allows in V4",
        ),
        (
            {"scale": "consistency"},
            "errs on the same images as people to .40 [.38, .42] of the consistency of people",
        ),
    ],
)
def test_only_shares_of_explainable_variance_are_called_explained(
    lab: Lab, fields: dict[str, Any], words: str
) -> None:
    titled(lab)
    ceiling = score(0.4)["ceiling"] | {"scale": fields["scale"]}
    plain = score(0.4, **fields, ceiling=ceiling)
    assert words in said(
        lab, record("ant", RIDGE, 0.4, score=plain, scores={"ridge": plain})
    )


def test_scores_above_a_dummy_and_scores_without_a_reference_have_their_own_words(
    repository: Path,
) -> None:
    catalog = open_catalog(repository)
    records = list(read_all(repository / "results" / "records"))
    board = board_of(catalog, catalog.suite("decoding.public"), records)
    assert (
        "decodes .99 [.78, 1.00] above chance, where 0 is the dummy"
        in opening(catalog, board, records).text
    )
    heart = board_of(catalog, catalog.suite("heartbeats.public"), records)
    assert "scores .91 [" in opening(catalog, heart, records).text
    plain = replace(
        board.columns[0],
        normalise="none",
        direction="lower",
        scale="error",
        counts=False,
    )
    bare = replace(board, columns=(plain, *board.columns[1:]))
    text = opening(catalog, bare, records).text
    worst = min(
        (r for r in board.rows if r.role == "model"),
        key=lambda row: row.cells[0].value or 9.0,
    )
    assert (
        text.startswith(worst.title)
        and "has the best value of" in text
        and "error, lower is better" in text
    )


def test_numbers_of_a_sentence_have_two_decimals_and_no_leading_zero() -> None:
    assert [short(value) for value in (0.364, -0.02, -0.001, 1.1, 0.0, None)] == [
        ".36", "−.02", ".00", "1.10", ".00", "–",
    ]  # fmt: skip


LINES = [
    Line("ant", 0.5, 0.4, 0.7),
    Line("<bee>", 0.3),
    Line("noise", -0.1, -0.2, 0.05, grey=True),
]


@pytest.mark.parametrize("narrow", [False, True])
def test_a_forest_plot_is_at_its_numbers(narrow: bool) -> None:
    picture = forest(
        LINES, "score & more", ceiling=(0.9, 1.1), floor=0.02, narrow=narrow
    )
    root = ElementTree.fromstring(str(picture))
    axis = axis_over([0.5, 0.4, 0.7, 0.3, -0.1, -0.2, 0.05, 0.9, 1.1, 0.02], one=True)
    ticks = [line for line in root.findall("line") if line.attrib["class"] == "grid"]
    xs = [float(line.attrib["x1"]) for line in ticks]
    scale = (xs[-1] - xs[0]) / (axis.ticks[-1] - axis.ticks[0])

    def at(value: float) -> float:
        return xs[0] + scale * (value - axis.ticks[0])

    dots = root.findall("circle")
    assert [float(dot.attrib["cx"]) for dot in dots] == pytest.approx(
        [at(0.5), at(0.3), at(-0.1)], abs=0.2
    )
    assert [dot.attrib["class"] for dot in dots] == ["dot", "dot", "dot control"]
    assert dots[1].findtext("title") == "<bee>: 0.300, no interval"
    bars = [line for line in root.findall("line") if "span" in line.attrib["class"]]
    ends = [(float(bar.attrib["x1"]), float(bar.attrib["x2"])) for bar in bars]
    assert ends == [
        pytest.approx((at(0.4), at(0.7)), abs=0.2),
        pytest.approx((at(-0.2), at(0.05)), abs=0.2),
    ]
    assert [bar.attrib["y1"] for bar in bars] == [
        dots[0].attrib["cy"],
        dots[2].attrib["cy"],
    ]
    (band,) = root.findall("rect")
    assert float(band.attrib["x"]) == pytest.approx(at(0.9), abs=0.2)
    assert float(band.attrib["width"]) == pytest.approx(at(1.1) - at(0.9), abs=0.3)
    (floor,) = (
        line for line in root.findall("line") if line.attrib["class"] == "floor"
    )
    assert (
        float(floor.attrib["x1"])
        == float(floor.attrib["x2"])
        == pytest.approx(at(0.02), abs=0.2)
    )
    words = [text.text for text in root.findall("text")]
    assert {"ceiling", "floor", "score & more", "<bee>", "0.500 [0.400, 0.700]"} <= set(
        words
    )
    width = float(root.attrib["viewBox"].split()[2])
    assert all(0 <= float(text.attrib["x"]) <= width for text in root.findall("text"))


def test_a_ceiling_without_an_interval_is_a_line_and_long_names_are_cut() -> None:
    root = ElementTree.fromstring(
        str(forest([Line("m" * 60, 0.5)], "score", ceiling=(1.0, 1.0)))
    )
    assert root.findall("rect")[0].attrib["width"] == "2.0"
    name = next(
        text.text
        for text in root.findall("text")
        if text.attrib.get("class") == "label"
    )
    assert (
        name == "m" * 37 + "…"
        and root.findtext("circle/title") == f"{'m' * 60}: 0.500, no interval"
    )


def test_a_drawing_alone_is_a_file_with_its_own_colours() -> None:
    text = alone(forest(LINES, "score"))
    root = ElementTree.fromstring(text)
    assert (
        root.tag == "{http://www.w3.org/2000/svg}svg"
        and "prefers-color-scheme:dark" in text
    )
    assert root.attrib["width"] == "760" and "<bee>" not in text and text.endswith("\n")


def test_panels_show_the_suite_mean_first_then_each_benchmark_with_untrained_networks_in_grey(
    lab: Lab,
) -> None:
    titled(lab, ant="dog")
    records = [
        record("ant", RIDGE, 0.9), record("ant", PLS, 0.7), record("dog", RIDGE, 0.1), record("dog", PLS, 0.2),
        record("bee", RIDGE, 0.5), record("noise", RIDGE, 0.0), record("noise", PLS, 0.0),
    ]  # fmt: skip
    catalog = lab.open()
    board = board_of(catalog, catalog.suite("lab"), records)
    mean, ridge, _ = panels(catalog, board, records)
    assert (mean.benchmark, ridge.benchmark) == ("", RIDGE)
    marks = re.findall(
        r'class="dot( control)?"[^>]*><title>(\w+): ([-\d.]+)', mean.wide
    )
    means = {row.model: row.score.value for row in board.rows}
    assert [name for _, name, _ in marks] == ["ant", "dog", "noise"]
    shown = {name: float(value) for _, name, value in marks}
    assert shown == pytest.approx({name: means[name] for name in shown}, abs=5e-4)
    assert [bool(grey) for grey, _, _ in marks] == [False, True, True]
    assert "2 models without this value are not drawn." in mean.note
    assert (
        "grey line: ceiling" in mean.note
        and "dotted line: the best negative control" in ridge.note
    )


def test_the_band_is_the_interval_of_the_ceiling_on_the_scale_of_the_scores(
    repository: Path,
) -> None:
    catalog = open_catalog(repository)
    records = [
        one
        for one in read_all(repository / "results" / "records")
        if one.benchmark == "Kriegeskorte2008.IT-rdm"
    ]
    board = board_of(catalog, catalog.suite("public"), records)
    (panel,) = panels(catalog, board, records)
    assert "grey band: ceiling" in panel.note
    ceiling = records[0].score.ceiling
    root = ElementTree.fromstring(str(panel.wide))
    grid = [line for line in root.findall("line") if line.attrib["class"] == "grid"]
    xs = [float(line.attrib["x1"]) for line in grid]
    ticks = [float(text.text or "") for text in root.findall("text")[: len(grid)]]
    scale = (xs[-1] - xs[0]) / (ticks[-1] - ticks[0])
    band = root.findall("rect")[0].attrib
    ends = [
        ceiling.low / ceiling.value,
        ceiling.high / ceiling.value,
    ]  # similarity is a ratio
    assert float(band["width"]) == pytest.approx(scale * (ends[1] - ends[0]), abs=1)
    assert float(band["x"]) == pytest.approx(
        xs[0] + scale * (ends[0] - ticks[0]), abs=1
    )


def test_differences_on_the_page_are_those_of_compare(repository: Path) -> None:
    catalog = open_catalog(repository)
    records = list(read_all(repository / "results" / "records"))
    suite = catalog.suite("core")
    held = packed_pairs(
        catalog, suite, board_of(catalog, suite, records), records, refuted(catalog)
    )
    names, pairs = held["models"], iter(held["pairs"])
    assert len(names) == 6 and held["left_out"] == 0
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            found = next(pairs)
            if (a, b) not in (("small_cnn.digits", "gabor"), ("gabor", "noise")):
                continue
            truth = compare(a, b, suite="core", catalog=catalog)
            for packed, one in zip(found["each"], truth.differences, strict=True):
                assert packed[:4] == pytest.approx(
                    [one.value, one.low, one.high, one.p_corrected], rel=1e-4
                )
            whole = truth.overall
            assert found["mean"][:4] == pytest.approx(
                [whole.value, whole.low, whole.high, whole.p], rel=1e-4
            )


def test_differences_say_why_they_have_no_interval(lab: Lab) -> None:
    records = [
        record("ant", RIDGE, 0.9),
        record("bee", RIDGE, 0.5),
        record("cat", PLS, 0.5),
    ]
    catalog = lab.open()
    suite = catalog.suite("lab")
    first, *_ = pairwise(catalog, suite, records, ["ant", "bee", "cat"])
    found = {one.benchmark: one for one in first.differences}
    assert found[RIDGE].value == pytest.approx(0.4) and found[RIDGE].low is None
    assert "lacks the variation of the score" in found[RIDGE].reason
    assert found[PLS].value is None and "has no record" in found[PLS].reason
    uncertainty = StoredUncertainty.of(exactly(0.01))
    whole = [
        record(m, RIDGE, 0.5, score=score(0.5, uncertainty=uncertainty))
        for m in ("ant", "bee")
    ]
    withheld = next(
        pairwise(catalog, suite, whole, ["ant", "bee"], {RIDGE: "too narrow"})
    ).differences[0]
    assert withheld.low is None and withheld.reason == "too narrow"
    other = record("bee", RIDGE, 0.5, request={"seed": 3})
    seeds = next(
        pairwise(catalog, suite, [records[0], other], ["ant", "bee"])
    ).differences[0]
    assert seeds.value is None and "seeds 0 and 3 cannot be paired" in seeds.reason


def test_the_number_of_compared_models_is_limited_and_stated(lab: Lab) -> None:
    names = [f"m{i}" for i in range(MAX_COMPARED + 3)]
    for name in names:
        lab.spec("models", name, builder={"name": "pixels", "size": 8})
    records = [record(name, RIDGE, 0.5 - i / 100) for i, name in enumerate(names)]
    catalog = lab.open()
    suite = catalog.suite("lab")
    held = packed_pairs(catalog, suite, board_of(catalog, suite, records), records, {})
    assert (len(held["models"]), held["left_out"]) == (MAX_COMPARED, 3)
    assert len(held["pairs"]) == MAX_COMPARED * (MAX_COMPARED - 1) // 2
    shown = front(catalog, board_of(catalog, suite, records), records)
    assert "The first 30 of 43 models." in shown.panels[0].note


def test_hostile_titles_are_text_in_the_picture(lab: Lab) -> None:
    lab.benchmark(RIDGE, title=HOSTILE)
    records = [record("ant", RIDGE, 0.5)]
    sentence, picture = front_picture(lab.open(), "lab", records)
    assert "Ant" in sentence or "ant" in sentence
    assert "<script" not in picture and ElementTree.fromstring(picture) is not None
    assert front_picture(lab.open(), "lab", records)[1] == picture


def curve(**fields: Any) -> dict[str, Any]:
    end = {"value": 0.2, "low": 0.1, "high": 0.3}
    layers = [
        {"layer": f"conv{i}", "depth": i / 2, **end, "untrained": end} for i in range(3)
    ]
    plain = {
        "model": "ant",
        "benchmark": RIDGE,
        "scale": "correlation",
        "layers": layers,
    }
    return (
        plain
        | {
            "ceiling": {"value": 1.0, "low": 0.9, "high": 1.1},
            "nested": end,
            "chosen": "conv1",
        }
        | fields
    )


def test_layer_curves_are_shown_where_they_were_measured_and_others_are_left_out(
    lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from neuroledger.report.site import build_site

    folder = lab.root / "results" / "layers" / RIDGE
    folder.mkdir(parents=True)
    (folder / "ant.json").write_text(json.dumps(curve()))
    twice = curve()["layers"][:1] * 2
    bad = [
        "{",
        "[]",
        json.dumps(curve(layers=[])),
        json.dumps(curve(layers=twice)),
        json.dumps(curve(scale=3)),
    ]
    for i, text in enumerate(bad):
        (folder / f"bad{i}.json").write_text(text)
    assert [one.model for one in curves_in(lab.root)] == ["ant"]
    assert len(caplog.records) == len(bad) and "not a layer curve" in caplog.text
    keep(lab.open(), record("ant", RIDGE, 0.9))
    build_site(lab.open(), "lab", tmp_path / "site")
    for page in ("index.html", f"benchmarks/{RIDGE}.html"):
        text = (tmp_path / "site" / page).read_text()
        assert (
            "conv2: 0.200 [0.100, 0.300]" in text
            and "chosen on other stimuli than these" in text
        )
    assert (
        "other stimuli"
        not in (tmp_path / "site" / f"benchmarks/{PLS}.html").read_text()
    )
    assert list(curves_in(tmp_path / "nowhere")) == []
