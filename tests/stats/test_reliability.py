"""The reliability of all repetitions, extrapolated from two parts."""

from __future__ import annotations

import numpy as np
import pytest

from neuroledger.stats.reliability import of_all


@pytest.mark.parametrize(("one", "two"), [(3, 3), (2, 5), (1, 9)])
@pytest.mark.parametrize("noise", [0.1, 1.0, 20.0])
def test_the_noise_of_a_repetition_gives_back_the_reliability_of_all(
    one: int, two: int, noise: float
) -> None:
    r = np.array(
        [[1 / np.sqrt((1 + noise / one) * (1 + noise / two))] * 4]
    )  # of four neuroids
    result = of_all(r, np.full((1, 7), one), np.full((1, 7), two))
    assert result.shape == (1, 4)
    np.testing.assert_allclose(result, 1 / (1 + noise / (one + two)))


def test_stimuli_that_one_part_lacks_do_not_count() -> None:
    r, first, second = np.array([0.4, 0.7]), np.full((2, 6), 2), np.full((2, 6), 5)
    first[0, :2], second[1, 4:] = 0, 0
    np.testing.assert_allclose(
        of_all(r, first, second), of_all(r, np.full((2, 6), 2), np.full((2, 6), 5))
    )
    first[0, 2] = (
        1  # repetitions differ between stimuli: means of 1/n take the place of 1/n
    )
    shares = np.array([1.0, 0.5, 0.5, 0.5]).mean()
    every = np.array([1 / 6, 1 / 7, 1 / 7, 1 / 7]).mean()
    x = np.linspace(0.01, 20, 400_001)
    noise = x[np.argmin(np.abs(1 / np.sqrt((1 + x * shares) * (1 + x / 5)) - 0.4))]
    assert of_all(r, first, second)[0] == pytest.approx(
        1 / (1 + noise * every), abs=1e-4
    )


def test_no_signal_has_no_reliability_and_its_opposite_none_at_all() -> None:
    first, second = np.full((3, 4), 2), np.full((3, 4), 3)
    result = of_all(np.array([0.0, -1.0, -0.3]), first, second)
    assert result[0] == 0.0 and np.isnan(result[1])
    assert -1 < result[2] < -0.3
    assert np.isnan(of_all(np.array([-1.0]), second[:1], second[:1])).all()
