"""Simulated MATLAB recordings in the layouts of public sets; version 5 is written by SciPy, 7.3 by h5py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.io import savemat

__all__ = ["cells", "hdf5", "mat5", "structs"]


def mat5(path: Path, **variables: Any) -> Path:
    """A file of version 5: dicts become structs, lists of dicts struct arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, variables, oned_as="column")
    return path


def structs(items: Sequence[Mapping[str, Any]]) -> Any:
    """A 1 × n struct array."""
    made = np.empty((1, len(items)), dtype=[(name, object) for name in items[0]])
    for number, item in enumerate(items):
        for name, value in item.items():
            made[0, number][name] = value
    return made


def cells(items: Sequence[Any]) -> Any:
    """A 1 × n cell array."""
    made = np.empty((1, len(items)), dtype=object)
    for number, item in enumerate(items):
        made[0, number] = item
    return made


def hdf5(path: Path, **variables: Any) -> Path:
    """A file of version 7.3: groups, reversed axes, text as numbers, cells and struct arrays as references."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            _put(file, file, name, value)
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


def _put(file: Any, group: Any, name: str, value: Any) -> Any:
    if isinstance(value, dict):
        node = group.create_group(name)
        node.attrs["MATLAB_class"] = np.bytes_("struct")
        for field, inner in value.items():
            _put(file, node, field, inner)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        node = group.create_group(name)
        node.attrs["MATLAB_class"] = np.bytes_("struct")
        for field in value[0]:
            references = [_aside(file, item[field]) for item in value]
            node.create_dataset(
                field, data=np.array(references, dtype=h5py.ref_dtype)[:, None]
            )
    elif isinstance(value, list):
        references = [_aside(file, item) for item in value]
        node = group.create_dataset(
            name, data=np.array(references, dtype=h5py.ref_dtype)[:, None]
        )
        node.attrs["MATLAB_class"] = np.bytes_("cell")
    elif isinstance(value, str):
        node = group.create_dataset(
            name, data=np.array([ord(one) for one in value], dtype="<u2")[:, None]
        )
        node.attrs["MATLAB_class"] = np.bytes_("char")
    else:
        stored = np.atleast_2d(np.asarray(value, dtype=float))
        node = group.create_dataset(name, data=stored.T, compression="gzip")
        node.attrs["MATLAB_class"] = np.bytes_("double")
    return node


def _aside(file: Any, value: Any) -> Any:
    refs = file.require_group("#refs#")
    return _put(file, refs, f"r{len(refs)}", value).ref
