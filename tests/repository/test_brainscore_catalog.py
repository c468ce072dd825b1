"""Tests of the generated Brain-Score catalogue: committed bytes, states of keys, and no jobs for missing data."""

from collections import Counter
from pathlib import Path

import pytest

from neuroledger.cli import main
from neuroledger.engine.plan import plan
from neuroledger.engine.session import Request
from neuroledger.spec.catalog import open_catalog
from tools.brainscore import __main__ as generator
from tools.brainscore import language, pages, upstream, vision


@pytest.mark.slow
def test_generating_again_gives_the_committed_bytes(repository: Path) -> None:
    for name, text in generator.texts().items():
        assert (repository / name).read_text(encoding="utf-8") == text, (
            f"{name}: run python -m tools.brainscore"
        )


@pytest.mark.slow
def test_no_generated_file_outlives_its_row(repository: Path, tmp_path: Path) -> None:
    stale = tmp_path / "specs" / "benchmarks" / "Gone2020-pls.yaml"
    stale.parent.mkdir(parents=True)
    stale.write_text(generator.MARK + "\nid: Gone2020-pls\n", encoding="utf-8")
    own = stale.with_name("Mine-pls.yaml")
    own.write_text("id: Mine-pls\n", encoding="utf-8")
    generator.write(tmp_path)
    assert not stale.exists() and own.exists()
    held = {
        p.relative_to(repository)
        for p in (repository / "specs").glob("*/*.yaml")
        if generator.MARK in p.read_text("utf-8")
    }
    assert held == {
        Path(name) for name in generator.texts() if name.startswith("specs/")
    }


def test_every_key_of_the_registry_has_a_spec_with_a_state() -> None:
    vision_states = Counter(pages.states(vision.specs()).values())
    assert vision_states.total() == len(upstream.benchmarks()) == 270
    assert vision_states == {
        "refused": 2,
        "ready after fetch": 8,
        "private upstream": 260,
    }
    language_states = Counter(pages.states(language.specs()).values())
    assert language_states == {
        "ready after fetch": 43,
        "ready after pin": 1,
        "refused": 1,
    }
    # Every assembly is in a data set, alone or joined with others.
    assert {
        key for data in vision.datasets().values() for key in data.parts.values()
    } == set(upstream.assemblies())


def test_absent_data_make_no_job(repository: Path) -> None:
    catalog = open_catalog(repository)
    suites = [
        catalog.suite(name) for name in ("brainscore.public", "brainscore.vision")
    ]
    asked = plan(
        catalog, models=["pixels16", "noise"], suites=suites, request=Request()
    )
    assert (
        asked.jobs == () and len(asked.unavailable) == 266
    )  # four keys have no parent upstream


def test_a_suite_whose_data_are_absent_ends_well_and_leaves_nothing(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set((repository / "results").rglob("*.json"))
    assert (
        main(
            ["--root", str(repository), "run", "noise", "--suite", "brainscore.public"]
        )
        == 0
    )
    assert set((repository / "results").rglob("*.json")) == before
    assert "MajajHong2015public.IT-pls" in capsys.readouterr().out


@pytest.mark.parametrize("hierarchy", [vision.HIERARCHY, language.HIERARCHY])
def test_groups_lead_to_a_root(hierarchy: dict[str, str]) -> None:
    for key in hierarchy:
        while key in hierarchy:
            key = hierarchy[key]
        assert key in {
            "average_vision",
            "average_language",
            "engineering",
            "engineering_language",
        }
