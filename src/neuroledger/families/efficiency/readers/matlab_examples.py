"""Reader of regression examples in one MATLAB file: binned neurons, and outputs to be predicted, in parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.arrays import Floats, floats
from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import matlab
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

__all__ = ["matlab_examples"]


@reader("matlab_examples", version=1)
def matlab_examples(
    files: Mapping[str, Path],
    *,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    condition: Mapping[str, str] | None = None,
    width: PositiveFloat = 1.0,
) -> Dataset:
    """Read an assembly ``(presentation, neuroid, time_bin)`` with one bin, ``output_0``, ``output_1``, … and ``split``.

    Parameters
    ----------
    files
        One MATLAB file (version 7.2 or older).
    inputs, outputs
        The variables ``(bin, neuron)`` and ``(bin, output)`` of each part (train, test, …).
    condition
        A variable ``(bin,)`` of each part, such as the target of a reach.
    width
        Width of a bin, in ms.

    Raises
    ------
    DataError
        There is not exactly one file, a variable is missing, or shapes do not match.
    """
    if len(files) != 1:
        raise DataError(
            f"examples are read from one MATLAB file, not from {len(files)}"
        )
    path = next(iter(files.values()))
    variables = matlab(path)
    if set(inputs) != set(outputs) or (
        condition is not None and set(condition) != set(inputs)
    ):
        raise DataError("inputs, outputs and conditions must name the same parts")
    x = {part: _variable(variables, name, path) for part, name in inputs.items()}
    y = {part: _variable(variables, name, path) for part, name in outputs.items()}
    for part in inputs:
        if len(x[part]) != len(y[part]):
            raise DataError(
                f"{path.name}: {len(x[part])} inputs and {len(y[part])} outputs of part {part!r}"
            )
    for unit, arrays in (("neurons", x), ("outputs", y)):
        widths = {part: values.shape[1] for part, values in arrays.items()}
        if len(set(widths.values())) > 1:
            raise DataError(
                f"{path.name}: parts have different numbers of {unit}, {widths}: no model fits both"
            )
    truth = np.concatenate(list(y.values()))
    coords: dict[str, object] = {
        f"output_{i}": ("presentation", truth[:, i]) for i in range(truth.shape[1])
    }
    if condition is not None:
        conditions = [
            _variable(variables, name, path).ravel() for name in condition.values()
        ]
        if list(map(len, conditions)) != list(map(len, x.values())):
            raise DataError(f"{path.name}: conditions and inputs differ in number")
        coords["condition"] = ("presentation", np.concatenate(conditions))
    values = np.concatenate(list(x.values()))[:, :, None]
    ids = [
        f"{part}_{number:05d}"
        for part, arrays in x.items()
        for number in range(len(arrays))
    ]
    assembly = xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", ids),
            "split": (
                "presentation",
                np.repeat(list(x), list(map(len, x.values()))),
            ),
            **coords,
            "neuroid_id": (
                "neuroid",
                [f"unit_{number:03d}" for number in range(values.shape[1])],
            ),
            "time_bin_start": ("time_bin", [0.0]),
            "time_bin_end": ("time_bin", [width]),
        },
    )
    return Dataset(stimuli=None, assembly=assembly)


def _variable(variables: Mapping[str, object], name: str, path: Path) -> Floats:
    if name not in variables or getattr(variables[name], "ndim", 0) != 2:
        names = ", ".join(sorted(key for key in variables if not key.startswith("__")))
        raise DataError(f"{path.name} has no matrix {name!r}; it has {names}")
    return floats(variables[name])
