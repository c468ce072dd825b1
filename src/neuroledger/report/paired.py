"""Two decoders on the same people: what they predict is resampled alike, and each person is a pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.record import Record
from neuroledger.engine.samples import Resampled, resampled_of
from neuroledger.engine.session import Request, Session
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.score import Score
from neuroledger.stats.task_ranks import sign_flip_p

__all__ = ["paired_predictions", "resampled"]

Floats = npt.NDArray[np.float64]


def resampled(
    catalog: Catalog, spec: BenchmarkSpec, a: Record, b: Record, tell: Callable[[str], None]
) -> tuple[Resampled, Resampled] | None:
    """How both scores were resampled: as kept, else computed again, which `tell` is told; None for other scores."""
    metric = next(iter(a.scores))
    kept = [resampled_of(catalog.root, record.id, metric) for record in (a, b)]
    if kept[0] is not None and kept[1] is not None:
        return kept[0], kept[1]
    if spec.paradigm is None or spec.paradigm.name != "decoding":
        return None
    lost = [record.model for record, part in zip((a, b), kept, strict=True) if part is None]
    tell(
        f"{spec.id}: no samples of {' and '.join(lost)} are kept here; {a.model} and {b.model} are trained and scored again"
    )
    session = Session(catalog, Request(seed=int(a.request.get("seed", 0))))
    again = [_of(evaluate(session, spec, record.model, controls=False).headline) for record in (a, b)]
    return (again[0], again[1]) if again[0] is not None and again[1] is not None else None


def _of(score: Score) -> Resampled | None:
    attrs = {} if score.samples is None else score.samples.attrs
    return Resampled(attrs["draws"], attrs["clusters"]) if {"draws", "clusters"} <= set(attrs) else None


def paired_predictions(
    a: Resampled, b: Resampled, *, span: float, seed: int
) -> tuple[dict[str, Any], Floats]:
    """Interval, p, effect and number of pairs of the difference of a and b, and its draws.

    Parameters
    ----------
    a, b
        Scores of the same benchmark and seed, whose clusters were drawn alike.
    span
        Perfect less dummy, which both are divided by; 1 where nothing is normalised.
    seed
        Of the signs that are flipped, where there are too many pairs to try all.

    Returns
    -------
    tuple
        Fields of a `Difference`: `low` and `high` are the 2.5th and 97.5th percentile of the draws. `p` is that of the
        mean difference of the clusters when their signs are flipped (all patterns up to 13 clusters), where each cluster
        has a score of its own, else that of the draws, 2 · min(P(d ≤ 0), P(d ≥ 0)).
    """
    draws = (a.draws.values - b.draws.values) / span if a.draws.shape == b.draws.shape else np.empty(0)
    finite = draws[np.isfinite(draws)]
    found: dict[str, Any] = {}
    if finite.size:
        low, high = np.quantile(finite, (0.025, 0.975)).tolist()
        below, above = int((finite <= 0).sum()), int((finite >= 0).sum())
        found = {"low": low, "high": high, "p": min(1.0, 2 * (min(below, above) + 1) / (finite.size + 1))}
    _, mine, theirs = np.intersect1d(
        a.clusters["cluster"].values, b.clusters["cluster"].values, return_indices=True
    )
    each = (a.clusters.values[mine] - b.clusters.values[theirs]) / span
    if each.size > 1 and np.isfinite(each).all():
        spread = float(each.std(ddof=1))
        found |= {"p": sign_flip_p(each, seed=seed), "pairs": int(each.size)}
        found["effect"] = float(each.mean()) / spread if spread > 0 else None
    return found, draws
