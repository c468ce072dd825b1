"""fMRI runs: images become channels, which are cleaned and cut into windows around events."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import AfterValidator, PositiveFloat, model_validator

from neuroledger.data.arrays import Array, Booleans, Integers, floats
from neuroledger.data.clocks import Clock, RecordingClocks
from neuroledger.data.dataset import Dataset
from neuroledger.data.facts import Fact
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.fields import AtLeastTwo
from neuroledger.families.signals.clocks.clock_facts import (
    clocks_of,
    count_by_label,
    note_clocks,
)
from neuroledger.families.signals.clocks.cut_windows import span_of
from neuroledger.families.signals.fmri.events import (
    ScanEvents,
    companion_files,
    read_lists,
    shown,
)
from neuroledger.families.signals.fmri.layout import Layout, layout_of, transforms_of
from neuroledger.families.signals.fmri.runs import Rest, Run, checked, runs_among
from neuroledger.families.signals.fmri.space import INSTALL, Space, Surface, Transforms
from neuroledger.families.signals.language.language_events import embeddings_in
from neuroledger.families.signals.recordings.signal_stimuli import read_embeddings
from neuroledger.families.signals.recordings.signal_windows import WindowLayout
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.families.signals.signals import signals
from neuroledger.spec.base import Frozen
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

__all__ = ["Cleaning", "VolumeWindow", "files_read", "fmri_windows"]

Positive = PositiveFloat
Called = Annotated[str, AfterValidator(checked)]

LEFT_OUT: Final = "left_out"
SILENT: Final = 0.5
"""Largest share of channels without a signal; with more, the series is not in the declared space."""
UNITS: Final = {"zscore": "standard", "percent": "percent", None: "arbitrary"}
NILEARN: Final[Mapping[str | None, Any]] = {
    "zscore": "zscore_sample",
    "percent": "psc",
    None: False,
}


class VolumeWindow(Frozen):
    """Windows of `duration` seconds that begin `start` + `lag` seconds after each event, in whole volumes.

    The first volume is the one with the nearest onset (the later one of two equally near). `lag` is the delay of the
    response; the times of samples do not include it.
    """

    start: float
    duration: Positive
    lag: float = 0.0


class Cleaning(Frozen):
    """Steps applied to each channel of each run, in this order; a step that is not declared is skipped.

    remove linear trend → band filter (Hz) → standardise: `zscore` (sample standard deviation) or `percent` of the mean.
    """

    detrend: bool = False
    high_pass: Positive | None = None
    low_pass: Positive | None = None
    filter: Literal["butterworth", "cosine"] | None = None
    standardise: Literal["zscore", "percent"] | None = None

    @model_validator(mode="after")
    def _check_filter(self) -> Cleaning:
        if (self.filter is None) != (self.high_pass is None and self.low_pass is None):
            raise ValueError(
                "`filter` is the method of `high_pass` and `low_pass`: give both, or neither"
            )
        if self.filter == "cosine" and (
            self.low_pass is not None or self.high_pass is None
        ):
            raise ValueError(
                "a cosine filter needs `high_pass` and cannot have `low_pass`"
            )
        return self


def files_read(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """The files of a folder that the reader reads: runs with their companions, lists, transforms and embeddings.

    Raises
    ------
    DataError
        There are no runs, or a companion of a run is missing.
    RequestError
        A table of embeddings is missing.
    """
    runs = _runs(
        names,
        parameters["series"],
        parameters["events"],
        parameters["mask"],
        parameters["subjects"],
        parameters["rest"],
    )
    run_files = [name for run in runs for name in run.files]
    others = companion_files(parameters["events"])
    known = set(names)
    missing = [name for name in others if name not in known]
    if missing:
        raise DataError(
            f"{', '.join(missing)}, which `events` names, is not among the files"
        )
    if isinstance(space := parameters["space"], Transforms):
        for run in {run.subject: run for run in runs}.values():
            others += transforms_of(space, run, names)
    return sorted({*run_files, *others, *embeddings_in(names, parameters)})


def _runs(
    names: Sequence[str],
    series: str,
    events: ScanEvents,
    mask: str | None,
    subjects: Sequence[str],
    rest: Rest | None,
) -> list[Run]:
    return runs_among(
        names, series, events.file, mask=mask, subjects=subjects, rest=rest
    )


@reader("fmri_windows", version=1, reads=files_read, prepares=True)
def fmri_windows(
    files: Mapping[str, Path],
    *,
    series: Called,
    events: ScanEvents,
    seconds: Positive,
    window: VolumeWindow,
    mask: Called | None = None,
    space: Space = Surface(),  # noqa: B008 - frozen
    cleaning: Cleaning = Cleaning(),  # noqa: B008 - frozen
    subjects: tuple[str, ...] = (),
    rest: Rest | None = None,
    volumes: AtLeastTwo | None = None,
    beyond: Literal["refused", "left_out"] = "refused",
    embeddings: dict[str, str] | None = None,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows of all runs, (presentation, channel, sample), in single precision; one run is in memory at a time.

    Steps, in this order: first `volumes` → mask → channels of the `space` → `cleaning` → windows.

    Parameters
    ----------
    series, mask
        Patterns of the names of a run's series and mask, with `{subject}`, `{session}`, `{run}`, `{task}` and, on a surface,
        `{hemi}`; `*` and `?` are wildcards. Folders in a pattern are compared with the last folders of a name; `run-1`
        equals `run-01`. A mask may have fewer placeholders than its run, so several runs may share it.
    events
        The tables of events, and the events that become windows.
    subjects, rest
        Subjects to read; runs of rest to leave out.
    seconds
        Repetition time. It must agree within 1 % with a sidecar, and with a header that states it.
    volumes
        Number of volumes to use from the start of each run; a run with fewer is refused.
    beyond
        Treatment of windows that extend beyond their run. Windows left out are counted in the coordinate `left_out` of the
        run's other windows and in the notes of every score; a run without a complete window is refused.
    embeddings
        Tables of embeddings of the stimuli by name, netCDF files, as targets of retrieval.

    Returns
    -------
    Dataset
        Coordinates of a presentation: `stimulus_id`, `subject`, `session`, `run`, `recording` (the series' name),
        `recording_sha256`, `onset` (s from the first volume), `repetition` (number of earlier presentations to the
        subject), and those of `events`. Of a channel: `channel_id`, and `x`, `y`, `z` (m, in the space of the images).

    Raises
    ------
    DataError
        A run, mask, table or list is missing, damaged or of another shape or rate; no stimulus is shown; a window extends
        beyond its run; or most channels have no signal.
    UnavailableError
        nibabel or nilearn is not installed.
    """
    runs = _runs(sorted(files), series, events, mask, subjects, rest)
    values_by_list = read_lists(events, files)
    layout = layout_of(space, runs, files, masked=mask is not None, seconds=seconds)
    presentations: Counter[tuple[str, str]] = Counter()
    cut = Cut(seconds, window, cleaning, volumes, beyond)

    def parts() -> Iterator[xr.DataArray]:
        # Tables and embeddings first, to detect errors in them before hours of reading images.
        layouts = [shown(files, run, events, values_by_list, seconds) for run in runs]
        read_embeddings(
            files, embeddings, {name for windows in layouts for name in windows.names}
        )
        for run, windows in zip(runs, layouts, strict=True):
            part = _windows(run, windows, files, layout, cut)
            repetitions = []
            for stimulus in part["stimulus_id"].values.astype(str):
                repetitions.append(presentations[run.subject, stimulus])
                presentations[run.subject, stimulus] += 1
            yield part.assign_coords(repetition=("presentation", np.array(repetitions)))

    windows = stored(context, parts(), of=len(runs))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None,
        assembly=windows,
        extras=extras,
        clocks=clocks_of(windows),
        notes=_notes(windows),
    )


def _notes(windows: xr.DataArray) -> tuple[str, ...]:
    """A note on the windows that were left out; empty if there are none."""
    if LEFT_OUT not in windows.coords:
        return ()
    _, first = np.unique(windows["recording"].values.astype(str), return_index=True)
    counts = windows[LEFT_OUT].values[first]
    if not counts.any():
        return ()
    return (
        f"{counts.sum()} windows that do not lie within their run were left out, of {(counts > 0).sum()} runs",
    )


class Cut(NamedTuple):
    """How windows are cut from the volumes of a run: the fields of the reader."""

    seconds: float
    window: VolumeWindow
    cleaning: Cleaning
    volumes: int | None
    beyond: str


def _windows(
    run: Run,
    events: WindowLayout,
    files: Mapping[str, Path],
    layout: Layout,
    cut: Cut,
) -> xr.DataArray:
    """The windows of one run."""
    seconds = cut.seconds
    window = cut.window
    volumes = cut.volumes
    name = run.series[0]
    values = layout.read(run)
    if volumes is not None and values.shape[1] < volumes:
        raise DataError(
            f"{name} has {values.shape[1]} volumes, fewer than the {volumes} that are used"
        )
    values = _cleaned(values[:, :volumes], cut.cleaning, seconds, name)
    onsets = np.array(events.onsets, dtype=float)
    first = _nearest((onsets + window.start + window.lag) / seconds)
    length = max(1, int(_nearest(np.array(window.duration / seconds))))
    inside = (first >= 0) & (first + length <= values.shape[1])
    if not inside.all():
        at = onsets[~inside]
        message = (
            f"{name}: {len(at)} of {len(onsets)} windows extend beyond its {values.shape[1]} volumes, first that of "
            f"the event at {at[0]:g} s"
        )
        if cut.beyond == "refused" or not inside.any():
            raise DataError(
                f"{message}; check `seconds` and the table of this run. If the run was stopped early, set `beyond: left_out`"
            )
    rows = np.arange(length)
    windows = np.stack([values[:, at + rows] for at in first[inside]])
    count = int(inside.sum())
    facts: dict[str, object] = {
        "stimulus_id": np.array(events.names)[inside],
        "onset": onsets[inside],
    }
    facts |= {key: np.asarray(column)[inside] for key, column in events.extra.items()}
    facts |= {
        "subject": [run.subject] * count,
        "session": [run.session] * count,
        "run": [run.number] * count,
    }
    facts |= (
        {LEFT_OUT: [len(onsets) - count] * count} if cut.beyond == "left_out" else {}
    )
    facts |= {
        "recording": [name] * count,
        "recording_sha256": [_digest(run, files)] * count,
    }
    labelled = signals(
        windows,
        channels=layout.channels,
        channel_types="fmri",
        sampling_rate=1 / seconds,
        start=window.start,
        units=UNITS[cut.cleaning.standardise],
        events=facts,
        positions=layout.places,
    )
    return note_clocks(labelled, _clocks(run, events, inside, values.shape[1], seconds))


def _clocks(
    run: Run,
    events: WindowLayout,
    inside: Booleans,
    volumes: int,
    seconds: float,
) -> RecordingClocks:
    """The clocks of a run's volumes, whose repetition time is declared, and of its stimuli, which a table states."""
    onsets = floats(events.onsets)
    start, stop = span_of(onsets)
    samples = Clock(
        of="samples",
        unit=Fact("s", "declared"),
        start=0.0,
        stop=round(volumes * seconds, 6),
        rate=Fact(1 / seconds, "declared"),
        count=volumes,
    )
    shown_stimuli = Clock(
        of="stimuli",
        unit=Fact("s", "stated"),
        start=start,
        stop=stop,
        count=len(onsets),
        aligned="from the first volume",
    )
    return RecordingClocks(
        recording=run.series[0],
        subject=run.subject,
        clocks=(samples, shown_stimuli),
        windows=int(inside.sum()),
        left_out=tuple(count_by_label("beyond the ends", events.extra, ~inside)),
    )


def _cleaned(values: Array, cleaning: Cleaning, seconds: float, name: str) -> Array:
    """The values (channel, volume) after `cleaning`, by nilearn; missing and infinite values become 0."""
    values = np.where(np.isfinite(values), values, np.float32(0))
    silent = float((values.max(axis=1) == values.min(axis=1)).mean())
    if silent > SILENT:
        raise DataError(
            f"{name}: {silent:.0%} of {len(values)} channels have no signal: the series, its mask and `space` are not in "
            "the same space"
        )
    if cleaning == Cleaning():
        return values
    try:
        from nilearn.signal import clean
    except ImportError as error:
        raise UnavailableError(
            "cleaning series of the brain needs nilearn", INSTALL
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cleaned = clean(
                values.T.astype(np.float64),
                detrend=cleaning.detrend,
                standardize=NILEARN[cleaning.standardise],
                filter=cleaning.filter or False,
                low_pass=cleaning.low_pass,
                high_pass=cleaning.high_pass,
                t_r=seconds,
            )
        except ValueError as error:
            raise DataError(
                f"{name}: {values.shape[1]} volumes cannot be cleaned as declared ({error})"
            ) from error
    return np.ascontiguousarray(cleaned.T, dtype=np.float32)


def _nearest(volumes: Array) -> Integers:
    """Round to the nearest integer, halves up."""
    return np.floor(volumes + 0.5 + 1e-6).astype(np.int64)


def _digest(run: Run, files: Mapping[str, Path]) -> str:
    """SHA-256 of the series; for two hemispheres, of their concatenated hashes."""
    hashes = [sha256_of(files[name]) for name in run.series]
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()
