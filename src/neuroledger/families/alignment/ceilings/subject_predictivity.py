"""Subject predictivity: how well each subject's responses are predicted from those of the other subjects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.regression.held_out import Correlation, Estimator, Facts, correlations
from neuroledger.families.alignment.regression.ridge import Ridge
from neuroledger.spec.registry import ceiling
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["subject_predictivity"]

FEWEST = 2


@ceiling("subject_predictivity", version=1)
def subject_predictivity(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Estimator = Ridge(),  # noqa: B008 - a frozen default
    correlation: Correlation = "pearson",
) -> xr.DataArray:
    """Correlation of predicted and measured responses, with the other subjects in the place of a model.

    For each subject the neuroids of all others are the features of ``estimator``, and the score is
    computed as a model's. A model that predicts as well as the pooled other brains reaches this ceiling, which rises with
    their number.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``subject`` on the neuroids; repeated presentations are rows of their own,
        or averaged before.

    Returns
    -------
    xr.DataArray
        ``(split, neuroid)`` with ``subject``.

    Raises
    ------
    CeilingError
        There is one subject, or no complete neuroid to predict from.
    """
    if "subject" not in assembly.coords or assembly["subject"].dims != ("neuroid",):
        raise CeilingError("subject predictivity needs the coordinate 'subject' on the neuroids")
    if set(assembly.dims) != {"presentation", "neuroid"}:
        raise CeilingError(f"subject predictivity needs (presentation, neuroid), not {tuple(assembly.dims)}")
    values = assembly.transpose("presentation", "neuroid").values
    own = assembly["subject"].values.astype(str)
    subjects = np.unique(own)
    if len(subjects) < FEWEST:
        raise CeilingError(
            "one subject cannot be predicted from others: subject predictivity needs at least two"
        )
    complete = np.isfinite(values).all(axis=0)
    result = np.full((len(splits), values.shape[1]), np.nan)
    facts = Facts([], {}, [])
    for subject in subjects:
        others = (own != subject) & complete
        if not others.any():
            raise CeilingError(
                f"no other subject than {str(subject)!r} has a neuroid without missing responses"
            )
        try:
            found = correlations(
                values[:, others],
                values[:, own == subject],
                splits,
                workspace,
                estimator,
                correlation,
                1,
                facts,
            )
        except MetricError as error:
            raise CeilingError(f"subject {str(subject)!r}: {error}") from error
        result[:, own == subject] = found[:, 0]
    coords = {name: coord for name, coord in assembly.coords.items() if coord.dims == ("neuroid",)}
    coords["split"] = xr.DataArray(np.arange(len(splits)), dims="split")
    return xr.DataArray(result, dims=("split", "neuroid"), coords=coords, attrs={"notes": facts.notes})
