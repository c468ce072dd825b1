"""What was read is given the degrees and the name of its data set, and hashed where it was prepared."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.data import integrity
from neuroledger.data.assembly import content_sha256
from neuroledger.data.dataset import Dataset
from neuroledger.data.gate.validate import _contents
from neuroledger.data.load import (
    DeclaredFiles,
    load_dataset,
    prepared_content,
    with_degrees,
)
from neuroledger.data.package import expectations_text
from neuroledger.errors import DataError, SpecError, UnavailableError
from tests.engine.lab import REPETITIONS, Lab
from tests.models.drawn_stimuli import drawn


def test_stimuli_have_their_own_degrees_or_those_of_the_data_set() -> None:
    assert with_degrees(drawn(2), 8.0).degrees == 8.0
    assert with_degrees(drawn(2, degrees=4.0), 8.0).degrees == 4.0
    assert with_degrees(drawn(2, columns={"degrees": [4.0, 5.0]}), 8.0).degrees is None
    assert with_degrees(drawn(2), None).degrees is None


@pytest.mark.parametrize("degrees", [None, 6.0])
def test_a_data_set_is_called_by_its_id_and_its_degrees_reach_its_stimuli(
    valid: Lab, degrees: float | None
) -> None:
    valid.dataset(**({} if degrees is None else {"degrees": degrees}))
    data = load_dataset(valid.open(), "lab")
    assert data.stimuli is not None and (data.id, data.stimuli.id) == ("lab", "lab")
    assert data.degrees == data.stimuli.degrees == degrees
    assert data.content == "", "nothing was prepared"


def test_an_undeclared_file_is_reported_with_the_declared_ones() -> None:
    files = DeclaredFiles({"b": Path("b"), "a": Path("a")})
    assert files["a"] == Path("a")
    with pytest.raises(
        DataError,
        match="the reader needs the file 'c'; the spec's `files` are a, b: correct",
    ):
        files["c"]


def test_data_that_are_withdrawn_are_not_read(valid: Lab) -> None:
    valid.dataset(unavailable="they were withdrawn")
    with pytest.raises(
        UnavailableError, match="data set 'lab' is unavailable: they were withdrawn"
    ):
        load_dataset(valid.open(), "lab")


def test_the_assembly_must_have_the_pinned_content(valid: Lab) -> None:
    def pinned(sha256: str, **fields: Any) -> None:
        checks = [
            {"check": "repetitions", "count": REPETITIONS},
            {"check": "content", "sha256": sha256, **fields},
        ]
        valid.dataset(expectations={"assembly": checks})

    pinned("0" * 64)
    with pytest.raises(
        DataError, match=f"has the SHA-256 [0-9a-f]{{64}}, and {'0' * 64} is pinned"
    ) as caught:
        load_dataset(valid.open(), "lab")
    assert "renew the pin (`check: content` under `expectations`)" in str(caught.value)
    pinned(str(caught.value).split("has the SHA-256 ")[1][:64])
    load_dataset(valid.open(), "lab")
    pinned("0" * 64, severity="warning")
    load_dataset(valid.open(), "lab")


def recording(**coords: Any) -> xr.DataArray:
    return xr.DataArray(
        np.ones((4, 2)), dims=("presentation", "neuroid"), coords=coords
    )


def test_only_prepared_data_show_a_content_hash() -> None:
    data = Dataset(
        None, recording(), extras={"b": recording(), "a": recording()}, content="abc"
    )
    found = _contents(data)
    assert {name: one.sha256 for name, one in found.items()} == {
        "assembly": "abc",
        "assembly a": "",
        "assembly b": "",
    }
    assert list(found) == ["assembly", "assembly a", "assembly b"]
    shown = _contents(Dataset(drawn(3, columns={"word": list("abc")}), None))
    assert list(shown) == ["stimuli"] and (
        shown["stimuli"].dims,
        shown["stimuli"].shape,
    ) == (
        ("stimuli",),
        (3,),
    )
    assert shown["stimuli"].columns == ("filename", "stimulus_id", "word")
    assert (found["assembly"].dims, found["assembly"].shape) == (
        ("presentation", "neuroid"),
        (4, 2),
    )


def test_expectations_are_written_for_the_existing_parts() -> None:
    ids = ("presentation", list("abab"))
    whole = expectations_text(Dataset(drawn(2), recording(stimulus_id=ids)))
    assert "check: aligned" in whole and "check: row_count, count: 2" in whole
    assert "aligned" not in expectations_text(Dataset(drawn(2), recording()))
    assert "aligned" not in expectations_text(Dataset(None, recording(stimulus_id=ids)))
    twice = expectations_text(
        Dataset(
            None, recording(stimulus_id=ids, repetition=("presentation", [0, 0, 1, 1]))
        )
    )
    assert "check: repetitions, count: 2" in twice
    uneven = {
        "stimulus_id": ("presentation", list("abaa")),
        "repetition": ("presentation", [0, 0, 1, 2]),
    }
    assert "check: repetitions, low: 1, high: 3" in expectations_text(
        Dataset(None, recording(**uneven))
    )


def test_invalid_parameters_of_a_reader_are_reported_with_their_position(
    valid: Lab,
) -> None:
    path = valid.dataset(reader={"name": "netcdf", "asembly": "responses.nc"})
    line = path.read_text().splitlines().index("  asembly: responses.nc") + 1
    with pytest.raises(SpecError) as caught:
        load_dataset(valid.open(), "lab")
    assert str(caught.value) == (
        f"specs/datasets/lab.yaml:{line}:3: unknown field 'asembly' [spec.unknown-field]\n"
        "    hint: did you mean 'assembly'?"
    )


def test_parameters_reach_the_reader_and_degrees_reach_further_stimuli(
    valid: Lab,
) -> None:
    valid.dataset(
        reader={
            "name": "netcdf",
            "assembly": None,
            "fitting_stimuli": {"more": "stimuli.csv"},
        },
        expectations={"stimuli": [{"check": "unique", "column": "stimulus_id"}]},
        degrees=6.0,
    )
    data = load_dataset(valid.open(), "lab")
    assert data.assembly is None and list(data.extra_stimuli) == ["more"]
    assert data.extra_stimuli["more"].degrees == 6.0


def test_the_content_hash_of_prepared_data_is_taken_from_the_reader_or_computed() -> (
    None
):
    assert prepared_content(Dataset(drawn(2), None)) == ""
    assembly = recording()
    assert prepared_content(Dataset(None, assembly)) == content_sha256(assembly)
    assembly.encoding["content_sha256"] = "f" * 64
    assert prepared_content(Dataset(None, assembly)) == "f" * 64
    assert assembly.encoding == {}, "it is not stored with other values"


def test_files_are_hashed_once_unless_the_memory_is_not_trusted(
    valid: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(valid.root / ".cache")
    names: list[str] = []
    plain = integrity.sha256_of_file
    monkeypatch.setattr(
        integrity, "sha256_of_file", lambda path: names.append(path.name) or plain(path)
    )
    load_dataset(valid.open(), "lab")
    assert sorted(names) == ["responses.nc", "stimuli.csv", "stimuli.zip"]
    assert (valid.root / ".cache" / "neuroledger" / "hashes.sqlite").is_file()
    load_dataset(valid.open(), "lab")
    assert len(names) == 3
    load_dataset(valid.open(), "lab", trust_memory=False)
    assert len(names) == 6
