"""The pages in a browser: the address stores the view, the keyboard suffices, texts are readable, large boards are fast."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import axe_core_python
import numpy as np
import pytest

from neuroledger.report.board import Cell, Column, Leaderboard, Row
from neuroledger.report.pages import Brief, Page, packed
from neuroledger.report.site import build_site, rendered
from neuroledger.spec.suites import Group
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from neuroledger.stats.uncertainty import Part, Uncertainty
from tests.engine.lab import Lab
from tests.report.browser import DESK, PHONE, TABLET, evaluate, needs_chromium
from tests.report.ledger import keep, record, score
from tests.varying import mean_score

pytestmark = needs_chromium
RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"
SHEET = 1031
"""Pixels of a landscape A4 sheet between its margins: a browser shrinks what is wider."""
HERE = Path(__file__).parent
CONTRAST, RULES, SHOWN = (
    (HERE / f"{name}.js").read_text() for name in ("contrast", "rules", "shown")
)
AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    from tests.report.ledger import ledger

    lab: Lab = ledger(tmp_path_factory.mktemp("pages") / "lab", repository)
    catalog = lab.open()
    errors = {"stimulus": 0.02, "neuroid": 0.01}
    parts = tuple(
        Part("lab", (name,), ("a",), np.array([error]), 20)
        for name, error in errors.items()
    )
    uncertainty = StoredUncertainty.of(Uncertainty(parts, dict.fromkeys(errors, 21)))
    covers = "the 95 % interval covers new stimuli and new neuroids"
    varied = score(0.9, uncertainty=uncertainty, covers=covers)
    keep(
        catalog,
        record("ant", RIDGE, 0.9, score=varied, scores={"ridge": varied}), record("ant", PLS, 0.8),
        record("bee", RIDGE, None), record("bee", PLS, 0.4), record("cat", RIDGE, 0.5), record("cat", PLS, 0.7),
        record("pixels4", RIDGE, 0.97), record("noise", RIDGE, 0.0),
    )  # fmt: skip
    build_site(catalog, "lab", lab.root / "site")
    return lab.root / "site"


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A site of scores with recorded variation, of two suites, and of a data set whose note contains a checksum."""
    from tests.report.ledger import ledger

    lab: Lab = ledger(tmp_path_factory.mktemp("varied") / "lab", repository)
    lab.dataset(
        notes=[f"Converted from a file with the SHA-256 {'a1b2' * 16}."],
        access_steps=[f"Run `rsync {'server:folder/' * 9} .` and wait."],
    )
    lab.spec(
        "claims",
        "better",
        title=f"Ants are better than bees_{'on_every_path_' * 8}",
        pairs=[{"above": "ant", "below": "bee"}],
        benchmarks=[RIDGE, PLS],
    )
    lab.spec("suites", "other", benchmarks=[PLS], models=["ant"])
    lab.spec(
        "suites",
        "lab",
        benchmarks=[RIDGE, PLS],
        models=["ant", "bee", "cat"],
        includes=["other"],
    )
    values = {"ant": (0.9, 0.8), "bee": (0.6, 0.7), "cat": (0.5, 0.5)}
    rng = np.random.default_rng(0)
    catalog = lab.open()
    for model, pair in values.items():
        for benchmark, value in zip((RIDGE, PLS), pair, strict=True):
            own = mean_score(value + rng.normal(0, 0.05, 60)).replace(value=value)
            assert own.uncertainty is not None
            varying = {
                "low": own.low,
                "high": own.high,
                "uncertainty": StoredUncertainty.of(own.uncertainty),
            }
            plain = score(value) | varying
            keep(
                catalog,
                record(model, benchmark, value, score=plain, scores={"ridge": plain}),
            )
    build_site(catalog, "lab", lab.root / "site")
    return lab.root / "site"


KINDS = [
    "index.html", "benchmarks.html", "models.html", "datasets.html", "references.html", f"benchmarks/{RIDGE}.html",
    "models/ant.html", "datasets/lab.html", f"records/{RIDGE}/ant.html", f"records/{RIDGE}/bee.html",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [
        *[(name, DESK, False) for name in KINDS],
        *[(name, PHONE, True) for name in KINDS],
        ("index.html", TABLET, False),
        (f"benchmarks/{RIDGE}.html", TABLET, True),
    ],
)
def test_every_kind_of_page_is_readable(
    site: Path, name: str, width: int, dark: bool
) -> None:
    script = f"""
    {CONTRAST} {RULES}
    const axed = window.axe ? (await axe.run(document, {{ resultTypes: ["violations"] }})).violations : [];
    const told = axed.map((v) => `${{v.impact}} ${{v.id}} ${{v.nodes[0].html.slice(0, 200)}}`);
    return {{ ...rules, texts: seen, dim: found, axe: told }};
    """
    hash = "#suite=lab&compare=ant,cat" if name == "index.html" else ""
    axe = (AXE,) if width == DESK else ()
    outcome = evaluate(
        site / name, script, hash=hash, width=width, dark=dark, scripts=axe
    )
    assert outcome.pop("texts") > 5
    assert outcome == {
        "dim": [],
        "axe": [],
        "lone": 0,
        "bare": 0,
        "heads": 0,
        "scrolls": 0,
        "wide": False,
    }


def test_the_contrast_check_sees_faint_text(site: Path) -> None:
    script = (
        "document.querySelector('h1').style.color = 'color-mix(in oklab, var(--page) 80%, black)';"
        + CONTRAST
    )
    assert any(
        "H1" in line
        for line in evaluate(site / "models.html", script + "return found;")
    )


def test_names_of_models_wrap_only_on_a_phone(site: Path) -> None:
    script = """
    const pieces = Array.from(document.querySelectorAll("tbody .model a")).flatMap((a) => Array.from(a.childNodes));
    const lines = (piece) => {
      const range = document.createRange();
      range.selectNodeContents(piece);
      return range.getClientRects().length;
    };
    return pieces.map((piece) => [piece.textContent, lines(piece)]).filter(([text]) => text);
    """
    found = evaluate(site / "index.html", script, hash="#suite=lab", width=PHONE)
    assert ["ant", 1] in found and all(lines == 1 for _, lines in found), found


def ask(site: Path, script: str, hash: str = "") -> Any:
    return evaluate(site / "index.html", SHOWN + script, hash=hash)


def test_the_sorting_of_the_board_is_in_the_address(site: Path) -> None:
    press = "document.querySelector('[data-sort^=\"b:lab.V4-pls\"]').click(); const first = rows(), way = said().sort;"
    again = "document.querySelector('[data-sort^=\"b:lab.V4-pls\"]').click(); return [first, way, rows(), said().sort];"
    down, way, up, other = ask(site, press + again)
    assert (down[:3], way) == (["ant", "cat", "bee"], "b:lab.V4-pls,down")
    assert (up[:3], other) == (["bee", "cat", "ant"], "b:lab.V4-pls,up")
    assert ask(
        site, "return rows().slice(0, 3)", "#suite=lab&sort=b:lab.V4-pls,up"
    ) == ["bee", "cat", "ant"]
    assert down[3] == up[3] == "dog"  # what has no score stays last


def test_filters_select_models_and_benchmarks(site: Path) -> None:
    script = "type('filter-benchmarks', 'V4 pls'); type('filter-models', 'ANT'); return [rows(), heads(), said()]"
    shown, heads, said = ask(site, script)
    assert shown == ["ant"] and "V4-pls" in heads and "V4-ridge" not in heads
    assert (said["q"], said["b"]) == ("ANT", "V4 pls")
    script = "const i = document.querySelector('[data-filter]'); i.value = 'v4 PLS'; i.dispatchEvent(new Event('input'));"
    script += "return Array.from(document.querySelectorAll('#list tbody tr:not([hidden]) th a')).map((a) => a.textContent)"
    assert evaluate(site / "benchmarks.html", script) == [PLS]


def test_columns_are_chosen_and_groups_fold(site: Path) -> None:
    script = "document.querySelector('[data-column=\"lab.V4-pls\"]').click(); await tick(); return [heads(), said().hide]"
    heads, hide = ask(site, script)
    assert "V4-pls" not in heads and "V4-ridge" in heads and hide == PLS
    script = """
    document.querySelector("[data-fold]").click();
    const folded = heads(), open = said().open, focus = document.activeElement.dataset.fold;
    document.querySelector("[data-fold]").click();
    return [folded, open, focus, heads()];
    """
    folded, open_, focus, opened = ask(site, script)
    assert (
        folded == ["Model", "Score", "scored"]
        and open_ == "none"
        and focus == "data:lab"
    )
    assert {"V4-ridge", "V4-pls"} <= set(opened)


def test_models_are_compared_and_controls_hidden(site: Path) -> None:
    script = """
    for (const m of ["ant", "cat"]) document.querySelector(`[data-compare=${m}]`).click();
    document.getElementById("show-controls").click();
    return [document.querySelector(".side").textContent, said(), document.querySelectorAll(".controls").length];
    """
    side, said, controls = ask(site, script)
    assert "0.800" in side and "0.700" in side and "0.500" in side
    assert said["compare"] == "ant,cat" and said["controls"] == "no" and controls == 0


def test_the_difference_of_two_models_is_on_the_page_in_either_order(
    varied: Path,
) -> None:
    script = "return document.querySelector('#compare').innerText"
    told = evaluate(varied / "index.html", script, hash="#suite=lab&compare=ant,cat")
    line = re.search(r"ant − cat = (\S+) \[(\S+), (\S+)\], p = (\S+)", told)
    assert line and line.group(1) == ".350"
    other = evaluate(varied / "index.html", script, hash="#suite=lab&compare=cat,ant")
    turned = re.search(r"cat − ant = (\S+) \[(\S+), (\S+)\], p = (\S+)", other)
    assert turned and turned.group(1) == "−.350"
    assert (turned.group(2), turned.group(3)) == (
        f"−{line.group(3)}",
        f"−{line.group(2)}",
    )
    assert (
        turned.group(4) == line.group(4)
        and "neuroledger compare ant cat --suite lab" in told
    )
    alone = evaluate(varied / "index.html", script, hash="#suite=lab&compare=ant")
    assert "Differences" not in alone
    three = evaluate(
        varied / "index.html", script, hash="#suite=lab&compare=ant,bee,cat"
    )
    assert three.count("mean over the benchmarks on which both are scored") == 3


def test_the_comparison_is_inside_a_phone_with_its_figure(varied: Path) -> None:
    script = """
    const wide = (e) => e.getBoundingClientRect().right > 391 || e.scrollWidth > 391;
    const tracks = Array.from(document.querySelectorAll(".side .track"));
    return [tracks.length, tracks.filter(wide).length, wide(document.querySelector("table.side")),
      getComputedStyle(document.querySelector(".panel .on-phone")).display,
      getComputedStyle(document.querySelector(".panel .on-desk")).display];
    """
    found = evaluate(
        varied / "index.html", script, hash="#suite=lab&compare=ant,cat", width=PHONE
    )
    assert found == [2, 0, False, "block", "none"]


def test_a_note_with_a_checksum_wraps_on_a_phone(varied: Path) -> None:
    script = (
        RULES
        + "return [rules.wide, document.body.innerText.includes('a1b2'.repeat(16))]"
    )
    assert evaluate(varied / "datasets" / "lab.html", script, width=PHONE) == [
        False,
        True,
    ]


@pytest.mark.parametrize(("width", "paper"), [(PHONE, False), (SHEET, True)])
def test_no_page_of_the_site_is_wider_than_a_phone_or_a_sheet(
    varied: Path, width: int, paper: bool
) -> None:
    pages = sorted(str(path.relative_to(varied)) for path in varied.rglob("*.html"))
    assert {"index.html", "claims/better.html", "datasets/lab.html"} <= set(pages)
    driver = varied / "frame.html"
    frame = f"<iframe style='border: 0; width: {width}px; height: 900px'></iframe>"
    driver.write_text(
        f"<!doctype html><html><head></head><body>{frame}</body></html>",
        encoding="utf-8",
    )
    script = f"""
    const frame = document.querySelector("iframe"), found = [];
    for (const name of {json.dumps(pages)}) {{
      await new Promise((done) => {{ frame.onload = done; frame.src = name; }});
      const shown = frame.contentDocument;
      for (const sheet of {json.dumps(paper)} ? shown.styleSheets : []) {{
        for (const rule of sheet.cssRules) if (rule.media?.mediaText === "print") rule.media.mediaText = "all";
      }}
      for (const part of shown.querySelectorAll("details")) part.open = true;
      // The paper must have place for twelve columns more than the board of this site has.
      for (const row of {json.dumps(paper)} ? shown.querySelectorAll("table.board tr") : [])
        row.append(...Array.from({{ length: 12 }}, () => row.lastElementChild.cloneNode(true)));
      const size = shown.scrollingElement.scrollWidth;
      if (size > {width}) found.push([name, size]);
    }}
    return [found, frame.contentWindow.getComputedStyle(frame.contentDocument.querySelector(".skip")).display];
    """
    try:
        wide, skip = evaluate(driver, script)
    finally:
        driver.unlink()
    assert wide == [] and (skip == "none") == paper


def test_a_score_is_bold_only_if_no_model_is_clearly_better(varied: Path) -> None:
    script = """
    return Array.from(document.querySelectorAll("#board tbody:not(.controls) tr")).map((row) =>
      [row.querySelector(".model a").textContent, getComputedStyle(row.querySelector(".score b, .score")).fontWeight > 500]);
    """
    bold = dict(evaluate(varied / "index.html", script, hash="#suite=lab"))
    assert (bold["ant"], bold["cat"]) == (True, False)


def test_the_sentence_and_the_plots_follow_the_board(varied: Path) -> None:
    script = """
    const parts = Array.from(document.querySelectorAll("[data-front]"));
    const shown = () => parts.filter((e) => !e.hidden).map((e) => e.dataset.front);
    const first = shown(); location.hash = "#suite=other"; await tick();
    return [first, shown(), document.querySelector("[data-front]").querySelector("svg.lines").getAttribute("role")];
    """
    assert evaluate(varied / "index.html", SHOWN + script) == [
        ["lab"],
        ["other"],
        "img",
    ]


def test_the_page_works_with_the_keyboard(site: Path) -> None:
    script = """
    const all = Array.from(document.querySelectorAll("a, button, input, summary, [tabindex='0']"));
    const able = all.filter((e) => e.checkVisibility() && (e.tagName === "SUMMARY" || !e.closest("details:not([open])")));
    const kept = able.filter((e) => { e.focus(); return document.activeElement === e; });
    const skip = document.querySelector(".skip"); const before = location.hash; skip.click();
    return [able.length, kept.length, able[0].className, document.activeElement.id, before === location.hash];
    """
    able, kept, first, focus, same = ask(site, script, "#suite=lab&q=ant")
    assert able == kept > 15 and first == "skip" and focus == "main" and same


def large(models: int, benchmarks: int) -> Leaderboard:
    """Return a large board with a hierarchy of ten areas and a score in every cell."""
    cells = tuple(
        Cell("scored", (7 * i % 1000) / 1000, 0.1, 0.9, top=i % 50 == 0)
        for i in range(benchmarks)
    )
    columns = tuple(
        Column(
            id=f"Lab{i // 6}.public.area{i % 10}-metric{i}", title=f"Benchmark {i}", parent=f"area{i % 10}",
            dataset=f"Lab{i // 6}.public", weight=1.0, scale="correlation", unit=None, direction="higher",
            normalise="ceiling", counts=True,
            simulated=False, private=False, unavailable="", floor=0.01, ceiling=0.8,
        )
        for i in range(benchmarks)
    )  # fmt: skip
    groups = tuple(
        Group(
            f"area{g}",
            "",
            {column.id: 0.1 for column in columns if column.parent == f"area{g}"},
        )
        for g in range(10)
    )
    mean = Cell("scored", 0.5, 0.4, 0.6)
    rows = tuple(
        Row(
            f"model{i}",
            f"The model number {i}",
            "model",
            False,
            cells,
            (mean,) * 10,
            mean,
            (i + 1, i + 3),
        )
        for i in range(models)
    )
    return Leaderboard("large", 1, "Five hundred models", columns, groups, rows)


@pytest.mark.slow
def test_five_hundred_models_on_three_hundred_benchmarks_open_in_two_seconds(
    site: Path,
) -> None:
    board = large(500, 300)
    brief = Brief.of(board)
    context = {
        "section": "index", "switch": [("recorded", [brief])], "boards": [brief], "suites": ["large"],
        "data": [(board.suite, packed(board, [("models", "500")]))], "fronts": [], "pairs": [],
    }  # fmt: skip
    page = site / "large.html"
    page.write_text(
        rendered(Page("large.html", "index.html.j2", context), board), encoding="utf-8"
    )
    script = """
    while (document.getElementById("board").dataset.complete !== "yes") await new Promise((done) => setTimeout(done, 10));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    return [performance.now(), document.querySelectorAll("#board tbody tr").length];
    """
    try:
        opened = [evaluate(page, script, real_time=True) for _ in range(3)]
        areas = ",".join(f"area{i}" for i in range(10))
        every = evaluate(
            page,
            script.replace("tbody tr", "td"),
            hash=f"#open={areas}",
            real_time=True,
        )
    finally:
        page.unlink()
    sys.stdout.write(f"milliseconds to open, folded {opened} and unfolded {every}")
    assert {rows for _, rows in opened} == {500} and every[1] > 150_000
    assert min(milliseconds for milliseconds, _ in opened) < 2000
