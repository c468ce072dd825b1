"""From what a caller calls splits (a rule, a number, a file, row numbers, a splitter) to folds and what must be apart."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import TypeAdapter, ValidationError

from neuroledger.errors import RequestError
from neuroledger.families.decoding.protocols.leakage_checks import partition_sha256, read_partition
from neuroledger.families.decoding.protocols.splits import Fold, SplitRule, draw_folds

__all__ = ["Partition", "Splits", "partition"]

Array = npt.NDArray[Any]
Splits = Any
"""A rule or its name, a number of folds, a path, (train[, validation], test) row numbers, or a scikit-learn splitter."""


class Partition(NamedTuple):
    """Folds, the coordinates that may not have a value on both sides, and the gates that a rule waives itself."""

    folds: list[Fold]
    apart: tuple[str, ...]
    waived: tuple[str, ...]


def partition(splits: Splits, assembly: xr.DataArray, truth: Array, *, grouped: bool) -> Partition:
    """The folds over the rows of `assembly`.

    Parameters
    ----------
    splits
        See `neuroledger.decode`. None: one subject at a time where `grouped`, else five contiguous blocks.
    truth
        What the rows show; handed to a splitter.
    grouped
        Whether the caller named the groups that are to stay together; they then must in every partition that is
        not drawn by a rule of its own.

    Raises
    ------
    RequestError
        This is no partition, or not the pinned one.
    DataError
        A coordinate or key is missing.
    """
    if splits is None:
        splits = "cross_subject" if grouped else 5
    if isinstance(splits, (bool, float, np.bool_)):
        raise RequestError(
            f"splits is {splits!r}: give a number of folds, a rule, a file, row numbers or a scikit-learn splitter"
        )
    if isinstance(splits, (int, np.integer)):
        splits = {"name": "cross_subject" if grouped else "blocked", "folds": int(splits)}
    if isinstance(splits, str):
        splits = Path(splits) if splits.endswith(".json") else {"name": splits}
    apart = ("subject",) if grouped else ()
    if isinstance(splits, Mapping):
        drawn = _by_rule(splits, assembly)
        return drawn._replace(apart=apart) if splits.get("name") == "random" else drawn
    if isinstance(splits, Path):
        keys = [str(row) for row in range(assembly.sizes["presentation"])]
        if not splits.is_file():
            raise RequestError(f"splits: there is no file {splits}")
        return Partition(read_partition(splits, keys), apart, ())
    if hasattr(splits, "split"):
        people = assembly["subject"].values.astype(str)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The groups parameter is ignored")
            try:
                splits = list(splits.split(np.zeros((len(truth), 1)), truth, people))
            except ValueError as error:
                raise RequestError(
                    f"splits: {type(splits).__name__} cannot divide these windows: {error}"
                ) from error
    try:
        listed = [_fold(parts) for parts in splits]
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"splits: each is (train, test) or (train, validation, test) row numbers ({error})"
        ) from error
    return Partition(listed, apart, ())


def _by_rule(fields: Mapping[str, Any], assembly: xr.DataArray) -> Partition:
    try:
        rule = TypeAdapter[Any](SplitRule).validate_python(dict(fields))
    except ValidationError as error:
        words = "; ".join(
            f"{'.'.join(map(str, item['loc'][1:])) or 'name'}: {item['msg']}"
            for item in error.errors(include_url=False)
        )
        raise RequestError(f"splits: {words}") from None
    folds = draw_folds(rule, assembly)
    found = partition_sha256(folds, [str(row) for row in range(assembly.sizes["presentation"])])
    if rule.sha256 is not None and rule.sha256 != found:
        raise RequestError(f"splits: the partition's SHA-256 is {found}, pinned is {rule.sha256}")
    return Partition(folds, rule.disjoint, rule.waive)


def _fold(parts: Sequence[Sequence[int] | Array]) -> Fold:
    rows = [np.asarray(part) for part in parts]
    if len(rows) not in (2, 3):
        raise RequestError("splits: each is (train, test) or (train, validation, test) row numbers")
    for part in rows:
        if part.ndim != 1 or (part.size and part.dtype.kind not in "iub"):
            raise TypeError(f"{part.dtype} of shape {part.shape} are no row numbers")
    rows = [np.flatnonzero(part) if part.dtype.kind == "b" else part.astype(np.intp) for part in rows]
    return Fold(rows[0], rows[1] if len(rows) == 3 else np.empty(0, dtype=np.intp), rows[-1])
