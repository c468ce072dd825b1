"""The influence of an image on a correlation of patterns is the change when it is left out, at every level."""

from __future__ import annotations

import numpy as np
import pytest

from neuroledger.families.behavior.tasks.discrimination import of_new_images, pattern, pearson


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
def test_the_influence_of_an_image_is_the_change_without_it(
    level: str, distractors: str, normalise: bool
) -> None:
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

    names = np.array([f"im{i:02d}" for i in range(images)])
    influence = of_new_images(names, truth, [(one, two)], **kind)  # type: ignore[arg-type]
    items = influence.factors["stimulus"]
    left = np.array([correlation(np.delete(np.arange(images), i)) for i in range(images)])
    deviation = np.sqrt((images - 1) / images) * (left.mean() - left)
    if level == "object" or normalise:  # ten images of each object are random, not 60
        deviation *= np.sqrt((1 - 1 / 10) / (1 - 1 / images))
    if level == "object":  # the mean with the variance of draws of other images, which is smaller
        drawn = [
            correlation(np.concatenate([rng.choice(np.flatnonzero(truth == o), 10) for o in range(objects)]))
            for _ in range(2000)
        ]
        middle = (deviation @ deviation + np.var(drawn) * 10 / 9) / 2
        assert items.variance == pytest.approx(middle, rel=0.15)
        deviation *= np.sqrt(items.variance / (deviation @ deviation))
    np.testing.assert_allclose(items.deviation, deviation, atol=1e-12)
    assert items.ids.tolist() == names.tolist()


def test_clipped_values_do_not_change_with_the_false_alarms() -> None:
    """A cell of few trials without an error has the largest d-prime, however many false alarms there are."""
    rng = np.random.default_rng(1)
    images, objects = 60, 6
    truth = np.arange(images) % objects
    one, two = (rng.binomial(3, 0.25, (images, objects)) / 3 for _ in range(2))
    for rates in (one, two):
        rates[np.arange(images), truth] = np.nan
    kind: dict[str, object] = {"level": "image", "distractors": "each", "normalise": False}
    names = np.array([f"im{i:02d}" for i in range(images)])
    got = of_new_images(names, truth, [(one, two)], **kind).factors["stimulus"].deviation  # type: ignore[arg-type]
    left = []
    for i in range(images):
        rows = np.delete(np.arange(images), i)
        a, b = (pattern(rates[rows], truth[rows], **kind) for rates in (one, two))  # type: ignore[arg-type]
        known = ~np.isnan(a)
        left.append(pearson(a[known], b[known]))
    np.testing.assert_allclose(got, np.sqrt((images - 1) / images) * (np.mean(left) - left), atol=1e-12)
