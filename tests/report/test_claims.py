"""Claims on the site: a page with paths, looks and citation, a badge that any page can show, and a list."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from neuroledger.engine.claims.standing import look_at
from neuroledger.engine.record import record_path
from neuroledger.report.claims import badge, bibtex, over_datasets, since
from neuroledger.report.site import build_site
from tests.engine.claims.test_standing import PLS, RIDGE, claim, lab, make
from tests.engine.lab import Lab
from tests.report.test_history import git

__all__ = ["lab"]


def built(lab: Lab) -> Path:
    out = lab.root / "site"
    build_site(lab.open(), "lab", out)
    return out


def test_a_claim_has_a_page_a_badge_and_a_line_in_the_list(lab: Lab) -> None:
    make(lab, "ant", RIDGE, 0.62)
    claim(lab, title="Ants <b>are</b> better", cite=["cowley2023"])
    look_at(lab.open(), "better")
    make(lab, "ant", RIDGE, 0.64)
    look_at(lab.open(), "better")
    site = built(lab)
    page = (site / "claims/better.html").read_text()
    assert "Ants &lt;b&gt;are&lt;/b&gt; better" in page
    assert f'href="../benchmarks/{RIDGE}.html">{RIDGE}</a>' in page
    assert "2 of 2" in page and page.count("<td>supported</td>") == 2
    assert "@misc{claim.better," in page and 'src="better.svg"' in page
    listed = (site / "claims.html").read_text()
    assert '<span class="badge good">supported</span>' in listed
    assert 'href="../claims.html"' in (site / "models/ant.html").read_text()


def test_the_page_of_a_pending_claim_names_the_command(lab: Lab) -> None:
    record_path(lab.root, PLS, "bee").unlink()
    page = (built(lab) / "claims/better.html").read_text()
    assert f"neuroledger run bee --benchmark {PLS}" in page
    assert '<span class="badge warn">pending</span>' in page


@pytest.mark.parametrize(
    ("at_least", "words"),
    [(0.0, "supported"), (0.19, "not distinguishable"), (0.5, "contradicted")],
)
def test_a_badge_is_a_valid_image_that_says_the_status(
    lab: Lab, at_least: float, words: str
) -> None:
    claim(lab, at_least=at_least)
    picture = ET.fromstring(badge(look_at(lab.open(), "better")))
    assert picture.attrib["aria-label"] == f"claim better: {words}"
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert texts == ["better", words]
    assert float(picture.attrib["width"]) > 100


def test_an_entry_cites_status_commit_and_year(lab: Lab) -> None:
    git(lab.root, "init", "-q")
    claim(lab, title="Ants & bees: 50 % better")
    found = look_at(lab.open(), "better")
    assert "year" not in bibtex(found) and since(found) == ""
    git(lab.root, "add", "-A")
    git(lab.root, "commit", "-m", "looked")
    found = look_at(lab.open(), "better")
    date = git(lab.root, "log", "-1", "--format=%cs").strip()
    assert since(found) == f"{git(lab.root, 'rev-parse', 'HEAD')[:10]} ({date})"
    entry = bibtex(found)
    assert f"year = {{{date[:4]}}}" in entry and since(found) in entry
    assert r"Ants \& bees: 50 \% better" in entry
    assert over_datasets(found) == []
