"""Encoding: how well features of a sound, film or text predict a continuous recording in held-out blocks of time."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.families.alignment import examples
from neuroledger.families.alignment.encoding.banded_ridge import (
    BandedRidge,
    BandedSearch,
)
from neuroledger.families.alignment.encoding.blocks import Blocks
from neuroledger.families.alignment.encoding.continuous import (
    Delays,
    Response,
    continuous,
)
from neuroledger.families.alignment.encoding.nulls import Null
from neuroledger.families.alignment.regression.held_out import Facts, correlations
from neuroledger.families.alignment.regression.held_out_variation import (
    held_out_variation,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.variation import inflation
from neuroledger.stats.workspace import Workspace

__all__ = ["encoding"]


@metric("encoding", version=1, timed=True, example=examples.of_continuous)
def encoding(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    blocks: Blocks = Blocks(),  # noqa: B008 - a frozen default
    delays: Delays = (0,),
    response: Response = "none",
    bands: str | None = None,
    search: BandedSearch = BandedSearch(),  # noqa: B008 - a frozen default
    null: Null | None = None,
) -> Samples:
    """Correlation over time of predicted and measured responses in held-out blocks, by (banded) ridge regression.

    The response at a bin is predicted from the features at that bin and ``delays`` before it, with one penalty for each
    feature space of the coordinate ``bands`` [dupre2022]. Parameters are those of
    :func:`~neuroledger.families.alignment.encoding.continuous.continuous`, of
    :class:`~neuroledger.families.alignment.encoding.blocks.Blocks` and of
    :class:`~neuroledger.families.alignment.encoding.banded_ridge.BandedSearch`. ``null`` scores features that must lose:
    those of the model, shifted by many bins, or only the time.

    Parameters
    ----------
    source, target
        ``(presentation, neuroid, time_bin)``: a presentation is a run.

    Returns
    -------
    Samples
        Correlations ``(split, neuroid)``; they vary over segments of time. Neuroids that are constant or have missing
        values are NaN and counted in the notes.

    Raises
    ------
    MetricError
        The rates do not fit, runs are shorter than the delays, features are missing, or blocks do not fit.
    """
    rows = continuous(
        source,
        target,
        blocks=blocks,
        delays=delays,
        response=response,
        bands=bands,
        null=null,
    )
    readout = BandedRidge(search, rows.bands, rows.band, blocks.gap)
    facts = Facts([], [], [])
    values = correlations(
        rows.X, rows.Y, rows.splits, workspace, readout, "pearson", 1, facts
    )
    penalties = np.concatenate(facts.penalties, axis=1)[:, 0]
    samples = xr.DataArray(
        values[:, 0],
        dims=("split", "neuroid"),
        coords={
            "split": np.arange(len(rows.splits)),
            "penalty": (("split", "neuroid"), penalties),
            **_of_neuroids(target),
        },
    )
    places = [[at] for at in range(len(rows.splits))]
    varies = held_out_variation(
        samples, rows.segments, facts.test_parts, places, inflation(rows.splits)
    )
    return Samples(samples, varies, notes=facts.notes)


def _of_neuroids(target: xr.DataArray) -> dict[str, xr.DataArray]:
    return {
        str(name): coord
        for name, coord in target.coords.items()
        if coord.dims == ("neuroid",)
    }
