"""Every row is a measurement of its own: copies and contradictions that are planted are found, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroledger.data.gate.equal_responses import equal_responses
from neuroledger.data.gate.repetitions import repetitions_of
from neuroledger.data.gate.rows import row_findings
from neuroledger.data.gate.validate import validate
from neuroledger.families.signals.signals import signals
from tests.engine.tiny_repository import Tiny, responses


def assembly(
    *,
    stimuli: int = 20,
    repetitions: int = 4,
    neuroids: int = 6,
    seed: int = 0,
    counts: bool = False,
    **coords: Any,
) -> xr.DataArray:
    """Responses of selective neuroids with noise, or their counts of spikes."""
    rng = np.random.default_rng(seed)
    stimulus = np.repeat(np.arange(stimuli), repetitions)
    drive = 3 * rng.normal(size=(stimuli, neuroids))
    values = drive[stimulus] + rng.normal(size=(len(stimulus), neuroids))
    if counts:
        values = rng.poisson(np.exp(drive[stimulus] / 3)).astype(float)
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", [f"im{n}" for n in stimulus]),
            "neuroid_id": ("neuroid", [f"u{n}" for n in range(neuroids)]),
            **{name: ("presentation", column) for name, column in coords.items()},
        },
    )


def numbered(given: xr.DataArray) -> xr.DataArray:
    """The repetitions counted within each stimulus."""
    ids = given["stimulus_id"].values
    number = [int((ids[:row] == id).sum()) for row, id in enumerate(ids)]
    return given.assign_coords(repetition=("presentation", number))


def whats(given: xr.DataArray) -> list[str]:
    return [
        f"{finding.code}: {finding.what}" for finding in row_findings(given, "here")
    ]


def test_rows_that_occur_twice_are_counted_and_the_first_is_named() -> None:
    plain = numbered(assembly())
    copied = xr.concat([plain, plain.isel(presentation=[7, 3, 30])], "presentation")
    assert whats(plain) == []
    assert whats(copied) == [
        "data.copies: 3 presentations occur twice, first: im1, repetition 3"
    ]
    often = xr.concat([copied, plain.isel(presentation=[3])], "presentation")
    assert "4 presentations occur up to 3 times" in whats(often)[0]


def test_one_key_with_two_values_is_an_error_of_its_own() -> None:
    plain = numbered(assembly())
    other = plain.isel(presentation=[5, 9]) + 0.25
    found = row_findings(xr.concat([plain, other], "presentation"), "here")
    assert [finding.code for finding in found] == ["data.conflict"]
    assert (
        found[0].what
        == "2 presentations have the key of an earlier one and other values, first: im1, repetition 1"
    )
    assert "tells them apart" in found[0].fix
    assert (
        "im1"
        not in row_findings(
            xr.concat([plain, other], "presentation"), "here", quote=False
        )[0].what
    )


def test_rows_of_different_neuroids_with_one_key_are_both_measurements() -> None:
    plain = numbered(assembly())
    first, second = plain.copy(deep=True), plain.copy(deep=True)
    first[:, :3] = np.nan
    second[:, 3:] = np.nan
    assert whats(xr.concat([first, second], "presentation")) == []


def test_copies_that_were_given_a_number_of_their_own_are_found_by_their_values() -> (
    None
):
    for counts in (False, True):
        plain = assembly(neuroids=40, counts=counts)
        assert whats(numbered(plain)) == []
        copied = numbered(
            xr.concat([plain, plain.isel(presentation=[7, 3])], "presentation")
        )
        assert len(whats(copied)) == 1
        assert (
            "2 presentations have exactly the responses of an earlier one"
            in whats(copied)[0]
        )


def test_cells_of_a_long_table_that_were_counted_once_more_are_found_by_their_values() -> (
    None
):
    plain = assembly(stimuli=40, neuroids=10)
    more = xr.full_like(plain.isel(presentation=slice(0, None, 4)), np.nan)
    more[:20] = plain.values[1::4][:20]
    more[:20, ::2] = plain.values[2::4][:20, ::2]  # each cell is a copy, no row is
    equal = equal_responses(numbered(xr.concat([plain, more], "presentation")))
    assert equal is not None and equal.cells and equal.count == 200


def test_counts_and_rounded_values_that_agree_by_chance_are_seldom_called_copies() -> (
    None
):
    """Where all neuroids are silent together, about one of 800 such sets is, with two or three repetitions."""
    draw = np.random.default_rng(0)
    alarms = 0
    for seed in range(200):
        rate = draw.uniform(0.02, 30.0)
        neuroids = int(draw.integers(1, 41))
        repetitions = int(draw.integers(2, 9))
        rng = np.random.default_rng(seed)
        plain = assembly(neuroids=neuroids, repetitions=repetitions, seed=seed)
        awake = rng.random((plain.sizes["presentation"], 1)) < 0.7
        spikes = rng.poisson(rate * rng.gamma(1.0, size=neuroids) * awake, plain.shape)
        counts = plain.copy(data=spikes.astype(float))
        rounded = plain.copy(data=plain.values.round(int(draw.integers(4))))
        alarms += bool(whats(numbered(counts)) or whats(numbered(rounded)))
    assert alarms <= 2


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    copies=st.integers(1, 30),
    numbering=st.sampled_from(["trial", "repetition"]),
)
def test_any_number_of_planted_copies_is_counted(
    seed: int, copies: int, numbering: str
) -> None:
    rng = np.random.default_rng(seed)
    plain = numbered(assembly(seed=seed)).rename(repetition=numbering)
    chosen = np.sort(rng.choice(plain.sizes["presentation"], copies, replace=False))
    copied = xr.concat([plain, plain.isel(presentation=chosen)], "presentation")
    shuffled = copied.isel(presentation=rng.permutation(copied.sizes["presentation"]))
    assert f"{copies} presentations occur twice" in whats(shuffled)[0]


def windows(
    onsets: list[float], labels: list[str], *, same: bool = True
) -> xr.DataArray:
    rng = np.random.default_rng(3)
    at = {onset: rng.normal(size=(2, 10)) for onset in onsets}
    values = [at[onset] if same else rng.normal(size=(2, 10)) for onset in onsets]
    events = {
        "stimulus_id": np.array([f"a/{n}" for n in range(len(onsets))]),
        "subject": np.full(len(onsets), "S1"),
        "session": np.full(len(onsets), "1"),
        "recording": np.full(len(onsets), "a"),
        "recording_sha256": np.full(len(onsets), "0" * 64),
        "onset": np.array(onsets),
        "label": np.array(labels),
    }
    return signals(
        np.stack(values).astype(np.float32), channels=["C3", "C4"], channel_types="eeg", sampling_rate=10.0, start=0.0,
        units="uV", events=events,
    )  # fmt: skip


def test_a_place_of_a_recording_is_one_window() -> None:
    assert whats(windows([1.0, 2.0, 3.0], ["x", "y", "x"])) == []
    doubled = windows([1.0, 2.0, 3.0, 2.0, 3.0], ["x", "y", "x", "y", "x"])
    assert whats(doubled) == [
        "data.copies: 2 windows occur twice, first: S1, session 1, a, onset 2"
    ]
    torn = windows([1.0, 2.0, 3.0, 3.0], ["x", "y", "x", "y"])
    assert whats(torn) == [
        "data.conflict: 1 windows have the key of an earlier one and other labels, first: S1, session 1, a, onset 3"
    ]
    unknown_times = windows([0.0, 0.0, 0.0], ["x", "y", "x"], same=False)
    assert whats(unknown_times) == []


def test_presentations_are_counted_by_subject_and_session() -> None:
    subject = np.where(np.arange(80) < 60, "S1", "S2")
    session = np.array([f"{n % 2}" for n in range(80)])
    plain = numbered(assembly(subject=subject, session=session))
    plain[0, 0] = np.nan
    plain[1] = np.nan
    lines = repetitions_of(plain, "assembly")
    assert [(line.subject, line.session, line.presentations, line.stimuli) for line in lines] == [
        ("", "", 79, 20), ("S1", "0", 30, 15), ("S1", "1", 29, 15), ("S2", "0", 10, 5), ("S2", "1", 10, 5)
    ]  # fmt: skip
    assert [(line.fewest, line.most, line.missing) for line in lines[:3]] == [
        (3, 4, 1),
        (2, 2, 1),
        (1, 2, 0),
    ]
    assert [
        line.subject for line in repetitions_of(plain, "assembly", named=False)
    ] == [
        "",
        "1",
        "2",
        "3",
        "4",
    ]
    owners = xr.DataArray(["A", "B", "B", "B", "B", "B"], dims="neuroid")
    apart = plain.drop_vars("subject").assign_coords(subject=owners)
    apart[:40, 1:] = np.nan
    assert [(line.subject, line.presentations) for line in repetitions_of(apart.drop_vars("session"), "assembly")] == [
        ("", 78), ("A", 78), ("B", 40)
    ]  # fmt: skip
    labelled = windows([1.0, 2.0, 3.0], ["x", "y", "x"])
    (line,) = repetitions_of(labelled, "assembly")
    assert (line.of, line.presentations, line.stimuli, line.fewest, line.most) == (
        "label",
        3,
        2,
        1,
        2,
    )


@pytest.mark.parametrize("access", ["public", "private"])
def test_the_gate_refuses_copies_and_reports_repetitions(
    tmp_path: Path, access: str
) -> None:
    tiny = Tiny(tmp_path)
    plain = responses()
    tiny.write(
        assembly=xr.concat([plain, plain.isel(presentation=[5])], "presentation")
    )
    fields: dict[str, Any] = {
        "access": access,
        **({"access_steps": ["ask"]} if access == "private" else {}),
    }
    report = validate(tiny.pin({"stimuli": [{"check": "unique", "column": "stimulus_id"}],
                                "assembly": [{"check": "values_finite"}]}, **fields), "tiny")  # fmt: skip
    assert not report.success
    copies = next(finding for finding in report.errors if finding.code == "data.copies")
    first = ", first: im1, repetition 1" if access == "public" else ""
    assert copies.what == f"1 presentations occur twice{first}"
    plain_report = json.loads(
        (tmp_path / "results" / "validation" / "tiny.json").read_text()
    )
    assert (
        plain_report["repetitions"][0] | {"fewest": 3, "most": 4, "presentations": 13}
        == plain_report["repetitions"][0]
    )
