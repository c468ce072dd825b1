"""Two models compared: paired differences over the samples they share, with interval, corrected p and effect size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.overrides import in_compat, resolve
from neuroledger.engine.record import Record, read_record, record_path
from neuroledger.engine.samples import Resampled, samples_of
from neuroledger.engine.session import Request, Session
from neuroledger.errors import DataError, NeuroLedgerError, RequestError
from neuroledger.report.paired import paired_predictions, resampled
from neuroledger.report.table import COMMENSURABLE
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.hierarchy import weights_of
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.spec.params import read_params
from neuroledger.stats.resampling import aggregate, bootstrap, holm
from neuroledger.stats.score import Score, normalise, normalise_by_floor

__all__ = ["Comparison", "Difference", "compare", "difference"]

Floats = npt.NDArray[np.float64]

SIGNIFICANT: Final = 0.05
# What tells the items of a dimension apart, so that the same neuroid meets the same neuroid.
KEYS: Final = {
    "neuroid": "neuroid_id",
    "presentation": "stimulus_id",
    "stimulus": "stimulus_id",
    "subject": "subject",
}


@dataclass(frozen=True)
class Difference:
    """Score of A minus score of B on one benchmark, from resampling both alike.

    ``p`` is two-sided, ``p_corrected`` by Holm over the benchmarks compared; ``effect`` is the mean of the
    differences over ``pairs`` samples in units of their standard deviation. ``reason`` says why something is absent.
    """

    benchmark: str
    a: float | None = None
    b: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_corrected: float | None = None
    effect: float | None = None
    pairs: int = 0
    direction: str = "higher"
    reason: str = ""

    @property
    def better(self) -> str:
        """``a`` or ``b`` if the corrected p is below 0.05, else empty."""
        if self.p_corrected is None or self.value is None or self.p_corrected >= SIGNIFICANT:
            return ""
        return "a" if (self.value > 0) == (self.direction == "higher") else "b"


@dataclass(frozen=True)
class Comparison:
    """Two models on every benchmark of a suite; ``overall`` is the difference of their scores on it, if there is one."""

    a: str
    b: str
    suite: str
    version: int
    differences: tuple[Difference, ...]
    overall: Difference

    def to_frame(self) -> pd.DataFrame:
        """One row per benchmark, the suite last."""
        return pd.DataFrame(
            [asdict(each) | {"better": each.better} for each in (*self.differences, self.overall)]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def __str__(self) -> str:
        from neuroledger.report.text import comparison_text

        return comparison_text(self)


def compare(
    a: str,
    b: str,
    *,
    suite: str | None = None,
    catalog: Catalog | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Model ``a`` against model ``b`` on the benchmarks of a suite (that of ``params.yaml`` when none is named).

    Scores whose samples were not kept on this machine are computed again; ``tell`` is called with a line before each.

    Raises
    ------
    RequestError
        A model or the suite is unknown, or both models are the same.
    """
    catalog = catalog or open_catalog()
    chosen = catalog.suite(suite or read_params(catalog.root).suite)
    for id in (a, b):
        catalog.model(id)
    if a == b:
        raise RequestError(f"{a!r} cannot be compared with itself; name two models")
    found: list[tuple[Difference, Floats]] = []
    for item in chosen.benchmarks:
        found.append(_on_benchmark(catalog, catalog.benchmark(item.id), a, b, tell))
    differences = _corrected([each for each, _ in found])
    usable = {
        each.benchmark: item.weight
        for (each, draws), item in zip(found, chosen.benchmarks, strict=True)
        if each.value is not None and draws.size and _counts(catalog, each)
    }
    parents = {id: catalog.benchmark(id).parent for id in usable}
    shares = weights_of(usable, parents, chosen.hierarchy)
    counted = [(each, draws, shares[each.benchmark]) for each, draws in found if each.benchmark in shares]
    return Comparison(a, b, chosen.id, chosen.version, differences, _overall(counted))


def difference(benchmark: str, a: Score, b: Score) -> tuple[Difference, Floats]:
    """The difference of two scores that were resampled alike, and its draws.

    Scores of the same benchmark and seed draw the same neuroids, splits or stimuli, so that their replicates are
    paired; p = 2 · min(P(d ≤ 0), P(d ≥ 0)), each probability with one added to count and number of draws.
    """
    draws_a, draws_b = a.replicates, b.replicates
    base = Difference(benchmark, a.value, b.value, a.value - b.value, direction=a.direction)
    base = replace(base, **_effect(a.samples, b.samples))
    if draws_a is None or draws_b is None or draws_a.size == 0 or draws_a.shape != draws_b.shape:
        return replace(base, reason="nothing to resample: no interval"), np.empty(0)
    draws = draws_a - draws_b
    return replace(base, **_interval(draws[np.isfinite(draws)])), draws


def _interval(draws: Floats) -> dict[str, Any]:
    if draws.size == 0:
        return {}
    low, high = np.quantile(draws, (0.025, 0.975)).tolist()
    below, above = (int((draws <= 0).sum()), int((draws >= 0).sum()))
    p = min(1.0, 2 * (min(below, above) + 1) / (draws.size + 1))
    return {"low": low, "high": high, "p": p}


def _effect(a: xr.DataArray | None, b: xr.DataArray | None) -> dict[str, Any]:
    """Mean over standard deviation of the differences, each the mean over splits of one neuroid (or other sample)."""
    if a is None or b is None or a.dims != b.dims or a.shape != b.shape or not a.dims:
        return {}
    each = np.asarray(a.values - b.values, dtype=np.float64)
    if "split" in a.dims and len(a.dims) > 1:
        axis = a.dims.index("split")
        present = np.isfinite(each).any(axis=axis, keepdims=True)
        each = np.nanmean(np.where(present, each, 0.0), axis=axis)[np.squeeze(present, axis=axis)]
    each = each[np.isfinite(each)].ravel()
    spread = float(each.std(ddof=1)) if each.size > 1 else 0.0
    return {"pairs": int(each.size), "effect": float(each.mean()) / spread if spread > 0 else None}


def _on_benchmark(
    catalog: Catalog, spec: BenchmarkSpec, a: str, b: str, tell: Callable[[str], None]
) -> tuple[Difference, Floats]:
    if spec.unavailable is not None:
        return Difference(spec.id, reason=f"unavailable: {spec.unavailable}"), np.empty(0)
    try:
        records = [_scored(catalog, spec.id, model) for model in (a, b)]
        _same_seed(*records)
        sides = resampled(catalog, spec, records[0], records[1], tell)
        if sides is not None:
            return _of_predictions(spec, records, sides)
        return difference(spec.id, *_paired(catalog, spec, records[0], records[1], tell))
    except NeuroLedgerError as error:
        return Difference(spec.id, reason=str(error)), np.empty(0)


def _scored(catalog: Catalog, benchmark: str, model: str) -> Record:
    path = record_path(catalog.root, benchmark, model)
    if not path.exists():
        raise DataError(f"{model} has no record; run `neuroledger run {model} --benchmark {benchmark}`")
    record = read_record(path)
    if record.status != "scored" or not record.intact:
        state = record.status if record.intact else "edited"
        raise DataError(f"the record of {model} is {state}: nothing to compare")
    return record


def _same_seed(a: Record, b: Record) -> None:
    if a.request.get("seed") != b.request.get("seed"):
        raise DataError(
            f"the records have seeds {a.request.get('seed')} and {b.request.get('seed')}: not paired"
        )


def _of_predictions(
    spec: BenchmarkSpec, records: Sequence[Record], sides: tuple[Resampled, Resampled]
) -> tuple[Difference, Floats]:
    """Two decoders: their clusters (people, as a rule) are drawn alike, and are the pairs."""
    a, b = (record.score or {} for record in records)
    base = Difference(spec.id, a["value"], b["value"], a["value"] - b["value"], direction=a["direction"])
    dummy = a.get("n", {}).get("dummy")
    span = 1.0 if spec.floor is None or dummy is None else spec.floor.perfect - dummy
    found, draws = paired_predictions(*sides, span=span, seed=int(records[0].request.get("seed", 0)))
    reason = "" if found else "nothing to resample: no interval"
    return replace(base, **found, reason=reason), draws


def _paired(
    catalog: Catalog, spec: BenchmarkSpec, a: Record, b: Record, tell: Callable[[str], None]
) -> tuple[Score, Score]:
    """Both scores over the samples they share: from the kept samples, else computed again."""
    metric = next(iter(a.scores))
    kept = [samples_of(catalog.root, record.id, metric) for record in (a, b)]
    if kept[0] is None or kept[1] is None:
        lost = [record.model for record, part in zip((a, b), kept, strict=True) if part is None]
        tell(f"{spec.id}: no samples of {' and '.join(lost)} are kept here; both are scored again")
        session = Session(catalog, Request(seed=int(a.request.get("seed", 0))))
        again = [evaluate(session, spec, record.model, controls=False).headline for record in (a, b)]
        return again[0], again[1]
    first, second = _shared(kept[0], kept[1])
    return _rebuilt(catalog, spec, a, first), _rebuilt(catalog, spec, b, second)


def _shared(a: xr.DataArray, b: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Both, cut to the items that both have, in the same order.

    Raises
    ------
    DataError
        Their dimensions differ, or they share nothing.
    """
    if set(a.dims) != set(b.dims):
        raise DataError(f"samples have dimensions {tuple(a.dims)} and {tuple(b.dims)}: not paired")
    b = b.transpose(*a.dims)
    for dim in map(str, a.dims):
        key = KEYS.get(dim, dim)
        if key in a.coords and key in b.coords and a.coords[key].dims == b.coords[key].dims == (dim,):
            names_a, names_b = a.coords[key].values.astype(str), b.coords[key].values.astype(str)
            if len(set(names_a)) == len(names_a) and len(set(names_b)) == len(names_b):
                _, rows_a, rows_b = np.intersect1d(names_a, names_b, return_indices=True)
                order = np.argsort(rows_a)
                a, b = a.isel({dim: rows_a[order]}), b.isel({dim: rows_b[order]})
        if a.sizes[dim] != b.sizes[dim] or a.sizes[dim] == 0:
            raise DataError(f"samples have {a.sizes[dim]} and {b.sizes[dim]} items along {dim}: not paired")
    return a, b


def _rebuilt(catalog: Catalog, spec: BenchmarkSpec, record: Record, samples: xr.DataArray) -> Score:
    """The record's score from its samples, normalised as the benchmark says."""
    wanted = spec.all_metrics[0]
    name = wanted if isinstance(wanted, str) else wanted.name
    metric, _, _ = resolve("metrics", wanted, catalog, in_compat(catalog.metric(name), spec.compat))
    steps = [(step.over, step.with_) for step in metric.aggregate]
    over = metric.interval.over if metric.interval else tuple(str(d) for d in samples.dims if d != "split")
    raw = Score(
        aggregate(samples, steps),
        scale=metric.scale,
        direction=metric.direction,
        samples=samples,
        replicates=bootstrap(samples, steps, over, seed=int(record.request.get("seed", 0))),
    )
    plain = record.score or {}
    ceiling = plain.get("ceiling")
    if ceiling:
        return normalise(raw, Score(ceiling["value"], scale=ceiling["scale"]), compat=spec.compat)
    if spec.floor is not None and "dummy" in plain.get("n", {}):
        span = spec.floor.perfect - plain["n"]["dummy"]
        scored = normalise_by_floor(raw, plain["n"]["dummy"], spec.floor.perfect)
        draws = raw.replicates if raw.replicates is not None else np.empty(0)
        return scored.replace(replicates=(draws - plain["n"]["dummy"]) / span)
    return raw


def _corrected(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    tested = [i for i, each in enumerate(differences) if each.p is not None]
    adjusted = holm([differences[i].p or 0.0 for i in tested]).tolist() if tested else []
    by_place = dict(zip(tested, adjusted, strict=True))
    return tuple(replace(each, p_corrected=by_place.get(i)) for i, each in enumerate(differences))


def _counts(catalog: Catalog, each: Difference) -> bool:
    first = catalog.benchmark(each.benchmark).all_metrics[0]
    metric = catalog.metric(first if isinstance(first, str) else first.name)
    return each.direction == "higher" and metric.scale in COMMENSURABLE


def _overall(counted: Sequence[tuple[Difference, Floats, float]]) -> Difference:
    """The weighted mean of the differences; draws of different benchmarks are combined in their order."""
    if not counted:
        return Difference("suite", reason="no benchmark on which both were scored and can be resampled")
    weights = [share for _, _, share in counted]
    means = [
        sum(w * (getattr(d, side) or 0.0) for w, (d, _, _) in zip(weights, counted, strict=True))
        for side in "ab"
    ]
    length = min(draws.size for _, draws, _ in counted)
    draws = sum((w * d[:length] for w, (_, d, _) in zip(weights, counted, strict=True)), np.zeros(length))
    base = Difference(
        "suite", float(means[0]), float(means[1]), float(means[0] - means[1]), pairs=len(counted)
    )
    found = _interval(draws[np.isfinite(draws)])
    return replace(base, **found, p_corrected=found.get("p"))
