"""The catalogue composes shipped definitions, plugins and the repository at hand, and an id has one meaning."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from neuroledger.engine.check import check
from neuroledger.errors import RequestError, SpecError, UnknownError
from neuroledger.spec import catalog, registry, shipped
from neuroledger.spec.catalog import (
    find_repository,
    open_catalog,
    open_definitions,
    references,
)
from tests.engine.lab import Lab


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A repository with nothing in it."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    return tmp_path


def test_a_bare_repository_has_the_shipped_specs_and_does_not_check_them(
    bare: Path, repository: Path
) -> None:
    here, shipping = open_catalog(bare), open_catalog(repository)
    for kind in ("metrics", "ceilings"):
        assert here.ids(kind) == shipping.ids(kind) and here.own(kind) == []
    assert {
        "noise",
        "pixels16",
        "constant",
        "dummy",
        "shuffled_lda",
        "planted_lda",
    } <= set(here.ids("models"))
    assert not any(here.ids(kind) for kind in ("datasets", "benchmarks", "suites"))
    assert here.metric("pls") == shipping.metric("pls")
    assert check(here) == ([], 0)


def test_a_model_is_shipped_if_it_needs_no_file(repository: Path) -> None:
    """The rule reads the margin of the text; here it is compared with the spec itself."""
    catalog = open_catalog(repository)
    for id in catalog.ids("models"):
        spec, path = catalog.model(id), catalog.entry("models", id).path
        alone = not (spec.weights or spec.downloads or spec.commit or spec.unavailable)
        assert shipped.is_shipped("models", path) == alone, id


def test_a_shipped_metric_may_not_be_replaced(lab: Lab, repository: Path) -> None:
    lab.spec("metrics", "pls", compare={"name": "regression"}, scale="correlation")
    with pytest.raises(SpecError) as caught:
        lab.open()
    words = str(caught.value)
    assert (
        "specs/metrics/pls.yaml:1:1: id 'pls' is already taken by neuroledger:metrics/pls.yaml"
        in words
    )
    assert str(repository / "specs" / "metrics" / "pls.yaml") in words
    assert (
        "give this metric another id, or remove this file to use the metric of neuroledger"
        in words
    )


def test_every_taken_id_is_reported_at_once(lab: Lab) -> None:
    lab.spec("metrics", "pls", compare={"name": "regression"}, scale="correlation")
    lab.spec("models", "noise", builder={"name": "noise"})
    with pytest.raises(SpecError) as caught:
        lab.open()
    assert [problem.where for problem in caught.value.findings] == [
        "specs/metrics/pls.yaml", "specs/models/noise.yaml"
    ]  # fmt: skip


def test_a_copy_of_a_shipped_definition_is_used_and_reported(
    lab: Lab, repository: Path
) -> None:
    copy = lab.root / "specs" / "metrics" / "pls.yaml"
    copy.parent.mkdir()
    copy.write_bytes((repository / "specs" / "metrics" / "pls.yaml").read_bytes())
    catalog = lab.open()
    assert catalog.entry("metrics", "pls").path == copy
    (problem,) = check(catalog, [copy.parents[1]])[0]
    assert (problem.where, problem.severity) == ("specs/metrics/pls.yaml", "warning")
    assert (
        "is a copy of neuroledger:metrics/pls.yaml" in problem.what
        and "remove it" in problem.fix
    )
    # A later edit makes it another definition of the same id, in the same process too.
    copy.write_text(copy.read_text().replace("components: 25", "components: 24"))
    with pytest.raises(SpecError, match="already taken"):
        lab.open()


def test_two_files_of_one_repository_never_share_an_id(lab: Lab) -> None:
    path = lab.spec("models", "mine", builder={"name": "noise"})
    below = lab.root / "specs" / "models" / "deeper" / "mine.yaml"
    below.parent.mkdir()
    below.write_bytes(path.read_bytes())
    with pytest.raises(SpecError) as caught:
        lab.open()
    (problem,) = caught.value.findings
    assert (problem.where, problem.what) == (
        "specs/models/mine.yaml",
        "id 'mine' is already taken by specs/models/deeper/mine.yaml",
    )
    assert problem.fix == "give one of them another id"


def test_a_registered_function_without_a_spec_is_refused_as_a_metric_with_the_reason(
    lab: Lab,
) -> None:
    function = next(
        name for name in registry.names("metric") if not lab.open().has("metrics", name)
    )
    with pytest.raises(RequestError) as caught:
        lab.open().metric(function)
    assert f"a function {function!r} is registered, but its scale" in str(caught.value)
    assert f"write specs/metrics/<id>.yaml with `compare: {{name: {function}}}`" in str(
        caught.value
    )


def test_a_run_without_models_scores_the_repositorys_own(lab: Lab) -> None:
    assert lab.open().own("models") == ["pixels4"]
    assert lab.open().origin(lab.open().entry("models", "noise").path) == "neuroledger"


def test_references_of_a_spec_are_listed_with_their_location(lab: Lab) -> None:
    def of(kind: str, id: str) -> list[tuple[str, str, tuple[str | int, ...]]]:
        return references(lab.open().entry(kind, id))

    lab.benchmark("lab.V4-ridge", superseded_by="lab.later")
    assert of("benchmarks", "lab.V4-ridge") == [
        ("datasets", "lab", ("dataset",)), ("metrics", "ridge", ("metric",)),
        ("ceilings", "internal_consistency", ("ceiling",)), ("models", "pixels4", ("controls", "positive", 0)),
        ("models", "noise", ("controls", "negative", 0)), ("benchmarks", "lab.later", ("superseded_by",)),
    ]  # fmt: skip
    fields = {
        "metric": None,
        "metrics": ["pls", {"name": "ridge"}],
        "ceiling": None,
        "controls": {},
    }
    lab.benchmark("lab.floor", **fields, floor={"dummy": "dummy"})
    assert of("benchmarks", "lab.floor")[1:] == [
        ("metrics", "pls", ("metrics", 0)), ("metrics", "ridge", ("metrics", 1)), ("models", "dummy", ("floor", "dummy"))
    ]  # fmt: skip
    lab.benchmark("lab.floor", **fields, floor={"dummy": 0.1})
    assert len(of("benchmarks", "lab.floor")) == 3
    lab.spec(
        "suites",
        "all",
        benchmarks=["a", {"id": "b", "weight": 2}],
        models=["m"],
        includes=["lab"],
    )
    assert of("suites", "all") == [
        ("benchmarks", "a", ("benchmarks", 0)), ("benchmarks", "b", ("benchmarks", 1)), ("models", "m", ("models", 0)),
        ("suites", "lab", ("includes", 0)),
    ]  # fmt: skip
    assert of("models", "pixels4") == of("datasets", "lab") == []
    committed = {
        "builder": {"name": "noise"},
        "commit": {"on": "lab.V4-ridge", "layers": ["a"]},
    }
    lab.spec("models", "committed", **committed)
    assert of("models", "committed") == [
        ("benchmarks", "lab.V4-ridge", ("commit", "on"))
    ]
    lab.spec("models", "committed", builder={"name": "noise"}, commit={"seed": 1})
    assert of("models", "committed") == []


def test_citations_of_shipped_definitions_are_known_everywhere(bare: Path) -> None:
    (bare / "specs" / "metrics").mkdir()
    (bare / "specs" / "metrics" / "mine.yaml").write_text(
        "id: mine\nversion: 1\ntitle: Mine\ncompare: {name: cka}\nscale: similarity\ncite: [schrimpf2018, nobody1999]\n"
    )
    (problem,) = check(open_catalog(bare))[0]
    assert "nobody1999" in problem.what


def test_outside_a_repository_installed_definitions_are_available(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEUROLEDGER_ROOT", raising=False)
    monkeypatch.setattr(
        catalog,
        "__file__",
        str(tmp_path / "a" / "b" / "neuroledger" / "spec" / "catalog.py"),
    )
    assert open_definitions().ids("metrics") == open_catalog(repository).ids("metrics")
    monkeypatch.setenv("NEUROLEDGER_ROOT", str(tmp_path))
    with pytest.raises(RequestError, match="no NeuroLedger repository"):
        open_definitions()


def test_a_repository_is_the_nearest_folder_with_specs_and_stages(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = bare / "a" / "b"
    below.mkdir(parents=True)
    (bare / "a" / "specs").mkdir()
    assert find_repository(below) == bare.resolve()
    (bare / "a" / "dvc.yaml").write_text("")
    assert find_repository(below) == (bare / "a").resolve()
    monkeypatch.chdir(below)
    monkeypatch.setenv("NEUROLEDGER_ROOT", str(bare))
    assert find_repository() == (bare / "a").resolve(), (
        "the working directory is searched first"
    )


def test_outside_a_repository_the_environment_names_one_unless_a_folder_is_given(
    bare: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = tmp_path_factory.mktemp("outside").resolve()
    monkeypatch.chdir(outside)
    monkeypatch.setenv("NEUROLEDGER_ROOT", str(bare))
    assert find_repository() == bare.resolve()
    with pytest.raises(RequestError) as caught:
        find_repository(outside)
    assert str(caught.value) == (
        f"no NeuroLedger repository (a folder with specs/ and dvc.yaml) at or above {outside}; "
        "cd into your clone, or give it with --root or NEUROLEDGER_ROOT"
    )
    monkeypatch.delenv("NEUROLEDGER_ROOT")
    monkeypatch.setattr(
        catalog, "__file__", str(bare / "src" / "neuroledger" / "spec" / "catalog.py")
    )
    assert find_repository() == bare.resolve(), (
        "the checkout that the package runs from"
    )


def test_specs_of_all_kinds_are_found_by_id(lab: Lab) -> None:
    catalog = lab.open()
    assert [(entry.kind, entry.spec.id) for entry in catalog.find("lab")] == [
        ("datasets", "lab"), ("suites", "lab")
    ]  # fmt: skip
    with pytest.raises(
        UnknownError,
        match=r"^nothing is called 'lab\.V4'; did you mean 'lab\.V4-ridge'",
    ):
        catalog.find("lab.V4")
    with pytest.raises(
        UnknownError, match=r"^nothing is called '\?\?'; see `neuroledger list`$"
    ):
        catalog.find("??")


def test_advice_for_an_unknown_id_ignores_case_and_names_the_command_that_lists(
    lab: Lab,
) -> None:
    catalog = lab.open()
    assert catalog.suggestion("datasets", "LAB") == "did you mean 'lab'?"
    assert catalog.suggestion("datasets", "??") == "see `neuroledger list datasets`"
    assert catalog.suggestion("datasets", "noise") == "there is a model of that name"
    with pytest.raises(
        RequestError, match=r"^no kind 'sets'; kinds are datasets, metrics, ceilings, "
    ):
        catalog.entry("sets", "lab")
    with pytest.raises(
        UnknownError, match=r"^no dataset 'laab'; did you mean 'lab'\?$"
    ):
        catalog.about("laab")


def test_a_catalogue_lists_its_files_and_knows_where_they_come_from(
    lab: Lab, repository: Path
) -> None:
    catalog = lab.open()
    files = list(catalog.files())
    own = [(kind, id) for kind, id, path in files if not catalog.origin(path)]
    assert own == [
        ("datasets", "lab"), ("benchmarks", "lab.V4-ridge"), ("models", "pixels4"), ("suites", "lab")
    ]  # fmt: skip
    assert [id for kind, id, _ in files if kind == "metrics"] == catalog.ids("metrics")
    path = lab.root / "specs" / "datasets" / "lab.yaml"
    assert (
        catalog.path("datasets", "lab") == path
        and catalog.path("datasets", "no") is None
    )
    assert catalog.has("datasets", "lab") and not catalog.has("models", "lab")
    assert catalog.shown(path) == "specs/datasets/lab.yaml"
    shipped_path = repository / "specs" / "metrics" / "pls.yaml"
    assert catalog.shown(shipped_path) == "neuroledger:metrics/pls.yaml"
    assert catalog.shown(Path("/elsewhere/x.yaml")) == "/elsewhere/x.yaml"
    assert catalog.bibliographies[0] == lab.root / "specs" / "references.bib"
    assert catalog.bibliographies[-1] == repository / "specs" / "references.bib"


def test_what_a_data_set_is_about_is_read_once_and_without_its_tables(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "".join(
        f'{{"name": "{n}.edf", "size": {n}, "sha256": "{n:064}"}}\n' for n in (1, 2)
    )
    digest = hashlib.sha256(table.encode()).hexdigest()
    (bare / "specs" / "datasets").mkdir()
    (bare / "specs" / "datasets" / "long.yaml").write_text(
        "id: long\nversion: 1\ntitle: Very many\nlicense: CC0-1.0\naccess_steps: [by hand]\nreader: {name: netcdf}\n"
        f"lists: {{files: {{table: long.jsonl, sha256: {digest}, rows: 2}}}}\n"
    )
    here = open_catalog(bare)
    described = here.about("long")
    assert described.title == "Very many" and not described.files, (
        "the table is missing, and not read"
    )
    monkeypatch.setattr(catalog, "read_spec", None)
    assert here.about("long") is described
    monkeypatch.undo()
    with pytest.raises(SpecError, match=r"long\.jsonl"):
        here.dataset("long")
    (bare / "specs" / "datasets" / "long.jsonl").write_text(table)
    assert sorted(here.dataset("long").files) == ["1.edf", "2.edf"]


def test_a_copy_of_a_catalogue_has_another_spec_and_the_original_does_not(
    lab: Lab,
) -> None:
    catalog = lab.open()
    entry = catalog.entry("datasets", "lab")
    changed = entry.spec.model_copy(update={"title": "Changed"})
    replaced = catalog.with_spec("datasets", "lab", changed, entry.document)
    assert replaced.dataset("lab").title == replaced.about("lab").title == "Changed"
    assert (
        replaced.path("datasets", "lab") == entry.path
        and catalog.dataset("lab").title != "Changed"
    )
    added = catalog.with_spec(
        "datasets", "new", changed, entry.document, Path("new.yaml")
    )
    assert added.ids("datasets") == ["lab", "new"] and catalog.ids("datasets") == [
        "lab"
    ]
    assert added.path("datasets", "new") == Path("new.yaml")
    assert [entry.kind for entry in added.find("new")] == ["datasets"]
