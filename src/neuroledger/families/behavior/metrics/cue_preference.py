"""Preference for one of two conflicting cues, such as the proportion of shape among shape and texture decisions."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.factorize import coordinate, encode, locate, repeated
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import choices, same
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples, Variation

__all__ = ["cue_preference"]


@metric("cue_preference", version=3, input="behaviour")
def cue_preference(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    cue: str = "truth",
    against: str = "texture",
) -> Samples:
    """Return 1 where the answer follows ``cue``, 0 where it follows ``against``, else NaN: ``(presentation,)``.

    The mean over presentations is the preference, ``s / (s + t)``. Stimuli whose cues agree are left out.

    Parameters
    ----------
    source
        Model behaviour, one row per stimulus: labels ``(presentation,)`` or probabilities ``(presentation, choice)``.
    target
        Trials or stimuli ``(presentation,)`` with ``stimulus_id`` and the two cues as coordinates.
    cue, against
        Coordinates with the category of each cue.

    Raises
    ------
    MetricError
        A cue is missing, no stimulus has conflicting cues, or no answer follows either.

    Notes
    -----
    Geirhos et al. (2019); Hermann et al. (2020).
    """
    ids = coordinate(target, "stimulus_id")
    model_ids = coordinate(source, "stimulus_id")
    cue_values = coordinate(target, cue)
    against_values = coordinate(target, against)
    if ids is None or model_ids is None or cue_values is None or against_values is None:
        raise MetricError(
            f"cue preference needs stimulus_id on both sides, and {cue!r} and {against!r} on the target"
        )
    keep = np.flatnonzero(~same(cue_values, against_values))
    keep = np.setdiff1d(keep, repeated(encode(ids).codes))
    if not keep.size:
        raise MetricError(f"no stimulus has a {cue} that conflicts with its {against}")
    rows = locate(ids[keep], model_ids)
    if (rows < 0).any():
        raise MetricError(
            f"the model has no answer for {int((rows < 0).sum())} stimuli, first {ids[keep][rows < 0][0]!r}"
        )
    answers = choices(source)[rows]
    by_cue = same(answers, cue_values[keep])
    by_other = same(answers, against_values[keep])
    if not (by_cue | by_other).any():
        raise MetricError(f"no answer names the {cue} or the {against} of its stimulus")
    values = np.where(by_cue, 1.0, np.where(by_other, 0.0, np.nan))
    out = xr.DataArray(
        values,
        dims=("presentation",),
        coords={"stimulus_id": ("presentation", ids[keep])},
    )
    neither = int(np.isnan(values).sum())
    notes = (
        [f"{neither} of {keep.size} answers follow neither cue and do not count"]
        if neither
        else []
    )
    alone = Variation({}, lambda _: out)  # only the stimuli of the samples are random
    return Samples(
        out, alone, limits=(0.0, 1.0), outcome=1 / (keep.size - neither), notes=notes
    )
