"""Tests that the published decoding data sets state their source, their licence and who states it."""

import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from neuroledger.families.decoding.protocols.splits import SplitRule, Within
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec

SPDX = re.compile(r"(LicenseRef-[\w.-]+|[A-Z][\w.-]*-\d+\.\d+(-only)?)")
NO_TERMS = {"LicenseRef-unverified", "LicenseRef-unstated"}


@pytest.fixture(scope="module")
def catalog(repository: Path) -> Catalog:
    return open_catalog(repository)


def published(catalog: Catalog) -> list[BenchmarkSpec]:
    return [
        catalog.benchmark(id)
        for id in catalog.ids("benchmarks")
        if id.startswith("neuralbench.")
    ]


def sets(catalog: Catalog) -> list[DatasetSpec]:
    return [
        catalog.dataset(id)
        for id in sorted({one.dataset for one in published(catalog)})
    ]


def test_every_set_has_a_source_a_licence_and_a_way(catalog: Catalog) -> None:
    found = sets(catalog)
    assert len(found) > 100
    for one in found:
        assert SPDX.fullmatch(one.license), (one.id, one.license)
        assert one.source is not None, one.id
        assert re.match(r"https?://\S+\.\S+", one.source), one.id
        assert one.access_steps, one.id
        steps = " ".join(one.access_steps)
        assert re.search(r"https?://|s3://|`", steps), one.id
        assert "documentation of NeuralBench" not in steps, one.id


def test_without_known_terms_the_note_states_what_was_read(catalog: Catalog) -> None:
    without = {
        one.id: one.license_note for one in sets(catalog) if one.license in NO_TERMS
    }
    assert set(without) == {"Hoffmann2008Efficient", "Nakanishi2015Comparison"}
    for id, note in without.items():
        assert note is not None, id
        assert "MOABB" in note, id


def test_two_specs_of_one_set_state_one_licence(catalog: Catalog) -> None:
    stated: dict[str, set[str]] = {}
    for one in sets(catalog):
        stated.setdefault(one.id.split(".")[0], set()).add(one.license)
    assert {id: licences for id, licences in stated.items() if len(licences) > 1} == {}


@pytest.mark.parametrize(
    ("id", "column", "values", "fraction", "by"),
    [
        ("ern.chavarriaga2010", "session", ["16", "17", "18", "19"], 0.1875, "session"),
        ("ern.kueper2024", "run", ["10", "11", "12"], 0.15, "recording"),
        ("mental_imagery", "session", ["1"], 0.1, None),
        ("motor_imagery.wei2022a", "run", ["1finaltest"], 0.2, None),
        ("motor_imagery.wei2022b", "run", ["1finaltest"], 0.2, None),
        ("motor_imagery.zhou2016", "session", ["2"], 0.5, "session"),
        ("p3.hoffmann2008", "session", ["3"], 0.334, "session"),
    ],
)
def test_few_people_are_tested_in_the_sessions_or_runs_that_are_published(
    catalog: Catalog,
    id: str,
    column: str,
    values: list[str],
    fraction: float,
    by: str | None,
) -> None:
    paradigm = catalog.benchmark(f"neuralbench.eeg.{id}").paradigm
    assert paradigm is not None
    rule = TypeAdapter(SplitRule).validate_python(paradigm.parameters["splits"])
    assert isinstance(rule, Within)
    assert rule.validation is not None
    assert (rule.column, list(rule.values), rule.test) == (column, values, None)
    assert (rule.validation.fraction, rule.validation.by) == (fraction, by)
