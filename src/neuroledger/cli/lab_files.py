"""Files of a laboratory: what a folder holds, and how its tables and arrays become an assembly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from neuroledger.data import assembly as assemblies
from neuroledger.data.hdf5 import array, cell, opened, text
from neuroledger.data.package import IMAGES, from_long_table
from neuroledger.data.parsing import matlab, numpy_array, parsing
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import AssemblyError, DataError, RequestError, UnavailableError

__all__ = [
    "Content",
    "Held",
    "assembly_of",
    "choices_of",
    "layouts",
    "names_in",
    "names_stimuli",
    "read_file",
    "reader_of",
    "survey",
]

Array = npt.NDArray[Any]
TABLES, ARRAYS = (".csv", ".tsv", ".parquet"), (".npy", ".npz", ".mat", ".h5", ".hdf5")
# Names of columns by what they hold, in lower case; a column with another name is a neuroid or a coordinate.
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
VALUE = ("value", "response", "rate", "firing_rate", "spikes", "spike_count", "count", "beta", "dff")
REPETITION = ("repetition", "rep", "repeat", "presentation")
COORDINATES = (
    *REPETITION, "trial", "trial_id", "trial_number", "session", "run", "block", "subject", "participant", "category",
    "object_name", "label", "split", "time", "onset", "rt", "reaction_time", "index", "unnamed: 0", "condition",
)  # fmt: skip
TIME = ("time", "time_bin", "time_bins", "timebin", "bin", "bins", "t", "frame", "sample")
# What an axis is, by its name in a file that names axes; rows are stimuli, or trials that show them.
AXES = {
    **dict.fromkeys((*STIMULUS, "images", "stimuli", "trial", "trials", "presentation", "presentations"), "row"),
    **dict.fromkeys((*NEUROID, *(f"{name}s" for name in NEUROID)), "neuroid"),
    **dict.fromkeys(("repetition", "rep", "repeat", "reps", "repeats", "repetitions"), "repetition"),
    **dict.fromkeys(TIME, "time_bin"),
}  # fmt: skip
CHOICE = ("choice", "chosen", "answer", "object_response", "response")
TRUTH = ("truth", "correct_answer", "category", "object_name", "label", "image_label", "target")
REGION = ("region", "area", "roi", "brain_area", "brain_region")
SUBJECT = ("subject", "participant", "subject_id", "participant_id", "subj", "worker")
BINS = re.compile(r"(-?\d+(?:\.\d+)?):(-?\d+(?:\.\d+)?)")


def reader_of(names: set[str], told: dict[str, Any] | None) -> dict[str, Any]:
    """The `reader` of a data set with these packaged files; one that declares more than their names is kept."""
    parts = {"assembly": "responses.nc", "stimuli": "stimuli.csv", "archive": "stimuli.zip"}
    if told is not None and set(told) - {"name", *parts}:
        return told
    absent = {field: None for field, name in parts.items() if name not in names}
    if "trials.csv" not in names:
        return {"name": "netcdf", **absent}
    return {"name": "choice_trials", **{name: None for name in absent if name != "assembly"}}


@dataclass(frozen=True)
class Held:
    """What one file holds: a table, an assembly, or arrays by name, with the names of their axes where the file has them."""

    path: Path
    table: pd.DataFrame | None = None
    assembly: xr.DataArray | None = None
    arrays: Mapping[str, Array] = field(default_factory=dict)
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """What a folder holds.

    Attributes
    ----------
    folder
        Its path.
    images
        Its images, relative to it, sorted by name.
    held
        Tables, arrays and assemblies.
    recordings
        Whether it is a BIDS tree.
    """

    folder: Path
    images: tuple[str, ...]
    held: tuple[Held, ...]
    recordings: bool

    @property
    def ids(self) -> list[str]:
        """The id of each image: its name without suffix, or its path where names repeat."""
        stems = [Path(name).stem for name in self.images]
        unique = len(set(stems)) == len(stems)
        return stems if unique else [str(Path(name).with_suffix("").as_posix()) for name in self.images]


def survey(folder: Path, only: Sequence[str] = ()) -> Content:
    """Read what a folder holds; of tables and arrays those named in ``only``, or all.

    Raises
    ------
    RequestError
        There is no such folder, or no such file in it.
    DataError
        A file cannot be read.
    """
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; give the folder that holds your images and responses")
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    lost = [name for name in only if name not in names]
    if lost:
        raise RequestError(f"{folder} has no file {lost[0]!r}; it has {', '.join(names[:8])}")
    recordings = "dataset_description.json" in names and any(name.startswith("sub-") for name in names)
    data = () if recordings else (
        name for name in names if Path(name).suffix.lower() in (*TABLES, *ARRAYS, ".nc", ".nwb")
    )  # fmt: skip
    held = tuple(read_file(folder / name) for name in data if not only or name in only)
    return Content(folder, tuple(name for name in names if name.lower().endswith(IMAGES)), held, recordings)


def read_file(path: Path) -> Held:
    """A file of a laboratory, parsed in a process with limits.

    Raises
    ------
    RequestError
        Its format is not known.
    DataError
        It is damaged.
    """
    kind = path.suffix.lower()
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": lambda path: {path.stem: numpy_array(path)}, ".npz": _archive, ".h5": _hdf5, ".hdf5": _hdf5,
        ".mat": _matlab, ".nc": _netcdf, ".csv": partial(_table, separator=","),
        ".tsv": partial(_table, separator="\t"), ".parquet": _parquet, ".nwb": _nwb,
    }  # fmt: skip
    if not path.is_file():
        raise RequestError(
            f"{path} does not exist" if not path.exists() else f"{path} is a folder, not a file"
        )
    if kind not in readers:
        raise RequestError(
            f"{path.name}: {kind or 'no suffix'} is not read; known are {', '.join(sorted(readers))}"
        )
    value = confined(lambda: readers[kind](path), limits_for([path]), path.name)
    if isinstance(value, pd.DataFrame):
        return Held(path, table=value)
    if kind == ".nc" and isinstance(value, dict):
        axes = {name: tuple(map(str, one.dims)) for name, one in value.items()}
        return Held(path, arrays={name: _plain(one.values) for name, one in value.items()}, axes=axes)
    return Held(path, assembly=value) if isinstance(value, xr.DataArray) else Held(path, arrays=value)


def _table(path: Path, separator: str) -> pd.DataFrame:
    with parsing(path, "a table"):
        return pd.read_csv(path, sep=separator, encoding="utf-8-sig")


def _parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError as error:
        raise UnavailableError(
            "Parquet needs pyarrow: pip install pyarrow, or export the table as CSV"
        ) from error
    with parsing(path, "Parquet"):
        return pd.read_parquet(path)


def _netcdf(path: Path) -> xr.DataArray | dict[str, xr.DataArray]:
    """An assembly by the conventions, or the variables of a file that somebody else laid out."""
    try:
        held = assemblies.read(path)
    except AssemblyError:
        held = None
    if held is not None and "stimulus_id" in held.coords:
        return held
    with parsing(path, "netCDF"), xr.open_dataset(path, engine="netcdf4", decode_times=False) as dataset:
        return {str(name): xr.DataArray(one.values, dims=one.dims) for name, one in dataset.variables.items()}


def _archive(path: Path) -> dict[str, Array]:
    with parsing(path, "NumPy arrays"), np.load(path, allow_pickle=False) as held:
        return {name: np.squeeze(held[name]) for name in held.files if held[name].size > 1}


def _matlab(path: Path) -> dict[str, Array]:
    """Arrays of numbers and lists of text, by name; those in a struct as ``struct.field``."""
    with path.open("rb") as file:
        new = b"MATLAB 7.3" in file.read(128)
    return _hdf5(path, matlab73=True) if new else dict(_fields(matlab(path, structs="dicts")))


def _fields(held: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Array]]:
    for name, value in held.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{above}{name}.")
            continue
        try:
            plain = _plain(np.asarray(value))
        except ValueError:  # cells of different sizes
            continue
        if plain.dtype.kind in "iufbUS" and plain.size > 1:
            yield f"{above}{name}", np.squeeze(plain)


def _hdf5(path: Path, matlab73: bool = False) -> dict[str, Array]:
    """Arrays of numbers and lists of text, by their path; MATLAB keeps axes reversed, and text as cells of numbers."""
    found: dict[str, Array] = {}

    def visit(file: Any, group: Any, above: str) -> None:
        for name, item in group.items():
            if name.startswith("#"):
                continue
            if not hasattr(item, "dtype"):
                visit(file, item, f"{above}{name}.")
            elif item.size > 1 and item.dtype.kind in "iufbS":
                plain = array(item, path)
                found[f"{above}{name}"] = np.squeeze(plain.T if matlab73 else plain)
            elif item.size > 1 and item.dtype.kind == "O":
                found[f"{above}{name}"] = _texts(file, item, path)

    with opened(path) as file:
        visit(file, file, "")
    return {name: _plain(value) for name, value in found.items() if value.size > 1}


def _texts(file: Any, item: Any, path: Path) -> Array:
    """Text of any length, or the text in a cell array of MATLAB; nothing where it holds something else."""
    import h5py

    if h5py.check_ref_dtype(item.dtype) is None:
        return np.array(
            [one.decode() if isinstance(one, bytes) else str(one) for one in array(item, path).ravel()]
        )
    values = [cell(file, one, path) for one in array(item, path).T.ravel()]
    written = all(one.size and one.dtype == np.uint16 for one in values)
    return np.array([text(one) for one in values]) if written else np.empty(0)


def _plain(value: Array) -> Array:
    """Text as text; MATLAB's character matrix has lost the blanks at the end of its rows already."""
    if value.dtype.kind == "S":
        return np.char.decode(value, "utf-8", "replace")
    texts = value.dtype == object and all(isinstance(one, str) for one in value.flat)
    return np.char.strip(value.astype(str)) if texts or value.dtype.kind == "U" else value


def _nwb(path: Path) -> dict[str, Array]:
    """Spike times of every unit, and start times and stimuli of the trials, as NWB's `units` and `intervals` keep them."""
    with opened(path) as file:
        if "units/spike_times" not in file or "units/spike_times_index" not in file:
            raise DataError(
                f"{path.name} has no units with spike times: export responses as a table or an array"
            )
        held = {
            "spike_times": array(file["units/spike_times"], path),
            "ends": array(file["units/spike_times_index"], path),
        }
        for name, group in dict(file.get("intervals", {})).items():
            for column in group:
                values = group[column] if hasattr(group[column], "dtype") else None
                if values is not None and values.ndim == 1:
                    plain = array(values, path)
                    held[f"{name}.{column}"] = (
                        plain
                        if plain.dtype.kind in "iuf"
                        else np.array([text(np.asarray(one)) for one in plain])
                    )
    return held


def layouts(
    shape: Sequence[int], stimuli: int, trials: int | None, axes: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """The ways in which an array of this shape can hold responses to so many stimuli, or trials.

    Names of its axes in the file, ``axes``, rule out the ways that they contradict.

    >>> layouts((200, 40), 200, None)
    [('stimulus', 'neuroid')]
    >>> layouts((40, 1200), 200, 1200)
    [('neuroid', 'trial')]
    >>> layouts((40, 40), 40, None, ("unit", "image"))
    [('neuroid', 'stimulus')]
    """
    known = [AXES.get(name.lower()) for name in axes] or [None] * len(shape)
    rests: dict[int, list[tuple[str, ...]]] = {
        2: [("neuroid",)],
        3: [("neuroid", "repetition"), ("neuroid", "time_bin")],
        4: [("neuroid", "repetition", "time_bin")],
    }
    rows = {"trial": trials} if trials is not None else {"stimulus": stimuli}
    found = {
        dims
        for row, count in rows.items()
        for rest in rests.get(len(shape), [])
        for dims in permutations((row, *rest))
        if shape[dims.index(row)] == count
        and not (row == "trial" and "repetition" in dims)
        and all(said in (None, "row" if dim == row else dim) for said, dim in zip(known, dims, strict=True))
    }
    return sorted(found)


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
    """Responses with the conventions' coordinates, one presentation per stimulus and repetition, or per trial.

    Parameters
    ----------
    values, dims
        The array, and what its axes are: ``stimulus`` or ``trial``, ``neuroid``, and ``repetition`` or ``time_bin``.
    ids
        Stimuli in the order of the axis ``stimulus``.
    trials
        The stimulus of each trial.
    bins
        First and last edge of the time bins in ms, ``0:200``, which are of equal width.
    neuroids, regions
        Names of the neuroids, numbers when not given; and where each of them is.

    Raises
    ------
    RequestError
        The axes do not fit, or time bins have no edges.
    """
    if len(dims) != values.ndim or not np.issubdtype(values.dtype, np.number) or values.dtype.kind == "c":
        raise RequestError(
            f"an array of {values.dtype} with {values.ndim} axes cannot be ({', '.join(dims)})"
        )
    row = "trial" if "trial" in dims else "stimulus"
    if {row, "neuroid"} - set(dims) or set(dims) - {row, "neuroid", "repetition", "time_bin"}:
        raise RequestError(
            f"--dims {','.join(dims)}: name stimulus or trial, neuroid, and repetition or time_bin"
        )
    named = list(ids) if row == "stimulus" else list(trials or ())
    if values.shape[list(dims).index(row)] != len(named):
        raise RequestError(
            f"the axis {row!r} has {values.shape[list(dims).index(row)]} entries, and there are {len(named)} "
            f"{'images' if row == 'stimulus' else 'stimuli of trials'}: correct --dims, or the files"
        )
    plain = xr.DataArray(values.astype(float) if values.dtype.kind in "iub" else values, dims=tuple(dims))
    if "repetition" in dims:
        plain = plain.stack(presentation=(row, "repetition")).reset_index("presentation")
        repetition = plain["repetition"].values.astype(int)
        named = [named[i] for i in plain[row].values]
        plain = plain.drop_vars([row, "repetition"])
    else:
        plain = plain.rename({row: "presentation"})
        repetition = pd.Series(named).groupby(named).cumcount().to_numpy()
    order = ("presentation", "neuroid", *(["time_bin"] if "time_bin" in dims else []))
    plain = plain.transpose(*order)
    width = len(str(plain.sizes["neuroid"] - 1))
    names = list(neuroids) or [f"n{i:0{width}d}" for i in range(plain.sizes["neuroid"])]
    coords: dict[str, Any] = {
        "stimulus_id": ("presentation", np.array(named, dtype=str)),
        "repetition": ("presentation", repetition),
        "neuroid_id": ("neuroid", np.array(names, dtype=str)),
    }
    if regions:
        coords["region"] = ("neuroid", np.array(regions, dtype=str))
    if "time_bin" in dims:
        edges = BINS.fullmatch(bins or "")
        if edges is None:
            raise RequestError("time bins need their edges in ms from stimulus onset: --time-bins 0:200")
        steps = np.linspace(float(edges[1]), float(edges[2]), plain.sizes["time_bin"] + 1)
        coords |= {"time_bin_start": ("time_bin", steps[:-1]), "time_bin_end": ("time_bin", steps[1:])}
    plain = plain.assign_coords(coords)
    # Rows without any value pad the stimuli that were shown less often.
    shown = ~np.isnan(plain.values).all(axis=tuple(range(1, plain.ndim)))
    return plain.isel(presentation=np.flatnonzero(shown))


def names_in(
    arrays: Mapping[str, Array], ids: Sequence[str], shape: Sequence[int]
) -> tuple[list[tuple[str, Array]], list[tuple[str, Array]], list[tuple[str, Array]]]:
    """Lists of text beside an array of this shape: those that name each image once, names of neuroids, and regions."""
    lists = [
        (name, one)
        for name, one in arrays.items()
        if one.ndim == 1 and one.dtype.kind == "U" and len(one) in shape
    ]
    once = [(name, one) for name, one in lists if len(set(one)) == len(one)]
    images = [(name, one) for name, one in once if names_stimuli(one, ids)]
    regions = [(name, one) for name, one in lists if name.rpartition(".")[2].lower() in REGION]
    others = [(name, one) for name, one in once if name not in dict(images) | dict(regions)]
    return images, others, regions


def spike_counts(held: Mapping[str, Array], start: str, window: str) -> Array:
    """Spikes ``(trial, neuroid)`` in a window in ms from the start of each trial, from NWB's ragged spike times in s."""
    edges = BINS.fullmatch(window)
    if edges is None:
        raise RequestError(
            f"--time-bins {window!r}: give the window in ms from the start of a trial, such as 70:170"
        )
    ends = held["ends"].astype(int)
    low, high = (held[start][:, None] + float(edge) / 1000 for edge in edges.groups())
    units = np.split(held["spike_times"], ends[:-1])
    return np.hstack(
        [np.searchsorted(np.sort(one), high) - np.searchsorted(np.sort(one), low) for one in units]
    )


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are."""

    stimulus: str
    neuroid: str | None
    value: str | None
    choice: str | None
    truth: str | None
    subject: str | None
    wide: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``long``, ``choices``, ``wide``, or ``stimuli`` for a table without responses."""
        if self.neuroid is not None and self.value is not None:
            return "long"
        return "choices" if self.choice is not None else "wide" if self.wide else "stimuli"


def columns_of(table: pd.DataFrame, ids: Sequence[str], coordinates: Sequence[str] = ()) -> Columns | None:
    """What the columns of a table are, by name and type; None where no column names stimuli."""
    stimulus = _named(table, STIMULUS)
    if stimulus is None:
        fits = [
            str(name) for name in table if table[name].dtype.kind in "OTUS" and _known(table[name], ids).all()
        ]
        stimulus = fits[0] if len(fits) == 1 else None
    if stimulus is None:
        return None
    rest = table.drop(columns=stimulus)
    neuroid, value = _named(rest, NEUROID), _named(rest, VALUE)
    choice = None if neuroid else next(
        (str(name) for name in rest if str(name).lower() in CHOICE and rest[name].dtype.kind not in "iufb"), None
    )  # fmt: skip
    truth = _named(rest.drop(columns=choice), TRUTH) if choice else None
    numbers = [str(name) for name in rest if rest[name].dtype.kind in "iuf"]
    aside = {*map(str.lower, coordinates), *COORDINATES}
    wide = (
        () if choice or (neuroid and value) else tuple(name for name in numbers if name.lower() not in aside)
    )
    return Columns(stimulus, neuroid, value, choice, truth, _named(rest, SUBJECT), wide)


def _named(table: pd.DataFrame, names: Sequence[str]) -> str | None:
    """The column whose name comes first among ``names``."""
    lower = {str(name).lower(): str(name) for name in table.columns}
    return next((lower[name] for name in names if name in lower), None)


def _stems(values: pd.Series, ids: Sequence[str]) -> pd.Series:
    """Stimuli as they are named in ``ids``: paths lose their folder and suffix where that makes them known."""
    plain = values.astype(str).str.strip()
    return plain.where(
        plain.isin(ids), plain.map(lambda name: Path(name).stem if name.lower().endswith(IMAGES) else name)
    )


def names_stimuli(values: Array, ids: Sequence[str]) -> bool:
    """Whether every value is the id or file name of a stimulus."""
    return bool(_known(pd.Series(values), ids).all())


def _known(values: pd.Series, ids: Sequence[str]) -> pd.Series:
    return _stems(values, ids).isin(ids)


def stimuli_of(values: Array, ids: Sequence[str], first: int | None, what: str) -> list[str]:
    """The stimulus of each row: its id, its file name, or its number from ``first``.

    Raises
    ------
    DataError
        A value is no stimulus.
    """
    if values.dtype.kind in "iuf" and not names_stimuli(values, ids):
        numbers = values.astype(int) - (first or 0)
        wrong = (numbers != values - (first or 0)) | (numbers < 0) | (numbers >= len(ids))
        if wrong.any():
            raise DataError(f"{what}: {values[wrong][0]:g} is not the number of one of {len(ids)} stimuli")
        return [ids[i] for i in numbers]
    named = _stems(pd.Series(values), ids)
    lost = named[~named.isin(ids)]
    if len(lost):
        raise DataError(f"{what} names {lost.nunique()} stimuli that have no image, first {lost.iloc[0]!r}")
    return [str(name) for name in named]


def first_number(values: Array, count: int) -> int | None:
    """The number of the first stimulus, where the numbers that occur allow one only."""
    low, high = values.min(), values.max()
    return 0 if low == 0 and high < count else 1 if low >= 1 and high == count else None


def table_assembly(table: pd.DataFrame, columns: Columns, stimuli: Sequence[str]) -> xr.DataArray:
    """The assembly of a long or wide table whose rows show ``stimuli``.

    Raises
    ------
    AssemblyError
        A value is given twice.
    """
    frame = table.drop(columns=columns.stimulus).assign(stimulus_id=list(stimuli))
    if (repetition := _named(frame, REPETITION)) is not None:
        frame = frame.rename(columns={repetition: "repetition"})
    if columns.kind == "long":
        frame = frame.rename(columns={columns.neuroid: "neuroid_id", columns.value: "value"})
        frame["neuroid_id"] = frame["neuroid_id"].astype(str)
        if columns.subject is not None and (frame.groupby("neuroid_id")[columns.subject].nunique() > 1).any():
            # The same name in two people is two neuroids.
            frame["neuroid_id"] = frame[columns.subject].astype(str) + "." + frame["neuroid_id"]
        if "repetition" not in frame:
            frame["repetition"] = frame.groupby(["stimulus_id", "neuroid_id"]).cumcount()
        alike = frame.groupby("neuroid_id").nunique().eq(1).all()
        of_neuroids = {str(name) for name in alike.index[alike]}
        return from_long_table(frame.drop(columns=_varying(frame, of_neuroids | {"neuroid_id", "value"})))
    if columns.subject is not None and columns.subject in _varying(frame, set(columns.wide)):
        raise AssemblyError(
            f"column {columns.subject!r}: one column of numbers holds responses of several people; write one row per value "
            "(stimulus_id, subject, neuroid_id, value), or one file for each person"
        )
    if "repetition" not in frame:
        frame["repetition"] = frame.groupby("stimulus_id").cumcount()
    frame = frame.drop(columns=_varying(frame, set(columns.wide)))
    if frame.duplicated(["stimulus_id", "repetition"]).any():
        row = frame[frame.duplicated(["stimulus_id", "repetition"])].iloc[0]
        raise AssemblyError(
            f"stimulus {row['stimulus_id']!r}, repetition {row['repetition']} has several rows"
        )
    values = xr.DataArray(frame[list(columns.wide)].to_numpy(float), dims=("presentation", "neuroid"))
    coords: dict[str, Any] = {"neuroid_id": ("neuroid", np.array(columns.wide, dtype=str))}
    for name in [name for name in frame if name not in columns.wide]:
        plain = frame[name].to_numpy()
        coords[str(name)] = ("presentation", plain if plain.dtype.kind in "iufb" else plain.astype(str))
    return values.assign_coords(coords)


def _varying(frame: pd.DataFrame, keep: set[str]) -> list[str]:
    """Columns that differ between presentations of one stimulus, such as the number of the trial."""
    rest = [str(name) for name in frame if name not in keep | {"stimulus_id", "repetition"}]
    return [name for name in rest if (frame.groupby("stimulus_id")[name].nunique(dropna=False) > 1).any()]


def choices_of(table: pd.DataFrame, columns: Columns, stimuli: Sequence[str]) -> pd.DataFrame:
    """Trials with the columns ``stimulus_id``, ``choice``, ``truth`` and ``subject`` that behaviour is read from."""
    names = {columns.choice: "choice", columns.truth: "truth", columns.subject: "subject"}
    frame = table.drop(columns=columns.stimulus).rename(
        columns={k: v for k, v in names.items() if k is not None}
    )
    frame.insert(0, "stimulus_id", list(stimuli))
    return frame if "subject" in frame else frame.assign(subject="all")


def natural(names: Sequence[str]) -> list[str]:
    """Names ordered as people count: im2 before im10."""
    return sorted(
        names, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    )


def candidates(content: Content) -> Iterator[tuple[str, Held, str]]:
    """Everything in a folder that may hold responses, with its address: a file, or ``file:variable``."""
    for held in content.held:
        name = held.path.relative_to(content.folder).as_posix()
        if held.assembly is not None:
            yield name, held, ""
        elif held.table is not None:
            columns = columns_of(held.table, content.ids)
            if columns is not None and columns.kind != "stimuli":
                yield name, held, ""
        elif "spike_times" in held.arrays:
            yield name, held, ""
        else:
            for variable, values in held.arrays.items():
                if values.ndim in (2, 3, 4) and values.dtype.kind in "iuf" and min(values.shape) > 1:
                    yield (name if held.path.suffix == ".npy" else f"{name}:{variable}"), held, variable
