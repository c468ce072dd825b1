"""Models whose responses are read from a pinned file, with one row per stimulus id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.data import assembly as assemblies
from neuroledger.data.arrays import Array
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError, RequestError
from neuroledger.models.activations import Store, Trial
from neuroledger.models.model import LayeredModel, of_layers, unknown
from neuroledger.models.torch_weights import weights_identity
from neuroledger.spec.channels import STIMULI
from neuroledger.spec.registry import builder

VERSION = 1


@builder(
    "precomputed",
    version=VERSION,
    takes=STIMULI,
    gives=partial(of_layers, dynamics=True),
)
def precomputed(
    *,
    id: str,
    file: str | None = None,
    stimulus_ids: str | None = None,
    weights: Mapping[str, Path] | None = None,
    regions: Mapping[str, str | tuple[str, ...]] | None = None,
    readout: str | None = None,
    visual_degrees: float | None = None,
    store: Store | None = None,
) -> LayeredModel:
    """Create a model that answers with the rows of a file.

    Parameters
    ----------
    file
        Key of the file with the responses in ``weights``, if there are several. A netCDF assembly
        (presentation × neuroid[× time_bin]) has one layer per value of the neuroid coordinate ``layer``, or else
        ``region``; without either, it is one layer ``features``. A ``.npy`` array (stimulus, …) is one layer ``features``.
    stimulus_ids
        For a ``.npy`` array: key in ``weights`` of the text file with one stimulus id per line.

    Raises
    ------
    ModelError
        The file is missing or of another kind, or has no row or several rows for a stimulus.
    """
    files = dict(weights or {})
    path = _file_named(files, file, id)
    responses = confined(
        lambda: _read(path, files, stimulus_ids, id),
        limits_for(files.values()),
        f"model {id!r}",
    )
    return from_assembly(
        responses,
        id=id,
        regions=regions or {},
        readout=readout,
        visual_degrees=visual_degrees,
        identity={
            "builder": "precomputed",
            "version": VERSION,
            "file": file,
            "weights": weights_identity(files),
        },
        store=store,
    )


def from_assembly(
    responses: xr.DataArray,
    *,
    id: str,
    regions: Mapping[str, str | tuple[str, ...]],
    readout: str | None = None,
    visual_degrees: float | None = None,
    identity: Mapping[str, object] | None = None,
    store: Store | None = None,
) -> LayeredModel:
    """Create a model that answers with the rows of an assembly (presentation × neuroid[ × time_bin]), one per stimulus.

    If ``regions`` is empty and there are several layers, each layer is committed to the region of the same name.
    """
    ids = list(map(str, responses["stimulus_id"].values))
    positions = {name: row for row, name in enumerate(ids)}
    if len(positions) < len(ids):
        raise ModelError(
            f"model {id!r}: its responses have several rows for one stimulus; average them first"
        )
    parts = _layers(responses)
    bins = None
    if "time_bin" in responses.dims:
        edges = zip(
            responses["time_bin_start"].values,
            responses["time_bin_end"].values,
            strict=True,
        )
        bins = tuple((float(start), float(end)) for start, end in edges)

    def extract(
        stimuli: StimulusSet,
        stimulus_ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
    ) -> dict[str, Array]:
        missing = [name for name in stimulus_ids if name not in positions]
        if missing:
            raise RequestError(
                f"model {id!r} was computed for other stimuli: it has no {unknown('stimulus', missing[0], ids)}"
            )
        rows = [positions[name] for name in stimulus_ids]
        return {layer: parts[layer][rows] for layer in layers}

    committed = dict(regions) or (
        {name: name for name in parts} if len(parts) > 1 else {}
    )
    return LayeredModel(
        id=id,
        takes=STIMULI,
        extract=extract,
        layers=tuple(parts),
        regions=committed,
        readout=readout,
        visual_degrees=visual_degrees,
        identity=identity,
        times=bins,
        store=store,
    )


def _layers(responses: xr.DataArray) -> dict[str, Array]:
    """Return layer → (presentation, neuroid), or (presentation, time_bin, neuroid)."""
    timed = "time_bin" in responses.dims
    ordered = responses.transpose(
        "presentation", *(["time_bin"] if timed else []), "neuroid"
    )
    name = next(
        (name for name in ("layer", "region") if name in responses.coords), None
    )
    if name is None:
        return {"features": ordered.values}
    layers = responses[name].values.astype(str)
    return {
        layer: ordered.values[..., layers == layer]
        for layer in dict.fromkeys(layers.tolist())
    }


def _read(
    path: Path, files: Mapping[str, Path], stimulus_ids: str | None, model: str
) -> xr.DataArray:
    if path.suffix == ".nc":
        return assemblies.check(assemblies.read(path), name=f"model {model!r}")
    if path.suffix != ".npy":
        raise ModelError(
            f"model {model!r}: {path.name} is neither a netCDF assembly (.nc) nor an array (.npy)"
        )
    if stimulus_ids is None:
        raise ModelError(
            f"model {model!r}: an array needs `stimulus_ids`, a file with one id per line"
        )
    ids = _file_named(files, stimulus_ids, model).read_text(encoding="utf-8").split()
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ModelError(
            f"model {model!r}: {path.name} is not a complete array ({error}): it is damaged or incomplete"
        ) from error
    if values.ndim < 2 or len(values) != len(ids):
        raise ModelError(
            f"model {model!r}: {path.name} has the shape {values.shape}, but there are {len(ids)} stimulus ids"
        )
    flat = values.reshape(len(values), -1)
    names = [f"{model}.{number}" for number in range(flat.shape[1])]
    return xr.DataArray(
        flat,
        dims=("presentation", "neuroid"),
        coords={"stimulus_id": ("presentation", ids), "neuroid_id": ("neuroid", names)},
    )


def _file_named(files: Mapping[str, Path], name: str | None, model: str) -> Path:
    """Return the file with the key ``name``, or the only file."""
    if name is None and len(files) == 1:
        return next(iter(files.values()))
    if name is None:
        raise ModelError(
            f"model {model!r}: name the `file` to read, one of {', '.join(sorted(files)) or 'its weights (none)'}"
        )
    if name not in files:
        raise ModelError(
            f"model {model!r}: no {unknown('file', name, sorted(files))} among its weights"
        )
    return files[name]
