"""Weights of images change a correlation of patterns like copies of these images, at every level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuroledger.families.behavior.tasks.discrimination import of_new_images, pattern, pearson
from neuroledger.stats.spread import multipliers


@pytest.mark.parametrize(
    ("level", "distractors", "normalise"),
    [
        ("image", "each", True),
        ("image", "each", False),
        ("image", "mean", True),
        ("image", "mean", False),
        ("object", "each", False),
        ("object", "mean", False),
    ],
)
def test_weighted_patterns_are_those_of_copied_images(level: str, distractors: str, normalise: bool) -> None:
    rng = np.random.default_rng(0)
    images, objects = 60, 6
    truth = np.arange(images) % objects
    one = np.clip(rng.beta(2, 5, (images, objects)), 0.02, 0.98)
    two = np.clip(one + 0.1 * rng.standard_normal(one.shape), 0.02, 0.98)
    for rates in (one, two):
        rates[np.arange(images), truth] = np.nan
    kind = {"level": level, "distractors": distractors, "normalise": normalise}

    def correlation(rows: np.ndarray) -> float:
        a, b = (pattern(rates[rows], truth[rows], **kind) for rates in (one, two))  # type: ignore[arg-type]
        known = ~np.isnan(a)
        return pearson(a[known], b[known])

    names = [f"im{i:02d}" for i in range(images)]
    influence = of_new_images(np.array(names), truth, [(one, two)], **kind)  # type: ignore[arg-type]
    items = influence.factors["stimulus"]
    draws = items.draws(multipliers("lab", "stimulus", items.ids))
    # The Bayesian bootstrap and the jackknife of leaving each image out agree about the variance.
    left = np.array([correlation(np.delete(np.arange(images), i)) for i in range(images)])
    jackknife = (images - 1) / images * ((left - left.mean()) ** 2).sum()
    assert (draws**2).mean() == pytest.approx(jackknife, rel=0.4)
    copies = rng.integers(1, 4, (5, images))
    again = _again(one, two, truth, kind)
    for times, value in zip(copies, again(copies.astype(float)), strict=True):
        assert value == pytest.approx(correlation(np.repeat(np.arange(images), times)), abs=1e-12)


def test_clipped_values_do_not_change_with_the_false_alarms() -> None:
    """A cell of few trials without an error has the largest d-prime, however many false alarms there are."""
    rng = np.random.default_rng(1)
    images, objects = 60, 6
    truth = np.arange(images) % objects
    one, two = (rng.binomial(3, 0.25, (images, objects)) / 3 for _ in range(2))
    for rates in (one, two):
        rates[np.arange(images), truth] = np.nan
    kind: dict[str, object] = {"level": "image", "distractors": "each", "normalise": False}
    again = _again(one, two, truth, kind)
    for times in rng.integers(1, 4, (5, images)):
        rows = np.repeat(np.arange(images), times)
        a, b = (pattern(rates[rows], truth[rows], **kind) for rates in (one, two))  # type: ignore[arg-type]
        known = ~np.isnan(a)
        assert again(times.astype(float)[None])[0] == pytest.approx(pearson(a[known], b[known]), abs=1e-12)


def _again(one: np.ndarray, two: np.ndarray, truth: np.ndarray, kind: dict[str, object]) -> Any:
    from neuroledger.families.behavior.tasks import discrimination as code

    make = code._of_weighted_images if kind["level"] == "image" else code._of_weighted_objects
    return make(one, two, truth, kind["distractors"], kind["normalise"])  # type: ignore[arg-type]
