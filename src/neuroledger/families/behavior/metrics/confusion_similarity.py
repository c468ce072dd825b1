"""Does the model confuse the objects that people confuse."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.data.factorize import encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.confusions import answers_and_truths, confusions, off_diagonal
from neuroledger.families.behavior.tasks.discrimination import pearson
from neuroledger.spec.registry import metric

__all__ = ["confusion_similarity"]


@metric("confusion_similarity", version=1, input="behaviour")
def confusion_similarity(
    source: xr.DataArray, target: xr.DataArray, *, rng: np.random.Generator
) -> xr.DataArray:
    """Pearson correlation of the off-diagonal entries of two confusion matrices: ``()``.

    Parameters
    ----------
    source
        Model behaviour: probabilities ``(presentation, choice)`` (the most probable choice is the answer) or
        labels ``(presentation,)``, with the right answers as ``truth`` or ``image_label``.
    target
        Human trials ``(presentation,)``: answers as values or as the coordinate ``prediction``, with right answers.

    Raises
    ------
    MetricError
        Objects differ between the sides, or one side confuses all pairs equally often.

    Notes
    -----
    Maniquet et al. (2024). Counts, not rates: the sides may have different numbers of presentations.
    """
    model, model_truth = answers_and_truths(source)
    people, truth = answers_and_truths(target)
    named = "choice" in source.dims and source.sizes["choice"] > 1
    labels = encode(source["choice"].values if named else np.concatenate([model, model_truth])).labels
    known = encode(truth).labels
    if set(map(str, labels.tolist())) != set(map(str, known.tolist())):
        odd = sorted(set(map(str, labels.tolist())) ^ set(map(str, known.tolist())))
        raise MetricError(
            f"model and people do not have the same objects; only one side has {', '.join(odd[:3])}"
        )
    counts = [confusions(a, t, labels) for a, t in ((people, truth), (model, model_truth))]
    value = pearson(off_diagonal(counts[0]), off_diagonal(counts[1]))
    if np.isnan(value):
        raise MetricError("one side confuses every pair of objects equally often (or never): no correlation")
    return xr.DataArray(value, attrs={"replicates": lambda: _resampled(counts, rng)})


def _resampled(counts: list[Floats], rng: np.random.Generator, draws: int = 1000) -> list[float]:
    """The correlation when the presentations of both sides are drawn with replacement."""
    drawn = [
        rng.multinomial(int(side.sum()), side.ravel() / side.sum(), draws).reshape(draws, *side.shape)
        for side in counts
    ]
    return [
        pearson(off_diagonal(a.astype(float)), off_diagonal(b.astype(float)))
        for a, b in zip(*drawn, strict=True)
    ]
