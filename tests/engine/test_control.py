"""The rule that decides controls: error rates in simulations with a known floor, looks, limits, and words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from neuroledger.engine.control import (
    SHUFFLES,
    Control,
    bounded,
    in_words,
    shuffled,
    undefined,
)
from neuroledger.engine.session import Request, Session
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import quantile
from tests.engine.given_interval import between
from tests.engine.lab import Lab

BOUND = 0.1
Draw = Callable[[np.random.Generator], float]


def normal(mean: float, deviation: float) -> Draw:
    return lambda rng: float(rng.normal(mean, deviation))


def people(number: int, mean: float = 0.0) -> Draw:
    """Labels of people: each tested person's windows are all taken for one class or the other."""
    return lambda rng: mean + 2 * rng.binomial(number, 0.5) / number - 1


class Shuffles:
    """Shuffles of one experiment; those asked for are counted."""

    def __init__(self, draw: Draw, seed: int) -> None:
        self.draw, self.rng, self.asked = draw, np.random.default_rng(seed), list[int]()
        self.first = draw(self.rng)

    def value(self, number: int) -> float:
        self.asked.append(number)
        return self.draw(self.rng)

    def judged(self, half: float = math.inf) -> Control:
        """Judge them; the first score has an interval of this half width over items."""
        first = between(self.first - half, self.first + half, self.first)
        return shuffled("negative", first, self.value, BOUND)


def rates(draw: Draw, half: float, runs: int = 1000) -> dict[str, float]:
    verdicts = [Shuffles(draw, seed).judged(half).verdict for seed in range(runs)]
    return {
        name: verdicts.count(name) / runs for name in ("passed", "failed", "undecided")
    }


@pytest.mark.parametrize(
    ("draw", "half"),
    [
        (normal(0.0, 0.05), 0.1), (normal(0.0, 0.22), 0.44), (normal(0.0, 0.6), 1.2),
        (people(2), math.inf), (people(3), 1.1), (people(4), 1.0), (people(10), 0.6), (people(20), 0.4),
    ],
)  # fmt: skip
def test_a_benchmark_without_a_fault_is_refused_in_less_than_one_of_a_hundred_experiments(
    draw: Draw, half: float
) -> None:
    assert rates(draw, half)["failed"] <= 0.01


def test_at_the_bound_itself_the_looks_together_refuse_at_most_as_often_as_one_interval_errs() -> (
    None
):
    found = rates(normal(BOUND, 0.3), math.inf, runs=2000)
    assert found["failed"] <= 0.025 and found["passed"] <= 0.025
    assert found["undecided"] >= 0.95


@pytest.mark.parametrize(
    ("draw", "half"),
    [
        (normal(0.4, 0.05), 0.1),
        (normal(0.4, 0.22), 0.44),
        (normal(0.4, 0.5), 1.0),
        (people(4, 0.4), 1.0),
    ],
)
def test_a_planted_leak_is_refused(draw: Draw, half: float) -> None:
    found = rates(draw, half, runs=500)
    assert found["failed"] >= 0.99, found


def test_a_first_shuffle_whose_interval_is_below_the_bound_is_enough() -> None:
    shuffles = Shuffles(lambda rng: 0.0, 0)
    assert shuffles.judged(0.09) == Control(
        "negative", 0.0, BOUND, "passed", -0.09, 0.09, shuffles=1
    )
    assert shuffles.asked == []


def test_one_shuffle_alone_never_refuses() -> None:
    shuffles = Shuffles(normal(0.0, 0.01), 0)
    shuffles.first = 0.9
    control = shuffles.judged(0.01)
    assert control.verdict != "failed" and control.shuffles >= SHUFFLES[0]


def test_shuffles_are_drawn_in_order_up_to_the_look_that_decides() -> None:
    shuffles = Shuffles(normal(0.5, 0.01), 0)
    control = shuffles.judged()
    assert control.verdict == "failed" and control.shuffles == SHUFFLES[0]
    assert shuffles.asked == list(range(1, SHUFFLES[0]))
    again = Shuffles(normal(0.5, 0.01), 0)
    values = [again.first, *(again.value(number) for number in range(1, SHUFFLES[0]))]
    half = quantile(0.995, 7) * np.std(values, ddof=1) / math.sqrt(8)
    assert control.value == pytest.approx(np.mean(values))
    assert (control.low, control.high) == (
        pytest.approx(np.mean(values) - half),
        pytest.approx(np.mean(values) + half),
    )
    later = Shuffles(normal(0.0, 0.22), 3)
    assert later.judged().shuffles in SHUFFLES[1:-1]
    assert later.asked == list(range(1, len(later.asked) + 1))


def test_what_stays_undecided_ends_at_the_maximum() -> None:
    shuffles = Shuffles(normal(BOUND, 0.3), 1)
    control = shuffles.judged()
    assert (control.verdict, control.shuffles) == ("undecided", SHUFFLES[-1])
    assert shuffles.asked == list(range(1, SHUFFLES[-1]))
    assert (
        control.low is not None
        and control.high is not None
        and control.low < BOUND < control.high
    )


@pytest.mark.parametrize(("value", "verdict"), [(0.05, "passed"), (0.3, "failed")])
def test_equal_shuffles_are_judged_by_their_value_after_the_last(
    value: float, verdict: str
) -> None:
    shuffles = Shuffles(lambda rng: value, 0)
    control = shuffles.judged()
    assert (control.verdict, control.low, control.shuffles) == (
        verdict,
        None,
        SHUFFLES[-1],
    )


def test_a_shuffled_control_without_an_interval_is_shuffled_again() -> None:
    rng = np.random.default_rng(0)
    control = shuffled(
        "negative", Score(0.0), lambda number: float(rng.normal(0, 0.02)), BOUND
    )
    assert (control.verdict, control.shuffles) == (
        "passed",
        SHUFFLES[0],
    ) and control.high is not None


def test_shuffles_without_a_value_are_left_out() -> None:
    values = iter([math.nan, *np.linspace(-0.02, 0.02, 6)])
    control = shuffled("negative", Score(0.01), lambda number: next(values), BOUND)
    assert (control.verdict, control.shuffles) == ("passed", 7)
    none = shuffled("negative", Score(math.nan), lambda number: math.nan, BOUND)
    assert none == undefined("negative", BOUND, "its score is undefined in 8 shuffles")
    assert none.verdict == "failed" and none.follows


@pytest.mark.parametrize(
    ("role", "low", "high", "verdict"),
    [
        ("positive", 0.8, 0.9, "passed"), ("positive", 0.79, 0.9, "undecided"), ("positive", 0.7, 0.8, "undecided"),
        ("positive", 0.7, 0.79, "failed"), ("positive", 1.5, 2.0, "passed"), ("positive", 1.5, 2.1, "undecided"),
        ("positive", 2.1, 2.2, "failed"), ("negative", 0.7, 0.8, "passed"), ("negative", 0.7, 0.81, "undecided"),
        ("negative", 0.81, 0.9, "failed"),
    ],
)  # fmt: skip
def test_a_control_is_judged_by_its_interval(
    role: str, low: float, high: float, verdict: str
) -> None:
    at_most = 2.0 if role == "positive" else None
    control = bounded(role, between(low, high), 0.8, at_most)  # type: ignore[arg-type]
    assert control.verdict == verdict and control.follows
    for other in {"passed", "undecided", "failed"} - {verdict}:
        assert not replace(control, verdict=other).follows  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("role", "value", "verdict"),
    [
        ("positive", 0.8, "passed"), ("positive", math.nextafter(0.8, 0), "failed"), ("positive", 2.0, "passed"),
        ("positive", math.nextafter(2.0, 3), "failed"), ("positive", math.nan, "failed"),
        ("positive", math.inf, "failed"), ("negative", 0.8, "passed"), ("negative", -math.inf, "failed"),
        ("negative", math.nextafter(0.8, 1), "failed"), ("negative", -5.0, "passed"), ("negative", math.nan, "failed"),
    ],
)  # fmt: skip
def test_without_an_interval_the_value_decides(
    role: str, value: float, verdict: str
) -> None:
    at_most = 2.0 if role == "positive" else None
    control = bounded(role, Score(value), 0.8, at_most)  # type: ignore[arg-type]
    assert control.verdict == verdict and control.low is None
    assert ("its uncertainty is unknown" in in_words(control)) is math.isfinite(value)


def test_words_say_value_interval_shuffles_bound_and_what_is_undecided() -> None:
    for control, words in (
        (Control("negative", 0.05, 0.1, "passed", 0.01, 0.09), "0.050 [0.010, 0.090], must be at most 0.1"),
        (
            Control("negative", 0.05, 0.1, "undecided", -0.1, 0.2, shuffles=128),
            "0.050 [-0.100, 0.200], mean of 128 shuffles, must be at most 0.1, undecided: the interval contains the bound",
        ),
        (
            Control("positive", 9.0, 0.8, "undecided", 7.0, 11.0, at_most=10.0),
            "9.000 [7.000, 11.000], must be at most 10, undecided: the interval contains the bound",
        ),
        (Control("positive", 0.9, 0.8, "passed"), "0.900, must be at least 0.8, its uncertainty is unknown"),
        (undefined("positive", 0.8, "the target is constant"), "the target is constant"),
    ):  # fmt: skip
        assert in_words(control) == words


def test_another_shuffle_has_another_seed_and_shares_what_does_not_depend_on_it(
    lab: Lab,
) -> None:
    session = Session(lab.open(), Request(seed=5))
    seeds = [session.reshuffled(number).request.seed for number in range(1, 128)]
    assert len({5, *seeds}) == 128
    assert seeds[:3] == [
        session.reshuffled(number).request.seed for number in (1, 2, 3)
    ]
    assert (
        Session(session.catalog, Request(seed=6)).reshuffled(1).request.seed
        not in seeds
    )
    other = session.reshuffled(1)
    for name in (
        "catalog",
        "workspace",
        "datasets",
        "models",
        "dummies",
        "ceilings",
        "valid",
    ):
        assert getattr(other, name) is getattr(session, name)
    assert session.request == Request(seed=5)
