"""Simulated stand-ins of published sets are pinned, validated and decoded, one set of each format.

All sets: ``make miniatures``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neuroledger.errors import NeuroLedgerError
from neuroledger.spec.catalog import Catalog, open_catalog
from tools.miniatures.folders import write
from tools.miniatures.place import BASELINES, run
from tools.miniatures.published import Published, pinned_sets, published

SUITE = "neuralbench"
# Set by format and reader.
SETS = {
    "BDF in BIDS": "Dornhege2004Boosting",
    "EEGLAB with .fdt in BIDS": "Kappenman2021ErpN400",
    "EDF": "Wei2022BeetlB",
    "FIF": "Kalunga2016Online",
    "BrainVision": "Kojima2024ReplicationA",
    "GDF": "Ofner2017UpperExecution",
    "MATLAB": "Acqualagna2013Gaze",
    "CTF, retrieval": "Hebart2023ThingsMeg",
}
LONG = {"BrainVision", "MATLAB", "EEGLAB with .fdt in BIDS"}
"""Formats whose sets take a quarter of a minute each: `make test-slow` and `make miniatures` read them."""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_catalog(Path(__file__).parents[2])


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def asked(catalog: Catalog, id: str) -> Published:
    return published(catalog, id, SUITE)


@pytest.mark.parametrize(
    "format",
    [
        pytest.param(format, marks=[pytest.mark.slow] if format in LONG else [])
        for format in SETS
    ],
)
def test_a_stand_in_is_pinned_validated_and_decoded(
    catalog: Catalog, tmp_path: Path, format: str
) -> None:
    one = asked(catalog, SETS[format])
    networks = ("eegnet_neuralbench",) if format == "EDF" else ()
    row = run(catalog, one, tmp_path, networks)
    assert row.refused is None, str(row)
    objective = one.benchmark["paradigm"].get("objective", "classification")
    assert abs(float(row.steps["dummy"])) < 0.2
    assert float(row.steps[BASELINES[objective]]) > 0.5
    # Forty epochs of a few windows teach a network little; it must be trained and scored.
    assert all(np.isfinite(float(row.steps[name])) for name in networks)
    (path,) = (tmp_path / "specs" / "datasets").iterdir()
    assert "title: Simulated stand-in of" in path.read_text()


def test_only_published_names_are_written(catalog: Catalog, tmp_path: Path) -> None:
    one = asked(catalog, "Kappenman2021ErpN400")
    written = write(one, tmp_path)
    names = {
        path.relative_to(tmp_path).as_posix()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert names <= set(one.names)
    assert sum(name.endswith("_eeg.set") for name in names) == written.recordings


def test_a_spec_that_cannot_divide_its_windows_is_refused_with_the_reason(
    catalog: Catalog, tmp_path: Path
) -> None:
    one = asked(catalog, "Dornhege2004Boosting")
    paradigm = one.benchmark["paradigm"]
    splits = {"name": "declared", "column": "cohort", "test": ["second"]}
    wrong = {**one.benchmark, "paradigm": {**paradigm, "splits": splits}}
    row = run(catalog, replace(one, benchmark=wrong), tmp_path)
    assert row.refused == "pinned"
    assert "needs cohort of each window" in row.steps["pinned"]


def test_labels_that_the_effect_does_not_follow_are_not_decoded(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted effect is what the decoder finds, and nothing else in the files."""
    monkeypatch.setattr("tools.miniatures.simulated.EFFECT", 0.0)
    row = run(catalog, asked(catalog, "Dornhege2004Boosting"), tmp_path)
    assert row.refused is None, str(row)
    assert float(row.steps[BASELINES["classification"]]) < 0.5


def test_sets_of_the_suite_are_those_with_pinned_files(catalog: Catalog) -> None:
    ids = pinned_sets(catalog, SUITE)
    assert {*SETS.values()} <= set(ids)
    assert all(catalog.dataset(id).files for id in ids)
    with pytest.raises(NeuroLedgerError):
        published(catalog, "NoSuchSet", SUITE)
