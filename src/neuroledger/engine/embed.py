"""Embeddings of images by a model of the catalog: the table that retrieval looks for, made of a pinned model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.core import assembly
from neuroledger.core.model import LayeredModel, unknown
from neuroledger.core.stimuli import StimulusSet, read_table
from neuroledger.engine.session import Session
from neuroledger.errors import DataError, ModelError, RequestError

__all__ = ["embed", "images_in", "write_embeddings"]

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"})


@dataclass(frozen=True)
class _Folder(Mapping[str, bytes]):
    """Files of a folder by their names, read when they are asked for."""

    folder: Path
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise DataError(f"{self.folder / name} cannot be read ({error.strerror})") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return (self.folder / str(name)).is_file()


def images_in(folder: Path, table: Path | None = None, *, by_name: bool = False) -> StimulusSet:
    """The images below a folder, called by their path in it, or as a CSV table (`stimulus_id`, `filename`) calls them.

    `by_name` calls them by the name of the file alone.

    Raises
    ------
    RequestError
        There are none, two have one name, or the table names files that are not there.
    """
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder: name the one that holds the images")
    there = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGES and path.is_file()
    )
    if not there:
        raise RequestError(f"{folder} holds no images ({', '.join(sorted(IMAGES))})")
    if table is None:
        ids = [PurePosixPath(name).name if by_name else name for name in there]
        twice = sorted(name for name, count in Counter(ids).items() if count > 1)
        if twice:
            raise RequestError(
                f"{folder} holds {len(twice)} names of images twice, first {twice[0]}: use paths"
            )
        frame = pd.DataFrame({"stimulus_id": ids, "filename": there})
    else:
        frame = read_table(table)
        if "filename" not in frame.columns:
            raise RequestError(
                f"{table} has no column 'filename'; it has {', '.join(map(str, frame.columns))}"
            )
        lost = sorted(set(frame["filename"].astype(str)) - set(there))
        if lost:
            raise RequestError(f"{table} names {len(lost)} files that {folder} lacks, first {lost[0]}")
    return StimulusSet(id=folder.name, table=frame, contents=_Folder(folder, tuple(there)))


def embed(
    session: Session, model: str, stimuli: StimulusSet, *, layer: str | None = None, mean: Sequence[int] = ()
) -> xr.DataArray:
    """What a layer of model `model` makes of each stimulus, float32 (stimulus, feature).

    Parameters
    ----------
    layer
        One of the model's; needed where it names several.
    mean
        Axes of the layer that are averaged, 1 being the first after the stimulus: `[1]` for tokens (stimulus, token,
        feature), `[2, 3]` for the maps of a convolution. What is left is laid side by side.

    Raises
    ------
    RequestError
        No such layer or axis.
    ModelError
        The model has no layers, or its answers are not finite.
    """
    built = session.model(model)
    if not isinstance(built, LayeredModel):
        raise ModelError(f"model {model!r} has no layers to take embeddings from")
    if layer is None:
        if len(built.layers) != 1:
            raise RequestError(f"--layer is needed: model {model!r} has {', '.join(built.layers)}")
        layer = built.layers[0]
    if layer not in built.layers:
        raise RequestError(f"no {unknown('layer', layer, built.layers)}")
    values = np.asarray(built.activations(stimuli, [layer])[layer])
    if len(values) != len(stimuli):
        values = values.reshape(-1, len(stimuli), *values.shape[1:]).mean(axis=0)
    wrong = sorted(axis for axis in mean if not 0 < axis < values.ndim)
    if wrong or len(set(mean)) != len(mean):
        raise RequestError(
            f"layer {layer!r} is (stimulus, …) of shape {values.shape}: axes to average are among 1 to "
            f"{values.ndim - 1}, each once"
        )
    flat = values.mean(axis=tuple(mean), dtype=np.float64) if mean else values
    table = np.asarray(flat, dtype=np.float32).reshape(len(values), -1)
    if not np.isfinite(table).all():
        raise ModelError(f"model {model!r}, layer {layer!r}: embeddings of some stimuli are not finite")
    return xr.DataArray(
        table,
        dims=("stimulus", "feature"),
        coords={"stimulus_id": ("stimulus", np.array(stimuli.ids))},
        attrs={"model": model, "layer": layer, "mean": ",".join(map(str, mean))},
    )


def write_embeddings(table: xr.DataArray, path: Path) -> None:
    """The table as netCDF, for the `embeddings` of a reader.

    Raises
    ------
    RequestError
        The name does not end in .nc, or there is no such folder.
    """
    if path.suffix != ".nc" or not path.parent.is_dir():
        raise RequestError(f"{path}: embeddings are written to a file .nc in a folder that is there")
    assembly.write(table, path)
