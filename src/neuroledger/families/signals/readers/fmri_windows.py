"""fMRI: the images of each run become channels, are cleaned, and are cut into windows around what was shown."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import AfterValidator, Field, model_validator

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.signals.fmri.events import ScanEvents, beside, lists, shown
from neuroledger.families.signals.fmri.layout import Layout, layout_of, transforms_of
from neuroledger.families.signals.fmri.runs import Rest, Run, checked, runs_among
from neuroledger.families.signals.fmri.space import INSTALL, Space, Surface, Transforms
from neuroledger.families.signals.language.language_events import embeddings_in
from neuroledger.families.signals.recordings.signal_stimuli import read_embeddings
from neuroledger.families.signals.recordings.signal_windows import WindowLayout
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.families.signals.signals import signals
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

__all__ = ["Cleaning", "VolumeWindow", "files_read", "fmri_windows"]

Array = npt.NDArray[Any]
Positive = Annotated[float, Field(gt=0)]
Called = Annotated[str, AfterValidator(checked)]

LEFT_OUT: Final = "left_out"
SILENT: Final = 0.5
"""Where more than this share of the channels has no signal, the series is not in the space that is declared."""
UNITS: Final = {"zscore": "standard", "percent": "percent", None: "arbitrary"}
NILEARN: Final[Mapping[str | None, Any]] = {"zscore": "zscore_sample", "percent": "psc", None: False}


class VolumeWindow(Frozen):
    """Windows of `duration` seconds from `start` + `lag` seconds after each event, both in whole volumes.

    The first volume is the one that begins nearest (of two equally near, the later one). `lag` is how much later than what
    they answer to responses are looked for; times of samples are those of what they answer to.
    """

    start: float
    duration: Positive
    lag: float = 0.0


class Cleaning(Frozen):
    """What is done to each channel of each run, in this order; what is absent is not done.

    linear trend out → band filter (Hz) → standardise: `zscore` (sample standard deviation) or `percent` of the mean.
    """

    detrend: bool = False
    high_pass: Positive | None = None
    low_pass: Positive | None = None
    filter: Literal["butterworth", "cosine"] | None = None
    standardise: Literal["zscore", "percent"] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Cleaning:
        if (self.filter is None) != (self.high_pass is None and self.low_pass is None):
            raise ValueError("`filter` says how `high_pass` and `low_pass` are done: give both, or neither")
        if self.filter == "cosine" and (self.low_pass is not None or self.high_pass is None):
            raise ValueError("cosines are taken out below `high_pass`: leave out `low_pass`")
        return self


def files_read(names: Sequence[str], told: Mapping[str, Any]) -> list[str]:
    """Of a folder's files, those that the reader reads: runs with their companions, lists, transforms and embeddings.

    Raises
    ------
    DataError
        There are no runs, or something that goes with one is missing.
    RequestError
        A table of embeddings is missing.
    """
    runs = _runs(names, told["series"], told["events"], told["mask"], told["subjects"], told["rest"])
    wanted = [name for run in runs for name in run.files]
    others = beside(told["events"])
    there = set(names)
    lost = [name for name in others if name not in there]
    if lost:
        raise DataError(f"{', '.join(lost)}, which `events` names, is not among the files")
    if isinstance(space := told["space"], Transforms):
        for run in {run.subject: run for run in runs}.values():
            others += transforms_of(space, run, names)
    return sorted({*wanted, *others, *embeddings_in(names, told)})


def _runs(
    names: Sequence[str],
    series: str,
    events: ScanEvents,
    mask: str | None,
    subjects: Sequence[str],
    rest: Rest | None,
) -> list[Run]:
    return runs_among(names, series, events.file, mask=mask, subjects=subjects, rest=rest)


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
    volumes: Annotated[int, Field(ge=2)] | None = None,
    beyond: Literal["refused", "left_out"] = "refused",
    embeddings: dict[str, str] | None = None,
) -> Dataset:
    """Windows of every run, (presentation, channel, sample), single precision; one run is in memory at a time.

    Steps, in this order: first `volumes` → mask → channels of the `space` → `cleaning` → windows.

    Parameters
    ----------
    series, mask
        How the series of a run and its mask are called, with `{subject}`, `{session}`, `{run}`, `{task}` and, on a surface,
        `{hemi}`; `*` and `?` as usual. Folders in a pattern are held against the last folders of a name; `run-1` and
        `run-01` are one. A mask may be called by less than its run, so that several runs share it.
    events
        Where it is written what was shown, and what counts.
    subjects, rest
        Only these people; runs in which nothing is shown.
    seconds
        From one volume to the next. A sidecar, or a header that says something, must say the same within 1 %.
    volumes
        Only so many volumes of a run are used, from the first; a run with fewer is refused.
    beyond
        What is done with windows that do not lie whole within their run. Those left out are counted, in the coordinate
        `left_out` of the rest of their run and in the notes of every score; a run without a whole one is refused.
    embeddings
        Tables of embeddings of the stimuli by name, netCDF files, to be retrieved.

    Returns
    -------
    Dataset
        Coordinates of a presentation: `stimulus_id`, `subject`, `session`, `run`, `recording` (the series' name),
        `recording_sha256`, `onset` (s from the first volume), `repetition` (how often this person had seen the stimulus
        before), and those of `events`. Of a channel: `channel_id`, and `x`, `y`, `z` (m, in the space of the images).

    Raises
    ------
    DataError
        A run, mask, table or list is missing, damaged or of another shape or rate; nothing is shown; a window lies beyond
        its run; or most channels have no signal.
    UnavailableError
        nibabel or nilearn is not installed.
    """
    runs = _runs(sorted(files), series, events, mask, subjects, rest)
    held = lists(events, files)
    layout = layout_of(space, runs, files, masked=mask is not None, seconds=seconds)
    seen: Counter[tuple[str, str]] = Counter()

    def parts() -> Iterator[xr.DataArray]:
        # Tables and embeddings first: what is wrong with them should not be found out after hours of images.
        shows = [shown(files, run, events, held, seconds) for run in runs]
        read_embeddings(files, embeddings, {name for laid in shows for name in laid.names})
        for run, laid in zip(runs, shows, strict=True):
            part = _windows(run, laid, files, layout, seconds, window, cleaning, volumes, beyond)
            again = []
            for stimulus in part["stimulus_id"].values.astype(str):
                again.append(seen[run.subject, stimulus])
                seen[run.subject, stimulus] += 1
            yield part.assign_coords(repetition=("presentation", np.array(again)))

    windows = stored(parts(), of=len(runs))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(stimuli=None, assembly=windows, extras=extras, notes=_lost(windows))


def _lost(windows: xr.DataArray) -> tuple[str, ...]:
    """What is to be known of windows that were left out."""
    if LEFT_OUT not in windows.coords:
        return ()
    _, first = np.unique(windows["recording"].values.astype(str), return_index=True)
    counts = windows[LEFT_OUT].values[first]
    if not counts.any():
        return ()
    return (
        f"{counts.sum()} windows that do not lie within their run were left out, of {(counts > 0).sum()} runs",
    )


def _windows(
    run: Run,
    laid: WindowLayout,
    files: Mapping[str, Path],
    layout: Layout,
    seconds: float,
    window: VolumeWindow,
    cleaning: Cleaning,
    volumes: int | None,
    beyond: str,
) -> xr.DataArray:
    """The windows of one run."""
    name = run.series[0]
    values = layout.read(run)
    if volumes is not None and values.shape[1] < volumes:
        raise DataError(f"{name} has {values.shape[1]} volumes, fewer than the {volumes} that are used")
    values = _cleaned(values[:, :volumes], cleaning, seconds, name)
    onsets = np.array(laid.onsets, dtype=float)
    first = _nearest((onsets + window.start + window.lag) / seconds)
    length = max(1, int(_nearest(np.array(window.duration / seconds))))
    inside = (first >= 0) & (first + length <= values.shape[1])
    if not inside.all():
        at = onsets[~inside]
        said = (
            f"{name}: {len(at)} of {len(onsets)} windows do not lie within its {values.shape[1]} volumes, first that of "
            f"the event at {at[0]:g} s"
        )
        if beyond == "refused" or not inside.any():
            raise DataError(
                f"{said}; are `seconds` and the table those of this run? If the run was stopped early, `beyond: left_out`"
            )
    rows = np.arange(length)
    cut = np.stack([values[:, at + rows] for at in first[inside]])
    count = int(inside.sum())
    facts: dict[str, Any] = {"stimulus_id": np.array(laid.names)[inside], "onset": onsets[inside]}
    facts |= {key: np.asarray(said)[inside] for key, said in laid.extra.items()}
    facts |= {"subject": [run.subject] * count, "session": [run.session] * count, "run": [run.number] * count}
    facts |= {LEFT_OUT: [len(onsets) - count] * count} if beyond == "left_out" else {}
    facts |= {"recording": [name] * count, "recording_sha256": [_digest(run, files)] * count}
    return signals(
        cut,
        channels=layout.channels,
        channel_types="fmri",
        sampling_rate=1 / seconds,
        start=window.start,
        units=UNITS[cleaning.standardise],
        events=facts,
        positions=layout.places,
    )


def _cleaned(values: Array, cleaning: Cleaning, seconds: float, name: str) -> Array:
    """(channel, volume) as `cleaning` says, by nilearn; values that are no numbers are 0."""
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
        raise UnavailableError(f"cleaning series of the brain needs nilearn: {INSTALL}") from error
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


def _nearest(volumes: Array) -> npt.NDArray[np.int64]:
    """The nearest whole number, the greater of two equally near."""
    return np.floor(volumes + 0.5 + 1e-6).astype(np.int64)


def _digest(run: Run, files: Mapping[str, Path]) -> str:
    """SHA-256 of the series; of two hemispheres, of their hashes one after the other."""
    hashes = [sha256_of(files[name]) for name in run.series]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
