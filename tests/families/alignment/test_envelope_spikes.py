"""Spikes and envelopes as text: bins, repetitions, headers, and files that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.alignment.readers.envelope_spikes import (
    Recording,
    envelope_spikes,
)

SOUND = "0 0.1\n500 0.3\n1000 0.5\n1500 0.7\n"
SPIKES = "# intensity (dB): 70.5\n# repetition number: 0\n0\n999\n1000\n\n# repetition number: 1\n1999\n"


def _read(folder, *, sounds=(SOUND,), spikes=(SPIKES,), **parameters):
    files, recordings = {}, {}
    for number, (sound, times) in enumerate(zip(sounds, spikes, strict=True)):
        names = {"envelope": f"sound{number}.txt", "spikes": f"spikes{number}.txt"}
        for name, text in zip(names.values(), (sound, times), strict=True):
            files[name] = folder / name
            files[name].write_text(text, encoding="ascii")
        recordings[f"sound_{number}"] = Recording(**names)
    given = {
        "recordings": recordings,
        "neuroid": "cell",
        "region": "ear",
        "subject": "animal",
        "bin_width": 1.0,
    }
    return envelope_spikes(files, **given | parameters)


def test_spikes_are_counted_and_envelopes_averaged_in_the_same_bins(tmp_path):
    data = _read(tmp_path, properties={"intensity_db": "intensity (dB)"})
    assembly, envelope = data.assembly, data.extras["envelope"]
    # A spike at 1000 µs, where two bins meet, is in the second.
    assert assembly.values[:, 0].tolist() == [[2, 1], [0, 1]]
    assert assembly["repetition"].values.tolist() == [0, 1]
    assert assembly["intensity_db"].values.tolist() == [70.5, 70.5]
    np.testing.assert_allclose(envelope.values[:, 0], [[0.2, 0.6]])
    for part in (assembly, envelope):
        assert part["time_bin_start"].values.tolist() == [0, 1]
        assert part["time_bin_end"].values.tolist() == [1, 2]
    assert data.stimuli.table.to_dict("list") == {
        "stimulus_id": ["sound_0"],
        "intensity_db": [70.5],
    }


def test_two_sounds_are_two_stimuli(tmp_path):
    data = _read(
        tmp_path, sounds=(SOUND, SOUND), spikes=(SPIKES, "# repetition number: 0\n")
    )
    assert data.assembly["stimulus_id"].values.tolist() == [
        "sound_0",
        "sound_0",
        "sound_1",
    ]
    assert data.assembly.values[2, 0].tolist() == [0, 0]
    assert data.extras["envelope"]["stimulus_id"].values.tolist() == [
        "sound_0",
        "sound_1",
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"spikes": ("1\n",)}, "spike before the line '# repetition number"),
        ({"spikes": ("# intensity (dB): 70\n",)}, "no line '# repetition number"),
        (
            {"spikes": ("# repetition number: 0\n2000\n",)},
            "spike at 2000 µs, but the sound lasts 2000 µs",
        ),
        ({"spikes": ("# repetition number: 0\n-1\n",)}, "spike at -1 µs"),
        ({"spikes": ("# repetition number: 0\nnan\n",)}, "spike at nan µs"),
        (
            {"spikes": ("# repetition number: 0\nx\n",)},
            r"spikes0\.txt cannot be read as spike times",
        ),
        ({"sounds": ("0 0.1\n500 0.3\n1100 0.5\n1500 0.1\n",)}, "not in equal steps"),
        ({"sounds": ("500 0.1\n1000 0.3\n",)}, "begin at 0 µs"),
        ({"sounds": ("0 0.1\n500 nan\n",)}, "all amplitudes are finite"),
        (
            {"sounds": ("0 0.1 3\n500 1 3\n",)},
            r"sound0\.txt cannot be read as two columns",
        ),
        (
            {"bin_width": 1.5},
            r"bins of 1\.5 ms do not divide sound0\.txt: 4 samples, one in 500 µs",
        ),
        ({"bin_width": 0.7}, r"bins of 0\.7 ms do not divide"),
        ({"properties": {"hz": "cutoff"}}, "no header 'cutoff'; it has intensity"),
        (
            {
                "sounds": (SOUND, SOUND[:12]),
                "spikes": (SPIKES, "# repetition number: 0\n"),
                "bin_width": 0.5,
            },
            "the sounds last from",
        ),
        ({"recordings": {}}, "names no recording"),
        (
            {"recordings": {"a": Recording(envelope="gone.txt", spikes="spikes0.txt")}},
            r"needs the file 'gone\.txt'",
        ),
    ],
)
def test_files_that_are_refused(tmp_path, changed, message):
    with pytest.raises(DataError, match=message):
        _read(tmp_path, **changed)


def test_a_property_must_be_a_number(tmp_path):
    spikes = ("# intensity (dB): loud\n# repetition number: 0\n",)
    with pytest.raises(DataError, match="'loud', not a number"):
        _read(tmp_path, spikes=spikes, properties={"intensity_db": "intensity (dB)"})
