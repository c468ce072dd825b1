"""Chance exceeds the adjusted level as rarely as stated."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from neuroledger.errors import RequestError
from neuroledger.families.decoding.results import adjusted_chance


def test_levels_are_those_of_the_article() -> None:
    assert adjusted_chance(40, 2) == 0.625
    assert adjusted_chance(100, 2) == 0.58
    assert adjusted_chance(100, 4) == pytest.approx(0.32)


@pytest.mark.parametrize(("windows", "classes"), [(20, 2), (60, 3), (200, 4)])
def test_chance_exceeds_it_as_rarely_as_stated_and_no_lower_level_does(
    windows: int, classes: int
) -> None:
    chance = 1 / classes
    shares = [
        comb(windows, hits) * chance**hits * (1 - chance) ** (windows - hits)
        for hits in range(windows + 1)
    ]
    level = round(adjusted_chance(windows, classes) * windows)
    assert np.sum(shares[level + 1 :]) <= 0.05 < np.sum(shares[level:])


@pytest.mark.parametrize(
    ("windows", "classes", "alpha"), [(0, 2, 0.05), (9, 1, 0.05), (9, 2, 0)]
)
def test_what_has_no_level_is_refused(windows: int, classes: int, alpha: float) -> None:
    with pytest.raises(RequestError, match="at least one window"):
        adjusted_chance(windows, classes, alpha=alpha)
