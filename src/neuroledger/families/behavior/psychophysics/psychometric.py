"""The psychometric function of a task with alternatives, fitted by maximum likelihood, and its threshold."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

from neuroledger.data.arrays import Booleans, Floats, floats

__all__ = ["Fit", "Threshold", "accuracies", "before_decline", "fit", "threshold"]

GUESS = 0.5
LAPSES = (0.03, 0.5)
SLOPES = np.logspace(-3, 1, 50)
LEAST_R2 = 0.4
LEAST_CURVATURE = 1e-4
ROOT = float(np.sqrt(2 * np.pi))


class Fit(NamedTuple):
    """The fitted function ``g + (1 − g − lapse) Φ(slope (x − mean))``, its explained variance, and whether it is unique.

    The fit is not ``determined`` if accuracy jumps between two points: all curves that jump between them fit equally well.
    """

    slope: float
    mean: float
    lapse: float
    r2: float
    determined: bool = True
    guess: float = GUESS

    def __call__(self, x: npt.ArrayLike) -> Floats:
        """Return the expected accuracy at ``x``."""
        z = self.slope * (floats(x) - self.mean)
        return np.asarray(self.guess + (1 - self.guess - self.lapse) * ndtr(z))

    def inverse(self, accuracy: float) -> float:
        """Return the ``x`` at which ``accuracy`` is expected; NaN if it is never reached."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(
                self.mean
                + ndtri((accuracy - self.guess) / (1 - self.guess - self.lapse))
                / self.slope
            )


class Threshold(NamedTuple):
    """A threshold and the accuracy that defines it, or the reason why there is none."""

    value: float
    accuracy: float
    failure: str = ""
    determined: bool = True


def accuracies(x: Floats, correct: Booleans) -> tuple[Floats, Floats]:
    """Return distinct ``x`` in ascending order, and the proportion of correct answers at each."""
    levels, codes = np.unique(x, return_inverse=True)
    return levels, np.bincount(
        codes, weights=correct, minlength=levels.size
    ) / np.bincount(codes)


def before_decline(x: Floats, y: Floats) -> tuple[Floats, Floats, bool]:
    """Return the points before accuracy declines permanently, and whether at least a third of all points remain.

    After the maximum, points are removed from the first one onwards from which all later ones differ from the maximum by
    at least one standard deviation of ``y``: an experimenter would not have measured them.
    """
    top = int(np.argmax(y))
    far = np.abs(y[top + 1 :] - y[top]) >= np.std(y)
    lasting = np.logical_and.accumulate(far[::-1])[::-1]
    if lasting.any():
        end = top + 1 + int(np.argmax(lasting))
    else:
        end = len(y)
    return x[:end], y[:end], end / len(y) >= 1 / 3


def _log_likelihoods(y: Floats, p: Floats) -> Floats:
    """Log likelihood of a share `y` of hits where a share `p` is expected."""
    return np.asarray(y * np.log(p) + (1 - y) * np.log(1 - p))


def _loss(parameters: Floats, x: Floats, y: Floats, guess: float) -> float:
    slope, mean, lapse = parameters
    p = guess + (1 - guess - lapse) * ndtr(slope * (x - mean))
    return float(-np.sum(_log_likelihoods(y, p)))


def _loss_and_gradient(
    parameters: Floats, x: Floats, y: Floats, guess: float
) -> tuple[float, Floats]:
    slope, mean, lapse = parameters
    z = slope * (x - mean)
    rise = ndtr(z)
    density = np.exp(-0.5 * z * z) / ROOT
    span = 1 - guess - lapse
    p = guess + span * rise
    pull = y / p - (1 - y) / (1 - p)
    gradient = -np.asarray(
        [
            (pull * span * density * (x - mean)).sum(),
            -(pull * span * density).sum() * slope,
            -(pull * rise).sum(),
        ]
    )
    return float(-np.sum(_log_likelihoods(y, p))), gradient


def fit(
    x: Floats,
    y: Floats,
    *,
    search: Literal["fast", "brainscore"] = "fast",
    guess: float = GUESS,
) -> Fit:
    """Fit accuracies ``y`` at ``x`` by maximum likelihood, with a lapse rate within [.03, .5].

    ``guess`` is the accuracy of guessing: ½ for two alternatives, 1/n for n. ``fast`` evaluates the likelihood on a grid,
    then runs L-BFGS-B with the exact gradient from the best slope and lapse at every ``x``. ``brainscore`` is the search
    of Brain-Score: L-BFGS-B with finite differences from every start of a grid (50 slopes × all ``x``). Both reach the
    same optimum if it is unique; if the likelihood is flat, ``fast`` also searches from the grid, so that it selects the
    same one of the equal optima.
    """
    best = _search(x, y, guess, thorough=search == "brainscore")
    determined = best is not None and _is_determined(best, x, y, guess)
    if best is not None and not determined and search == "fast":
        best = _search(x, y, guess, thorough=True)
    if best is None:
        return Fit(np.nan, np.nan, np.nan, -np.inf, False)
    result = Fit(float(best[0]), float(best[1]), float(best[2]), 0.0, determined, guess)
    residual = float(((y - result(x)) ** 2).sum())
    total = float(((y - y.mean()) ** 2).sum())
    return result._replace(
        r2=1 - residual / total if total > 0 else float(residual == 0)
    )


def _search(x: Floats, y: Floats, guess: float, *, thorough: bool) -> Floats | None:
    """Return slope, mean and lapse with the lowest loss, or None if no loss is finite."""
    lapse = 1 - float(np.max(y))
    starts = np.asarray([(slope, mean, lapse) for slope in SLOPES for mean in x])
    best = None
    lowest = np.inf
    bounds = ((None, None), (None, None), LAPSES)
    for start in starts if thorough else _likely_starts(x, y, guess):
        with np.errstate(all="ignore"):
            if thorough:
                optimum = minimize(
                    _loss, start, args=(x, y, guess), method="L-BFGS-B", bounds=bounds
                )
            else:
                optimum = minimize(
                    _loss_and_gradient,
                    start,
                    args=(x, y, guess),
                    jac=True,
                    method="L-BFGS-B",
                    bounds=bounds,
                    options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000},
                )
            value = _loss(optimum.x, x, y, guess)
        if value < lowest:
            best = floats(optimum.x)
            lowest = value
    return best


def _is_determined(best: Floats, x: Floats, y: Floats, guess: float) -> bool:
    """Return whether the loss is curved in all directions of slope and mean, scaled by the slope and the range of x."""
    scale = np.asarray([abs(best[0]), np.ptp(x), 1.0])
    curvature = np.empty((2, 2))
    for i in range(2):
        step = np.zeros(3)
        step[i] = 1e-5 * scale[i]
        above, below = (
            _loss_and_gradient(best + sign * step, x, y, guess)[1] for sign in (1, -1)
        )
        curvature[i] = ((above - below) * scale)[:2] / 2e-5
    return bool(
        np.isfinite(curvature).all()
        and np.linalg.eigvalsh((curvature + curvature.T) / 2)[0] > LEAST_CURVATURE
    )


def _likely_starts(x: Floats, y: Floats, guess: float) -> Floats:
    """Return start values ``(x, 3)``: every ``x`` as the mean, with the most likely slope and lapse of a grid."""
    lapses = np.unique(
        np.clip([LAPSES[0], 1 - y.max(), 1 - np.mean(y), 0.1, 0.2, 0.3, 0.4], *LAPSES)
    )
    rise = ndtr(SLOPES[:, None, None] * (x - x[:, None]))  # (slope, mean, point)
    p = guess + (1 - guess - lapses[:, None, None, None]) * rise
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = -_log_likelihoods(y, p).sum(axis=-1)
    losses = np.where(np.isnan(losses), np.inf, losses)
    losses = np.moveaxis(losses, -1, 0).reshape(len(x), -1)
    lapse, slope = np.unravel_index(losses.argmin(axis=1), (len(lapses), len(SLOPES)))
    return np.stack([SLOPES[slope], x, lapses[lapse]], axis=1)


def threshold(
    x: Floats,
    correct: Booleans,
    *,
    accuracy: float | Literal["inflection"],
    required: float,
    search: Literal["fast", "brainscore"] = "fast",
    guess: float = GUESS,
) -> Threshold:
    """Return the ``x`` at which ``accuracy`` is reached, from single answers.

    ``inflection`` is half-way between the fitted accuracies at the smallest and the largest ``x``. There is no threshold if
    the overall accuracy is below ``required``, if fewer than a third of the points precede the decline, if the fit
    explains less than .4 of the variance, or if the threshold is beyond the measured points.
    """
    undefined = Threshold(np.nan, np.nan)
    if correct.mean() < required:
        return undefined._replace(
            failure=f"accuracy {correct.mean():.3f} is below the required {required:g}"
        )
    levels, rates = accuracies(x, correct)
    x_before, y_before, rises = before_decline(levels, rates)
    if not rises:
        return undefined._replace(
            failure="accuracy falls with the independent variable"
        )
    fitted = fit(x_before, y_before, search=search, guess=guess)
    if not fitted.r2 >= LEAST_R2:
        return undefined._replace(
            failure=f"the psychometric function explains {fitted.r2:.2f} of the variance"
        )
    at = (
        float((fitted(levels[-1]) + fitted(levels[0])) / 2)
        if accuracy == "inflection"
        else float(accuracy)
    )
    value = fitted.inverse(at)
    if np.isnan(value) or value > x_before[-1]:
        return undefined._replace(
            accuracy=at,
            failure=f"accuracy {at:.3f} is not reached within the points measured",
        )
    return Threshold(value, at, determined=fitted.determined)
