"""The page of a data set shows the signatures that its spec names, but not those of private data."""

from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr

from neuroledger.data.gate.signatures import are_current, problems_of, signatures_of
from neuroledger.data.gate.validation import (
    ValidationReport,
    read_report,
    report_path,
)
from neuroledger.data.load import load_dataset
from neuroledger.report.board import Leaderboard
from neuroledger.report.pages import Page, _known_by
from neuroledger.report.recordings import known_by
from neuroledger.report.site import rendered
from neuroledger.spec.base import Component
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.kinds import DatasetSpec

ID = "EEGLAB.sample"


@pytest.fixture(scope="module")
def catalog(repository: Path) -> Catalog:
    return open_catalog(repository)


@pytest.fixture(scope="module")
def report(catalog: Catalog) -> ValidationReport:
    found = read_report(report_path(catalog.root, ID))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def windows(catalog: Catalog) -> xr.DataArray:
    assembly = load_dataset(catalog, ID).assembly
    assert assembly is not None
    return assembly


def with_signatures(spec: DatasetSpec, *named: dict[str, object]) -> DatasetSpec:
    components = tuple(Component.model_validate(each) for each in named)
    return spec.model_copy(update={"signatures": components})


def test_the_shipped_report_holds_what_the_spec_names(
    catalog: Catalog, report: ValidationReport, windows: xr.DataArray
) -> None:
    spec = catalog.dataset(ID)
    assert are_current(spec, report.signatures)
    stored, computed = report.signatures[0], signatures_of(spec, windows)[0]
    for one, other in zip(stored.courses, computed.courses, strict=True):
        assert one.label == other.label
        assert one.mean == pytest.approx(other.mean, rel=1e-3, abs=1e-3)
    first, second = known_by(report.signatures)
    assert first.title == "Evoked response, Pz"
    assert first.note.endswith("1 person, 95 % interval over windows")
    assert [name for _, name in first.key] == ["rt", "square"]
    assert second.picture.count("<polygon") == second.picture.count("<polyline") == 2


def test_another_signature_is_not_the_one_that_was_stored(
    catalog: Catalog, report: ValidationReport
) -> None:
    spec = catalog.dataset(ID)
    other = with_signatures(spec, {"name": "evoked_response", "channels": ["Cz"]})
    assert not are_current(other, report.signatures)
    assert not are_current(with_signatures(spec), report.signatures)


def test_nothing_of_private_data_is_computed_or_shown(
    catalog: Catalog, report: ValidationReport, windows: xr.DataArray
) -> None:
    spec = catalog.dataset(ID)
    private = spec.model_copy(update={"access": "private"})
    assert signatures_of(private, windows) == ()
    assert not are_current(private, report.signatures)
    assert _known_by(private, report) == []
    assert _known_by(spec, report)


def test_what_cannot_be_computed_is_a_warning_and_has_no_figure(
    catalog: Catalog, windows: xr.DataArray
) -> None:
    spec = with_signatures(
        catalog.dataset(ID),
        {"name": "evoked_response"},
        {"name": "evoked_response", "channels": ["C3"], "baseline": [3.0, 4.0]},
        {"name": "evoked_respons"},
        {"name": "band_change"},
    )
    found = signatures_of(spec, windows)
    assert known_by(found) == []
    assert are_current(spec, found)
    words = [finding.what for finding in problems_of(spec, found)]
    for part, said in zip(
        ("name a few `channels`", "no sample lies", "did you mean", "band: "),
        words,
        strict=True,
    ):
        assert part in said


def test_the_page_has_the_figures(catalog: Catalog, report: ValidationReport) -> None:
    context = dict.fromkeys(("benchmarks", "thumbnails", "cited", "clocks"), ())
    shown: dict[str, object] = {**context, "stimuli": 0, "timeline": None}
    spec = catalog.dataset(ID)
    shown |= {"spec": spec, "report": report, "known_by": _known_by(spec, report)}
    shown |= {"section": "datasets", "path": ID, "source": ""}
    page = Page(f"datasets/{ID}.html", "dataset.html.j2", shown)
    text = rendered(page, Leaderboard("lab", 1, "Lab", (), (), ()))
    assert text.count("<h3>Evoked response, ") == text.count("<figure>") == 2
    assert '<i class="m1"></i>square' in text
