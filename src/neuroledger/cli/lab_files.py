"""Files of a laboratory: reads the tables and arrays of a folder and converts them into assemblies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data import assembly as assemblies
from neuroledger.data.arrays import Array
from neuroledger.data.gate.rows import require_measurements
from neuroledger.data.hdf5 import array, cell, opened, text
from neuroledger.data.package import IMAGES, from_long_table
from neuroledger.data.parsing import matlab, numpy_array, parsing
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import (
    AssemblyError,
    DataError,
    RequestError,
    package_missing,
)

__all__ = [
    "Columns",
    "FolderContent",
    "FileContent",
    "assembly_of",
    "choices_of",
    "dims_named",
    "layouts",
    "names_in",
    "names_stimuli",
    "read_file",
    "reader_of",
    "survey",
    "with_region",
]

TABLES = (".csv", ".tsv", ".parquet")
ARRAYS = (".npy", ".npz", ".mat", ".h5", ".hdf5")
# Names of columns in lower case by their meaning; a column with another name is a neuroid or a coordinate.
STIMULUS = (
    "stimulus_id",
    "stimulus",
    "image_id",
    "image",
    "filename",
    "file",
    "image_name",
    "stim",
    "stimid",
    "imagename",
)
NEUROID = (
    "neuroid_id",
    "neuroid",
    "neuron",
    "neuron_id",
    "unit",
    "unit_id",
    "cell",
    "voxel",
    "electrode",
    "channel",
    "site",
)
VALUE = (
    "value",
    "response",
    "rate",
    "firing_rate",
    "spikes",
    "spike_count",
    "count",
    "beta",
    "dff",
)
REPETITION = ("repetition", "rep", "repeat", "presentation")
SESSION = ("session", "session_id", "recording_session", "sess")
COORDINATES = (
    *REPETITION,
    *SESSION,
    "trial",
    "trial_id",
    "trial_number",
    "run",
    "block",
    "subject",
    "participant",
    "category",
    "object_name",
    "label",
    "split",
    "time",
    "onset",
    "rt",
    "reaction_time",
    "index",
    "unnamed: 0",
    "condition",
)
TIME = (
    "time",
    "time_bin",
    "time_bins",
    "timebin",
    "bin",
    "bins",
    "t",
    "frame",
    "sample",
)
# What the field calls an axis, in a file that names axes and in an answer.
AXES = {
    **dict.fromkeys((*STIMULUS, "images", "stimuli"), "stimulus"),
    **dict.fromkeys(("trial", "trials", "presentation", "presentations"), "trial"),
    **dict.fromkeys((*NEUROID, *(f"{name}s" for name in NEUROID)), "neuroid"),
    **dict.fromkeys(
        ("repetition", "rep", "repeat", "reps", "repeats", "repetitions"), "repetition"
    ),
    **dict.fromkeys(TIME, "time_bin"),
}
CHOICE = ("choice", "chosen", "answer", "object_response", "response")
TRUTH = (
    "truth",
    "correct_answer",
    "category",
    "object_name",
    "label",
    "image_label",
    "target",
)
REGION = (
    "region",
    "area",
    "roi",
    "brain_area",
    "brain_region",
    "cortical_area",
    "unit_area",
    "unit_region",
    "location",
    "structure",
    "brain_structure",
)
SIGNALS = (".edf", ".bdf", ".fif", ".set", ".vhdr", ".gdf", ".cnt")
SUBJECT = ("subject", "participant", "subject_id", "participant_id", "subj", "worker")
BINS = re.compile(r"(-?\d+(?:\.\d+)?):(-?\d+(?:\.\d+)?)")


def reader_of(names: set[str], declared: dict[str, Any] | None) -> dict[str, Any]:
    """Return the `reader` of a data set with these packaged files; a declared one with further parameters is kept."""
    parts = {
        "assembly": "responses.nc",
        "stimuli": "stimuli.csv",
        "archive": "stimuli.zip",
    }
    if declared is not None and set(declared) - {"name", *parts}:
        return declared
    absent = {field: None for field, name in parts.items() if name not in names}
    if "trials.csv" not in names:
        return {"name": "netcdf", **absent}
    return {
        "name": "choice_trials",
        **{name: None for name in absent if name != "assembly"},
    }


@dataclass(frozen=True)
class FileContent:
    """Content of one file: a table, an assembly, or arrays by name, with the names of their axes if known."""

    path: Path
    table: pd.DataFrame | None = None
    assembly: xr.DataArray | None = None
    arrays: Mapping[str, Array] = field(default_factory=dict)
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class FolderContent:
    """Content of a folder.

    Attributes
    ----------
    folder
        Path of the folder.
    images
        Paths of the images, relative to the folder, sorted.
    files
        Tables, arrays and assemblies.
    recordings
        Whether the folder is a BIDS tree.
    signals
        Paths of recordings of signals in a folder that is not a BIDS tree, relative to the folder, sorted.
    """

    folder: Path
    images: tuple[str, ...]
    files: tuple[FileContent, ...]
    recordings: bool
    signals: tuple[str, ...] = ()

    @property
    def ids(self) -> list[str]:
        """Id of each image: its name without suffix, or its path without suffix if names repeat."""
        stems = [Path(name).stem for name in self.images]
        unique = len(set(stems)) == len(stems)
        if unique:
            return stems
        return [str(Path(name).with_suffix("").as_posix()) for name in self.images]


def survey(folder: Path, only: Sequence[str] = ()) -> FolderContent:
    """Read the content of a folder: the tables and arrays named in ``only``, or all.

    Raises
    ------
    RequestError
        The folder, or a file named in ``only``, does not exist.
    DataError
        A file cannot be read.
    """
    if not folder.is_dir():
        raise RequestError(
            f"{folder} is not a folder; give the folder that contains your images and responses"
        )
    names = _visible_files(folder)
    missing = sorted(set(only) - set(names))
    if missing:
        raise RequestError(
            f"{folder} has no file {missing[0]!r}; it contains {', '.join(names[:8])}"
        )
    images = tuple(name for name in names if name.lower().endswith(IMAGES))
    if _is_bids(names):
        return FolderContent(folder, images, (), recordings=True)
    read = filter(_is_readable, sorted(set(only) or names))
    files = tuple(read_file(folder / name) for name in read)
    signals = tuple(name for name in names if name.lower().endswith(SIGNALS))
    return FolderContent(folder, images, files, recordings=False, signals=signals)


def _is_bids(names: Sequence[str]) -> bool:
    """Return whether files are those of a BIDS tree."""
    has_subjects = any(name.startswith("sub-") for name in names)
    return has_subjects and "dataset_description.json" in names


def _visible_files(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, without hidden ones and those in hidden folders, sorted."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(
        path.as_posix() for path in files if "/." not in f"/{path.as_posix()}"
    )


def _is_readable(name: str) -> bool:
    """Return whether a file may have tables, arrays or an assembly, by its suffix."""
    return Path(name).suffix.lower() in (*TABLES, *ARRAYS, ".nc", ".nwb")


def read_file(path: Path) -> FileContent:
    """Read a file of a laboratory in a process with resource limits.

    Raises
    ------
    RequestError
        The file does not exist, or its format is not supported.
    DataError
        The file is damaged.
    """
    kind = path.suffix.lower()
    if not path.is_file():
        what = "is a folder, not a file" if path.exists() else "does not exist"
        raise RequestError(f"{path} {what}")
    if kind not in READERS:
        raise RequestError(
            f"{path.name}: {kind or 'no suffix'} cannot be read; supported are {', '.join(sorted(READERS))}"
        )
    read = READERS[kind]
    value = confined(lambda: read(path), limits_for([path]), path.name)
    if isinstance(value, pd.DataFrame):
        return FileContent(path, table=value)
    if isinstance(value, xr.DataArray):
        return FileContent(path, assembly=value)
    if kind != ".nc":
        return FileContent(path, arrays=value)
    axes = {name: tuple(map(str, variable.dims)) for name, variable in value.items()}
    arrays = {name: _decode_text(variable.values) for name, variable in value.items()}
    return FileContent(path, arrays=arrays, axes=axes)


def _read_table(path: Path, separator: str) -> pd.DataFrame:
    with parsing(path, "a table"):
        return pd.read_csv(path, sep=separator, encoding="utf-8-sig")


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
    except ImportError as error:
        raise package_missing("pyarrow") from error
    with parsing(path, "Parquet"):
        return pd.read_parquet(path)


def _read_netcdf(path: Path) -> xr.DataArray | dict[str, xr.DataArray]:
    """Return an assembly if the file follows the conventions, otherwise its variables by name."""
    try:
        assembly = assemblies.read(path)
    except AssemblyError:
        assembly = None
    if assembly is not None and "stimulus_id" in assembly.coords:
        return assembly
    with (
        parsing(path, "netCDF"),
        xr.open_dataset(path, engine="netcdf4", decode_times=False) as dataset,
    ):
        return {
            str(name): xr.DataArray(variable.values, dims=variable.dims)
            for name, variable in dataset.variables.items()
        }


def _read_npz(path: Path) -> dict[str, Array]:
    with parsing(path, "NumPy arrays"), np.load(path, allow_pickle=False) as archive:
        return {
            name: np.squeeze(archive[name])
            for name in archive.files
            if archive[name].size > 1
        }


def _read_matlab(path: Path) -> dict[str, Array]:
    """Return numeric arrays and lists of text by name; fields of a struct as ``struct.field``."""
    with path.open("rb") as file:
        matlab73 = b"MATLAB 7.3" in file.read(128)
    if matlab73:
        return _read_hdf5(path, matlab73=True)
    return dict(_fields(matlab(path, structs="dicts")))


def _fields(
    variables: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Array]]:
    for name, value in variables.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{name}.")
            continue
        try:
            plain = _decode_text(np.asarray(value))
        except ValueError:  # cells of different sizes
            continue
        if plain.dtype.kind in "iufbUS" and plain.size > 1:
            yield f"{prefix}{name}", np.squeeze(plain)


def _read_hdf5(path: Path, matlab73: bool = False) -> dict[str, Array]:
    """Return numeric arrays and lists of text by path; MATLAB stores axes reversed, and text as cells of numbers."""
    with opened(path) as file:
        arrays = dict(_datasets(file, file, "", path, matlab73=matlab73))
    return {
        name: _decode_text(value) for name, value in arrays.items() if value.size > 1
    }


def _datasets(
    file: Any, group: Any, prefix: str, path: Path, *, matlab73: bool
) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of numbers or text below a group, each with its path in the file."""
    for name, item in group.items():
        if name.startswith("#"):  # references of MATLAB
            continue
        if not hasattr(item, "dtype"):
            below = f"{prefix}{name}."
            yield from _datasets(file, item, below, path, matlab73=matlab73)
        elif item.size > 1 and item.dtype.kind in "iufbS":
            plain = array(item, path)
            yield f"{prefix}{name}", np.squeeze(plain.T if matlab73 else plain)
        elif item.size > 1 and item.dtype.kind == "O":
            yield f"{prefix}{name}", _texts(file, item, path)


def _texts(file: Any, item: Any, path: Path) -> Array:
    """Return variable-length text, or the text of a MATLAB cell array; empty if the cells are not text."""
    import h5py

    if h5py.check_ref_dtype(item.dtype) is None:
        return np.array(
            [
                value.decode() if isinstance(value, bytes) else str(value)
                for value in array(item, path).ravel()
            ]
        )
    cells = [cell(file, reference, path) for reference in array(item, path).T.ravel()]
    is_text = all(codes.size and codes.dtype == np.uint16 for codes in cells)
    if is_text:
        return np.array(list(map(text, cells)))
    return np.empty(0)


def _decode_text(value: Array) -> Array:
    """Return bytes and objects that are text as a text array without surrounding blanks, other values unchanged."""
    if value.dtype.kind == "S":
        return np.char.decode(value, "utf-8", "replace")
    texts = value.dtype == object and all(isinstance(item, str) for item in value.flat)
    if texts or value.dtype.kind == "U":
        return np.char.strip(value.astype(str))
    return value


def _read_nwb(path: Path) -> dict[str, Array]:
    """Return the spike times of NWB's units, and the columns of numbers or text of its units and intervals.

    The columns are named ``units.…`` and by the table of intervals, such as ``trials.…``. A unit without a location has
    that of its electrodes.

    Raises
    ------
    DataError
        The file has no units with spike times, or is damaged.
    UnavailableError
        pynwb is not installed.
    """
    try:
        import pynwb
    except ImportError as error:
        raise package_missing("pynwb") from error
    with (
        parsing(path, "NWB"),
        pynwb.NWBHDF5IO(str(path), mode="r", load_namespaces=True) as file,
    ):
        content = file.read()
        units = content.units
        if units is None or "spike_times" not in units.colnames:
            raise DataError(
                f"{path.name} has no units with spike times: export responses as a table or an array"
            )
        trains = [np.asarray(units["spike_times"][i]) for i in range(len(units))]
        arrays = {
            "spike_times": np.concatenate(trains),
            "ends": np.cumsum(list(map(len, trains))),
        }
        tables = {
            "units": units,
            "trials": content.trials,
            "epochs": content.epochs,
            **content.intervals,
        }
        for name, table in tables.items():
            if table is not None:
                arrays |= dict(_plain_columns(table, name))
        places = _places_of_electrodes(units)
        if places is not None:
            arrays.setdefault("units.location", places)
    return arrays


def _plain_columns(table: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Yield the columns of a table of NWB with one number or text per row."""
    for column in table.columns:
        values = None
        if column.name in table.colnames:
            values = np.asarray(column.data[:])
        if values is None or values.ndim != 1 or len(values) != len(table):
            continue
        plain = _decode_text(values)
        if plain.dtype.kind in "iufbU":
            yield f"{name}.{column.name}", plain


def _places_of_electrodes(units: Any) -> Array | None:
    """Return the location of each unit if all electrodes of a unit have the same; None without electrodes."""
    if "electrodes" not in units.colnames:
        return None
    places: list[str] = []
    for number in range(len(units)):
        locations = units["electrodes"][number].get("location")
        if locations is None or locations.nunique() != 1:
            return None
        places.append(str(locations.iloc[0]))
    return np.array(places)


# How the files of each suffix are read.
READERS: Mapping[str, Callable[[Path], Any]] = {
    ".npy": lambda path: {path.stem: numpy_array(path)},
    ".npz": _read_npz,
    ".h5": _read_hdf5,
    ".hdf5": _read_hdf5,
    ".mat": _read_matlab,
    ".nc": _read_netcdf,
    ".csv": partial(_read_table, separator=","),
    ".tsv": partial(_read_table, separator="\t"),
    ".parquet": _read_parquet,
    ".nwb": _read_nwb,
}


def layouts(
    shape: Sequence[int],
    stimuli: int,
    trials: int | None,
    axes: Sequence[str] = (),
    neuroids: int | None = None,
) -> list[tuple[str, ...]]:
    """Return the possible axes of an array of this shape with responses to this number of stimuli or trials.

    Axis names in the file, ``axes``, exclude the layouts that contradict them, as does the number of ``neuroids`` that
    a list in the file describes.

    >>> layouts((200, 40), 200, None)
    [('stimulus', 'neuroid')]
    >>> layouts((40, 1200), 200, 1200)
    [('neuroid', 'trial')]
    >>> layouts((40, 40), 40, None, ("unit", "image"))
    [('neuroid', 'stimulus')]
    >>> layouts((12, 40, 80), 40, None, neuroids=80)
    [('repetition', 'stimulus', 'neuroid'), ('time_bin', 'stimulus', 'neuroid')]
    """
    meanings = meanings_of(axes) or [None] * len(shape)
    others: dict[int, list[tuple[str, ...]]] = {
        2: [("neuroid",)],
        3: [("neuroid", "repetition"), ("neuroid", "time_bin")],
        4: [("neuroid", "repetition", "time_bin")],
    }
    row, count = ("stimulus", stimuli) if trials is None else ("trial", trials)
    possible = set[tuple[str, ...]]()
    for rest in others.get(len(shape), []):
        if row == "trial" and "repetition" in rest:
            continue
        for dims in permutations((row, *rest)):
            lengths = dict(zip(dims, shape, strict=True))
            fits = lengths["neuroid"] == (neuroids or lengths["neuroid"])
            if fits and lengths[row] == count and _agree(meanings, dims, row):
                possible.add(dims)
    return sorted(possible)


def _agree(meanings: Sequence[str | None], dims: Sequence[str], row: str) -> bool:
    """Return whether no axis means something else by its name in the file; the stimuli or trials are the ``row``."""
    rows = (None, "stimulus", "trial")
    return all(
        meaning in (rows if dim == row else (None, dim))
        for meaning, dim in zip(meanings, dims, strict=True)
    )


def meanings_of(names: Sequence[str]) -> list[str | None]:
    """Return what axes mean by their names, None for a name that says nothing.

    Trials beside stimuli are repetitions: trial × image × unit is trial of each image.

    >>> meanings_of(["trial", "image", "unit"])
    ['repetition', 'stimulus', 'neuroid']
    """
    meanings = [AXES.get(name.strip().lower()) for name in names]
    if "stimulus" not in meanings:
        return meanings
    return ["repetition" if item == "trial" else item for item in meanings]


def dims_named(text: str) -> str:
    """Return the axes that a text names in the words of the field, such as ``trial,image,unit``, in those of assemblies.

    Raises
    ------
    RequestError
        A word names no axis.
    """
    words = text.split(",")
    meanings = meanings_of(words)
    for word, meaning in zip(words, meanings, strict=True):
        if meaning is None:
            raise RequestError(
                f"{word.strip()!r} names no axis: use image or stimulus, trial, unit or neuroid, repetition, time_bin"
            )
    return ",".join(meaning for meaning in meanings if meaning is not None)


def assembly_of(
    values: Array,
    dims: Sequence[str],
    ids: Sequence[str],
    *,
    trials: Sequence[str] | None = None,
    bins: str | None = None,
    neuroids: Sequence[str] = (),
    regions: Sequence[str] = (),
) -> xr.DataArray:
    """Return an assembly with one presentation per stimulus and repetition, or per trial.

    Parameters
    ----------
    values, dims
        The array and the names of its axes: ``stimulus`` or ``trial``, ``neuroid``, and ``repetition`` or ``time_bin``.
    ids
        Stimulus ids in the order of the axis ``stimulus``.
    trials
        Stimulus id of each trial.
    bins
        First and last edge of the time bins in ms, such as ``0:200``; all bins have the same width.
    neuroids, regions
        Names of the neuroids (numbered if not given), and the region of each.

    Raises
    ------
    RequestError
        The axes do not fit the array, or time bins have no edges.
    """
    row = _require_axes(values, dims)
    if row == "stimulus":
        rows = list(ids)
    else:
        rows = list(trials or ())
    _require_length(row, values.shape[list(dims).index(row)], len(rows))
    plain = xr.DataArray(
        values.astype(float) if values.dtype.kind in "iub" else values, dims=tuple(dims)
    )
    plain, stimuli, repetition = _presentations(plain, row, rows)
    if "time_bin" in dims:
        in_time = ["time_bin"]
    else:
        in_time = []
    plain = plain.transpose("presentation", "neuroid", *in_time)
    count = plain.sizes["neuroid"]
    width = len(str(count - 1))
    names = list(neuroids) or [f"n{number:0{width}d}" for number in range(count)]
    coords: dict[str, Any] = {
        "stimulus_id": ("presentation", np.array(stimuli, dtype=str)),
        "repetition": ("presentation", repetition),
        "neuroid_id": ("neuroid", np.array(names, dtype=str)),
    }
    if regions:
        coords["region"] = ("neuroid", np.array(regions, dtype=str))
    if in_time:
        edges = _edges(bins or "", plain.sizes["time_bin"])
        coords["time_bin_start"] = ("time_bin", edges[:-1])
        coords["time_bin_end"] = ("time_bin", edges[1:])
    plain = plain.assign_coords(coords)
    # Rows without any value are padding of stimuli with fewer repetitions.
    recorded = ~np.isnan(plain.values).all(axis=tuple(range(1, plain.ndim)))
    return plain.isel(presentation=np.flatnonzero(recorded))


def _require_axes(values: Array, dims: Sequence[str]) -> str:
    """Return which axis has the rows, ``stimulus`` or ``trial``.

    Raises
    ------
    RequestError
        The axes do not fit the array, or have other names.
    """
    is_real = np.issubdtype(values.dtype, np.number) and values.dtype.kind != "c"
    if len(dims) != values.ndim or not is_real:
        raise RequestError(
            f"an array of {values.dtype} with {values.ndim} axes cannot have the axes ({', '.join(dims)})"
        )
    row = "trial" if "trial" in dims else "stimulus"
    needed = {row, "neuroid"}
    known = {row, "neuroid", "repetition", "time_bin"}
    if not needed <= set(dims) <= known:
        raise RequestError(
            f"--dims {','.join(dims)} is invalid: name stimulus or trial, neuroid, and repetition or time_bin"
        )
    return row


def _require_length(row: str, length: int, count: int) -> None:
    if length != count:
        meaning = "images" if row == "stimulus" else "stimuli of trials"
        raise RequestError(
            f"the axis {row!r} has {length} entries, but there are {count} {meaning}: correct --dims or the files"
        )


def _presentations(
    plain: xr.DataArray, row: str, rows: Sequence[str]
) -> tuple[xr.DataArray, Sequence[str], Array]:
    """Return an array by presentation, and the stimulus and repetition of each presentation."""
    if "repetition" not in plain.dims:
        counted = pd.Series(rows).groupby(list(rows)).cumcount().to_numpy()
        return plain.rename({row: "presentation"}), rows, counted
    stacked = plain.stack(presentation=(row, "repetition"))
    stacked = stacked.reset_index("presentation")
    repetition = stacked["repetition"].values.astype(int)
    stimuli = [rows[number] for number in stacked[row].values]
    return stacked.drop_vars([row, "repetition"]), stimuli, repetition


def _edges(bins: str, count: int) -> Array:
    """Return the edges of time bins of equal width in ms.

    Raises
    ------
    RequestError
        The first and last edge are not given.
    """
    ends = BINS.fullmatch(bins)
    if ends is None:
        raise RequestError(
            "the edges of the time bins are missing: give them in ms from stimulus onset, such as --time-bins 0:200"
        )
    return np.linspace(float(ends[1]), float(ends[2]), count + 1)


def names_in(
    arrays: Mapping[str, Array], ids: Sequence[str], shape: Sequence[int]
) -> tuple[list[tuple[str, Array]], list[tuple[str, Array]], list[tuple[str, Array]]]:
    """Return the text vectors that fit an array of this shape: names of images, names of neuroids, and regions."""
    images: list[tuple[str, Array]] = []
    others: list[tuple[str, Array]] = []
    regions: list[tuple[str, Array]] = []
    for name, values in arrays.items():
        if values.ndim != 1 or values.dtype.kind != "U" or len(values) not in shape:
            continue
        is_unique = len(set(values)) == len(values)
        is_region = name.rpartition(".")[2].lower() in REGION
        if is_unique and names_stimuli(values, ids):
            images.append((name, values))
        elif is_unique and not is_region:
            others.append((name, values))
        if is_region:
            regions.append((name, values))
    return images, others, regions


def spike_counts(arrays: Mapping[str, Array], start: str, window: str) -> Array:
    """Return spike counts ``(trial, neuroid)`` in a window in ms from the start of each trial; NWB times are in s."""
    edges = BINS.fullmatch(window)
    if edges is None:
        raise RequestError(
            f"--time-bins {window!r} is not a window: give its ends in ms from the start of a trial, such as 70:170"
        )
    ends = arrays["ends"].astype(int)
    starts = arrays[start][:, None]
    low, high = (starts + float(edge) / 1000 for edge in edges.groups())
    units = np.split(arrays["spike_times"], ends[:-1])
    return np.hstack(
        [
            np.searchsorted(np.sort(times), high) - np.searchsorted(np.sort(times), low)
            for times in units
        ]
    )


@dataclass(frozen=True)
class Columns:
    """Meaning of the columns of a table."""

    stimulus: str
    neuroid: str | None
    value: str | None
    choice: str | None
    truth: str | None
    subject: str | None
    wide: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Return ``long``, ``choices``, ``wide``, or ``stimuli`` for a table without responses."""
        if self.neuroid is not None and self.value is not None:
            return "long"
        return (
            "choices" if self.choice is not None else "wide" if self.wide else "stimuli"
        )


def columns_of(
    table: pd.DataFrame, ids: Sequence[str], coordinates: Sequence[str] = ()
) -> Columns | None:
    """Return the meaning of the columns of a table by their name and type; None if no column names stimuli."""
    stimulus = _find_column(table, STIMULUS) or _column_of_stimuli(table, ids)
    if stimulus is None:
        return None
    rest = table.drop(columns=stimulus)
    neuroid = _find_column(rest, NEUROID)
    value = _find_column(rest, VALUE)
    if neuroid:
        choice = None
    else:
        choice = _column_of_choices(rest)
    truth = None
    if choice:
        truth = _find_column(rest.drop(columns=choice), TRUTH)
    is_wide = not choice and not (neuroid and value)
    wide = _columns_of_neuroids(rest, coordinates) if is_wide else ()
    subject = _find_column(rest, SUBJECT)
    return Columns(stimulus, neuroid, value, choice, truth, subject, wide)


def _columns_of_neuroids(
    table: pd.DataFrame, coordinates: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns of numbers whose names mean no coordinate."""
    not_neuroids = {*map(str.lower, coordinates), *COORDINATES}
    numbers = [str(name) for name in table if table[name].dtype.kind in "iuf"]
    return tuple(name for name in numbers if name.lower() not in not_neuroids)


def _column_of_stimuli(table: pd.DataFrame, ids: Sequence[str]) -> str | None:
    """Return the only column of text whose values are stimuli."""
    fits = [
        str(name)
        for name in table
        if table[name].dtype.kind in "OTUS" and names_stimuli(table[name], ids)
    ]
    if len(fits) == 1:
        return fits[0]
    return None


def _column_of_choices(table: pd.DataFrame) -> str | None:
    """Return the first column of choices, which are no numbers."""
    for name in table:
        if str(name).lower() in CHOICE and table[name].dtype.kind not in "iufb":
            return str(name)
    return None


def _find_column(table: pd.DataFrame, names: Sequence[str]) -> str | None:
    """Return the column whose name comes first among ``names``, regardless of case."""
    lower = {str(name).lower(): str(name) for name in table.columns}
    return next((lower[name] for name in names if name in lower), None)


def _as_ids(values: pd.Series, ids: Sequence[str]) -> pd.Series:
    """Return the stimuli by id: the path of an image that is not an id is replaced by its stem."""
    plain = values.astype(str).str.strip()
    return plain.where(
        plain.isin(ids),
        plain.map(
            lambda name: Path(name).stem if name.lower().endswith(IMAGES) else name
        ),
    )


def names_stimuli(values: Array | pd.Series, ids: Sequence[str]) -> bool:
    """Return whether every value is the id or file name of a stimulus."""
    return bool(_as_ids(pd.Series(values), ids).isin(ids).all())


def stimuli_of(
    values: Array, ids: Sequence[str], first: int | None, source: str
) -> list[str]:
    """Return the stimulus id of each row, given as id, file name, or number counted from ``first``.

    Raises
    ------
    DataError
        A value does not refer to a stimulus; the message begins with ``source``.
    """
    if values.dtype.kind in "iuf" and not names_stimuli(values, ids):
        numbers = values.astype(int) - (first or 0)
        wrong = (
            (numbers != values - (first or 0)) | (numbers < 0) | (numbers >= len(ids))
        )
        if wrong.any():
            raise DataError(
                f"{source}: {values[wrong][0]:g} is not the number of one of the {len(ids)} stimuli"
            )
        return [ids[i] for i in numbers]
    stimuli = _as_ids(pd.Series(values), ids)
    unknown = stimuli[~stimuli.isin(ids)]
    if len(unknown):
        raise DataError(
            f"{source} names {unknown.nunique()} stimuli that have no image, the first is {unknown.iloc[0]!r}"
        )
    return list(map(str, stimuli))


def first_number(values: Array, count: int) -> int | None:
    """Return the number of the first stimulus if the numbers that occur determine it, otherwise None."""
    low = values.min()
    high = values.max()
    return 0 if low == 0 and high < count else 1 if low >= 1 and high == count else None


def require_own_rows(table: pd.DataFrame, columns: Columns, source: str) -> None:
    """Return if every row of a table is a measurement of its own, as far as its columns tell.

    Raises
    ------
    DataError
        Rows occur more than once, or have the same key and different values; the message begins with ``source``.
    """
    measured = {
        "long": (columns.value,),
        "wide": columns.wide,
        "choices": (columns.choice,),
    }[columns.kind]
    names = list(map(str, measured))
    keys = {
        str(name): table[name].to_numpy() for name in table if str(name) not in names
    }
    require_measurements(keys, table[names].to_numpy(), source)


def table_assembly(
    table: pd.DataFrame, columns: Columns, stimuli: Sequence[str]
) -> xr.DataArray:
    """Return the assembly of a long or wide table whose rows are presentations of ``stimuli``.

    Raises
    ------
    AssemblyError
        A value is given twice, or a column of a wide table mixes subjects.
    """
    frame = table.drop(columns=columns.stimulus).assign(stimulus_id=list(stimuli))
    for known, name in ((REPETITION, "repetition"), (SESSION, "session")):
        if (column := _find_column(frame, known)) is not None:
            frame = frame.rename(columns={column: name})
    if columns.kind == "long":
        return _assembly_of_long(frame, columns)
    return _assembly_of_wide(frame, columns)


def _assembly_of_long(frame: pd.DataFrame, columns: Columns) -> xr.DataArray:
    """Return the assembly of a table with one row per value."""
    frame = frame.rename(
        columns={columns.neuroid: "neuroid_id", columns.value: "value"}
    )
    frame["neuroid_id"] = frame["neuroid_id"].astype(str)
    if columns.subject is not None:
        subjects = frame.groupby("neuroid_id")[columns.subject].nunique()
        if (subjects > 1).any():
            # The same name in two subjects is two neuroids.
            people = frame[columns.subject].astype(str)
            frame["neuroid_id"] = people + "." + frame["neuroid_id"]
    if "repetition" not in frame:
        frame["repetition"] = _count_repetitions(frame)
    constant = frame.groupby("neuroid_id").nunique().eq(1).all()
    of_neuroids = set(map(str, constant.index[constant]))
    region = _find_column(frame[sorted(of_neuroids)], REGION)
    if region is not None:
        frame = frame.rename(columns={region: "region"})
        of_neuroids.add("region")
    varying = _trial_columns(frame, of_neuroids | {"neuroid_id", "value"})
    return from_long_table(frame.drop(columns=varying))


def _assembly_of_wide(frame: pd.DataFrame, columns: Columns) -> xr.DataArray:
    """Return the assembly of a table with one column per neuroid.

    Raises
    ------
    AssemblyError
        A column mixes subjects, or a presentation has several rows.
    """
    varying = _trial_columns(frame, set(columns.wide))
    if columns.subject is not None and columns.subject in varying:
        raise AssemblyError(
            f"column {columns.subject!r}: a neuroid column contains responses of several subjects; write one row per value "
            "(stimulus_id, subject, neuroid_id, value), or one file per subject"
        )
    counted = frame.groupby("stimulus_id").cumcount()
    if "repetition" not in frame:
        frame["repetition"] = counted
    frame = frame.drop(columns=varying)
    presentation = ["stimulus_id", "repetition"]
    if frame.duplicated(presentation).any() and _are_counted_by_session(frame):
        frame["repetition"] = counted
    if frame.duplicated(presentation).any():
        row = frame[frame.duplicated(presentation)].iloc[0]
        raise AssemblyError(
            f"stimulus {row['stimulus_id']!r}, repetition {row['repetition']} has several rows"
        )
    values = frame[list(columns.wide)].to_numpy(float)
    names = np.array(columns.wide, dtype=str)
    coords: dict[str, Any] = {"neuroid_id": ("neuroid", names)}
    region = _find_column(frame, REGION)
    if region is not None and frame[region].nunique() == 1:
        places = np.full(len(names), str(frame[region].iloc[0]))
        coords["region"] = ("neuroid", places)
        frame = frame.drop(columns=region)
    for name in frame.drop(columns=list(columns.wide)):
        plain = frame[name].to_numpy()
        is_number = plain.dtype.kind in "iufb"
        coords[str(name)] = ("presentation", plain if is_number else plain.astype(str))
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def _are_counted_by_session(frame: pd.DataFrame) -> bool:
    """Return whether repetitions are counted anew in each session."""
    if "session" not in frame:
        return False
    return not frame.duplicated(["stimulus_id", "session", "repetition"]).any()


def _count_repetitions(frame: pd.DataFrame) -> pd.Series:
    """Return the repetition of each row of a long table: of its stimulus and neuroid, with sessions one after another.

    Neuroids that were recorded together in a session so have the same repetition, also if one of them lacks a trial of
    another session.
    """
    if "session" not in frame or frame["session"].nunique() < 2:
        return frame.groupby(["stimulus_id", "neuroid_id"]).cumcount()
    within = frame.groupby(["stimulus_id", "neuroid_id", "session"]).cumcount()
    presentations = pd.DataFrame(
        {
            "stimulus_id": frame["stimulus_id"],
            "session": frame["session"],
            "within": within,
        }
    )
    distinct = presentations.drop_duplicates().sort_values(
        ["stimulus_id", "session", "within"]
    )
    distinct["repetition"] = distinct.groupby("stimulus_id").cumcount()
    numbered = presentations.merge(
        distinct, how="left", on=["stimulus_id", "session", "within"]
    )
    return pd.Series(numbered["repetition"].to_numpy(), index=frame.index)


def _trial_columns(frame: pd.DataFrame, keep: set[str]) -> list[str]:
    """Return the columns that differ between presentations of one stimulus, such as the trial number; not the session."""
    rest = [
        str(name)
        for name in frame
        if name not in keep | {"stimulus_id", "repetition", "session"}
    ]
    return [
        name
        for name in rest
        if (frame.groupby("stimulus_id")[name].nunique(dropna=False) > 1).any()
    ]


def with_region(assembly: xr.DataArray, region: str) -> xr.DataArray:
    """Return the assembly with a region for every neuroid: that of the files, otherwise the stated one.

    Without either, the region is ``?``.

    Raises
    ------
    RequestError
        The files state other regions than is stated.
    """
    if "region" not in assembly.coords:
        places = np.full(assembly.sizes["neuroid"], region or "?")
        return assembly.assign_coords(region=("neuroid", places))
    counts = pd.Series(assembly["region"].values.astype(str)).value_counts()
    others = counts.drop(region, errors="ignore")
    if region and len(others):
        named = ", ".join(f"{place} of {count}" for place, count in others.items())
        raise RequestError(
            f"--region {region} contradicts the files, which state {named} neuroids: omit --region to use what they state, "
            "or remove that column"
        )
    return assembly


def choices_of(
    table: pd.DataFrame, columns: Columns, stimuli: Sequence[str]
) -> pd.DataFrame:
    """Return trials with the columns ``stimulus_id``, ``choice``, ``truth`` and ``subject`` of behavioural data."""
    names = {
        columns.choice: "choice",
        columns.truth: "truth",
        columns.subject: "subject",
    }
    frame = table.drop(columns=columns.stimulus).rename(
        columns={k: v for k, v in names.items() if k is not None}
    )
    frame.insert(0, "stimulus_id", list(stimuli))
    if "subject" in frame:
        return frame
    return frame.assign(subject="all")


def natural(names: Sequence[str]) -> list[str]:
    """Return names in natural order: im2 before im10."""
    return sorted(
        names,
        key=lambda name: [
            int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)
        ],
    )


def candidates(content: FolderContent) -> Iterator[tuple[str, FileContent, str]]:
    """Yield everything in a folder that may be responses: its address (file or ``file:variable``), file and variable."""
    for file in content.files:
        name = file.path.relative_to(content.folder).as_posix()
        if file.table is None:
            columns = None
        else:
            columns = columns_of(file.table, content.ids)
        has_responses = columns is not None and columns.kind != "stimuli"
        if file.assembly is not None or has_responses or "spike_times" in file.arrays:
            yield name, file, ""
            continue
        for variable in _arrays_of_responses(file.arrays):
            is_only = file.path.suffix == ".npy"
            yield name if is_only else f"{name}:{variable}", file, variable


def _arrays_of_responses(arrays: Mapping[str, Array]) -> Iterator[str]:
    """Yield the names of arrays of numbers with 2 to 4 axes."""
    for name, values in arrays.items():
        is_table = values.ndim in (2, 3, 4) and min(values.shape) > 1
        if is_table and values.dtype.kind in "iuf":
            yield name
