"""Gram matrices: one pass over the features, after which the cost no longer depends on their number."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy
import xarray as xr
from scipy.linalg import blas

from neuroledger.data import memory
from neuroledger.data.arrays import Array, Booleans, Floats, Indices, Strings, floats
from neuroledger.data.normalise_input import as_text
from neuroledger.data.threads import exclusive, side_by_side
from neuroledger.errors import DataError, MetricError
from neuroledger.models.activations import Recorded, Summary, as_recorded
from neuroledger.stats.groups import names_of
from neuroledger.stats.workspace import Workspace
from neuroledger.store.store import Entry, Written

__all__ = [
    "complete_neuroids",
    "Features",
    "features",
    "Gram",
    "gram",
    "gram_numpy",
    "has_usual_units",
    "inner",
    "mirror_upper",
    "patterns",
    "relative_gram",
    "responses_left",
    "responses_of",
    "ResponsesLeft",
    "rounding",
    "square",
    "tall",
]

# Number of columns centred and multiplied at a time: a block of this width stays in the cache.
BLOCK = 1024
# Number of values per thread task.
PIECE = 1 << 18
# With dtype float32, number of columns whose products are summed in float32 before they are added up in float64.
SINGLE = 2048
# Below this share of features to rows, products with the features are cheaper than with the Gram matrix.
TALL = 0.5
# Root mean square beyond which, or below whose inverse, values may have to be rescaled.
UNUSUAL = 2.0**90
# Sums of squares within these limits can be squared without overflow or underflow.
SMALLEST, LARGEST = 1e-120, 1e120
# Number of multiplications from which a Gram matrix is stored on disk: about a tenth of a second.
WORTH_KEEPING = 4_000_000_000
# Deviations of some rows below this share of those from the means of all rows are rounding errors.
CENTRED = 1e-14
KIND = "grams"
VERSION = 1
ARRAYS = ("K", "mean_product", "row_sum")
# Number of columns per QR step, as a multiple of the number of rows.
QR_BLOCK = 2


@dataclass(frozen=True)
class Gram:
    """``K = X Xᵀ`` of column-centred ``X`` (row × feature), and the terms that recover the uncentred Gram matrix.

    ``offset`` is a number near the mean of all features; it is subtracted so that a large common level costs no digits.
    ``mean_product`` is ``X·μ`` per row and ``mean_square`` is ``|μ|²``, where ``μ`` are the column means minus ``offset``;
    ``row_sum`` is the sum of each uncentred row minus ``offset``. ``count`` is the number of features.
    """

    K: Array
    mean_product: Array
    mean_square: float
    row_sum: Array
    offset: float
    count: int

    @property
    def nbytes(self) -> int:
        """Memory used, in bytes."""
        return int(8 * self.K.shape[0] * self.K.shape[1])

    def on_host(self, workspace: Workspace) -> Gram:
        """Copy to the host, as NumPy arrays."""
        K, product, total = (
            workspace.take(a) for a in (self.K, self.mean_product, self.row_sum)
        )
        return Gram(K, product, self.mean_square, total, self.offset, self.count)

    def among(self, rows: Indices) -> Gram:
        """The Gram matrix of some rows alone, whose features are centred by their own means; on the host.

        It is equal to that of these rows of the features, up to rounding.
        """
        K = self.K[np.ix_(rows, rows)]
        level = self.mean_product[rows]
        # Products of the rows without the offset: only the features' own centring is undone.
        mean = K.mean(axis=0) + level + level.mean() + self.mean_square
        mean_square = float(mean.mean())
        centre = K.mean(axis=0)
        before = float(np.trace(K))
        K = K - (centre + centre[:, None]) + centre.mean()
        if float(np.trace(K)) <= CENTRED * before:
            K[:] = 0.0
        return Gram(
            K,
            mean - mean_square,
            mean_square,
            self.row_sum[rows],
            self.offset,
            self.count,
        )

    def subset(self, rows: Indices) -> Gram:
        """Restrict to ``rows``; features stay centred by the means over all rows."""
        K = self.K[np.ix_(rows, rows)]
        return Gram(
            K,
            self.mean_product[rows],
            self.mean_square,
            self.row_sum[rows],
            self.offset,
            self.count,
        )


@dataclass(frozen=True)
class Features:
    """Column-centred features as the operator ``B → X Xᵀ B``, stored as Gram matrix or as the features themselves.

    Exactly one of ``K`` (row × row) and ``X`` (row × feature) is set.
    """

    count: int
    K: Array | None = None
    X: Array | None = None

    def times(self, B: Array) -> Array:
        """``X Xᵀ B``."""
        if self.K is not None:
            return self.K @ B
        X = cast(Array, self.X)
        return cast(Array, X @ (X.T @ B))

    @property
    def trace(self) -> float:
        """Trace of ``X Xᵀ``: the total squared deviation of the features."""
        return float(
            self.K.diagonal().sum()
            if self.K is not None
            else (cast(Array, self.X) ** 2).sum()
        )

    def times_of(self, rows: Array, B: Array) -> Array:
        """``X X[rows]ᵀ B``, where ``B`` has one row for each of ``rows``."""
        if self.K is not None:
            return self.K[rows].T @ B
        X = cast(Array, self.X)
        return cast(Array, X @ (X[rows].T @ B))

    def block(self, rows: Array, columns: Array) -> Array:
        """Entries of ``X Xᵀ`` at ``rows`` × ``columns``."""
        if self.K is not None:
            return self.K[rows[:, None], columns]
        X = cast(Array, self.X)
        return X[rows] @ X[columns].T


def features(X: Array, workspace: Workspace, key: str | None = None) -> Features:
    """Convert ``X`` (row × feature) for readouts: to its Gram matrix, or centred if it has far fewer columns than rows."""
    rows, count = X.shape
    if count <= TALL * rows:
        recorded = as_recorded(X)
        if recorded is not None:  # one pass for all layers, which stores narrow ones
            _summed_up(recorded, workspace)
        return tall(X, workspace)
    return Features(count, K=gram(X, workspace, key).K)


def tall(X: Array, workspace: Workspace) -> Features:
    """Centre ``X`` (row × feature) without computing a Gram matrix.

    Raises
    ------
    MetricError
        Features are missing or infinite.
    """
    X = np.asarray(X)
    means = _means(X)
    centred = _finite(floats(X) - means, 0)
    # The means of large numbers are rounded; a second pass removes the remainder.
    centred -= centred.mean(axis=0)
    deviation = float((centred * centred).sum())
    if deviation > LARGEST**2:
        _refuse()
    if _idle(deviation, len(X) * float((means**2).sum())):
        centred[:] = 0.0
    return Features(X.shape[1], X=workspace.put(centred))


def square(X: Array, workspace: Workspace, key: str) -> Features:
    """Triangular features (row × row) with the inner products of centred ``X`` (row × feature), cached in the workspace.

    Computed by orthogonal transformations (LQ, in blocks of columns). Unlike in a Gram matrix, nothing is squared:
    directions a million times smaller than the largest keep most of their digits. ``key`` is ``workspace.key(X)``.

    Raises
    ------
    MetricError
        Features are missing or infinite.
    """
    from scipy.linalg import qr

    rows, count = X.shape

    def compute() -> Array:
        R = np.zeros((0, rows))
        deviation = level = 0.0
        values = np.asarray(X)
        for start in range(0, count, QR_BLOCK * rows):
            part = values[:, start : start + QR_BLOCK * rows]
            means = _means(part)
            centred = _finite(floats(part) - means, 0)
            centred -= centred.mean(axis=0)
            deviation += float((centred * centred).sum())
            level += rows * float((means**2).sum())
            R = qr(
                np.concatenate([R, centred.T]),
                mode="r",
                overwrite_a=True,
                check_finite=False,
            )[0][:rows]
        if _idle(deviation, level):
            R[:] = 0.0
        return workspace.put(np.ascontiguousarray(R.T))

    return Features(
        count, X=workspace.once("square", key, compute, lambda _: 8 * rows * rows)
    )


def gram(X: Array, workspace: Workspace, key: str | None = None) -> Gram:
    """Gram matrix of ``X`` (row × feature; an array or a memory map), cached in the workspace by content.

    ``key`` is ``workspace.key(X)``, if already known.

    Features are centred and multiplied in blocks of 1,024 columns, so that only one block and the row × row result are
    in memory in addition to ``X``. With dtype ``float64``, float32 features are converted block by block.

    Raises
    ------
    MetricError
        Features are missing or infinite.
    """
    identity = workspace.key(X) if key is None else key

    recorded = as_recorded(X)

    def compute() -> Gram:
        if recorded is not None:
            return _of_recorded(recorded, workspace)
        return _load_or_compute(X, workspace, identity)

    # A pass takes the lock of the process; another thread may hold it and wait for the memo.
    with nullcontext() if recorded is None else exclusive():
        return cast(
            Gram,
            workspace.once("gram", identity, compute, lambda result: result.nbytes),
        )


def _of_recorded(X: Recorded, workspace: Workspace) -> Gram:
    """Gram matrix of the responses of a layer, from the store or from the pass that sums up all layers."""
    try:
        entry = _summed_up(X, workspace)
        whole = None if entry is None else _read(entry, X.shape[1])
    except FileNotFoundError:  # another process evicted the entry
        whole = None
    if whole is None:
        return _computed(np.asarray(X), workspace)
    if X.rows is not None:
        whole = whole.among(X.rows)
    if workspace.device == "cpu":
        return whole
    K, product, total = map(workspace.put, (whole.K, whole.mean_product, whole.row_sum))
    return replace(whole, K=K, mean_product=product, row_sum=total)


def _summed_up(X: Recorded, workspace: Workspace) -> Entry | None:
    """Entry with the Gram matrix of all rows of a layer; None if its activations are smaller, and are stored instead."""
    recipe = {"version": VERSION, **rounding(workspace)}
    return X.summary(Summary(KIND, recipe, partial(_save_layer, workspace=workspace)))


def _save_layer(X: Array, folder: Path, *, workspace: Workspace) -> Written:
    """As :func:`_save`; a layer whose values are too large to square must not stop the others."""
    try:
        return _save(X, workspace, folder)
    except MetricError:
        return Written({"refused": True})


def _read(entry: Entry, count: int) -> Gram:
    """Gram matrix that :func:`_save` wrote.

    Raises
    ------
    MetricError
        The values were too large to square.
    FileNotFoundError
        Another process removed the entry.
    """
    if entry.about.get("refused"):
        _refuse()
    K, product, total = (
        np.load(entry.place / f"{name}.npy", allow_pickle=False) for name in ARRAYS
    )
    return Gram(
        K, product, entry.about["mean_square"], total, entry.about["offset"], count
    )


def _computed(X: Array, workspace: Workspace) -> Gram:
    if workspace.device == "cpu":
        return gram_numpy(X, workspace)
    return _gram_torch(X, workspace)


def _load_or_compute(X: Array, workspace: Workspace, key: str) -> Gram:
    """Load the Gram matrix from the workspace's store, or compute it and, if that is expensive, store it there."""
    store, (rows, count) = workspace.store, X.shape
    worth = rows * rows * count >= WORTH_KEEPING and rows <= count
    if workspace.device != "cpu" or store is None or not key or not worth:
        return _computed(X, workspace)
    recipe = {"version": VERSION, "features": key, **rounding(workspace)}
    try:
        entry = store.get(KIND, recipe)
        if entry is None and 8 * rows * rows > store.make_room(8 * rows * rows):
            return gram_numpy(X, workspace)
        entry = entry or store.keep(KIND, recipe, partial(_save, X, workspace))
        return _read(entry, count)
    except (
        DataError,
        FileNotFoundError,
    ):  # full or read-only disk, or another process evicted the entry
        return gram_numpy(X, workspace)


def _save(X: Array, workspace: Workspace, folder: Path) -> Written:
    result = _computed(X, workspace).on_host(workspace)
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", getattr(result, name), allow_pickle=False)
    return Written({"mean_square": result.mean_square, "offset": result.offset})


def rounding(workspace: Workspace) -> dict[str, object]:
    """What the rounding of products depends on: precision, libraries and threads, as plain data."""
    return {
        "dtype": workspace.dtype,
        "libraries": _libraries(workspace),
        "threads": workspace.threads,
    }


def _libraries(workspace: Workspace) -> list[str]:
    """What the rounding of a product depends on: the device and version of torch, or the libraries of the processor."""
    if workspace.device == "cpu":
        return _blas()
    torch: Any = workspace.xp
    name = "" if workspace.device == "torch" else torch.cuda.get_device_name()
    return [workspace.device, name, f"torch {torch.__version__}", *_blas()]


def _blas() -> list[str]:
    """Libraries, processor architecture and thread counts, on which the rounding of a product depends."""
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    known = ("filepath", "version", "architecture", "num_threads")
    used = [
        library
        for library in threadpool_info()
        if {"numpy.libs", "scipy.libs"} & set(Path(library["filepath"]).parts)
    ]
    descriptions = sorted(
        "|".join(str(library.get(name)) for name in known)
        for library in used or threadpool_info()
    )
    return [*descriptions, f"numpy {np.__version__}", f"scipy {scipy.__version__}"]


def responses_of(assembly: xr.DataArray) -> Array:
    """Values of an assembly; those of a layer that need not be recorded, because a Gram matrix is enough, stay deferred."""
    recorded = as_recorded(assembly.data)
    return assembly.values if recorded is None else cast(Array, recorded)


def patterns(
    assembly: xr.DataArray, name: str, notes: list[str], *, drop_missing: bool = False
) -> Array:
    """Responses ``(stimulus, neuroid)`` with one row per stimulus, see :func:`responses_of`.

    With ``drop_missing``, neuroids with missing responses are dropped and counted in ``notes``.

    Raises
    ------
    MetricError
        The dimensions are different, a stimulus has several rows, or no neuroid is left.
    """
    if "time_bin" in assembly.dims and assembly.sizes["time_bin"] == 1:
        assembly = assembly.isel(time_bin=0)
    if set(assembly.dims) != {"presentation", "neuroid"}:
        raise MetricError(
            f"{name}: patterns need (presentation, neuroid), not {tuple(assembly.dims)}"
        )
    if "stimulus_id" in assembly.coords:
        ids, count = np.unique(
            as_text(assembly.coords.variables["stimulus_id"].values), return_counts=True
        )
        if count.max() > 1:
            raise MetricError(
                f"{name}: stimulus {str(ids[count.argmax()])!r} has {count.max()} rows, and patterns need one row per "
                "stimulus, or its rows count as different stimuli; average repetitions "
                "(neuroledger.data.assembly.average_repetitions) or select one condition"
            )
    if assembly.dims[0] == "presentation":
        X = responses_of(assembly)
    else:
        X = assembly.values.T
    # Recorded values are finite.
    some_may_miss = drop_missing and as_recorded(X) is None
    if some_may_miss and not (complete := _complete(X)).all():
        notes.append(
            f"{int((~complete).sum())} of {X.shape[1]} neuroids left out: responses are missing"
        )
        X = X[:, complete]
    if not X.shape[1]:
        raise MetricError(
            f"{name}: no neuroid is left; {notes[-1] if notes else 'there are none'}"
        )
    return X


def _complete(X: Array) -> Booleans:
    """Mask of the columns without missing values, found a block of rows at a time."""
    complete = np.ones(X.shape[1], dtype=bool)
    for rows in memory.row_blocks(X):
        complete &= np.isfinite(X[rows]).all(axis=0)
    return complete


def complete_neuroids(
    assembly: xr.DataArray, *, scaled: bool = True
) -> tuple[Strings, Floats]:
    """Names and responses (stimulus, neuroid) of the neuroids that :func:`patterns` keeps.

    ``scaled`` divides responses by a power of two, to magnitudes below 1.
    """
    left = responses_left(assembly, scaled=scaled)
    return left.names, np.ldexp(left.values.astype(np.float64), left.power)


class ResponsesLeft(NamedTuple):
    """Responses of neuroids without missing ones, (stimulus, neuroid), to be multiplied by 2 to the ``power``."""

    names: Strings
    values: Array
    power: int

    def among(self, columns: Booleans) -> Array:
        """The responses of some neuroids, as features of :func:`gram`, which are converted where they are read."""
        chosen = np.flatnonzero(columns)
        return cast(Array, _Columns(self.values, chosen, self.power))

    def gram(self, rows: Booleans, columns: Booleans) -> Floats:
        """Products of the responses to some stimuli, over some neuroids, of which a block is in memory at a time."""
        stimuli = np.flatnonzero(rows)
        neuroids = np.flatnonzero(columns)
        products = np.zeros((len(stimuli), len(stimuli)))
        step = max(1, memory.BLOCK // (8 * max(1, len(stimuli))))
        for start in range(0, len(neuroids), step):
            part = self.values[np.ix_(stimuli, neuroids[start : start + step])]
            part = np.ldexp(part.astype(np.float64), self.power)
            products += part @ part.T
        return products


class _Columns:
    """Chosen columns of an array (row, column) times a power of two: a row or slices of columns are float64 when indexed."""

    def __init__(self, values: Array, columns: Indices, power: int) -> None:
        self._values = values
        self._columns = columns
        self._power = power
        self.shape = (len(values), len(columns))
        self.dtype = np.dtype(np.float64)

    def __getitem__(self, at: int | tuple[slice, slice]) -> Floats:
        rows, columns = at if isinstance(at, tuple) else (at, slice(None))
        part = np.take(self._values[rows], self._columns[columns], axis=-1)
        return np.asarray(np.ldexp(part.astype(np.float64), self._power))

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> Array:
        return np.asarray(self[:, :], dtype=dtype)


def responses_left(assembly: xr.DataArray, *, scaled: bool) -> ResponsesLeft:
    """Return the responses of the neuroids that :func:`patterns` keeps; they are not copied if these are all."""
    if "time_bin" in assembly.dims:
        assembly = assembly.isel(time_bin=0)
    values = np.asarray(assembly.variable.transpose("presentation", "neuroid").values)
    names = names_of(assembly, "neuroid")
    complete = _complete(values)
    if not complete.all():
        values, names = values[:, complete], names[complete]
    largest = max(abs(float(values.max())), abs(float(values.min())))
    power = -int(np.frexp(largest)[1]) if scaled else 0
    return ResponsesLeft(names, values, power)


def has_usual_units(X: Recorded, workspace: Workspace) -> bool:
    """Whether values of a layer need not be rescaled before they are squared, as its Gram matrix shows."""
    try:
        whole = gram(cast(Array, X), workspace).on_host(workspace)
    except MetricError:
        return False
    rows = len(whole.K)
    level = whole.mean_square + whole.count * whole.offset**2
    power = float(np.trace(whole.K)) + rows * level
    return power < UNUSUAL**2 and power / (rows * whole.count) > UNUSUAL**-2


def relative_gram(X: Array, workspace: Workspace, key: str | None = None) -> Gram:
    """Gram matrix on the host, for measures that ignore units: extreme values are rescaled by a power of two.

    Raises
    ------
    MetricError
        Features are missing or infinite.
    """
    try:
        result = gram(X, workspace, key).on_host(workspace)
        trace = float(np.trace(result.K))
        level = result.mean_square + result.count * result.offset**2
        if SMALLEST < trace < LARGEST and level < LARGEST:
            return result
    except MetricError:
        result = None
    values = np.asarray(X)
    largest = float(np.abs(values).max())
    if (
        not np.isfinite(largest)
        or largest == 0
        or (result is not None and 2.0**-100 < largest < 2.0**100)
    ):
        if result is not None:
            return result
        return gram(values, workspace, key).on_host(workspace)
    return gram(
        np.ldexp(floats(values), -int(np.frexp(largest)[1])), workspace
    ).on_host(workspace)


def _means(X: Array) -> Floats:
    return np.asarray(X.mean(axis=0, dtype=np.float64))


def gram_numpy(X: Array, workspace: Workspace) -> Gram:
    """Return the Gram matrix of features (row, feature) on the host, centred in blocks."""
    rows, count = X.shape
    single = workspace.dtype == "float32"
    K = np.zeros((rows, rows), order="F")
    mean_product = np.zeros(rows)
    row_sum = np.zeros(rows)
    mean_square = 0.0
    offset = float(X[0].mean(dtype=np.float64))
    dtype = np.float32 if single else np.float64
    space = np.empty((rows, min(BLOCK, count)), dtype)
    # All products use SciPy's BLAS: the idle threads of NumPy's and SciPy's libraries would compete for the cores.
    times = blas.sgemv if single else blas.dgemv
    size = rows if single else 0
    part_sum = np.zeros((size, size), np.float32, order="F")
    for start in range(0, count, BLOCK):
        part = X[:, start : start + BLOCK]
        block = space[:, : part.shape[1]]
        if not block.flags.c_contiguous:
            block = np.empty(part.shape, space.dtype)
        mean, total = _narrowed(part, block) if single else _widened(part, block)
        mean -= offset
        mean_product += times(1.0, block.T, mean.astype(block.dtype), trans=1)
        row_sum += total + mean.sum()
        mean_square += float(mean @ mean)
        if single:
            fresh = start % SINGLE == 0
            part_sum = blas.ssyrk(
                1.0, block.T, beta=float(not fresh), c=part_sum, trans=1, overwrite_c=1
            )
            if start + BLOCK >= count or (start + BLOCK) % SINGLE == 0:
                _add(K.T, part_sum.T)
        else:
            K = blas.dsyrk(1.0, block.T, beta=1.0, c=K, trans=1, overwrite_c=1)
    mirror_upper(K)
    _finite(K, 0)
    if _idle(float(np.trace(K)), rows * (mean_square + count * offset**2)):
        K[:] = 0.0
    return Gram(K.T, mean_product, mean_square, row_sum, offset, count)


def inner(first: Floats, second: Floats) -> float:
    """Sum of the products of the entries of two arrays, computed by the library that multiplies features.

    NumPy's would wake its own threads, which wait actively for more work and take the cores from the next Gram matrix.
    """
    return float(blas.ddot(first.ravel(), second.ravel()))


def _widened(part: Array, block: Array) -> tuple[Array, Array]:
    """Write ``part`` centred, as float64, to ``block``; returns the subtracted (near-mean) values and the row sums."""
    pieces = _pieces(block)
    side_by_side(lambda piece: np.copyto(block[piece], part[piece]), pieces)
    # The shift need not be the exact mean, as long as the subtracted values are returned.
    mean = blas.dgemv(1.0, block.T, np.full(len(block), 1 / len(block)))
    side_by_side(
        lambda piece: np.subtract(block[piece], mean, out=block[piece]), pieces
    )
    return mean, blas.dgemv(1.0, block.T, np.ones(block.shape[1]), trans=1)


def _narrowed(part: Array, block: Array) -> tuple[Array, Array]:
    """As :func:`_widened`, in float32, with a shift that float32 represents exactly; row sums are float64."""
    mean = np.empty(block.shape[1])
    total = np.empty(len(block))
    side_by_side(
        lambda piece: np.mean(
            part[:, piece], axis=0, dtype=np.float64, out=mean[piece]
        ),
        _pieces(block.T),
    )
    near = mean.astype(np.float32)
    mean = near.astype(np.float64)
    # For float32 features, the float32 difference is correctly rounded, so they need no conversion.
    shift = near if part.dtype == np.float32 else mean

    def centre(piece: slice) -> None:
        np.subtract(part[piece], shift, out=block[piece], casting="same_kind")
        np.sum(block[piece], axis=1, dtype=np.float64, out=total[piece])

    side_by_side(centre, _pieces(block))
    return mean, total


def _add(K: Array, part: Array) -> None:
    side_by_side(lambda piece: np.add(K[piece], part[piece], out=K[piece]), _pieces(K))


def _pieces(values: Array) -> list[slice]:
    """Slices of rows of ``values``, each large enough for a thread."""
    step = max(1, PIECE // values.shape[1])
    return [slice(start, start + step) for start in range(0, len(values), step)]


def _gram_torch(X: Array, workspace: Workspace) -> Gram:
    torch: Any = workspace.xp
    rows, count = X.shape
    device = "cpu" if workspace.device == "torch" else workspace.device
    dtype = torch.float32 if workspace.dtype == "float32" else torch.float64
    K = torch.zeros((rows, rows), dtype=torch.float64, device=device)
    mean_product = torch.zeros(rows, dtype=torch.float64, device=device)
    row_sum = mean_product.clone()
    mean_square = 0.0
    offset = float(X[0].mean(dtype=np.float64))
    for start in range(0, count, BLOCK):
        columns = X[:, start : start + BLOCK]
        # torch accepts native byte order only; a file may have the other one.
        native = np.float32 if columns.dtype == np.float32 else np.float64
        part: Any = workspace.send(np.ascontiguousarray(columns, dtype=native))
        mean = part.to(torch.float64).mean(0).to(dtype)
        block = (part.to(torch.float64) - mean).to(dtype)
        mean = mean.to(torch.float64) - offset
        mean_product += block.to(torch.float64) @ mean
        row_sum += block.to(torch.float64).sum(1) + mean.sum()
        mean_square += float(mean @ mean)
        K += (block @ block.T).to(torch.float64)
    if not bool(torch.isfinite(K).all()):
        _refuse()
    if _idle(float(K.diagonal().sum()), rows * (mean_square + count * offset**2)):
        K.zero_()
    return Gram(K, mean_product, mean_square, row_sum, offset, count)


def mirror_upper(K: Array, block: int = 512) -> None:
    """Copy the upper triangle of ``K`` to the lower one, in place and without a second row × row array."""
    rows = len(K)
    below = np.tri(min(block, rows), k=-1, dtype=bool)

    def mirror(start: int) -> None:
        end = min(rows, start + block)
        corner = K[start:end, start:end]
        np.copyto(corner, corner.T, where=below[: end - start, : end - start])
        K[end:, start:end] = K[start:end, end:].T

    side_by_side(mirror, range(0, rows, block))


def _idle(deviation: float, level: float) -> bool:
    """Whether the squared deviations from the means are only rounding errors of the means."""
    return deviation <= 1e-28 * level


def _finite(values: Array, axis: int) -> Array:
    if not np.isfinite(values.sum(axis=axis)).all():
        _refuse()
    return values


def _refuse() -> None:
    raise MetricError(
        "the source has missing or infinite values, or values too large to square (above 1e150), and every activation is "
        "needed; drop those neuroids or stimuli, or divide all values by a constant"
    )
