"""Facts about stimuli and assemblies are plain tables, each checked against what it is made from."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

from neuroledger.data.gate import gx_tables as facts
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError
from tests.engine.tiny_repository import IDS, image, responses, table


def rows_of(found: facts.Facts) -> list[dict[str, Any]]:
    return found.rows.to_dict("records")


def test_a_table_is_taken_with_nothing_for_an_empty_text() -> None:
    frame = table().assign(
        word=["a", "", None, "d"],
        kind=pd.Categorical(["x", "y", "x", "y"]),
        n=[1, 2, 3, 4],
    )
    found = facts.stimuli(StimulusSet("s", frame.set_index(pd.Index([5, 6, 7, 8]))))
    assert (found.title, found.key, found.quotable) == (
        "stimulus table",
        "stimulus_id",
        False,
    )
    assert found.rows["word"].tolist() == [
        "a",
        None,
        None,
        "d",
    ] and found.rows.index.tolist() == [0, 1, 2, 3]
    assert (
        found.rows["kind"].tolist() == ["x", "y", "x", "y"]
        and found.rows["kind"].dtype == object
    )
    assert (
        found.rows["n"].tolist() == [1, 2, 3, 4] and found.rows["n"].dtype.kind == "i"
    )


@pytest.mark.parametrize("decoded", [True, False])
def test_files_are_measured_hashed_and_decoded_on_request(decoded: bool) -> None:
    files = {f"{id}.png": image(i) for i, id in enumerate(IDS[:2])} | {
        "im3.png": b"no image"
    }
    found = facts.files(StimulusSet("s", table(), contents=files), decoded=decoded)
    assert (found.title, found.key, found.quotable) == (
        "stimulus files",
        "stimulus_id",
        False,
    )
    assert found.rows["@bytes"].tolist() == [len(image(0)), len(image(1)), 0, 8]
    assert found.rows["@sha256"].tolist()[:3] == [*table()["sha256"][:2], "(nothing)"]
    assert found.rows["filename"].tolist() == table()["filename"].tolist()
    assert ("@image" in found.rows) is decoded
    if decoded:
        assert found.rows["@image"].tolist()[:2] == ["decodes", "decodes"]
        assert found.rows["@mode"].tolist() == ["L", "L", "unreadable", "unreadable"]
        assert found.rows["@size"].tolist() == [
            "8 x 8",
            "8 x 8",
            "unreadable",
            "unreadable",
        ]
        assert "im3" in found.rows["@image"][3]


def test_coordinates_are_those_along_one_dimension_named_by_the_first_that_names_rows() -> (
    None
):
    assembly = responses().assign_coords(stimulus_id=("presentation", [1, 2, 3, 4] * 3))
    found = facts.coordinates(assembly, "presentation")
    assert (found.title, found.key, found.quotable) == (
        "assembly along presentation",
        "stimulus_id",
        False,
    )
    assert (
        list(found.rows.columns) == ["stimulus_id", "repetition"]
        and found.rows["stimulus_id"][4] == "1"
    )
    along = facts.coordinates(assembly, "neuroid")
    assert along.key == "neuroid_id" and rows_of(along)[2] == {
        "neuroid_id": "c",
        "region": "IT",
    }
    bins = xr.DataArray(np.zeros((2, 3)), dims=("x", "y"), coords={"y": [1, 2, 3]})
    assert facts.coordinates(bins, "y").key == "y"
    assert (
        facts.coordinates(bins, "x").key is None
        and len(facts.coordinates(bins, "x").rows) == 2
    )


def test_a_coordinate_is_complete_unless_it_was_declared_and_has_a_hole() -> None:
    holes = responses().assign_coords(
        region=("neuroid", ["V4", "", "IT"]), depth=("neuroid", [1.0, np.nan, 2.0])
    )
    found = facts.coordinate_names(
        holes, ["region along neuroid", "repetition along presentation"]
    )
    assert (found.title, found.key, found.quotable) == (
        "assembly coordinates",
        "place",
        True,
    )
    assert {row["place"]: row["complete"] for row in rows_of(found)} == {
        "stimulus_id along presentation": True,
        "repetition along presentation": True,
        "neuroid_id along neuroid": True,
        "region along neuroid": False,
        "depth along neuroid": True,
    }
    assert list(
        facts.coordinate_names(xr.DataArray([1.0], dims="x"), []).rows.columns
    ) == [
        "place",
        "complete",
    ]


def test_one_row_has_the_lengths_and_one_describes_the_values() -> None:
    found = facts.lengths(responses())
    assert (found.title, found.key, found.quotable) == (
        "assembly dimensions",
        None,
        True,
    )
    assert rows_of(found) == [{"presentation": 12, "neuroid": 3}]
    assembly = responses().assign_attrs(units="Hz")
    assembly[0, :2], assembly[5, 1] = np.nan, -np.inf
    found = facts.values(assembly)
    assert (found.title, found.key, found.quotable) == ("assembly values", None, True)
    assert rows_of(found) == [
        {
            "dims": "presentation, neuroid",
            "dtype": "float32",
            "missing": 2,
            "infinite": 1,
            "units": "Hz",
        }
    ]
    for plain, dtype in ((np.int16, "int16"), (str, "str"), (object, "str")):
        (row,) = rows_of(facts.values(responses().astype(plain)))
        assert (row["dtype"], row["missing"], row["infinite"], row["units"]) == (
            dtype,
            0,
            0,
            None,
        )
    assert rows_of(facts.content(assembly, "known")) == [{"sha256": "known"}]
    assert rows_of(facts.content(assembly, "")) == [
        {"sha256": facts.content_sha256(assembly)}
    ]
    assert facts.content(assembly, "").quotable


@pytest.mark.parametrize("over", ["neuroid", "presentation"])
@pytest.mark.parametrize("blocks", [1 << 24, 1])
def test_range_and_variation_are_those_of_the_values_that_are_there(
    over: str, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroledger.data import memory

    monkeypatch.setattr(memory, "BLOCK", blocks)
    values = np.array(
        [[1.0, 5.0, np.nan], [1.0, np.nan, np.nan], [np.nan, 7.0, np.nan]]
    )
    assembly = xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={"neuroid_id": ("neuroid", list("abc"))},
    )
    found = facts.value_range(assembly)
    assert rows_of(found) == [{"lowest": 1.0, "highest": 7.0}] and not found.quotable
    for given in (values, np.nan_to_num(values).astype(int), values[::-1] * -1):
        held = assembly.copy(data=given)
        lines = given.T if over == "neuroid" else given
        expected = [len({x for x in line if x == x}) > 1 for line in lines]
        varies = facts.sites(held, over)
        assert varies.rows["varies"].tolist() == expected
        assert (
            varies.title == f"values by {over}"
            and varies.key == "name"
            and not varies.quotable
        )
        assert varies.rows["name"].tolist() == (
            ["a", "b", "c"] if over == "neuroid" else [0, 1, 2]
        )
    nothing = rows_of(facts.value_range(assembly * np.nan))[0]
    assert np.isnan(nothing["lowest"]) and np.isnan(nothing["highest"])
    for refused in (facts.value_range, lambda one: facts.sites(one, over)):
        with pytest.raises(
            DataError, match=r"^the values are of type <U1, not numbers$"
        ):
            refused(xr.full_like(assembly, "a", dtype="<U1"))


def test_names_of_sites_are_paired_with_the_declared_ones() -> None:
    found = facts.site_names(responses(), "neuroid_id", ("a", "x"))
    assert (found.title, found.key, found.quotable) == (
        "recording sites",
        "position",
        True,
    )
    assert rows_of(found) == [
        {"position": 0, "name": "a", "declared": "a"},
        {"position": 1, "name": "b", "declared": "x"},
        {"position": 2, "name": "c", "declared": "(nothing)"},
    ]
    longer = facts.site_names(responses(), "neuroid_id", ("a", "b", "c", "d"))
    assert rows_of(longer)[3] == {"position": 3, "name": "(nothing)", "declared": "d"}


def test_time_steps_are_those_between_bins_or_the_stated_rate() -> None:
    def rates(starts: Any = None, **attrs: Any) -> list[float]:
        coords = {} if starts is None else {"time_bin_start": ("time_bin", starts)}
        found = facts.time_steps(
            xr.DataArray(
                np.zeros(len(starts or [0])),
                dims="time_bin",
                coords=coords,
                attrs=attrs,
            )
        )
        assert (found.title, found.key, found.quotable) == ("time steps", "step", True)
        assert found.rows["step"].tolist() == list(range(len(found.rows)))
        return found.rows["hz"].tolist()

    assert rates([0, 10, 30, 30]) == [100.0, 50.0, np.inf]
    assert rates([0, 10], sampling_rate=7) == [100.0] and rates(
        [5], sampling_rate="250"
    ) == [250.0]
    assert rates([5]) == rates() == [] and rates(sampling_rate=4) == [4.0]
    for wrong in (
        {"starts": ["a", "b"]},
        {"sampling_rate": "fast"},
        {"sampling_rate": None},
    ):
        with pytest.raises(
            DataError, match=r"^time_bin_start or sampling_rate is not a number"
        ):
            rates(**wrong)


def test_presentations_are_counted_by_stimulus_and_rows_selected_by_one_or_several_values() -> (
    None
):
    found = facts.repetitions(responses().isel(presentation=[6, 2, 1, 2, 9, 1]))
    assert (found.title, found.key, found.quotable) == (
        "presentations by stimulus",
        "stimulus_id",
        False,
    )
    assert rows_of(found) == [
        {"stimulus_id": "im1", "presentations": 3},
        {"stimulus_id": "im2", "presentations": 3},
    ]
    whole = facts.stimuli(StimulusSet("s", table()))
    part = facts.select(whole, {"object_name": "car", "stimulus_id": ("im0", "im3")})
    assert (
        part.title == "stimulus table where object_name = car, stimulus_id = im0 or im3"
    )
    assert (
        part.rows["stimulus_id"].tolist() == ["im3"]
        and part.rows.index.tolist() == [0]
        and part.key == whole.key
    )
    assert (
        facts.select(whole, {}).title == "stimulus table"
        and len(facts.select(whole, {}).rows) == 4
    )
    with pytest.raises(KeyError):
        facts.select(whole, {"colour": 1})


def test_facts_about_a_file_are_its_size_its_hash_and_its_image() -> None:
    content = image(0)
    facts_of_bytes = {
        "@bytes": len(content),
        "@sha256": hashlib.sha256(content).hexdigest(),
    }
    assert facts.file_facts("s", content, False) == facts_of_bytes
    decoded = facts.file_facts("s", content, True)
    with Image.open(io.BytesIO(content)) as opened:
        size, mode = f"{opened.size[0]} x {opened.size[1]}", opened.mode
    assert decoded == facts_of_bytes | {
        "@image": "decodes",
        "@mode": mode,
        "@size": size,
    }
    missing = facts.file_facts("s", b"", True)
    assert missing == {
        "@bytes": 0,
        "@sha256": "(nothing)",
        "@image": "image of 's' is an empty file: it is damaged or incomplete",
        "@mode": "unreadable",
        "@size": "unreadable",
    }


def test_a_damaged_file_has_no_content_and_the_files_after_it_are_read() -> None:
    class Damaged(StimulusSet):
        def read(self, ids: Any = None) -> Any:
            for id in ids:
                if id == "b":
                    raise DataError("damaged")
                yield id.encode()

    stimuli = Damaged("s", pd.DataFrame({"stimulus_id": list("abcd")}))
    assert list(facts._contents(stimuli)) == [
        ("a", b"a"),
        ("b", b""),
        ("c", b"c"),
        ("d", b"d"),
    ]
