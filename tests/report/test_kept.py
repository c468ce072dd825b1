"""A site that is written over an earlier one has the bytes of a site that is written from nothing."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
import xarray as xr

from neuroledger.cli.results import leaderboard, report
from neuroledger.data.gate.validate import validate
from neuroledger.engine.record import read_all, read_record, record_path
from neuroledger.engine.samples import keep_samples
from neuroledger.report import pages as page_contents
from neuroledger.report import site, table
from neuroledger.report.kept import Wanted, text_of, write_all
from neuroledger.report.pages import Page, World
from neuroledger.report.site import build_site
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.score import Score
from neuroledger.store.derived import derived_at
from tests.engine.lab import Lab
from tests.report.ledger import keep, record

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"
MODELS = ("ant", "bee", "cat")


@pytest.fixture
def scored(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A repository with the records of three models, whose files count as settled at once."""
    for name in ("store.hashes", "store.derived"):
        monkeypatch.setattr(f"neuroledger.{name}.SETTLED_NS", -1)
    catalog = lab.open()
    for model, value in zip(MODELS, (0.9, 0.5, 0.3), strict=True):
        keep(catalog, record(model, RIDGE, value), record(model, PLS, value))
    validate(catalog, "lab")
    return lab


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the pages that were rendered."""
    paths: list[str] = []
    render = site.rendered

    def watched(page: site.Page, *args: object) -> str:
        paths.append(page.path)
        return render(page, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(site, "rendered", watched)
    return paths


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def whole(lab: Lab, out: Path) -> dict[str, bytes]:
    """The site without anything remembered."""
    catalog = lab.open()
    every = list(read_all(catalog.root / "results" / "records"))
    build_site(catalog, "lab", out, records=every)
    return contents(out)


def changes(lab: Lab, rng: random.Random) -> list[Callable[[], object]]:
    """Return random changes of records, specs, samples, pages and of what is remembered."""
    catalog = lab.open()
    model, benchmark = rng.choice(MODELS), rng.choice((RIDGE, PLS))
    path = record_path(catalog.root, benchmark, model)
    value = rng.choice((None, rng.random()))
    samples = xr.DataArray([rng.random(), 0.1], dims="neuroid")
    pages = sorted((lab.root / "site").rglob("*.html"))

    def measure() -> None:
        if path.exists():
            id = read_record(path).id
            keep_samples(catalog.root, id, {"ridge": Score(0.5, samples=samples)})

    return [
        lambda: keep(catalog, record(model, benchmark, value)),
        lambda: path.unlink(missing_ok=True),
        lambda: path.exists() and path.write_bytes(path.read_bytes()[:-40]),
        lambda: lab.benchmark(benchmark, title=f"Title {rng.random()}"),
        measure,
        lambda: rng.choice(pages).write_text("edited"),
        lambda: rng.choice(pages).unlink(),
        lambda: derived_at(catalog.root).path.write_bytes(b"damaged"),
        lambda: os.truncate(catalog.root / ".cache/neuroledger/hashes.sqlite", 5000),
        lambda: lab.spec("models", "bee", builder={"name": "pixels", "size": 8}, notes=[f"{rng.random()}"]),
    ]  # fmt: skip


def test_what_is_written_over_an_earlier_site_is_what_is_written_from_nothing(
    scored: Lab, tmp_path: Path
) -> None:
    rng = random.Random(5)
    out = scored.root / "site"
    build_site(scored.open(), "lab", out)
    for number in range(5):
        for change in rng.sample(changes(scored, rng), 3):
            change()
        build_site(scored.open(), "lab", out)
        assert contents(out) == whole(scored, tmp_path / str(number))


def test_only_pages_that_show_a_change_are_rendered(
    scored: Lab, rendered: list[str]
) -> None:
    out = scored.root / "site"
    build_site(scored.open(), "lab", out)
    assert len(rendered) > 15
    rendered.clear()
    build_site(scored.open(), "lab", out)
    assert rendered == []
    keep(scored.open(), record("cat", RIDGE, 0.31))
    build_site(scored.open(), "lab", out)
    assert set(rendered) == {
        "index.html", f"benchmarks/{RIDGE}.html", "models/cat.html", f"records/{RIDGE}/cat.html",
    }  # fmt: skip


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The benchmarks whose pages of records were made."""
    benchmarks: list[str] = []
    make = page_contents._made_for_records

    def watched(world: World, i: int, *others: Any) -> Iterator[Page]:
        benchmarks.append(world.everything.columns[i].id)
        return make(world, i, *others)

    monkeypatch.setattr(page_contents, "_made_for_records", watched)
    return benchmarks


def test_pages_of_records_are_made_only_for_benchmarks_of_which_something_changed(
    scored: Lab, made: list[str], tmp_path: Path
) -> None:
    out = scored.root / "site"
    page = out / f"records/{RIDGE}/ant.html"
    path = record_path(scored.root, RIDGE, "ant")
    bib = scored.root / "specs" / "references.bib"
    samples = {"ridge": Score(0.5, samples=xr.DataArray([0.2, 0.1], dims="neuroid"))}
    changes: list[tuple[Callable[[], object], set[str]]] = [
        (lambda: None, set()),
        (lambda: keep(scored.open(), record("ant", RIDGE, 0.8)), {RIDGE}),
        (lambda: page.write_text("edited"), {RIDGE}),
        (page.unlink, {RIDGE}),
        (page.with_name("another").touch, {RIDGE}),
        (page.with_name("another").unlink, {RIDGE}),
        (lambda: path.write_bytes(path.read_bytes().replace(b"0.8,", b"0.7,")), {RIDGE}),
        (lambda: keep_samples(scored.root, read_record(path).id, samples), {RIDGE}),
        (lambda: scored.benchmark(PLS, title="Another"), {PLS}),
        (path.unlink, {RIDGE}),
        (lambda: scored.spec("models", "bee", cite=["one2020"], builder={"name": "pixels", "size": 8}), {RIDGE, PLS}),
        (lambda: bib.write_text("@misc{one2020, author = {One, A}, title = {One}, year = {2020}}"), {RIDGE, PLS}),
        (lambda: derived_at(scored.root).path.unlink(), {RIDGE, PLS}),
        (lambda: None, set()),
    ]  # fmt: skip
    build_site(scored.open(), "lab", out)
    for number, (change, benchmarks) in enumerate(changes):
        change()
        made.clear()
        build_site(scored.open(), "lab", out)
        assert set(made) == benchmarks, number
        expected = whole(scored, tmp_path / str(number))
        found = contents(out)
        found.pop(f"records/{RIDGE}/another", None)
        assert found == expected, number


def test_a_report_of_what_did_not_change_reads_no_record(
    scored: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (scored.root / "params.yaml").write_text("suite: lab\n")
    out = scored.root / "site"
    asked = {"out": out, "root": scored.root}
    built: list[Catalog] = []
    build = site.build_site

    def watched(catalog: Catalog, *args: object, **options: object) -> list[Path]:
        built.append(catalog)
        return build(catalog, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(site, "build_site", watched)
    report(**asked)
    said = capsys.readouterr().out
    before = contents(scored.root / "results"), contents(out)
    report(**asked)
    assert (len(built), capsys.readouterr().out) == (1, said)
    board = scored.root / "results" / "leaderboard.json"
    for number, path in enumerate((out / "models" / "ant.html", board), 2):
        path.write_bytes(b"edited")
        report(**asked)
        assert len(built) == number
        assert (contents(scored.root / "results"), contents(out)) == before
    for path in (scored.root / "params.yaml", record_path(scored.root, PLS, "ant")):
        os.utime(path)
        report(**asked)
    assert len(built) == 5


def test_collections_of_garbage_look_at_everything_again_after_a_page_failed(
    tmp_path: Path,
) -> None:
    def fail() -> str:
        assert gc.get_freeze_count()
        raise KeyError

    with pytest.raises(KeyError):
        write_all(tmp_path, {"a.html": Wanted("", fail)}, None, None)
    assert not gc.get_freeze_count()


def test_inputs_that_were_just_written_are_read_again(
    scored: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroledger.report.kept import inputs_of

    assert inputs_of(scored.open(), "lab")
    monkeypatch.setattr("neuroledger.store.derived.SETTLED_NS", 10**12)
    assert inputs_of(scored.open(), "lab") == ""


@pytest.fixture
def boards(
    scored: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[], tuple[str, int]]:
    """A function that prints the boards of the repository: the text, and how often boards have been made."""
    (scored.root / "params.yaml").write_text("suite: lab\n")
    made: list[Catalog] = []
    make = table.boards_of

    def watched(catalog: Catalog, *args: object, **options: object) -> object:
        made.append(catalog)
        return make(catalog, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(table, "boards_of", watched)

    def printed() -> tuple[str, int]:
        leaderboard(root=scored.root)
        return capsys.readouterr().out, len(made)

    return printed


def test_boards_of_what_did_not_change_are_printed_as_before(
    scored: Lab, boards: Callable[[], tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _ = boards()
    assert boards() == (text, 1)
    path = record_path(scored.root, RIDGE, "ant")
    state, content = path.stat(), path.read_bytes()
    path.write_bytes(content.replace(b"0.9,", b"0.8,"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    edited, made = boards()
    assert made == 2 and "edited" in edited, "as long and as old as before"
    path.write_bytes(content)
    assert boards() == (text, 3)
    derived_at(scored.root).path.write_bytes(b"damaged")
    assert boards() == (text, 4)
    derived_at(scored.root).path.unlink()
    assert [boards() for _ in range(2)] == [(text, 5)] * 2
    monkeypatch.setenv("COLUMNS", "60")
    assert boards()[0] != text
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "mine")
    assert [boards()[1] for _ in range(2)] == [7, 7]
    monkeypatch.setattr("neuroledger.store.derived.SETTLED_NS", 10**12)
    assert [boards()[1] for _ in range(2)] == [8, 9], "just written"


def test_a_file_that_is_no_record_is_named_with_every_board(
    scored: Lab,
    boards: Callable[[], tuple[str, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    record_path(scored.root, RIDGE, "ant").write_text("{}")
    for _ in range(2):
        caplog.clear()
        boards()
        assert "record.unreadable" in caplog.text


def test_boards_are_not_remembered_if_a_record_changes_while_they_are_made(
    scored: Lab,
) -> None:
    catalog = scored.open()

    def make(number: int) -> str:
        keep(catalog, record("ant", RIDGE, 0.1 * number))
        return str(number)

    for number in (1, 2):
        assert text_of(catalog, lambda at=number: make(at)) == str(number)  # type: ignore[misc]
    assert text_of(catalog, lambda: "3") == text_of(catalog, lambda: "4") == "3"


def test_boards_of_two_processes_at_once_are_the_same(scored: Lab) -> None:
    words = [sys.executable, "-m", "neuroledger", "leaderboard", "--suite", "lab"]
    start = partial(Popen, words, cwd=scored.root, stdout=PIPE, text=True)
    first, second = start(), start()
    assert first.communicate() == second.communicate() != ("", None)
