"""Random effects, compared with published analyses and with a simulation of known effects."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t as student

from neuroledger.errors import RequestError
from neuroledger.stats.random_effects import pooled

# The 13 trials of the BCG vaccine: cases and others of the vaccinated, then of the controls (Colditz et al. 1994).
TRIALS = np.array(
    [
        (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761),
        (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232),
        (17, 1699, 65, 1600), (186, 50448, 141, 27197), (5, 2493, 3, 2338), (27, 16886, 29, 17825),
    ],
    dtype=float,
)  # fmt: skip


def log_ratios() -> tuple[list[float], list[float]]:
    """The log relative risk of each trial and its standard error."""
    a, b, c, d = TRIALS.T
    effects = np.log(a / (a + b)) - np.log(c / (c + d))
    errors = np.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))
    return effects.tolist(), errors.tolist()


def test_the_vaccine_trials_have_the_published_mean_and_heterogeneity() -> None:
    """The R package metafor gives for them by DerSimonian and Laird: mean -0.7141, variance 0.3088, I² 92.12 %."""
    effects, errors = log_ratios()
    found = pooled(effects, errors)
    assert found.mean == pytest.approx(-0.7141, abs=5e-5)
    assert found.between**2 == pytest.approx(0.3088, abs=5e-5)
    assert found.inconsistency == pytest.approx(0.9212, abs=5e-5)
    assert found.datasets == 13


def test_the_prediction_interval_is_that_of_higgins() -> None:
    """metafor states a standard error of 0.1787 of the mean; the interval uses 11 degrees of freedom."""
    found = pooled(*log_ratios())
    assert found.predicted is not None
    reach = student.ppf(0.975, 11) * math.sqrt(0.3088 + 0.1787**2)
    assert found.predicted[1] - found.mean == pytest.approx(reach, abs=1e-3)
    assert found.predicted[0] < found.low < found.mean < found.high < found.predicted[1]


def test_data_sets_that_agree_have_no_variation_and_no_shorter_interval() -> None:
    found = pooled([0.1, 0.1, 0.1001], [0.05, 0.05, 0.05])
    assert (found.between, found.inconsistency) == (0.0, 0.0)
    assert found.high - found.mean == pytest.approx(
        student.ppf(0.975, 2) * 0.05 / math.sqrt(3)
    )


def test_two_data_sets_predict_nothing() -> None:
    assert pooled([0.1, 0.4], [0.05, 0.05]).predicted is None


def test_intervals_cover_the_mean_and_about_a_new_data_set() -> None:
    """Of few data sets, the variation between them is known badly: prediction intervals of 95 % cover about 90 %."""
    rng = np.random.default_rng(1)
    covered = predicted = 0
    for _ in range(1000):
        errors = rng.uniform(0.1, 0.3, 6)
        effects = rng.normal(0.2, 0.2, 6) + rng.normal(0, errors)
        found = pooled(effects.tolist(), errors.tolist())
        assert found.predicted is not None
        covered += found.low <= 0.2 <= found.high
        predicted += found.predicted[0] <= rng.normal(0.2, 0.2) <= found.predicted[1]
    assert covered > 930
    assert predicted > 860


@pytest.mark.parametrize(
    ("effects", "errors"), [([0.1], [0.1]), ([0.1, 0.2], [0.1]), ([0.1, 0.2], [0.1, 0])]
)
def test_too_few_data_sets_or_errors_of_zero_are_refused(
    effects: list[float], errors: list[float]
) -> None:
    with pytest.raises(RequestError, match="random effects need"):
        pooled(effects, errors)
