"""Formats that neo reads give the same windows as a continuous recording of the same samples, or spike counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import xarray as xr

from neuroledger.cli import doctor
from neuroledger.data.load import load_dataset
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import DataError, RequestError, UnavailableError
from neuroledger.families.signals.readers.neo_epochs import neo_epochs
from neuroledger.families.signals.recordings import neo_files as formats
from neuroledger.families.signals.recordings.neo_files import NeoFiles
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.spec.catalog import open_catalog
from tests.data.test_pin import place
from tests.families.signals.neo_files import neuralynx, neuroexplorer, neuroscope

neo = pytest.importorskip("neo")
pytest.importorskip("mne")

__all__ = ["place"]

RATE, SECONDS = 1000.0, 20
CHANNELS = ["A1", "A2", "A3"]
ONSETS = np.arange(1.0, SECONDS - 1, 2.0)
GO, STOP = ONSETS[::2], ONSETS[1::2]
WINDOW = Window(start=-0.25, duration=0.5, labels={"go": "left", "stop": "right"})
PLAIN = Preprocessing(pick=("seeg",))


def samples(seed: int = 0) -> np.ndarray:
    """Simulated voltages in µV on steps of 0.1 µV, (channel, sample)."""
    return np.round(
        np.random.default_rng(seed).normal(0.0, 12.0, (3, int(SECONDS * RATE))), 1
    )


def expected() -> np.ndarray:
    first = np.round((ONSETS - 0.25) * RATE).astype(int)
    return np.stack([samples()[:, at : at + 500] for at in first])


def read(
    path: Path,
    format: str,
    *,
    window: Window = WINDOW,
    files: dict[str, Path] | None = None,
    preprocessing: Preprocessing = PLAIN,
    spikes: float | None = None,
    **said: Any,
) -> xr.DataArray:
    windows = neo_epochs(
        files or {path.name: path},
        recordings=(Recording(file=path.name, subject="S1"),),
        neo=NeoFiles(**{"format": format, "kind": "seeg", **said}),
        window=window,
        spikes=spikes,
        preprocessing=Preprocessing() if spikes else preprocessing,
    ).assembly
    assert windows is not None
    return windows


def nex(path: Path, **how: Any) -> Path:
    held = {
        "signals": dict(zip(CHANNELS, samples(), strict=True)),
        "events": {"go": GO, "stop": STOP},
    }
    return neuroexplorer(path, **{**held, **how})


def block(*segments: Any) -> Any:
    block = neo.Block()
    block.segments.extend(segments)
    return block


def segment(
    values: np.ndarray, marks: list[tuple[float, str]], begin: float = 0.0, **how: Any
) -> Any:
    import quantities as pq

    segment = neo.Segment()
    segment.analogsignals.append(
        neo.AnalogSignal(
            values.T,
            units="uV",
            sampling_rate=RATE * pq.Hz,
            t_start=begin * pq.s,
            name=how.get("name", "A"),
        )
    )
    times, texts = (
        [begin + at for at, _ in marks],
        np.array([text for _, text in marks]),
    )
    segment.events.append(neo.Event(times * pq.s, labels=texts, name="cues"))
    return segment


def matlab(path: Path, *segments: Any) -> Path:
    neo.io.NeoMatlabIO(filename=str(path)).write_block(block(*segments))
    return path


MARKS = [
    (float(at), "go" if number % 2 == 0 else "stop") for number, at in enumerate(ONSETS)
]


def test_signals_give_the_same_windows_in_every_layout(tmp_path: Path) -> None:
    made = {
        "NeuroExplorer": nex(tmp_path / "a.nex"),
        "Neuralynx": neuralynx(tmp_path / "lynx", samples(), 1000, CHANNELS, MARKS),
        "NeoMatlab": matlab(tmp_path / "a.mat", segment(samples(), MARKS)),
    }
    for format, path in made.items():
        windows = read(path, format)
        np.testing.assert_allclose(
            windows.values, expected(), atol=1e-4, err_msg=format
        )
        assert windows["label"].values.tolist() == ["left", "right"] * 4 + ["left"]
        np.testing.assert_allclose(windows["onset"].values, ONSETS)
        assert windows.attrs["units"] == "uV"
    assert (
        read(made["Neuralynx"], "Neuralynx")["channel_id"].values.tolist() == CHANNELS
    )


def test_a_recording_without_events_is_covered_with_windows(tmp_path: Path) -> None:
    path = neuroscope(tmp_path / "b.xml", samples(), RATE)
    windows = read(
        path, "NeuroScope", window=Window(start=0.0, duration=2.0, stride=2.0)
    )
    np.testing.assert_allclose(windows.values[3], samples()[:, 6000:8000], atol=1e-4)
    with pytest.raises(DataError, match=r"b\.xml has no event go, stop; it has"):
        read(path, "NeuroScope")


def test_spikes_are_counted_per_unit(tmp_path: Path) -> None:
    trains = {"n1": ONSETS + 0.05, "n2": np.concatenate([ONSETS - 0.2, ONSETS + 0.24])}
    windows = read(nex(tmp_path / "a.nex", spikes=trains), "NeuroExplorer", spikes=0.1)
    assert windows["channel_id"].values.tolist() == ["n1", "n2"]
    assert windows["channel_type"].values.tolist() == ["spikes"] * 2
    assert (windows.values == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 1]]).all()
    with pytest.raises(
        DataError, match=r"b\.nex contains no sorted spikes; remove `spikes`"
    ):
        read(nex(tmp_path / "b.nex"), "NeuroExplorer", spikes=0.1)


def test_segments_are_consecutive_and_may_lack_some_events(tmp_path: Path) -> None:
    whole = samples()
    trials = [
        segment(whole[:, at : at + 2000], [(1.0, kind)])
        for at, kind in ((0, "go"), (2000, "stop"))
    ]
    windows = read(matlab(tmp_path / "a.mat", *trials), "NeoMatlab")
    assert windows["segment"].values.tolist() == [0, 1]
    # Both count from zero: when the second began is unknown, and it cannot have been during the first.
    assert windows["onset"].values.tolist() == [1.0, 3.0]
    later = [
        segment(whole[:, :2000], [(1.0, "go")]),
        segment(whole[:, 2000:4000], [(1.0, "stop")], begin=60.0),
    ]
    assert read(matlab(tmp_path / "b.mat", *later), "NeoMatlab")[
        "onset"
    ].values.tolist() == [1.0, 61.0]
    with pytest.raises(DataError, match=r"b\.mat has no event wait; it has go, stop"):
        read(
            tmp_path / "b.mat",
            "NeoMatlab",
            window=Window(start=0, duration=0.1, labels={"wait": "x"}),
        )


def test_errors_request_the_information_that_a_file_lacks(tmp_path: Path) -> None:
    path = nex(tmp_path / "a.nex")
    with pytest.raises(
        DataError,
        match=r"does not state the type of its channels; .*`neo: \{kind: seeg\}`.*A1 \(1 channels",
    ):
        read(path, "NeuroExplorer", kind=None)
    with pytest.raises(DataError, match=r"no signals named B\*; it has A1, A2, A3"):
        read(path, "NeuroExplorer", signals=("B*",))
    with pytest.raises(DataError, match=r"no events named wait; it has go, stop"):
        read(path, "NeuroExplorer", events=("wait",))
    with pytest.raises(DataError, match="no event stop; it has go"):
        read(path, "NeuroExplorer", events=("go",))
    slow = nex(
        tmp_path / "b.nex", signals={"A1": samples()[0], "slow": samples()[1][::2]}
    )
    with pytest.raises(
        DataError,
        match=r"different rates or lengths; .*`neo: \{signals: \[NAME\]\}`.*slow \(1 channels",
    ):
        read(slow, "NeuroExplorer")
    assert read(slow, "NeuroExplorer", signals=("A*",)).sizes["channel"] == 1


def test_volts_stated_as_microvolts_are_refused(tmp_path: Path) -> None:
    import quantities as pq

    wrong = segment(samples(), MARKS)
    wrong.analogsignals[0] = neo.AnalogSignal(
        samples().T, units="V", sampling_rate=RATE * pq.Hz, name="A"
    )
    with pytest.raises(DataError, match=r"seeg channels vary by 1.*e\+07 µV"):
        read(matlab(tmp_path / "a.mat", wrong), "NeoMatlab")


def test_damage_raises_one_error_that_names_the_file(tmp_path: Path) -> None:
    whole = nex(tmp_path / "a.nex").read_bytes()
    for name, content in (
        ("cut.nex", whole[:700]),
        ("none.nex", b"nothing of this kind"),
        ("empty.nex", b""),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            DataError, match=rf"{name} cannot be read as NeuroExplorer by neo"
        ):
            read(tmp_path / name, "NeuroExplorer")


def test_every_permitted_format_exists_in_neo_and_runs_no_foreign_code() -> None:
    names = get_args(formats.Format)
    assert set(names) == set(formats.ENDINGS)
    assert set(names) >= formats.FOLDERS
    assert not set(names) & {
        "Pickle",
        "Ced",
        "Plexon2",
        "Maxwell",
        "Med",
        "Stimfit",
        "Nix",
    }
    for name in names:
        kind = getattr(neo.io, f"{name}IO")
        assert (kind.mode == "dir") == (name in formats.FOLDERS - {"AlphaOmega"})


def test_a_missing_package_is_named_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = nex(tmp_path / "a.nex")
    monkeypatch.setitem(__import__("sys").modules, "neo", None)
    with pytest.raises(UnavailableError, match=r"pip install 'neuroledger\[neo\]'"):
        read(path, "NeuroExplorer")
    assert doctor.OPTIONAL["neo"][0] == "neo"


@pytest.mark.parametrize("layout", ["one file", "a file and its partner", "a folder"])
def test_a_folder_is_pinned_with_all_files_of_each_recording_and_read_in_the_sandbox(
    place: Path, tmp_path: Path, layout: str
) -> None:
    folder = tmp_path / "download"
    folder.mkdir()
    for person in range(6):
        if layout == "one file":
            nex(
                folder / f"P{person}.nex",
                signals=dict(zip(CHANNELS, samples(person), strict=True)),
            )
        elif layout == "a folder":
            neuralynx(folder / f"P{person}", samples(person), 1000, CHANNELS, MARKS)
        else:
            neuroscope(folder / f"P{person}.xml", samples(person), RATE)
    (folder / "participants.tsv").write_text(
        "participant_id\tgroup\n"
        + "".join(f"{person}\t{'ab'[person % 2]}\n" for person in range(6))
    )
    format, pattern, count = {
        "one file": ("NeuroExplorer", "P{subject}.nex", 6),
        "a file and its partner": ("NeuroScope", "P{subject}.xml", 12),
        "a folder": ("Neuralynx", "P{subject}/A1.ncs", 24),
    }[layout]
    path = place / "specs" / "datasets" / "Rest.yaml"
    path.write_text(
        path.read_text()
        .replace("name: mne_epochs", "name: neo_epochs")
        .replace(
            "  recordings: []",
            f"  recordings: []\n  neo: {{format: {format}, kind: eeg}}",
        )
    )
    with pytest.raises(
        RequestError, match=r"does not state the subjects of .* recordings"
    ):
        pin(open_catalog(place), "Rest", Downloads(folder=folder, label="group"))
    downloads = Downloads(folder=folder, named=(pattern,), label="group")
    assert pin(open_catalog(place), "Rest", downloads).subjects == 6
    spec = open_catalog(place).dataset("Rest")
    assert len(spec.files) == count
    data = load_dataset(open_catalog(place), "Rest").assembly
    assert data is not None
    assert sorted(set(data["subject"].values.tolist())) == list("012345")
    assert data.sizes["channel"] == 3
