"""The documents as a site: it builds without a warning, opens from disk, has no dead link, and its reference is whole."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

from neuroledger.spec import registry
from tests.docs import gallery, notebooks
from tests.report.browser import evaluate, needs_chromium

TUTORIALS = sorted(notebooks.TUTORIALS.glob("*.ipynb"))


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("documents") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return out


def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path) -> None:
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
        if path.name != "404.html"
    }
    ids = {
        path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in texts.items()
    }
    checked = 0
    for path, text in texts.items():
        for link in map(unescape, re.findall(r'\b(?:href|src)="([^"]*)"', text)):
            if re.match(r"https?:|mailto:|data:", link) or link in ("", "#"):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / unquote(name)).resolve() if name else path
            assert target.exists(), f"{path.name}: {link}"
            if anchor and target in ids:
                assert unquote(anchor) in ids[target], (
                    f"{path.relative_to(site)}: {link}"
                )
            checked += 1
    assert len(texts) > 30 and checked > 2000


def test_the_site_asks_nothing_of_a_network(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(
            r'<(?:script|img|iframe)[^>]*\bsrc="([^"]+)"|<link[^>]*\bhref="([^"]+)"',
            text,
        )
        assert not [
            one for pair in loaded for one in pair if one.startswith(("http", "//"))
        ], path.name


@needs_chromium
def test_words_are_found_without_a_server(site: Path) -> None:
    script = """
        const input = document.getElementById("mkdocs-search-query");
        const shown = document.getElementById("mkdocs-search-results");
        const ask = async (words) => {
            input.value = words;
            input.dispatchEvent(new Event("input"));
            shown.replaceChildren();
            for (let tries = 0; !shown.children.length && tries < 400; tries++) {
                await new Promise((go) => setTimeout(go, 20));
            }
            return [shown.textContent, ...[...shown.querySelectorAll("a")].map((one) => one.href)];
        };
        return [await ask("agreement"), await ask("rdm_consis"), await ask("qwertzuiop")];
    """
    exact, begun, nothing = evaluate(
        site / "decisions" / "index.html", script, real_time=True
    )
    assert any(link.endswith("reference/metrics.html#agreement") for link in exact[1:6])
    assert any(
        link.endswith("reference/ceilings.html#rdm_consistency") for link in begun[1:6]
    )
    assert nothing == ["Nothing found."]
    for link in {*exact[1:], *begun[1:]}:
        assert (site / link.rpartition("/site/")[2].partition("#")[0]).is_file()


@pytest.mark.parametrize("kind", list(registry.FOLDERS))
def test_every_field_of_every_component_is_in_the_reference(
    site: Path, kind: str
) -> None:
    import inspect

    text = (
        site / "reference" / ("stimuli.html" if kind == "stimuli" else f"{kind}s.html")
    ).read_text(encoding="utf-8")
    parts = dict(re.findall(r'<h2 id="([^"]+)">(.*?)(?=<h2 |\Z)', text, re.DOTALL))
    names = registry.names(kind, plugins=False)
    assert set(names) <= set(parts)
    for name in names:
        found = registry.get(kind, name)
        for field, one in inspect.signature(found.function).parameters.items():
            if one.kind is one.KEYWORD_ONLY and field not in found.asks_for:
                assert f"<code>{field}</code>" in parts[name], f"{kind} {name}: {field}"


@pytest.mark.parametrize(
    "name", ["findings", "brainscore", "neuralbench", "performance"]
)
def test_long_tables_are_shown_in_the_place_of_their_files(
    site: Path, repository: Path, name: str
) -> None:
    page = (repository / "docs" / f"{name}.md").read_text(encoding="utf-8")
    shown = (site / f"{name}.html").read_text(encoding="utf-8")
    for link in re.findall(r"\((tables/\w+\.csv)\)", page):
        with (repository / "docs" / link).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines))
        assert link not in shown and shown.count("<tr>") >= len(rows)
        assert rows[-1][0].strip("`") in shown


def test_every_script_of_the_gallery_has_its_page(site: Path) -> None:
    index = (site / "gallery" / "index.html").read_text(encoding="utf-8")
    for one in gallery.examples():
        shown = (site / "gallery" / f"{one.name}.html").read_text(encoding="utf-8")
        assert f'src="{one.name}.png"' in index and f'href="{one.name}.html"' in index
        assert '<span class="kn">import</span>' in shown
    styles = (site / "assets" / "site.css").read_text(encoding="utf-8")
    assert "[data-bs-theme=dark] .codehilite .k " in styles


@pytest.mark.parametrize(("name", "fewest"), [("formulas", 20), ("metrics", 3)])
def test_formulas_are_drawn_by_the_browser_alone(
    site: Path, name: str, fewest: int
) -> None:
    text = (site / f"{name}.html").read_text(encoding="utf-8")
    assert text.count("<math") > fewest and "$" not in re.sub(r"<[^>]+>", "", text)


def test_tutorials_are_kept_as_they_ran(site: Path) -> None:
    assert len(TUTORIALS) == 7
    for path in TUTORIALS:
        shown = (site / "tutorials" / f"{path.stem}.html").read_text(encoding="utf-8")
        assert "data:image/png;base64" in shown, (
            f"{path.name} shows no figure: python -m tests.docs.notebooks"
        )
        for cell in nbformat.read(path, as_version=4).cells:
            assert not any(
                one.output_type == "error" for one in cell.get("outputs", ())
            )


QUICK = {"spiking_cost"}


def statuses(notebook: nbformat.NotebookNode) -> list[str]:
    """Exit statuses of the commands whose output is shown; a command that fails raises nothing in its cell."""
    said = "".join(
        one.get("text", "")
        for cell in notebook.cells
        for one in cell.get("outputs", ())
    )
    return re.findall(r"^exit status .*$", said, re.MULTILINE)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            each, id=each.stem, marks=[] if each.stem in QUICK else [pytest.mark.slow]
        )
        for each in TUTORIALS
    ],
)
def test_a_tutorial_runs_from_its_first_cell_to_its_last(path: Path) -> None:
    ran, kept = notebooks.executed(path), nbformat.read(path, as_version=4)
    assert statuses(ran) == statuses(kept)
    figures = sum(
        "image/png" in one.get("data", {})
        for cell in ran.cells
        for one in cell.get("outputs", ())
    )
    assert figures > 0
