"""Conventions of signals, and the errors for recordings that break them."""

import numpy as np
import pytest

from neuroledger.engine.measurement import recording_overlap
from neuroledger.errors import AssemblyError
from neuroledger.families.signals.signals import (
    check,
    digests,
    extents,
    recording_digests,
    signals,
)
from neuroledger.spec.kinds import Pretraining, overlap_notes
from tests.families.decoding.decoding_cases import windows


def test_extents_are_the_starts_and_ends_of_windows():
    assembly = windows(subjects=1, trials=2, samples=8, rate=16.0, gap=2.0)
    starts, ends = extents(assembly)
    np.testing.assert_allclose(starts, [0.0, 2.0])
    np.testing.assert_allclose(ends, [0.5, 2.5])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.drop_vars("onset"), "'onset'"),
        (
            lambda a: a.assign_coords(channel_id=("channel", ["C0", "C0", "C2"])),
            "not unique",
        ),
        (
            lambda a: a.assign_coords(channel_id=("channel", ["EOG1", "C1", "C2"])),
            "EOG1 typed as brain signal",
        ),
        (
            lambda a: a.assign_coords(channel_type=("channel", ["eeg", "eeg", "egg"])),
            "egg",
        ),
        (lambda a: a.assign_attrs(sampling_rate=17.0), "17 Hz"),
        (lambda a: a.where(a["trial"] > 0), "missing or infinite"),
        (lambda a: a.where(a["trial"] > 0, 0.0), "flat on every channel"),
        (lambda a: a.isel(sample=0), "dimensions"),
    ],
)
def test_a_violated_convention_is_named(change, words):
    with pytest.raises(AssemblyError, match=words):
        check(change(windows()))


def test_hashes_depend_only_on_content():
    assembly = windows()
    same = assembly.assign_coords(
        subject=("presentation", ["X"] * assembly.sizes["presentation"])
    )
    assert digests(assembly) == digests(same)
    changed = assembly.copy()
    changed.values[3, 0, 0] += 1
    assert [
        i
        for i, (a, b) in enumerate(
            zip(digests(assembly), digests(changed), strict=True)
        )
        if a != b
    ] == [3]


def test_recordings_are_identified_by_content_in_any_order():
    assembly = windows()
    assert recording_digests(assembly) == recording_digests(
        assembly.isel(presentation=slice(None, None, -1))
    )
    assert len(set(recording_digests(assembly).values())) == 4


def test_pretraining_overlap_is_detected_by_name_and_by_content():
    assert overlap_notes(["Other"], "Mine") == ()
    assert "pretrained on Mine" in overlap_notes(["Mine"], "Mine.motor")[0]
    assert overlap_notes(["Mi"], "Mine") == ()
    own = recording_digests(windows())
    stolen = Pretraining(dataset="Other", recordings=(own["S10"],))
    assert (
        "1 of 4 recordings by content (S10)"
        in recording_overlap([stolen], lambda: own)[0]
    )
    assert recording_overlap(["Other"], lambda: own) == ()


def test_values_must_have_three_axes():
    with pytest.raises(AssemblyError, match="2 dimensions"):
        signals(
            np.zeros((2, 2)),
            channels=["a"],
            channel_types="eeg",
            sampling_rate=1,
            start=0,
            units="V",
            events={},
        )
