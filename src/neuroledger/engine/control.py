"""The outcome of one control: its value, interval, bound and verdict; how it is decided, and said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import ConfigDict, Field

from neuroledger.data.arrays import Floats
from neuroledger.spec.kinds import Controls
from neuroledger.stats.score import Score, number
from neuroledger.stats.stored import Number
from neuroledger.stats.uncertainty import quantile

__all__ = [
    "SHUFFLES",
    "Control",
    "Role",
    "Verdict",
    "bounded",
    "in_words",
    "shuffled",
    "undecided_in",
    "undefined",
]

Role = Literal["positive", "negative"]
Verdict = Literal["passed", "failed", "undecided"]

SHUFFLES: Final = (8, 16, 32, 64, 128)
"""Numbers of shuffles after which a control is judged, unless the first shuffle is enough.

Shuffles are drawn until they decide [besag1991]. Five looks at the same control divide the 5 % of errors by five
(Bonferroni), so that the interval of each look is a 99 % interval, and all of them hold together in 95 %. Each look has
twice the shuffles of the one before. Fewer than eight cannot refuse: if the bound were the median shuffle, all of seven
would exceed it with a probability of 2⁻⁷ = 0.8 %, and one look may refuse falsely with 0.5 %. The last is the power of two
that has the 99 shuffles which a Monte Carlo test at 1 % needs [davison1997].
"""
ERRORS: Final = 0.05


@dataclass(frozen=True)
class Control:
    """One control of one benchmark, as judged."""

    # A record holds this class: unknown fields are refused when it is read.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", use_attribute_docstrings=True
    )

    role: Role
    """A positive control must reach its bound, a negative one must not exceed it."""
    value: Number | None
    """The score of the control, or the mean over its shuffles; null if it is undefined, and then the control failed."""
    bound: Number
    """The smallest value allowed for a positive control, the largest for a negative one."""
    verdict: Verdict
    """failed if the interval excludes what the bounds allow, passed if it lies within, else undecided."""
    low: Number | None = None
    """Lower end of the 95 % interval of the value; null if its uncertainty is unknown, and then the value alone
    decides.
    """
    high: Number | None = None
    """Upper end of the interval, likewise."""
    at_most: Number | None = None
    """The largest value allowed for a positive control, beyond which the ceiling is too low; null if there is none."""
    shuffles: Annotated[int, Field(strict=True, ge=0)] = 0
    """Number of shuffles whose mean the value is; 0 if nothing is shuffled, or it is not known."""
    reason: str = ""
    """Why the value is undefined; otherwise empty."""

    @property
    def follows(self) -> bool:
        """Whether the verdict is the one that follows from value, interval and bounds."""
        return self.verdict == _verdict_of(self)


def bounded(
    role: Role,
    score: Score,
    bound: float,
    at_most: float | None = None,
) -> Control:
    """Judge a control by the interval of its score, or by its value if the score has none."""
    value = number(score.value)
    low = number(score.low)
    high = number(score.high)
    if value is None:
        return undefined(role, bound, "its score is undefined", at_most)
    if low is None or high is None:
        low = high = None
    return _judged(Control(role, value, bound, "undecided", low, high, at_most))


def undefined(
    role: Role, bound: float, reason: str, at_most: float | None = None
) -> Control:
    """Return a control that failed because its score is undefined for a stated reason."""
    return Control(role, None, bound, "failed", at_most=at_most, reason=reason)


def shuffled(
    role: Role, first: Score, value_of: Callable[[int], float], bound: float
) -> Control:
    """Judge a control whose data are shuffled, over as many shuffles as that takes.

    The claim is about the floor of this benchmark on these data: the expected score of a model for which stimuli or labels
    are exchanged at random. Given the data, shuffles are independent draws of that score. The floor is therefore their
    mean, and Student's interval over shuffles is its interval; what other data would give is not part of the claim, and
    the errors over items are not added. One shuffle does not show how shuffles vary. The interval of its score over new
    items stands in for it, which is the deviation of a permuted score, and may let the control pass; it never refuses.
    Otherwise more shuffles are drawn, and the control is judged after each number of :data:`SHUFFLES`. Equal shuffles do
    not show how they vary either: they are judged by their value, after the last.

    Parameters
    ----------
    first
        The score of the first shuffle.
    value_of
        Returns the value of shuffle ``1``, ``2``, …; NaN if it is undefined, which is left out.

    Returns
    -------
    Control
        Decided, or undecided after the last number of shuffles; failed if no shuffle has a value.
    """
    control = replace(bounded(role, first, bound), shuffles=1)
    if control.verdict == "passed" and control.low is not None:
        return control
    values = [first.value]
    for look in SHUFFLES:
        values += list(map(value_of, range(len(values), look)))
        control = _over_shuffles(role, np.array(values), bound)
        is_decided = control.verdict != "undecided" and control.low is not None
        if is_decided or control.value is None:
            return control
    return control


def _over_shuffles(role: Role, values: Floats, bound: float) -> Control:
    """Judge the mean over shuffles, (shuffle,), by Student's interval at one of several looks."""
    known = values[np.isfinite(values)]
    if not known.size:
        return undefined(
            role, bound, f"its score is undefined in {len(values)} shuffles"
        )
    mean = float(known.mean())
    count = int(known.size)
    control = Control(role, mean, bound, "undecided", shuffles=count)
    if count > 1 and np.ptp(known) > 0:
        level = 1 - ERRORS / len(SHUFFLES) / 2
        half = quantile(level, count - 1) * float(known.std(ddof=1)) / math.sqrt(count)
        control = replace(control, low=mean - half, high=mean + half)
    return _judged(control)


def _judged(control: Control) -> Control:
    """Return the control with the verdict that follows from its other fields."""
    return replace(control, verdict=_verdict_of(control))


def _verdict_of(control: Control) -> Verdict:
    """Return the verdict that follows from value, interval and bounds."""
    value = control.value
    if value is None:
        return "failed"
    low = value if control.low is None else control.low
    high = value if control.high is None else control.high
    smallest = control.bound
    largest = math.inf if control.at_most is None else control.at_most
    if control.role == "negative":
        smallest = -math.inf
        largest = control.bound
    if high < smallest or low > largest:
        return "failed"
    if smallest <= low and high <= largest:
        return "passed"
    return "undecided"


def undecided_in(controls: Mapping[str, Control]) -> list[tuple[str, Control]]:
    """Return the undecided controls with their names."""
    return [
        (name, control)
        for name, control in controls.items()
        if control.verdict == "undecided"
    ]


def in_words(control: Control) -> str:
    """Say a control's value, interval, number of shuffles and bound in one line; undecided ones, why they are."""
    return ", ".join(_parts(control))


def _parts(control: Control) -> Iterator[str]:
    if control.value is None:
        yield control.reason
        return
    is_known = control.low is not None and control.high is not None
    yield f"{control.value:.3f}" + (
        f" [{control.low:.3f}, {control.high:.3f}]" if is_known else ""
    )
    if control.shuffles > 1:
        yield f"mean of {control.shuffles} shuffles"
    low = control.value if control.low is None else control.low
    high = control.value if control.high is None else control.high
    if control.at_most is not None and high > control.at_most:
        if low > control.at_most:
            end = ": the ceiling is too low to normalise by"
        else:
            end = ""
        yield f"must be at most {control.at_most:g}{end}"
    else:
        yield f"must be at {'least' if control.role == 'positive' else 'most'} {control.bound:g}"
    if not is_known:
        yield "its uncertainty is unknown"
    if control.verdict == "undecided":
        yield "undecided: the interval contains the bound"


def floor_of(rules: Controls, chance: float) -> float:
    """Return the largest value allowed for negative controls: as declared, or a share of the way from chance to 1."""
    if "floor_at_most" in rules.model_fields_set:
        return rules.floor_at_most
    return chance + rules.floor_at_most * (1 - chance)
