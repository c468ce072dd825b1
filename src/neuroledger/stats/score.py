"""Scores: value, uncertainty, scale, direction, raw value, ceiling, counts, facts and notes; and their normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.data.facts import Fact
from neuroledger.display import card
from neuroledger.errors import MetricError
from neuroledger.stats.groups import COARSE, grouped
from neuroledger.stats.uncertainty import (
    NOWHERE,
    PAIR,
    NaturalScale,
    Part,
    Uncertainty,
    covers,
    total,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = [
    "LIMITS",
    "Score",
    "Status",
    "clipped",
    "counts_to_show",
    "mean_of",
    "natural_scale",
    "normalise",
    "normalise_by_floor",
]

Status = Literal["scored", "partial", "failed"]
Varies = Callable[[Sequence[str] | None], Uncertainty | None]
NAN: Final = float("nan")
# Smallest and largest possible value on each scale.
LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "accuracy": (0.0, 1.0),
    "fraction": (0.0, 1.0),
    "correlation": (-1.0, 1.0),
    "reliability": (-1.0, 1.0),
    "half_reliability": (-1.0, 1.0),
    "consistency": (-1.0, 1.0),
    "similarity": (-1.0, 1.0),
    "explained_variance": (-math.inf, 1.0),
    "error": (0.0, math.inf),
    "distance": (0.0, math.inf),
}


def natural_scale(scale: str, limits: tuple[float, float]) -> NaturalScale:
    """Return the scale of Student's interval: log odds for shares, Fisher's z for correlations, else the values."""
    if limits == (0.0, 1.0):
        return "logit"
    if limits == (-1.0, 1.0) and scale != "consistency":
        return "fisher"
    return "identity"


@dataclass(frozen=True, eq=False, repr=False)
class Score:
    """One number with everything needed to interpret it; immutable.

    Attributes
    ----------
    value
        The number on ``scale``, after normalisation by a ceiling or floor, if any.
    scale, direction, unit
        The scale; whether ``higher`` or ``lower`` is better; the unit, or None.
    error
        Standard error (or deviation) that the spec declares, on the same scale; NaN if it declares none.
    raw
        The metric's value before normalisation by a ceiling or floor.
    ceiling
        The ceiling as a Score, or None.
    n
        Counts: stimuli, neuroids, splits, …
    facts
        What the score depends on and how it is known, by name.
    notes
        Notes for readers (neuroids that were left out and the like).
    limits
        Smallest and largest possible value, which bound the interval.
    samples, predictions
        The labelled values before aggregation, e.g. ``(split, neuroid)``, and what they were computed from, or None.
    status, reason
        ``scored``, ``partial`` or ``failed``, and the reason if it is not ``scored``.
    generalise
        The factors that the interval generalises over; None for all.
    population
        What the random items belong to: the id of a data set. Scores of one population share its items.
    varies
        Returns the uncertainty over the named factors; :attr:`uncertainty` is its result. None if it is not known.

    Examples
    --------
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> features = rng.standard_normal((80, 6))
    >>> brain = features @ rng.standard_normal((6, 4)) + rng.standard_normal((80, 4))
    >>> score = nl.metric("ridge")(features, brain)
    >>> print(f"{score:.2f}")
    0.92 [0.82, 0.97]
    >>> score.interval_covers
    'the 95 % interval covers new stimuli and new neuroids'
    >>> score.scale, score.direction
    ('correlation', 'higher')
    """

    value: float
    scale: str = "score"
    direction: str = "higher"
    unit: str | None = None
    error: float = NAN
    raw: float = NAN
    ceiling: Score | None = None
    n: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    limits: tuple[float, float] = NOWHERE
    samples: xr.DataArray | None = None
    predictions: xr.DataArray | None = None
    status: Status = "scored"
    reason: str = ""
    id: str = ""
    generalise: tuple[str, ...] | None = None
    population: str = ""
    varies: Varies | Uncertainty | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        if math.isnan(self.raw):
            object.__setattr__(self, "raw", self.value)
        for name in ("notes", "generalise"):
            content = getattr(self, name)
            if content is not None:
                object.__setattr__(self, name, tuple(content))

    def __getstate__(self) -> dict[str, object]:
        """Return the state for pickling, with the uncertainty computed."""
        kept = {
            name: value
            for name, value in self.__dict__.items()
            if name != "uncertainty"
        }
        return {**kept, "varies": self.uncertainty}

    @cached_property
    def uncertainty(self) -> Uncertainty | None:
        """How the score varies over new items, computed on first access; None if it is not known."""
        return self.uncertainty_over(self.generalise)

    def uncertainty_over(self, factors: Sequence[str] | None) -> Uncertainty | None:
        """Return how the score varies over those of the named factors over which it varies (default: all)."""
        found = self.varies
        if isinstance(found, Uncertainty):
            if factors is not None:
                found = found.only(factors)
        elif found is not None:
            found = found(None if factors is None else tuple(factors))
        if found is not None and self.population:
            return found.of(self.population)
        return found

    @property
    def interval_covers(self) -> str:
        """A sentence on what the interval covers; empty without an interval."""
        if not math.isfinite(self.low):
            return ""
        words = self.varies_over
        if words:
            return f"the 95 % interval covers {words}"
        return "the 95 % interval is the metric's own"

    @property
    def varies_over(self) -> str:
        """What the score varies over, in words; empty if that has no name."""
        names = self.generalise or (
            () if self.uncertainty is None else self.uncertainty.factors
        )
        if self.n.get("subject", 0) > 1 and "subject" not in names:
            same = {"neuroid": "subject"}
        else:
            same = {}
        return covers(names, same)

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval; NaN if the variation of the score is not known."""
        return self._bounds[0]

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval; NaN if the variation of the score is not known."""
        return self._bounds[1]

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        known = self.uncertainty
        if known is None:
            return (NAN, NAN)
        return known.interval(self.value, self.limits)

    def replace(self, **changes: Any) -> Score:
        """Return a copy with some fields changed.

        Examples
        --------
        >>> import neuroledger as nl
        >>> nl.Score(0.4, scale="correlation").replace(value=0.5)
        Score(0.5 correlation)
        """
        return replace(self, **changes)

    def __float__(self) -> float:
        return self.value

    def __round__(self, digits: int = 0) -> float:
        return round(self.value, digits)

    def __format__(self, spec: str) -> str:
        """Format the value and its interval with a specification of a number, such as ``.2f``: ``0.43 [0.40, 0.46]``."""
        if not spec or self.status == "failed":
            return str(self)
        text = format(self.value, spec)
        if math.isfinite(self.low):
            text += f" [{format(self.low, spec)}, {format(self.high, spec)}]"
        return text

    def _not_alone(self, other: object) -> NoReturn:
        """Refuse to order or subtract scores: their uncertainty is shared, so it must be paired.

        Raises
        ------
        TypeError
            Always; it names what compares.
        """
        raise TypeError(
            "a score has an interval: compare two scores with nl.compare(a, b), which pairs what they share, or the numbers "
            "float(score)"
        )

    __lt__ = __le__ = __gt__ = __ge__ = __sub__ = __rsub__ = _not_alone

    def in_row(self) -> dict[str, float | str | None]:
        """Return what a table says about the score: value, interval, raw value, ceiling, scale and state."""
        return {
            "score": self.value,
            "low": self.low,
            "high": self.high,
            "raw": self.raw,
            "ceiling": None if self.ceiling is None else self.ceiling.value,
            "scale": self.scale,
            "state": self.status,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row: the score as in the table of ``nl.evaluate``."""
        import pandas as pd

        row = {"id": self.id, **self.in_row()}
        return pd.DataFrame([row])

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
            text += (
                f" of ceiling · raw {self.raw:.4g} · ceiling {self.ceiling.value:.4g}"
            )
        partial = f"partial: {self.reason}" if self.status == "partial" else ""
        return " · ".join(filter(None, [text, *counts_in_words(self.n), partial]))

    def _repr_html_(self) -> str:
        rows = [("value", f"{self.value:.4g}")]
        if math.isfinite(self.low):
            rows += [
                ("95 % interval", f"{self.low:.4g} – {self.high:.4g}"),
                ("", self.interval_covers),
            ]
        rows += [("scale", self.scale)]
        if self.ceiling is not None:
            rows += [
                ("raw", f"{self.raw:.4g}"),
                ("ceiling", f"{self.ceiling.value:.4g}"),
            ]
        rows += [(name, f"{count:g}") for name, count in self.n.items()]
        rows += [(name, str(fact)) for name, fact in self.facts.items()]
        rows += [("note", note) for note in self.notes]
        return card(f"{self.id or 'score'} ({self.status})", rows)


def number(value: float) -> float | None:
    """Return a finite number as a float, any other as None."""
    return float(value) if math.isfinite(value) else None


def counts_to_show(n: Mapping[str, float]) -> dict[str, float]:
    """Return the counts that readers understand: of windows, not of their labels, which are the stimuli of a decoder."""
    return {k: v for k, v in n.items() if k != "stimuli" or "windows" not in n}


def counts_in_words(n: Mapping[str, float]) -> list[str]:
    """Format counts: ``10 splits``, ``7 time bins``, ``1 subject``, ``100 stimuli``; also values such as ``0.5 dummy``."""
    words = []
    for name, value in counts_to_show(n).items():
        end = "s" * (value != 1 and name[-1] not in "siy")
        words.append(f"{value:g} {name.replace('_', ' ')}{end}")
    return words


def _signed_square(raw: Any, ceiling: Any) -> Any:
    """Return sign(r)·r²/ρ: explained variance divided by explainable variance, with the sign of r."""
    return np.sign(raw) * np.square(raw) / ceiling


def _ratio(raw: Any, ceiling: Any) -> Any:
    return raw / ceiling


def _over_root(raw: Any, ceiling: Any) -> Any:
    """Return r/√ρ½: a correlation with half of the data divided by the root of the correlation between halves."""
    return raw / np.sqrt(ceiling)


def _square_of_ratio(raw: Any, ceiling: Any) -> Any:
    """Return (r/c)² with the sign of r."""
    return np.sign(raw) * np.square(raw / ceiling)


def _unsigned_square(raw: Any, ceiling: Any) -> Any:
    """Return r²/ρ as in Brain-Score, where a negative correlation counts like a positive one."""
    return np.square(raw) / ceiling


def _unsigned_square_of_ratio(raw: Any, ceiling: Any) -> Any:
    """Return (r/c)² as in Brain-Score."""
    return np.square(raw / ceiling)


Formula = Callable[[Any, Any], Any]

# (scale of the metric, scale of the ceiling) → formula; other pairs are refused.
FORMULAS: Final[Mapping[tuple[str, str], Formula]] = {
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
# Formulas that a benchmark can name; `scales` chooses one of FORMULAS.
NAMED: Final[Mapping[str, Formula]] = {
    "ratio": _ratio,
    "square": _square_of_ratio,
    "explained": _signed_square,
}
UNSIGNED: Final[Mapping[Formula, Formula]] = {
    _signed_square: _unsigned_square,
    _square_of_ratio: _unsigned_square_of_ratio,
}


def normalise(
    raw: Score, ceiling: Score, *, compat: str | None = None, formula: str = "scales"
) -> Score:
    """Normalise a score by its ceiling; value, error and uncertainty are transformed by the formula of the two scales.

    Values above 1 are kept, with a note. ``formula`` names another formula: ``ratio`` (r/c), ``square`` ((r/c)²) or
    ``explained`` (r²/c), all with the sign of r. ``compat="brainscore"`` gives the peer's numbers: squares without a sign,
    and the mean over halves of r/√ρ½, with their standard deviation as error.

    Raises
    ------
    MetricError
        The two scales have no formula, the ceiling is not positive, or its interval contains 0.
    """
    rule = _formula(raw, ceiling, formula, compat)
    value = float(rule(raw.value, ceiling.value))
    error = abs(_slope(lambda r: rule(r, ceiling.value), raw.value, 0.0)) * raw.error
    if (
        compat == "brainscore"
        and rule is _over_root
        and (halves := _each_half(raw, ceiling)).size
    ):
        value = float(halves.mean())
        error = float(halves.std())
    notes = raw.notes + ceiling.notes
    if value > 1:
        notes += (
            f"above the ceiling ({value:.3f} > 1): reported as it is, not clipped",
        )
    ends = [float(rule(end, ceiling.value)) for end in raw.limits]

    def varies(factors: Sequence[str] | None) -> Uncertainty | None:
        own = raw.uncertainty_over(factors)
        if own is None:
            return None
        top = _over_shared(ceiling, own.factors)
        combined = own * _slope(lambda r: rule(r, ceiling.value), raw.value, own.error)
        if top is None:
            return combined
        # A ceiling is positive, so its error cannot exceed it.
        reach = min(top.error, ceiling.value / 2)
        return combined + top * _slope(
            lambda c: rule(raw.value, c), ceiling.value, reach
        )

    return raw.replace(
        value=value,
        error=error,
        raw=raw.value,
        ceiling=ceiling,
        notes=notes,
        limits=(ends[0], ends[1]) if ends[0] < ends[1] else NOWHERE,
        varies=varies,
    )


def _over_shared(ceiling: Score, factors: Sequence[str]) -> Uncertainty | None:
    """Return how a ceiling varies over those of a score's factors that it has: one of people alone has no stimuli."""
    try:
        return ceiling.uncertainty_over(factors)
    except MetricError:
        every = ceiling.uncertainty_over(None)
        return None if every is None else every.only(factors)


def _formula(raw: Score, ceiling: Score, name: str, compat: str | None) -> Formula:
    """Return the formula of two scales, after checking that the ceiling can normalise."""
    if name == "scales":
        rule = FORMULAS.get((raw.scale, ceiling.scale))
    else:
        rule = NAMED[name]
    if rule is None:
        known = ", ".join(f"{m}/{c}" for m, c in FORMULAS)
        raise MetricError(
            f"no normalisation of scale {raw.scale!r} by a ceiling of scale {ceiling.scale!r}; known: {known}"
        )
    if not (math.isfinite(ceiling.value) and ceiling.value > 0):
        raise MetricError(
            f"the ceiling is {ceiling.value:.4g}: the data contain no signal to normalise by"
        )
    if compat is None and ceiling.low <= 0:
        raise MetricError(
            f"the ceiling {ceiling.value:.3g} has the 95 % interval [{ceiling.low:.3g}, {ceiling.high:.3g}], which "
            "includes 0: the data may be noise; record more repetitions or stimuli, or select neuroids by their "
            "reliability elsewhere"
        )
    if compat == "brainscore":
        return UNSIGNED.get(rule, rule)
    return rule


def _slope(function: Callable[[float], float], at: float, reach: float) -> float:
    """Return the mean slope within ``reach`` of the argument; the derivative of a square at 0 would be misleading."""
    reach = max(reach, 1e-6 * max(1.0, abs(at)))
    return (float(function(at + reach)) - float(function(at - reach))) / (2 * reach)


def _each_half(raw: Score, ceiling: Score) -> Floats:
    """Return r/√ρ½ of each half for scores that are means over the same halves; empty for other scores."""
    samples = raw.samples
    tops = ceiling.samples
    if (
        samples is None
        or tops is None
        or samples.dims != ("split",)
        or samples.shape != tops.shape
    ):
        return np.empty(0)
    positive = tops.values > 0  # the peer skips values without a root
    return np.asarray(
        _over_root(samples.values[positive], tops.values[positive]), dtype=np.float64
    )


def clipped(score: Score) -> Score:
    """Return the score clipped to [0, 1], with a note of the original value."""
    value = min(max(score.value, 0.0), 1.0)
    if value == score.value:
        return score
    return score.replace(
        value=value,
        notes=(*score.notes, f"clipped to {value:g}: it was {score.value:.4g}"),
    )


def mean_of(
    parts: Mapping[str, Score], over: str, generalise: Sequence[str] | None = None
) -> Score:
    """Return the mean of separately normalised scores, such as those of each subject, and of their raw values and ceilings.

    Parts that share stimuli vary together; ``error`` assumes independent parts. If ``generalise`` names ``over``, the
    parts are a sample of others, and vary as a factor of their own.
    """
    import xarray as xr

    scores = list(parts.values())

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    def varies(factors: Sequence[str] | None) -> Uncertainty | None:
        if over in (generalise or ()):
            return _between(parts, over)
        known = [score.uncertainty for score in scores]
        if any(each is None for each in known):
            return None
        return total(each for each in known if each is not None) * (1 / len(scores))

    top = None
    tops = [score.ceiling for score in scores if score.ceiling is not None]
    if tops:
        height = mean([each.value for each in tops])
        top = tops[0].replace(value=height, error=NAN, varies=None)
    values = [score.value for score in scores]
    notes = []
    for name, score in parts.items():
        notes += [f"{name}: {note}" for note in score.notes]
    return scores[0].replace(
        value=mean(values),
        error=float(np.linalg.norm([score.error for score in scores])) / len(scores),
        raw=mean([score.raw for score in scores]),
        ceiling=top,
        samples=xr.DataArray(values, dims=over, coords={over: list(parts)}),
        n={**_counts(scores), over: len(scores)},
        limits=(
            mean([score.limits[0] for score in scores]),
            mean([score.limits[1] for score in scores]),
        ),
        notes=tuple(notes),
        varies=varies,
        generalise=scores[0].generalise if generalise is None else tuple(generalise),
    )


def _counts(scores: Sequence[Score]) -> dict[str, float]:
    """Return the numbers of items: neuroids are those of all scores, other items those of the score with most."""
    counts: dict[str, float] = {}
    for score in scores:
        for key in score.n:
            of_each = [other.n.get(key, 0) for other in scores]
            counts[key] = sum(of_each) if key == "neuroid" else max(of_each)
    return counts


def _between(parts: Mapping[str, Score], over: str) -> Uncertainty | None:
    """Return the uncertainty of a mean over a sample of parts; what they share, such as stimuli, varies as in each part.

    The variance between parts and that by shared items both include the interaction of the two. It is subtracted once.
    """
    scores = list(parts.values())
    count = len(parts)
    if count < 2:
        raise MetricError(f"the score cannot generalise over {over}: there is only one")
    population = scores[0].population
    values = np.array([score.value for score in scores])
    deviations = math.sqrt(count / (count - 1)) * (values - values.mean()) / count
    of_parts = Part(population, (over,), tuple(map(str, parts)), deviations, count - 1)
    sample = Uncertainty((of_parts,), {over: count})
    if not scores[0].generalise:  # a claim about new parts only
        return sample
    known = [score.uncertainty for score in scores]
    each = [uncertainty for uncertainty in known if uncertainty is not None]
    if len(each) < count:
        return None
    shared = total(each) * (1 / count)
    crossed = tuple(
        _interaction(part, each, over, tuple(map(str, parts)))
        for part in shared.parts
        if len(part.over) == 1
    )
    return Uncertainty(
        (*shared.parts, of_parts, *crossed), {**shared.items, over: count}
    )


def _interaction(
    shared: Part, each: Sequence[Uncertainty], over: str, names: Sequence[str]
) -> Part:
    """Return the interaction of the parts of a mean with the groups of one factor that they share."""
    place = {key: at for at, key in enumerate(shared.keys)}
    table = np.zeros((len(each), len(place)))
    for row, uncertainty in zip(table, each, strict=True):
        for part in uncertainty.parts:
            if part.place == shared.place:
                row[[place[key] for key in part.keys]] += part.values
    count = len(each)
    apart = math.sqrt(count / (count - 1)) * (table - table.mean(axis=0)) / count
    columns = grouped(shared.keys, COARSE)
    sums = np.zeros((count, len(columns.keys)))
    np.add.at(sums.T, columns.codes, apart.T)
    keys = tuple(f"{name}{PAIR}{key}" for name in names for key in columns.keys)
    return Part(
        shared.population, (over, *shared.over), keys, sums.ravel(), sums.size - 1
    )


def normalise_by_floor(raw: Score, dummy: float, perfect: float) -> Score:
    """Return (score − dummy) / (perfect − dummy): 0 is the dummy, 1 is perfect.

    Raises
    ------
    MetricError
        The dummy equals ``perfect`` or is not finite.
    """
    span = perfect - dummy
    if not math.isfinite(span) or abs(span) < 1e-12:
        raise MetricError(
            f"cannot normalise: the dummy scores {dummy:.4g} and perfection is {perfect:.4g}"
        )

    def varies(factors: Sequence[str] | None) -> Uncertainty | None:
        own = raw.uncertainty_over(factors)
        # A linear change of units keeps the natural scale, whose limits change alike.
        if own is None:
            return None
        return replace(own * (1 / span), scale=own.scale)

    low, high = sorted((end - dummy) / span for end in raw.limits)
    return raw.replace(
        value=(raw.value - dummy) / span,
        error=raw.error / abs(span),
        raw=raw.value,
        direction="higher",
        n={**raw.n, "dummy": dummy},
        limits=(low, high),
        varies=varies,
    )
