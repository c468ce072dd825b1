"""The pages need no network, escape all texts, and are reproducible."""

from __future__ import annotations

import html
import json
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import xarray as xr

from neuroledger.data.gate.validate import validate
from neuroledger.engine.record import Record
from neuroledger.engine.samples import keep_samples
from neuroledger.errors import RequestError
from neuroledger.report import site as site_module
from neuroledger.report.board import Cell, as_text
from neuroledger.report.history import history
from neuroledger.report.pages import Axis, axis, gather
from neuroledger.report.site import build_site
from neuroledger.report.table import leaderboard
from neuroledger.stats.score import Score
from tests.engine.lab import Lab
from tests.hostile.proposals.corpus import calibrated
from tests.report.ledger import HOSTILE, keep, record, score

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"
DATA = "data"  # of a script element that no browser runs
VOID = {"meta", "link", "br", "input", "hr", "img"}


class Reader(HTMLParser):
    """Collects links, ids and scripts, and reports tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.scripts: list[str | None] = []
        self.open: list[str] = []
        self.events: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := given.get(name))]
        self.ids |= {value for name, value in attrs if name == "id" and value}
        self.events += [name for name, _ in attrs if name.startswith("on")]
        if tag == "script":
            self.scripts.append(
                DATA if given.get("type") == "application/json" else given.get("src")
            )
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"


@pytest.fixture
def site(lab: Lab) -> Path:
    lab.spec(
        "models",
        "bee",
        title=HOSTILE,
        description=HOSTILE,
        builder={"name": "pixels", "size": 8},
        notes=[HOSTILE],
    )
    told = [{"model": HOSTILE, "value": 0.5, "source": HOSTILE}]
    lab.benchmark(
        RIDGE, title=HOSTILE, description=HOSTILE, notes=[HOSTILE], published=told
    )
    catalog = lab.open()
    failed = {"type": "MetricError", "message": HOSTILE}
    noted = score(0.5, notes=[HOSTILE])
    keep(
        catalog,
        record("ant", RIDGE, 0.9), record("ant", PLS, 0.8),
        record("bee", RIDGE, None, error=failed), record("bee", PLS, 0.4),
        record("cat", RIDGE, 0.5, score=noted, scores={"ridge": noted}),
        record("pixels4", RIDGE, 0.97), record("noise", RIDGE, 0.0),
    )  # fmt: skip
    validate(catalog, "lab")
    build_site(catalog, "lab", lab.root / "site")
    return lab.root / "site"


def pages(site: Path) -> dict[str, str]:
    return {
        str(path.relative_to(site)): path.read_text()
        for path in sorted(site.rglob("*.html"))
    }


def board(site: Path) -> Any:
    """Return the data of the front page."""
    found = re.search(
        r'id="board-lab">(.*?)</script>', pages(site)["index.html"], re.DOTALL
    )
    assert found
    return json.loads(found.group(1))


def test_every_kind_of_page_exists(site: Path) -> None:
    assert {
        "index.html", "benchmarks.html", "models.html", "datasets.html", "references.html",
        f"benchmarks/{RIDGE}.html", f"records/{RIDGE}/ant.html", "models/ant.html", "datasets/lab.html",
    } <= set(pages(site))  # fmt: skip
    assert {"style.css", "site.js", "lab.csv", "lab.json"} <= {
        p.name for p in site.iterdir()
    }


def test_pages_are_well_formed_and_links_have_targets(site: Path) -> None:
    found = pages(site)
    read = {name: Reader(text) for name, text in found.items()}
    for name, reader in read.items():
        for link in reader.links:
            path, _, fragment = link.partition("#")
            if not path:
                assert fragment in reader.ids or "=" in fragment, f"{name}: {link}"
                continue
            target = (site / name).parent / unquote(path)
            assert target.is_file(), f"{name} links to {link}"
            if fragment:
                assert (
                    fragment
                    in read[str(target.resolve().relative_to(site.resolve()))].ids
                ), f"{name}: {link}"


def test_pages_need_no_network(site: Path) -> None:
    for path in sorted(site.rglob("*")):
        if path.suffix in {".css", ".js"}:
            assert not re.search(
                r"https?:|//[a-z]+\.|@import|url\(|fetch\(|XMLHttp", path.read_text()
            ), path.name
    for name, text in pages(site).items():
        reader = Reader(text)
        assert not [
            link
            for link in reader.links
            if re.match(r"(?i)(https?:|//|data:|javascript:)", link)
        ], name
        assert "default-src 'none'" in text


def test_texts_are_escaped_everywhere(site: Path) -> None:
    shown = 0
    for name, text in pages(site).items():
        reader = Reader(text)
        assert all(
            src and src.endswith("site.js") for src in reader.scripts if src != DATA
        ), name
        assert not reader.events, name
        assert "<script>alert" not in text
        shown += html.unescape(text).count(HOSTILE)
    assert shown >= 8


def test_commands_in_texts_of_a_spec_are_code(lab: Lab, tmp_path: Path) -> None:
    steps = [
        "Sign <it>, then `aws s3 sync <there> .`",
        "`neuroledger pin elsewhere --from FOLDER`",
    ]
    lab.spec(
        "datasets",
        "elsewhere",
        license="CC0-1.0",
        access_steps=steps,
        unavailable="not here: run `get it`",
    )
    build_site(lab.open(), "lab", tmp_path / "pages")
    shown = (tmp_path / "pages" / "datasets" / "elsewhere.html").read_text()
    assert (
        "<li>Sign &lt;it&gt;, then <code>aws s3 sync &lt;there&gt; .</code></li>"
        in shown
    )
    assert "<li><code>neuroledger pin elsewhere --from FOLDER</code></li>" in shown
    assert "not here: run <code>get it</code>" in shown


@pytest.mark.parametrize(
    ("author", "shown"),
    [
        ("Jones, Judson P. and Palmer, Larry A.", "Jones and Palmer (2020). A word"),
        ("Judson P. Jones and Larry A. Palmer", "Jones and Palmer (2020). A word"),
        (
            "{De Valois}, Russell and {Op de Beeck},\n Hans",
            "De Valois and Op de Beeck (2020). A word",
        ),
        ("One, A. and Two, B. and Three, C.", "One et al. (2020). A word"),
        ("One, A. and\n   Two,  B.", "One and Two (2020). A word"),
        ("Yik, Jason and others", "Yik et al. (2020). A word"),
        ("{The NeuroAI contributors}", "The NeuroAI contributors (2020). A word"),
        ("{Arm Limited} and Mark, Roger G.", "Arm Limited and Mark (2020). A word"),
        ("{A & <B>}", "A &amp; &lt;B&gt; (2020). A word"),
        ("{A\u202eB}", "A\\u202eB (2020). A word"),
    ],
)
def test_a_reference_is_shown_with_the_names_of_its_authors(
    lab: Lab, author: str, shown: str
) -> None:
    entry = f"@article{{known, author = {{{author}}}, title = {{A  {{word}}}}, year = 2020}}\n"
    (lab.root / "specs" / "references.bib").write_text(entry, encoding="utf-8")
    build_site(lab.open(), "lab", lab.root / "site")
    assert shown in (lab.root / "site" / "references.html").read_text()


def test_a_build_is_reproducible_and_removes_old_pages(site: Path, lab: Lab) -> None:
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    build_site(lab.open(), "lab", site)
    assert {
        path: path.read_bytes() for path in site.rglob("*") if path.is_file()
    } == before
    (lab.root / "specs" / "models" / "dog.yaml").unlink()
    lab.spec("suites", "lab", benchmarks=[RIDGE, PLS], models=["ant"])
    (site / "mine.txt").write_text("kept")
    build_site(lab.open(), "lab", site)
    assert not (site / "models" / "dog.html").exists()
    assert (site / "mine.txt").read_text() == "kept"


def test_a_folder_with_other_files_is_refused(lab: Lab) -> None:
    with pytest.raises(
        RequestError, match="contains files that are not part of a site"
    ):
        build_site(lab.open(), "lab", lab.root)
    with pytest.raises(RequestError, match="is a file"):
        build_site(lab.open(), "lab", lab.root / "dvc.yaml")


@pytest.mark.parametrize(
    "manifest", ["", "{", '{"mine.txt": 1}', '"mine.txt"', "null", "\udcff"]
)
def test_a_folder_whose_manifest_is_of_something_else_is_refused(
    lab: Lab, tmp_path: Path, manifest: str
) -> None:
    (tmp_path / "pages.json").write_text(
        manifest, encoding="utf-8", errors="surrogateescape"
    )
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(
        RequestError, match="contains files that are not part of a site"
    ):
        build_site(lab.open(), "lab", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "mine.txt",
        "pages.json",
    ]


def test_a_manifest_cannot_remove_files_outside_the_site(
    lab: Lab, tmp_path: Path
) -> None:
    out, beside = tmp_path / "out", tmp_path / "beside"
    for folder in (out / "folder", beside):
        folder.mkdir(parents=True)
    (out / "link").symlink_to(beside)
    victims = [
        tmp_path / "victim.txt",
        beside / "victim.txt",
        out / "folder" / "victim.txt",
    ]
    for victim in victims:
        victim.write_text("here")
    (out / "old.html").write_text("of an earlier build")
    names = [
        "../victim.txt",
        str(victims[0]),
        "link/victim.txt",
        "folder",
        "",
        ".",
        "gone.html",
        "old.html",
    ]
    (out / "pages.json").write_text(json.dumps(names))
    written = build_site(lab.open(), "lab", out)
    assert [victim.read_text() for victim in victims] == ["here"] * 3
    assert not (out / "old.html").exists() and "index.html" in written
    assert written == json.loads((out / "pages.json").read_text())


def test_failures_ranks_and_controls_are_on_the_pages(site: Path) -> None:
    rows = {row["model"]: row for row in board(site)["rows"]}
    assert (
        rows["bee"]["cells"][0].startswith("f")
        and rows["bee"]["why"] == "without lab.V4-ridge"
    )
    assert rows["pixels4"]["role"] == "positive"
    benchmark = pages(site)[f"benchmarks/{RIDGE}.html"]
    assert "✓ passed" in benchmark and "published" in benchmark.lower()
    one = pages(site)[f"records/{RIDGE}/ant.html"]
    assert (
        f"neuroledger score ant {RIDGE} --seed 0" in one
        and "self-reported" in one
        and "0.880 to 0.920" in one
    )
    dataset = pages(site)["datasets/lab.html"]
    assert (
        "simulated" in dataset and "✓ structure" in dataset and "repetitions" in dataset
    )


def test_the_page_of_an_invalid_data_set_lists_problems_and_fixes(lab: Lab) -> None:
    (lab.data / "stimuli.zip").write_bytes(b"not a zip")
    lab.dataset()  # pinned as it is
    catalog = lab.open()
    validate(catalog, "lab")
    build_site(catalog, "lab", lab.root / "site")
    text = (lab.root / "site" / "datasets" / "lab.html").read_text()
    assert "✗ structure" in text and "stimuli.zip is not a readable zip" in text
    assert "renew their pins" in text


def test_private_data_are_never_shown(lab: Lab) -> None:
    lab.dataset(access="private", access_steps=["ask the lab"])
    catalog = lab.open()
    assert validate(catalog, "lab").success
    keep(catalog, record("ant", RIDGE, 0.9))
    build_site(catalog, "lab", lab.root / "site")
    for name, text in pages(lab.root / "site").items():
        assert "im07" not in text, name
    shown = (lab.root / "site" / "benchmarks" / f"{RIDGE}.html").read_text()
    assert "0.900" in shown and "private data" in shown


def test_only_public_data_have_thumbnails_and_samples(lab: Lab) -> None:
    for access, shown in (("public", True), ("private", False)):
        lab.dataset(access=access, access_steps=["ask the lab"])
        catalog = lab.open()
        assert validate(catalog, "lab").success
        one = record("ant", RIDGE, 0.9)
        keep(catalog, one)
        samples = xr.DataArray(
            [0.1, 0.4], dims="neuroid", coords={"neuroid": ["n07", "n08"]}
        )
        keep_samples(catalog.root, one.id, {"ridge": Score(0.9, samples=samples)})
        build_site(catalog, "lab", lab.root / "site")
        assert any((lab.root / "site").glob("thumbnails/lab/*.png")) is shown
        assert (
            "n08: 0.400" in pages(lab.root / "site")[f"records/{RIDGE}/ant.html"]
        ) is shown
        assert ("stimulus im" in pages(lab.root / "site")["datasets/lab.html"]) is shown


def test_the_front_page_contains_the_board(site: Path, lab: Lab) -> None:
    shown = {row["model"]: row["cells"] for row in board(site)["rows"]}
    for row in leaderboard(catalog=lab.open()).rows:
        for cell, packed in zip(row.cells, shown[row.model], strict=True):
            if cell.status == "scored" and cell.value is not None:
                assert packed[:4] == pytest.approx(
                    [cell.value, cell.low, cell.high, int(cell.top)], rel=1e-4
                )


def test_axes_contain_their_values() -> None:
    cells = [Cell("scored", 0.4, 0.3, 1.2), Cell("scored", -0.1, -0.2, 0.0)]
    held = axis(cells, [])
    assert held.low < -0.2 and held.high > 1.2
    assert (
        all(held.low <= tick <= held.high for tick in held.ticks)
        and 3 <= len(held.ticks) <= 12
    )
    assert axis([Cell("scored", 3e7)], []).ticks[-1] >= 2e7
    assert axis([], []).ticks
    edge = Axis(0.0, 1.0, ())
    assert (edge.place(-5), edge.place(0.5), edge.place(9), edge.width(0.25, 2)) == (
        "0.00",
        "50.00",
        "100.00",
        "75.00",
    )


def test_the_history_of_a_score_is_in_its_commits(lab: Lab) -> None:
    def git(*words: str) -> None:
        author = ["-c", "user.name=lab", "-c", "user.email=lab@example.org"]
        subprocess.run(
            ["git", *author, *words], cwd=lab.root, check=True, capture_output=True
        )

    git("init", "--quiet")
    for value in (0.5, 0.5, None, 0.7):
        keep(lab.open(), record("ant", RIDGE, value))
        (lab.root / "note.txt").write_text(str(value))
        git("add", "-A")
        git("commit", "--quiet", "--allow-empty", "-m", "scores")
    steps = history(lab.root)[RIDGE, "ant"]
    assert [(step.value, step.change) for step in steps] == [
        (0.5, "first"),
        (None, ""),
        (0.7, ""),
    ]
    # What a review never saw, as a later commit of the same proposal replaced it.
    for odd in (
        '{"a":' * 100_000,
        '{"score": {"value": 1e400}}',
        '{"score": {"value": ["x"]}}',
        '{"score": 1}',
    ):
        (lab.root / "results" / "records" / RIDGE / "ant.json").write_text(odd)
        git("commit", "--quiet", "-am", "odd")
        keep(lab.open(), record("ant", RIDGE, 0.7))
        git("commit", "--quiet", "-am", "again")
    assert {step.value for step in history(lab.root)[RIDGE, "ant"]} == {0.5, None, 0.7}
    keep(lab.open(), record("ant", RIDGE, 0.8))
    git("commit", "--quiet", "-am", "better")
    build_site(lab.open(), "lab", lab.root / "site")
    shown = pages(lab.root / "site")
    assert (
        "+0.1" in shown[f"records/{RIDGE}/ant.html"]
        and "+0.1" in shown[f"benchmarks/{RIDGE}.html"]
    )
    assert history(lab.root.parent / "elsewhere") == {}


def test_costs_are_drawn_of_models_whose_cost_was_measured_completely(lab: Lab) -> None:
    def costly(
        model: str, value: float, macs: dict[str, Any], **others: dict[str, Any]
    ) -> Record:
        return record(
            model, RIDGE, value, scores={"ridge": score(value), "macs": macs, **others}
        )

    def cost(value: float | None, **fields: Any) -> dict[str, Any]:
        return (
            score(0.5, None, scale="count", direction="lower", id="macs", ceiling=None)
            | {"value": value}
            | fields
        )

    keep(
        lab.open(),
        costly("ant", 0.9, cost(1000.0), energy=cost(5.0)), costly("bee", 0.8, cost(40_000.0), energy=cost(5.0)),
        costly("cat", 0.7, cost(None, status="failed")), costly("dog", 0.6, cost(10.0, status="partial")),
        costly("noise", 0.0, cost(2000.0), accuracy=score(0.3)),
    )  # fmt: skip
    build_site(lab.open(), "lab", lab.root / "site")
    page = pages(lab.root / "site")[f"benchmarks/{RIDGE}.html"]
    drawn = re.findall(r"<title>(\w+: [\d.]+ at [^<]+)</title>", page)
    assert sorted(drawn) == [
        "ant: 0.900 at 1,000",
        "bee: 0.800 at 4e+04",
        "noise: 0.000 at 2,000",
    ]
    assert re.findall(r"Score against ([^:]*):", page) == ["macs"], (
        "equal costs, and scores, are no figure"
    )
    interval = r'<line class="span" x1="([\d.]+)" x2="\1" y1="([\d.]+)" y2="([\d.]+)"/>'
    mark = interval + r'<circle( class="control")? cx="\1" cy="([\d.]+)"'
    marks = re.findall(mark, page)
    assert [bool(control) for _, _, _, control, _ in marks] == [False, False, True]
    for _, low, high, _, middle in marks:
        assert float(low) > float(middle) > float(high) and float(low) + float(
            high
        ) == pytest.approx(2 * float(middle), abs=0.3)


def test_a_failed_calibration_and_the_loss_of_the_true_model_are_on_the_page(
    lab: Lab, tmp_path: Path
) -> None:
    loss = {"value": 0.83, "low": 0.81, "high": 0.85, "runs": 100}
    path = calibrated(lab, coverage=70, recovered=loss)
    plain = json.loads(path.read_text())
    plain["metrics"]["pls"] = plain["metrics"]["ridge"]
    path.write_text(json.dumps(plain))
    keep(lab.open(), record("ant", RIDGE, 0.9))
    build_site(lab.open(), "lab", tmp_path / "site")
    page = " ".join(
        (tmp_path / "site" / "benchmarks" / f"{RIDGE}.html").read_text().split()
    )
    assert "✗ failed: the board withholds the interval" in page
    assert "✗ failed: the intervals of this metric are unreliable" in page
    row = page.split(
        "length of the interval over that of one with the true standard deviation"
    )[1]
    assert "1.000" in row.split("</tr>")[0] and "interval score" in page
    ceiling = page.split("<dt>ceiling</dt>")[1].split("</dd>")[0]
    assert (
        "the noiseless responses score 0.830 [0.810, 0.850] of it in simulated experiments"
        in ceiling
    )


def test_each_board_of_the_suite_is_tracked_if_two_have_the_same_id(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlisted benchmarks are on boards of the same id, one for each way to choose their models."""
    catalog = lab.open()
    world = gather(catalog, "lab", [record("ant", RIDGE, 0.9)])
    boards = (world.main, replace(world.main, title="Another"))
    suites = (world.suites[0], world.suites[0])
    twice = replace(world, own=boards, boards=boards, suites=suites)
    monkeypatch.setattr(site_module, "gather", lambda *_, **__: twice)
    build_site(catalog, "lab", lab.root / "site", tracked=True)
    tracked = (lab.root / "results" / "leaderboard.json").read_text()
    assert tracked == as_text("json", boards)
