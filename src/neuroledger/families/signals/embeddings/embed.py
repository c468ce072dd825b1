"""Embeddings of stimuli by a model of the catalogue: the table of targets for retrieval."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data import assembly
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Session
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.families.signals.embeddings.stimulus_source import Source
from neuroledger.models.embedder import Embedder, Tell
from neuroledger.models.model import LayeredModel, unknown
from neuroledger.models.model import embed as embeddings
from neuroledger.spec.base import canonical

__all__ = ["embed", "require_place", "write_embeddings"]


def embed(
    session: Session,
    model: str,
    source: Source,
    *,
    layer: str | None = None,
    mean: Sequence[int] = (),
    tell: Tell = lambda done: None,
) -> xr.DataArray:
    """Embeddings of the stimuli by model `model`, float32 (stimulus, feature); attributes record how they were computed.

    Parameters
    ----------
    layer
        A layer of the model; required if it has several. For an embedder: hidden states, such as `8` or `22,24`, instead
        of those in its spec.
    mean
        Axes of the layer that are averaged, 1 being the first after the stimulus: `[1]` for tokens (stimulus, token,
        feature), `[2, 3]` for the maps of a convolution. The remaining axes are flattened.
    tell
        Called with the number of stimuli embedded so far.

    Raises
    ------
    RequestError
        The layer or axis does not exist, or the table does not fit the model.
    DataError
        A stimulus cannot be read, or is shorter than its requested section.
    ModelError
        The model has no layers, or its answers are not finite.
    """
    built = model_of(session, model)
    if isinstance(built, Embedder):
        values, attributes = _embedded(built, source, layer, mean, tell)
    elif isinstance(built, LayeredModel):
        values, attributes = _of_layer(built, source, layer, mean)
    else:
        raise ModelError(
            f"model {model!r} makes no embeddings: it has no layers, and its builder does not make an embedder"
        )
    table = np.asarray(values, dtype=np.float32).reshape(len(values), -1)
    if not np.isfinite(table).all():
        first_invalid = source.table["stimulus_id"].iloc[
            int(np.argmin(np.isfinite(table).all(axis=1)))
        ]
        raise ModelError(
            f"model {model!r}: the embedding of stimulus {first_invalid!r} is not finite"
        )
    return xr.DataArray(
        table,
        dims=("stimulus", "feature"),
        coords={
            "stimulus_id": (
                "stimulus",
                source.table["stimulus_id"].to_numpy().astype(str),
            )
        },
        attrs={"model": model, **attributes, "stimuli_sha256": source.content_sha256},
    )


def _embedded(
    built: Embedder, source: Source, layer: str | None, mean: Sequence[int], tell: Tell
) -> tuple[Any, dict[str, str]]:
    if mean:
        raise RequestError(
            f"--mean is for layers: the spec of model {built.id!r} declares what it averages"
        )
    if layer is None:
        requested = None
    else:
        requested = _states(layer, built)
    result = embeddings(built, source.shown(built.shown), requested, tell)
    states = requested if requested is not None else built.described.get("states", ())
    attributes = {
        "layer": ",".join(map(str, states)) or "vectors",
        "embedder": canonical(dict(built.described)),
    }
    return result.rows, attributes | (
        {"notes": "; ".join(result.notes)} if result.notes else {}
    )


def _states(layer: str, built: Embedder) -> tuple[int, ...]:
    try:
        return tuple(map(int, layer.split(",")))
    except ValueError:
        raise RequestError(
            f"--layer {layer}: model {built.id!r} has hidden states by number, from 0: --layer 8, or 22,24 for their mean"
        ) from None


def _of_layer(
    built: LayeredModel, source: Source, layer: str | None, mean: Sequence[int]
) -> tuple[Any, dict[str, str]]:
    layer = _known_layer(built, layer)
    stimuli = source.images()
    values = np.asarray(built.activations(stimuli, [layer])[layer])
    if len(values) != len(stimuli):
        values = values.reshape(-1, len(stimuli), *values.shape[1:]).mean(axis=0)
    invalid = sorted(axis for axis in mean if not 0 < axis < values.ndim)
    if invalid or len(set(mean)) != len(mean):
        raise RequestError(
            f"layer {layer!r} is (stimulus, …) of shape {values.shape}: axes to average are among 1 to "
            f"{values.ndim - 1}, each once"
        )
    attributes = {"layer": layer, "mean": ",".join(map(str, mean))}
    if isinstance(built.identity, Mapping):
        attributes["embedder"] = canonical(dict(built.identity))
    if mean:
        values = values.mean(axis=tuple(mean), dtype=np.float64)
    return values, attributes


def _known_layer(built: LayeredModel, layer: str | None) -> str:
    """The layer, by default the only one of the model."""
    if layer is None:
        if len(built.layers) != 1:
            raise RequestError(
                f"--layer is needed: model {built.id!r} has {', '.join(built.layers)}"
            )
        return built.layers[0]
    if layer not in built.layers:
        raise RequestError(f"no {unknown('layer', layer, built.layers)}")
    return layer


def require_place(path: Path) -> None:
    """Return if embeddings can be written to this file; call it before computing them, which may take hours.

    Raises
    ------
    RequestError
        The name does not end in .nc, or its folder does not exist or is not writable.
    """
    if path.suffix != ".nc" or not path.parent.is_dir() or path.is_dir():
        raise RequestError(
            f"{path}: embeddings are written to a file that ends in .nc, in an existing folder"
        )
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise RequestError(
            f"{path} cannot be written ({error.strerror}): choose a writable folder"
        ) from error


def write_embeddings(table: xr.DataArray, path: Path) -> None:
    """Write the table as netCDF, for the `embeddings` of a reader; an existing file is replaced atomically.

    Raises
    ------
    RequestError
        As `require_place`, or the disk is full.
    """
    require_place(path)
    try:
        assembly.write(table, path)
    except DataError as error:
        raise RequestError(
            f"{error}; the table takes up to {table.nbytes / 1e6:.0f} MB"
        ) from error
