"""Scores as plain data and back: every number with all its bits, every array with its labels."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.facts import Fact
from neuroledger.stats.score import Score, Varies
from neuroledger.stats.uncertainty import Part, Uncertainty

__all__ = ["plain_score", "plain_uncertainty", "score_of", "text_of", "uncertainty_of"]

NUMBERS_AND_TEXTS: Final = "fiubU"
"""Kinds of arrays of which the bytes are kept."""
OTHERS: Final = {"limits", "ceiling", "facts", "samples", "predictions", "varies"}
AS_THEY_ARE: Final = tuple(
    field.name for field in fields(Score) if field.name not in OTHERS
)


def text_of(plain: object) -> str:
    """Return plain data and arrays as JSON.

    Raises
    ------
    TypeError
        They contain something else, such as an array of objects that are not texts.
    """
    return json.dumps(plain, default=_plain)


def plain_score(score: Score) -> dict[str, object]:
    """Return a score as plain data and arrays, but how it varies; of its ceiling with its uncertainty."""
    ceiling = score.ceiling
    plain = {name: getattr(score, name) for name in AS_THEY_ARE}
    plain["n"] = dict(score.n)
    plain["limits"] = list(score.limits)
    plain["facts"] = {name: fact.to_dict() for name, fact in score.facts.items()}
    plain["samples"] = _plain_assembly(score.samples)
    plain["predictions"] = _plain_assembly(score.predictions)
    plain["ceiling"] = None
    if ceiling is not None:
        plain["ceiling"] = plain_score(ceiling)
        plain["of_ceiling"] = plain_uncertainty(ceiling.uncertainty)
    return plain


def score_of(plain: Mapping[str, Any], varies: Varies | Uncertainty | None) -> Score:
    """Return the score of plain data, which varies as given."""
    ceiling = plain["ceiling"]
    if ceiling is not None:
        ceiling = score_of(ceiling, uncertainty_of(plain["of_ceiling"]))
    low, high = plain["limits"]
    return Score(
        **{name: plain[name] for name in AS_THEY_ARE},
        limits=(low, high),
        facts={name: Fact(**fact) for name, fact in plain["facts"].items()},
        samples=_assembly(plain["samples"]),
        predictions=_assembly(plain["predictions"]),
        ceiling=ceiling,
        varies=varies,
    )


def plain_uncertainty(known: Uncertainty | None) -> dict[str, object] | None:
    """Return an uncertainty as plain data and arrays; None if it is not known."""
    if known is None:
        return None
    parts = [
        {
            "population": part.population,
            "over": part.over,
            "keys": part.keys,
            "values": part.values,
            "freedom": part.freedom,
        }
        for part in known.parts
    ]
    return {
        "parts": parts,
        "items": dict(known.items),
        "scale": known.scale,
        "outcome": known.outcome,
        "method": known.method,
    }


def uncertainty_of(plain: Mapping[str, Any] | None) -> Uncertainty | None:
    """Return the uncertainty of plain data."""
    if plain is None:
        return None
    parts = tuple(
        Part(
            part["population"],
            tuple(part["over"]),
            tuple(part["keys"]),
            _array(part["values"]),
            part["freedom"],
        )
        for part in plain["parts"]
    )
    return Uncertainty(**{**plain, "parts": parts})


def _plain_assembly(assembly: xr.DataArray | None) -> dict[str, object] | None:
    if assembly is None:
        return None
    coords = {
        str(name): [list(coord.dims), coord.values]
        for name, coord in assembly.coords.items()
    }
    return {
        "dims": list(assembly.dims),
        "values": assembly.values,
        "coords": coords,
        "attrs": dict(assembly.attrs),
        "name": assembly.name,
    }


def _assembly(plain: Mapping[str, Any] | None) -> xr.DataArray | None:
    if plain is None:
        return None
    coords = {
        name: (dims, _array(values)) for name, (dims, values) in plain["coords"].items()
    }
    return xr.DataArray(
        _array(plain["values"]),
        coords,
        plain["dims"],
        name=plain["name"],
        attrs=plain["attrs"],
    )


def _plain(value: object) -> object:
    """Return a number or an array of NumPy as plain data."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} is not plain data")
    return _plain_array(value)


def _plain_array(values: Array) -> dict[str, object]:
    plain: dict[str, object] = {"dtype": values.dtype.str, "shape": list(values.shape)}
    if values.dtype.kind in NUMBERS_AND_TEXTS:
        content = np.ascontiguousarray(values).tobytes()
        return {**plain, "bytes": base64.b64encode(content).decode()}
    texts = values.ravel().tolist()
    if any(type(text) is not str for text in texts):
        raise TypeError(f"values of type {values.dtype} are not plain data")
    return {**plain, "texts": texts}


def _array(plain: Mapping[str, Any]) -> Array:
    kind = np.dtype(plain["dtype"])
    if "texts" in plain:
        values = np.array([*plain["texts"], None], dtype=object)[:-1]
    else:
        content = bytearray(base64.b64decode(plain["bytes"]))
        values = np.frombuffer(content, dtype=kind, count=math.prod(plain["shape"]))
    return values.reshape(plain["shape"])
