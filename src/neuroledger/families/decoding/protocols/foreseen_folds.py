"""What a benchmark of decoding needs of its data, and how it divides their recordings, before the data are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from pydantic import TypeAdapter

from neuroledger.families.decoding.protocols.splits import SplitRule, draw_folds
from neuroledger.spec.components import Place

__all__ = ["divided_recordings", "needed_coordinates"]

# Fields of a rule that name coordinates.
NAMING = ("by", "column", "stratify", "trial")
# Rules that divide recordings as a whole.
WHOLE = frozenset({"cross_subject", "cross_session", "declared"})


def needed_coordinates(values: Mapping[str, Any]) -> dict[Place, str]:
    """The coordinates that are decoded, and those by which the rule divides windows, by the fields that name them."""
    target = values.get("target", "label")
    if isinstance(target, str):
        names = [target]
    else:
        names = list(target)
    needed: dict[Place, str] = {
        ("target",) if isinstance(target, str) else ("target", number): name
        for number, name in enumerate(names)
    }
    splits = values.get("splits") or {}
    for field in NAMING:
        if splits.get(field):
            needed["splits", field] = splits[field]
    if splits.get("name") == "declared" and "column" not in splits:
        needed["splits", "name"] = "split"
    for number, name in enumerate(splits.get("apart") or ()):
        needed["splits", "apart", number] = name
    validation = splits.get("validation") or {}
    if validation.get("by"):
        needed["splits", "validation", "by"] = validation["by"]
    return needed


def divided_recordings(
    values: Mapping[str, Any], recordings: Sequence[Mapping[str, str]]
) -> list[tuple[list[int], list[int]]]:
    """The numbers of the recordings that each fold trains on, or validates by, and tests.

    None if the rule divides recordings, or waives the gate of copies, which every score then states.

    Raises
    ------
    DataError
        The recordings lack a coordinate, or are too few for the rule.
    RequestError
        The rule contradicts itself.
    """
    if not recordings or (values.get("splits") or {}).get("name") not in WHOLE:
        return []
    rule = TypeAdapter(SplitRule).validate_python(values["splits"])
    if "duplicates" in rule.waive:
        return []
    common = set.intersection(*(set(item) for item in recordings))
    coords: dict[str, Any] = {
        name: ("presentation", np.array([item[name] for item in recordings]))
        for name in common
    }
    coords["onset"] = ("presentation", np.zeros(len(recordings)))
    table = xr.DataArray(
        np.zeros((len(recordings), 1, 1)),
        dims=("presentation", "channel", "sample"),
        coords=coords,
        attrs={"sampling_rate": 1.0},
    )
    folds = draw_folds(rule, table, values.get("train", "pooled"))
    return [
        (np.concatenate([fold.train, fold.validation]).tolist(), fold.test.tolist())
        for fold in folds
    ]
