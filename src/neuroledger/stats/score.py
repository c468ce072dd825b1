"""Scores: value, interval, scale, direction, raw value, ceiling, counts and samples; and their normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.display import card
from neuroledger.errors import MetricError
from neuroledger.stats.spread import (
    CROSS,
    DRAWS,
    NOWHERE,
    RESAMPLED,
    Influence,
    Spread,
    covers,
    moved,
    multipliers,
    sum_of,
    unpack,
)

__all__ = ["COMMENSURABLE", "LIMITS", "Score", "clipped", "mean_of", "normalise", "normalise_by_floor"]

Status = Literal["scored", "partial", "failed"]
NAN = float("nan")
# Ratio of the widths of a 99 % and a 95 % interval: one of 200 ceilings of noise has such an interval above 0.
WIDER: Final = 2.58 / 1.96
# Scales from 0 (no agreement) to 1 (perfect), whose values can be averaged over benchmarks.
COMMENSURABLE: Final = frozenset({
    "correlation", "reliability", "explained_variance", "similarity", "consistency", "accuracy", "fraction",
    "score",
})  # fmt: skip
# Smallest and largest possible value on each scale.
LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "accuracy": (0.0, 1.0), "fraction": (0.0, 1.0), "correlation": (-1.0, 1.0), "reliability": (-1.0, 1.0),
    "half_reliability": (-1.0, 1.0), "consistency": (-1.0, 1.0), "similarity": (-1.0, 1.0),
    "explained_variance": (-math.inf, 1.0),
    "error": (0.0, math.inf), "distance": (0.0, math.inf),
}  # fmt: skip


class Score:
    """One number with everything needed to interpret it; immutable.

    Attributes
    ----------
    value
        The number on ``scale``, after normalisation by a ceiling or floor, if any.
    error
        Standard error (or deviation) that the metric declares, on the same scale; NaN if it declares none.
    low, high
        95 % interval, computed on first access; NaN if the variation of the score is unknown.
    spread
        Joint draws of the score over new random items, shared with all scores of the same items; None if the variation
        is unknown. :attr:`interval_covers` names the random factors.
    scale, direction, unit
        The scale; whether ``higher`` or ``lower`` is better; the unit, or None.
    raw
        The metric's value before normalisation by a ceiling or floor.
    ceiling
        The ceiling as a Score, or None.
    samples
        The labelled values before aggregation, e.g. ``(split, neuroid)``.
    n
        Counts: stimuli, neuroids, splits, …
    limits
        Smallest and largest possible value, which bound the interval.
    status, reason
        ``scored``, ``partial`` or ``failed``, and the reason if it is not ``scored``.
    notes
        Notes for readers (neuroids that were left out and the like).
    """

    __slots__ = (
        "_interval", "_replicates", "_samples", "_spread", "ceiling", "direction", "error", "generalise", "id",
        "influence", "limits", "n", "notes", "population", "raw", "reason", "scale", "status", "unit", "value",
    )  # fmt: skip

    value: float
    error: float
    scale: str
    direction: str
    unit: str | None
    raw: float
    ceiling: Score | None
    n: dict[str, float]
    status: Status
    reason: str
    notes: tuple[str, ...]
    id: str
    influence: Influence | Callable[[], Influence | None] | None
    generalise: tuple[str, ...] | None
    population: str
    limits: tuple[float, float]
    _interval: tuple[float, float] | None
    _spread: Spread | Callable[[], Spread | None] | None
    _replicates: Floats | Callable[[], Floats] | None
    _samples: xr.DataArray | Callable[[], xr.DataArray] | None

    def __init__(
        self,
        value: float,
        *,
        error: float = NAN,
        low: float | None = None,
        high: float | None = None,
        scale: str = "score",
        direction: str = "higher",
        unit: str | None = None,
        raw: float | None = None,
        ceiling: Score | None = None,
        samples: xr.DataArray | Callable[[], xr.DataArray] | None = None,
        n: Mapping[str, float] | None = None,
        status: Status = "scored",
        reason: str = "",
        notes: tuple[str, ...] = (),
        id: str = "",
        replicates: Floats | Callable[[], Floats] | None = None,
        influence: Influence | Callable[[], Influence | None] | None = None,
        generalise: Sequence[str] | None = None,
        population: str = "",
        limits: tuple[float, float] = NOWHERE,
        spread: Spread | Callable[[], Spread | None] | None = None,
    ) -> None:
        fields: dict[str, Any] = {
            "value": float(value), "error": float(error), "scale": scale, "direction": direction,
            "unit": unit, "raw": float(value) if raw is None else float(raw), "ceiling": ceiling,
            "_samples": samples, "n": dict(n or {}), "status": status, "reason": reason,
            "notes": tuple(notes), "id": id,
            "_interval": None if low is None or high is None else (float(low), float(high)),
            "_replicates": replicates, "influence": influence,
            "generalise": None if generalise is None else tuple(generalise), "population": population,
            "limits": limits, "_spread": spread,
        }  # fmt: skip
        for name, content in fields.items():
            object.__setattr__(self, name, content)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Score is immutable; make a new one with .replace({name}=…)")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling; lazy values are computed first."""
        computed: dict[str, Any] = {
            "_interval": self._bounds(),
            "_samples": self.samples,
            "_spread": self.spread,
            "influence": None,
        }
        if callable(self._replicates):
            computed["_replicates"] = self.replicates
        return {name: getattr(self, name) for name in self.__slots__} | computed

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, content in state.items():
            object.__setattr__(self, name, content)

    @property
    def samples(self) -> xr.DataArray | None:
        """The values before aggregation; computed on first access if a function was given."""
        content = self._samples
        if content is not None and not isinstance(content, xr.DataArray):
            content = content()
            object.__setattr__(self, "_samples", content)
        return content

    @property
    def spread(self) -> Spread | None:
        """Joint draws of the score's deviation, computed on first access; None if the variation is unknown."""
        result = self._spread
        if result is None and self.influence is not None:
            influence = self.influence() if callable(self.influence) else self.influence
            result = None if influence is None else influence.spread(self.population, self.generalise)
        elif result is None and self._replicates is not None:
            result = _of_replicates(self.replicates)
        elif callable(result):
            result = result()
        result = result if isinstance(result, Spread) and result.factors else None
        object.__setattr__(self, "_spread", result)
        if result is None:
            object.__setattr__(self, "influence", None)
        return result

    def spread_over(self, factors: Sequence[str] | None) -> Spread | None:
        """Return joint draws over those of the named factors over which the score varies; None if there are none."""
        influence = self.influence() if callable(self.influence) else self.influence
        if factors is None or influence is None:
            return self.spread
        known = [name for name in factors if name in influence.factors or name in influence.nested]
        return influence.spread(self.population, known) if known else None

    @property
    def interval_covers(self) -> str:
        """A sentence on what the interval covers; empty without an interval."""
        if not math.isfinite(self.low):
            return ""
        words = self.varies_over
        return f"the 95 % interval covers {words}" if words else "the 95 % interval is the metric's own"

    @property
    def varies_over(self) -> str:
        """What the spread varies over, in words; empty if the metric resamples something without a name."""
        names = self.generalise or (() if self.spread is None else self.spread.factors)
        same = {"neuroid": "subject"} if self.n.get("subject", 0) > 1 and "subject" not in names else {}
        return covers(names, same)

    @property
    def replicates(self) -> Floats | None:
        """The value over draws of new random items, shape ``(draw,)``, or None."""
        draws = self._replicates
        if callable(draws):
            draws = np.asarray(draws(), dtype=np.float64)
            object.__setattr__(self, "_replicates", draws)
        if draws is None and self.spread is not None:
            draws = self.value + self.spread.total
        return draws

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self._bounds()[0]

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self._bounds()[1]

    def _bounds(self) -> tuple[float, float]:
        bounds = self._interval
        if bounds is None:
            bounds = (NAN, NAN)
            if self._replicates is not None:
                draws = self.replicates
                finite = draws[np.isfinite(draws)] if draws is not None else np.empty(0)
                if finite.size >= 20:
                    bounds = (float(np.quantile(finite, 0.025)), float(np.quantile(finite, 0.975)))
            elif self.spread is not None:
                bounds = self.spread.interval(self.value, self.limits)
            object.__setattr__(self, "_interval", bounds)
        return bounds

    def replace(self, **changes: Any) -> Score:
        """Return a copy with some fields changed.

        Raises
        ------
        MetricError
            ``generalise`` changes, but the interval cannot follow, because the influence of items is no longer known.
        """
        fields: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("value", "error", "scale", "direction", "unit", "raw", "ceiling", "n", "status",
                         "reason", "notes", "id", "generalise", "population", "limits")
        }  # fmt: skip
        fields["samples"] = self._samples
        if not {"low", "high", "replicates", "influence", "spread"} & set(changes):
            known = self._spread is None and self._replicates is None and self._interval is None
            if (
                self.influence is None
                and not known
                and changes.get("generalise", self.generalise) != self.generalise
            ):
                raise MetricError(
                    f"{self.id or 'the score'} cannot generalise over something else: its interval is already computed; "
                    "change the claim of the raw score, before it is normalised or averaged"
                )
            fields |= {"replicates": self._replicates, "influence": self.influence}
            renamed = {"generalise", "population"} & set(changes) and self.influence is not None
            if not renamed:
                fields["spread"] = self._spread
                if self._interval is not None:
                    fields["low"], fields["high"] = self._interval
        return Score(**(fields | changes))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a record; NaN becomes None."""
        plain: dict[str, Any] = {
            "value": number(self.value),
            "low": number(self.low),
            "high": number(self.high),
            "error": number(self.error),
            "scale": self.scale,
            "direction": self.direction,
            "raw": number(self.raw),
            "ceiling": None,
            "n": {key: self.n[key] for key in sorted(self.n)},
        }
        if self.ceiling is not None:
            ceiling = self.ceiling
            plain["ceiling"] = {
                "id": ceiling.id,
                "value": number(ceiling.value),
                "low": number(ceiling.low),
                "high": number(ceiling.high),
                "error": number(ceiling.error),
                "scale": ceiling.scale,
                "n": {key: ceiling.n[key] for key in sorted(ceiling.n)},
            }
        if self.unit:
            plain["unit"] = self.unit
        if self.id:
            plain["id"] = self.id
        if self.status != "scored":
            plain["status"] = self.status
        if self.reason:
            plain["reason"] = self.reason
        if self.interval_covers:
            plain["covers"] = self.interval_covers
        if self.notes:
            plain["notes"] = list(self.notes)
        return plain

    @classmethod
    def of_record(cls, plain: Mapping[str, Any]) -> Score:
        """Return the score in a record, without samples."""
        low, high = plain.get("low"), plain.get("high")
        return cls(
            plain["value"], low=low, high=high, scale=plain.get("scale", "score"), raw=plain.get("raw"),
            direction=plain.get("direction", "higher"), n=plain.get("n"), id=plain.get("id", ""),
            spread=unpack(plain.get("spread")),
        )  # fmt: skip

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        return f"Score({self})"

    def __str__(self) -> str:
        if self.status == "failed":
            return f"failed: {self.reason}"
        text = f"{self.value:.4g}"
        if math.isfinite(self.low):
            text += f" [{self.low:.4g}, {self.high:.4g}]"
        text += f" {self.unit or self.scale}"
        if self.ceiling is not None:
            text += f" of ceiling · raw {self.raw:.4g} · ceiling {self.ceiling.value:.4g}"
        partial = f"partial: {self.reason}" if self.status == "partial" else ""
        return " · ".join(filter(None, [text, *counts_in_words(self.n), partial]))

    def _repr_html_(self) -> str:
        rows = [("value", f"{self.value:.4g}")]
        if math.isfinite(self.low):
            rows += [("95 % interval", f"{self.low:.4g} – {self.high:.4g}"), ("", self.interval_covers)]
        rows += [("scale", self.scale)]
        if self.ceiling is not None:
            rows += [("raw", f"{self.raw:.4g}"), ("ceiling", f"{self.ceiling.value:.4g}")]
        rows += [(name, f"{count:g}") for name, count in self.n.items()]
        rows += [("note", note) for note in self.notes]
        return card(f"{self.id or 'score'} ({self.status})", rows)


def _of_replicates(draws: Floats | None) -> Spread | None:
    """Return the spread of a score whose metric resamples itself; it is paired draw by draw with equally seeded scores."""
    if draws is None or draws.ndim != 1 or draws.size < DRAWS or not np.isfinite(draws).all():
        return None
    return Spread({RESAMPLED: draws[:DRAWS] - draws[:DRAWS].mean()}, {RESAMPLED: DRAWS})


def counts_in_words(n: Mapping[str, float]) -> list[str]:
    """Format counts: ``10 splits``, ``7 time bins``, ``1 subject``, ``100 stimuli``; also values such as ``0.5 dummy``."""
    ends = {name: "s" * (value != 1 and name[-1] not in "siy") for name, value in n.items()}
    return [f"{value:g} {name.replace('_', ' ')}{ends[name]}" for name, value in n.items()]


def number(value: float) -> float | None:
    """Return a finite number as a float, any other as None."""
    return float(value) if math.isfinite(value) else None


def _signed_square(raw: Any, ceiling: Any) -> Any:
    """Return sign(r)·r²/ρ: explained variance divided by explainable variance, with the sign of r."""
    return np.sign(raw) * np.square(raw) / ceiling


def _ratio(raw: Any, ceiling: Any) -> Any:
    return raw / ceiling


def _over_root(raw: Any, ceiling: Any) -> Any:
    """Return r/√ρ½: a correlation with half of the data divided by the root of the correlation between halves."""
    return raw / np.sqrt(ceiling)


# (scale of the metric, scale of the ceiling) → formula; other pairs are refused.
FORMULAS: Mapping[tuple[str, str], Callable[[Any, Any], Any]] = {
    ("correlation", "reliability"): _signed_square,
    ("explained_variance", "reliability"): _ratio,
    ("correlation", "half_reliability"): _over_root,
    ("correlation", "correlation"): _ratio,
    ("similarity", "similarity"): _ratio,
    ("consistency", "consistency"): _ratio,
    ("accuracy", "accuracy"): _ratio,
    ("explained_variance", "explained_variance"): _ratio,
    ("score", "score"): _ratio,
    ("fraction", "fraction"): _ratio,
}


def _square_of_ratio(raw: Any, ceiling: Any) -> Any:
    """Return (r/c)² with the sign of r."""
    return np.sign(raw) * np.square(raw / ceiling)


# Formulas that a benchmark can name; `scales` chooses one of FORMULAS.
NAMED: Mapping[str, Callable[[Any, Any], Any]] = {
    "ratio": _ratio,
    "square": _square_of_ratio,
    "explained": _signed_square,
}


def normalise(raw: Score, ceiling: Score, *, compat: str | None = None, formula: str = "scales") -> Score:
    """Normalise a score by its ceiling; value, error and replicates are transformed by the formula of the two scales.

    Values above 1 are kept, with a note. ``formula`` names another formula: ``ratio`` (r/c), ``square`` ((r/c)²) or
    ``explained`` (r²/c), all with the sign of r. ``compat="brainscore"`` gives the peer's numbers: squares without a sign,
    and the mean over halves of r/√ρ½, with their standard deviation as error.

    Raises
    ------
    MetricError
        The two scales have no formula, the ceiling is not positive, or its 99 % interval contains 0.
    """
    rule = FORMULAS.get((raw.scale, ceiling.scale)) if formula == "scales" else NAMED[formula]
    if rule is None:
        known = ", ".join(f"{m}/{c}" for m, c in FORMULAS)
        raise MetricError(
            f"no normalisation of scale {raw.scale!r} by a ceiling of scale {ceiling.scale!r}; known: {known}"
        )
    if not (math.isfinite(ceiling.value) and ceiling.value > 0):
        raise MetricError(f"the ceiling is {ceiling.value:.4g}: the data contain no signal to normalise by")
    if compat is None and ceiling.value - WIDER * (ceiling.value - ceiling.low) <= 0:
        raise MetricError(
            f"the ceiling {ceiling.value:.3g} has the 95 % interval [{ceiling.low:.3g}, {ceiling.high:.3g}], and the 99 % "
            "interval includes 0: the data may be noise; record more repetitions or stimuli, or select neuroids by their "
            "reliability elsewhere"
        )
    if compat == "brainscore" and rule in (_signed_square, _square_of_ratio):
        rule = UNSIGNED[rule]
    value = float(rule(raw.value, ceiling.value))
    slope = _slope(lambda r: float(rule(r, ceiling.value)), raw.value, 1e-6 * max(1.0, abs(raw.value)))
    error = abs(slope) * raw.error
    if compat == "brainscore" and rule is _over_root and (halves := _each_half(raw, ceiling)).size:
        value, error = float(halves.mean()), float(halves.std())
    notes = raw.notes + ceiling.notes
    if value > 1:
        notes += (f"above the ceiling ({value:.3f} > 1): reported as it is, not clipped",)
    ends = [float(rule(end, ceiling.value)) for end in raw.limits]
    scored = raw.replace(
        value=value, error=error, raw=raw.value, ceiling=ceiling, notes=notes,
        limits=(ends[0], ends[1]) if ends[0] < ends[1] else NOWHERE,
    )  # fmt: skip
    if raw._replicates is not None:  # a metric that resamples itself has its own percentiles

        def replicates() -> Floats:
            draws = raw.replicates
            tops = None if ceiling._replicates is None else ceiling.replicates
            if draws is None:
                return np.empty(0)
            paired = tops if tops is not None and tops.shape == draws.shape else ceiling.value
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.asarray(rule(draws, paired), dtype=np.float64)

        return scored.replace(replicates=replicates)

    def spread() -> Spread | None:
        raw_spread, ceiling_spread = raw.spread, ceiling.spread_over(raw.generalise)
        if raw_spread is None:
            return None
        scaled = combined = raw_spread * _slope(
            lambda r: float(rule(r, ceiling.value)), raw.value, 2 * raw_spread.error
        )
        if ceiling_spread is not None:
            reach = min(ceiling_spread.error, 0.5 * ceiling.value)
            combined = combined + ceiling_spread * _slope(
                lambda c: float(rule(raw.value, c)), ceiling.value, reach
            )
        return replace(combined, skewed=raw_spread.skewed, sure=raw_spread.sure, third=scaled.third)

    return scored.replace(spread=spread)


def _slope(function: Callable[[float], float], at: float, reach: float) -> float:
    """Return the mean slope within ``reach`` of the argument; the derivative of a square at 0 would be misleading."""
    reach = max(reach, 1e-9 * max(1.0, abs(at)))
    return (function(at + reach) - function(at - reach)) / (2 * reach)


def _each_half(raw: Score, ceiling: Score) -> Floats:
    """Return r/√ρ½ of each half for scores that are means over the same halves; empty for other scores."""
    samples, tops = raw.samples, ceiling.samples
    if samples is None or tops is None or samples.dims != ("split",) or samples.shape != tops.shape:
        return np.empty(0)
    positive = tops.values > 0  # the peer skips values without a root
    return np.asarray(_over_root(samples.values[positive], tops.values[positive]), dtype=np.float64)


def _unsigned_square(raw: Any, ceiling: Any) -> Any:
    """Return r²/ρ as in Brain-Score, where a negative correlation counts like a positive one."""
    return np.square(raw) / ceiling


UNSIGNED: Mapping[Callable[[Any, Any], Any], Callable[[Any, Any], Any]] = {
    _signed_square: _unsigned_square,
    _square_of_ratio: lambda raw, ceiling: np.square(raw / ceiling),
}


def clipped(score: Score) -> Score:
    """Return the score clipped to [0, 1], with a note of the original value."""
    value = min(max(score.value, 0.0), 1.0)
    if value == score.value:
        return score
    return score.replace(value=value, notes=(*score.notes, f"clipped to {value:g}: it was {score.value:.4g}"))


def mean_of(parts: Mapping[str, Score], over: str, generalise: Sequence[str] | None = None) -> Score:
    """Return the mean of separately normalised scores, such as those of each subject, and of their raw values and ceilings.

    The spread of the mean includes the covariance of parts that share stimuli; ``error`` assumes independent parts. If
    ``generalise`` names ``over``, the spread includes the variance between the parts, which are then a sample of others.
    """
    scores = list(parts.values())
    share, populations = 1 / len(scores), [score.population for score in scores]

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    def spread() -> Spread | None:
        if over in (generalise or ()):
            return _between(parts, over)
        spreads = [part for part in (score.spread for score in scores) if part is not None]
        return sum_of(spreads, populations) * share if len(spreads) == len(scores) else None

    tops = [score.ceiling for score in scores if score.ceiling is not None]
    top = None
    if tops:
        top = tops[0].replace(value=mean([ceiling.value for ceiling in tops]), error=NAN, low=NAN, high=NAN)
    keys = dict.fromkeys(key for score in scores for key in score.n)
    shared = {key: [score.n.get(key, 0) for score in scores] for key in keys}
    counts = {key: sum(n) if key == "neuroid" else max(n) for key, n in shared.items()}
    values = xr.DataArray([score.value for score in scores], dims=over, coords={over: list(parts)})
    return scores[0].replace(
        value=mean(values.values.tolist()), error=float(np.linalg.norm([score.error for score in scores])) * share,
        raw=mean([score.raw for score in scores]), ceiling=top, samples=values, n={**counts, over: len(scores)},
        limits=(mean([score.limits[0] for score in scores]), mean([score.limits[1] for score in scores])),
        notes=tuple(f"{name}: {note}" for name, score in parts.items() for note in score.notes), spread=spread,
        generalise=scores[0].generalise if generalise is None else tuple(generalise),
    )  # fmt: skip


def _between(parts: Mapping[str, Score], over: str) -> Spread | None:
    """Return the spread of a mean over a sample of parts; what they share, such as stimuli, varies as in each part.

    The variance between parts and that by shared items both include the interaction of the two. It is subtracted once.
    """
    scores, values = list(parts.values()), np.array([score.value for score in parts.values()])
    if len(values) < 2:
        raise MetricError(f"the score cannot generalise over {over}: there is only one")
    items = moved(list(parts), (values - values.mean()) / len(values))
    signs = multipliers(scores[0].population, over, items.ids)
    draws, counts = {over: items.draws(signs)}, {over: len(values)}
    if not scores[0].generalise:  # a claim about new parts only
        return Spread(draws, counts)
    spreads = [score.spread for score in scores]
    known = [spread for spread in spreads if spread is not None]
    if len(known) < len(scores):
        return None
    shared = sum_of(known, [score.population for score in scores]) * (1 / len(values))
    for factor in shared.factors:
        each = np.array([spread.draws.get(factor, np.zeros(DRAWS)) for spread in known])
        apart = (each - each.mean(axis=0))[np.argsort(list(parts))]
        draws[factor + CROSS + over] = (apart.T * signs).sum(axis=1) / len(values)
    return Spread({**shared.draws, **draws}, {**shared.items, **counts}, sure=shared.sure)


def normalise_by_floor(raw: Score, dummy: float, perfect: float) -> Score:
    """Return (score − dummy) / (perfect − dummy): 0 is the dummy, 1 is perfect.

    Raises
    ------
    MetricError
        The dummy equals ``perfect`` or is not finite.
    """
    span = perfect - dummy
    if not math.isfinite(span) or abs(span) < 1e-12:
        raise MetricError(f"cannot normalise: the dummy scores {dummy:.4g} and perfection is {perfect:.4g}")
    scored: dict[str, Any] = {
        "value": (raw.value - dummy) / span, "error": raw.error / abs(span), "raw": raw.value,
        "direction": "higher", "n": {**raw.n, "dummy": dummy},
        "limits": tuple(sorted((end - dummy) / span for end in raw.limits)),
    }  # fmt: skip
    if raw._replicates is not None:
        return raw.replace(**scored, replicates=lambda: (_drawn(raw) - dummy) / span)
    if raw._interval is not None and raw.spread is None:
        low, high = sorted(((raw.low - dummy) / span, (raw.high - dummy) / span))
        return raw.replace(**scored, low=low, high=high)

    def spread() -> Spread | None:
        raw_spread = raw.spread
        return raw_spread and replace(raw_spread * (1 / span), skewed=raw_spread.skewed, sure=raw_spread.sure)

    return raw.replace(**scored, spread=spread)


def _drawn(score: Score) -> Floats:
    draws = score.replicates
    return np.empty(0) if draws is None else draws
