"""A suite alone: a folder that git ignores, and one file that can be mailed."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from neuroledger.cli import main
from neuroledger.data.gate.validate import validate
from neuroledger.report import site as sites
from neuroledger.report.kept import one_file_of
from neuroledger.report.site import (
    Section,
    build_site,
    fitting,
    gathered,
)
from tests.engine.lab import Lab
from tests.report.browser import DESK, PHONE, evaluate, needs_chromium
from tests.report.ledger import keep, record
from tests.report.test_site import PLS, RIDGE, Reader, pages


@pytest.fixture
def scored(lab: Lab) -> Lab:
    """A repository whose default suite is another one than that of the user."""
    lab.spec("suites", "mine", benchmarks=[PLS], models=["ant", "bee"])
    catalog = lab.open()
    keep(
        catalog,
        record("ant", RIDGE, 0.9), record("ant", PLS, 0.8), record("bee", PLS, 0.4),
    )  # fmt: skip
    validate(catalog, "lab")
    return lab


def test_a_suite_alone_has_only_its_own_pages_and_opens_on_it(scored: Lab) -> None:
    out = scored.root / "site-mine"
    build_site(scored.open(), "mine", out, alone=True)
    found = pages(out)
    assert {f"benchmarks/{PLS}.html", f"records/{PLS}/ant.html"} <= set(found)
    assert not [name for name in found if RIDGE in name]
    assert 'id="board-mine"' in found["index.html"]
    assert 'id="board-lab"' not in found["index.html"]
    assert (out / ".gitignore").read_text() == "*\n"


def test_one_file_needs_nothing_beside_it(scored: Lab, tmp_path: Path) -> None:
    build_site(scored.open(), "mine", tmp_path / "out", alone=True)
    text = (tmp_path / "out" / one_file_of("mine")).read_text()
    reader = Reader(text)
    inside = [link for link in reader.links if not link.startswith("data:image/png;")]
    assert f"#benchmarks/{PLS}.html" in inside and len(inside) > 8
    for link in inside:
        assert link[0] == "#" and (link[1:] in reader.ids or "=" in link), link
    assert len(reader.links) > len(inside)  # the stimuli
    ((script,),) = [re.findall(r"<script>(.*?)</script>", text, re.DOTALL)]
    policy = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{policy}'" in text and "default-src 'none'" in text
    markup = text.replace(script, "")
    assert reader.events == [] and len(reader.ids) == markup.count(' id="')


def test_pages_that_do_not_fit_are_left_out_and_nothing_links_to_them(
    scored: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_site(scored.open(), "mine", tmp_path / "out", alone=True)
    file = tmp_path / "out" / one_file_of("mine")
    whole = len(file.read_bytes())
    monkeypatch.setattr(sites, "MOST_BYTES", whole - 3_000)
    build_site(scored.open(), "mine", tmp_path / "out", alone=True)
    text = file.read_text()
    assert len(text.encode()) <= whole - 3_000
    assert "only in the folder of pages" in text
    reader = Reader(text)
    links = {link for link in reader.links if not link.startswith("data:")}
    assert all(link[1:] in reader.ids or "=" in link for link in links)


def test_links_and_pictures_are_resolved_from_their_page() -> None:
    one = Section("a/x.html", "x", '<a href="../b.html#k">b</a><img src="../p.png">')
    other = Section("b.html", "b", '<a href="gone.html">g</a> <a href="a/x.html">x</a>')
    first, second = gathered([one, other], {"p.png": b"PNG"})
    assert first.content == '<a href="#k">b</a><img src="data:image/png;base64,UE5H">'
    assert second.content == '<a>g</a> <a href="#a/x.html">x</a>'
    assert fitting([one, other], 1_000) == [one, other]
    assert fitting([one, other], 600) == [one]


def test_the_command_says_what_to_open_and_what_to_mail(
    scored: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(scored.root)
    assert main(["report", "--suite", "mine"]) == 0
    said = capsys.readouterr().out
    assert "open site-mine/index.html" in said
    assert "to mail: site-mine/mine-in-one-file.html" in said
    assert (scored.root / "site-mine" / one_file_of("mine")).is_file()


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(PHONE, False), (900, True), (DESK, True)])
def test_the_file_works_alone_in_a_browser(
    scored: Lab, tmp_path: Path, width: int, dark: bool
) -> None:
    build_site(scored.open(), "mine", tmp_path / "out", alone=True)
    moved = tmp_path / "mailed.html"
    (tmp_path / "out" / one_file_of("mine")).rename(moved)
    script = """
    const link = document.querySelector("#board td.cell a");
    location.hash = link.getAttribute("href");
    await new Promise((done) => setTimeout(done, 100));
    const part = document.getElementById(link.getAttribute("href").slice(1));
    return {
      rows: document.querySelectorAll("#board tbody tr").length,
      opened: part.open, page: part.id,
      wide: document.documentElement.scrollWidth > innerWidth + 1,
    };
    """
    found = evaluate(moved, script, width=width, dark=dark)
    assert found["rows"] >= 2 and found["opened"] and not found["wide"]
    assert found["page"].startswith(f"records/{PLS}/")
