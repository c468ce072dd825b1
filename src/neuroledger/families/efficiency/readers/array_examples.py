"""Reader of labelled examples in NumPy files: an array of examples and an array of classes for each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from neuroledger.data.arrays import Array
from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

__all__ = ["Part", "array_examples"]


class Part(BaseModel):
    """The location of a part's examples and classes: files, or arrays of an archive as ``FILE.npz:NAME``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    examples: Annotated[str, Field(min_length=1)]
    classes: Annotated[str, Field(min_length=1)]


@reader("array_examples", version=1)
def array_examples(
    files: Mapping[str, Path],
    *,
    parts: Mapping[str, Part],
    classes: Sequence[str],
    axes: Literal["time first", "channel first"] = "time first",
    step: PositiveFloat = 1.0,
) -> Dataset:
    """Read an assembly ``(presentation, neuroid, time_bin)`` of 32-bit numbers, with ``label`` and ``split``.

    Parameters
    ----------
    files
        ``.npy`` files, or ``.npz`` archives of arrays.
    parts
        The examples ``(example, time, channel)`` and classes of each part (train, test, …). Classes are numbers from 0
        ``(example,)``, or one column for each class ``(example, class)``, of which the largest value counts.
    classes
        Names of the classes, in the order of their numbers.
    axes
        Whether the second axis of the examples is time or channels.
    step
        Interval between samples, in ms.

    Raises
    ------
    DataError
        A file or an array is missing, damaged or of another shape, values are not finite, or a class has no name.
    """
    class_names = np.asarray(classes, dtype=object)
    values = []
    labels = []
    split = []
    ids = []
    for part, names in parts.items():
        x = _array(files, names.examples)
        y = _array(files, names.classes)
        if x.ndim != 3 or x.dtype.kind not in "fiu" or len(x) != len(y):
            raise DataError(
                f"{names.examples} is {x.shape} {x.dtype} with {len(y)} classes, not numbers (example, time, channel)"
            )
        if not np.isfinite(x).all():
            raise DataError(
                f"{names.examples} has {int((~np.isfinite(x)).sum())} values that are not finite"
            )
        numbers = y.argmax(axis=1) if y.ndim == 2 else y
        if (
            y.ndim > 2
            or (y.ndim == 2 and y.shape[1] != len(class_names))
            or numbers.dtype.kind not in "iu"
        ):
            raise DataError(
                f"{names.classes} is {y.shape} {y.dtype}, not one of {len(class_names)} classes for each example"
            )
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(class_names):
            raise DataError(
                f"{names.classes} has the classes {numbers.min()} to {numbers.max()}, and {len(class_names)} have names"
            )
        values.append(
            np.asarray(
                x if axes == "channel first" else x.swapaxes(1, 2), dtype=np.float32
            )
        )
        labels.append(class_names[numbers])
        split += [part] * len(x)
        ids += [f"{part}_{number:06d}" for number in range(len(x))]
    shapes = {array.shape[1:] for array in values}
    if len(shapes) != 1:
        raise DataError(
            f"parts have examples of {len(shapes)} shapes (channel, time): {sorted(shapes)}"
        )
    examples = np.concatenate(values)
    starts = np.arange(examples.shape[2]) * step
    return Dataset(
        stimuli=None,
        assembly=xr.DataArray(
            examples,
            dims=("presentation", "neuroid", "time_bin"),
            coords={
                "stimulus_id": ("presentation", ids),
                "label": ("presentation", np.concatenate(labels)),
                "split": ("presentation", split),
                "neuroid_id": (
                    "neuroid",
                    [f"channel_{number:03d}" for number in range(examples.shape[1])],
                ),
                "time_bin_start": ("time_bin", starts),
                "time_bin_end": ("time_bin", starts + step),
            },
        ),
    )


def _array(files: Mapping[str, Path], where: str) -> Array:
    name, _, member = where.partition(":")
    if name not in files:
        raise DataError(
            f"{name} is not among the files; there are {', '.join(sorted(files)) or 'none'}"
        )
    with parsing(name, "NumPy arrays"):
        content = np.load(files[name], allow_pickle=False)
        if not member and isinstance(content, np.ndarray):
            return content
        if isinstance(content, np.ndarray) or member not in content:
            contents = (
                "one array"
                if isinstance(content, np.ndarray)
                else f"the arrays {', '.join(content)}"
            )
            raise DataError(
                f"{name} contains {contents}, not {member or 'a single one: name one as FILE.npz:NAME'!r}"
            )
        array: Array = content[member]
    return array
