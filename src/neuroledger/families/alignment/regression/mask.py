"""Mask regression: each neuroid is predicted by one spatial mask and one weight per channel of a feature map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
import xarray as xr
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.arrays import Array, Indices
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.feature_maps import Grid, grid
from neuroledger.families.alignment.regression.problem import Prediction, Problem
from neuroledger.families.fields import AtLeastOne
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["Mask", "MaskReadout", "slopes_of"]

# Features of at most this many bytes are copied to the device as a whole; larger ones batch by batch.
HELD = 1 << 30
# Weights start as standard normal numbers: if all steps together are smaller than this, many cannot reach their optimum.
REACH = 4.0
# Adam's decay rates of both moments, and the constant that keeps its steps finite.
DECAYS = (0.9, 0.999)
FLOOR = 1e-8

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = AtLeastOne


class Mask(BaseModel):
    """A spatial mask ``s``, channel weights ``d`` and an offset ``b`` for each neuroid: ``Σ_c d_c Σ_xy s_xy X_xyc + b``.

    They minimise ``‖prediction - response‖ + spatial_penalty (Σ s² + Σ ‖Δs‖) + channel_penalty Σ d²`` (Klindt et al.
    2017). The first norm is over a batch of stimuli and all neuroids; ``Δ`` is the discrete Laplacian with zeros around
    the map, and its norm is computed for each neuroid. Weights start as standard normal numbers, offsets as zero. Adam
    runs over shuffled batches; its rate is divided by ten after epoch ``decay + 1`` and then every ``decay`` epochs.
    Training stops after ``epochs``, or as soon as the first norm of an epoch's last batch is below ``tolerance``.
    Features are not standardised.

    ``seed`` initialises one legacy generator of NumPy that is used for all splits in order: it draws the mask and the
    channel weights of each neuroid, then the order of stimuli in each epoch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["mask"] = "mask"
    learning_rate: Positive = 0.01
    decay: Count = 25
    epochs: Count = 40
    batch: Count = 50
    tolerance: Penalty = 0.1
    spatial_penalty: Penalty = 0.1
    channel_penalty: Penalty = 0.1
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0

    def over(self, source: xr.DataArray) -> MaskReadout:
        """Readout of the feature maps that the neuroids of ``source`` form.

        Raises
        ------
        MetricError
            The neuroids have no ``channel``, ``channel_x`` and ``channel_y``, or do not fill a grid of these.
        """
        return MaskReadout(self, grid(source))


class Weights(NamedTuple):
    """Trained parameters: masks (neuroid × place), channel weights (neuroid × channel), offsets (neuroid)."""

    masks: Array
    channels: Array
    offsets: Array


@dataclass(frozen=True)
class MaskReadout:
    """A mask readout of features that fill ``grid``."""

    rule: Mask
    grid: Grid

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split, in order; all neuroids of a split are trained together.

        Raises
        ------
        MetricError
            Features are missing or infinite, or features or responses are so large that training overflows.
        """
        if not np.isfinite(np.sum(problem.X, dtype=np.float64)):
            raise MetricError(
                "the source has missing or infinite values, and a map needs all its units; drop those stimuli"
            )
        workspace = problem.workspace
        maps = _maps(problem, self.grid)
        Y = _single(workspace.put(problem.Y), workspace)
        random = np.random.RandomState(self.rule.seed)
        for number, split in enumerate(problem.splits):
            weights = self._trained(maps, Y, split, random, workspace)
            values = _answers(
                weights, maps, split.test, self.grid, self.rule.batch, workspace
            )
            yield Prediction(
                workspace.put(workspace.take(values)),
                _short(self.rule, len(split.train)),
                split=number,
            )

    def _trained(
        self,
        maps: Callable[[Indices], Array],
        Y: Array,
        split: Split,
        random: np.random.RandomState,
        workspace: Workspace,
    ) -> Weights:
        """Weights after training on the train rows of ``split``."""
        rule = self.rule
        xp = workspace.xp
        rows = split.train
        weights = _initial_weights(self.grid, Y.shape[1], random, workspace)
        first = Weights(*(xp.zeros_like(part) for part in weights))
        second = Weights(*(xp.zeros_like(part) for part in weights))
        step = 0
        for epoch in range(rule.epochs):
            order = random.permutation(len(rows))
            for start in range(0, len(rows), rule.batch):
                chosen = rows[order[start : start + rule.batch]]
                error, slopes = slopes_of(
                    weights, maps(chosen), Y[workspace.indices(chosen)], rule, self.grid
                )
                step += 1
                _descend(weights, slopes, first, second, _rate(rule, epoch), step)
            if not np.isfinite(float(error)):
                raise MetricError(
                    f"training overflowed in epoch {epoch + 1} at learning_rate {rule.learning_rate:g}: features or "
                    "responses are too large; divide both sides by their standard deviations"
                )
            if float(error) < rule.tolerance:
                break
        return weights


def _rate(rule: Mask, epoch: int) -> float:
    """Learning rate in an epoch, counted from 0."""
    return float(rule.learning_rate / 10.0 ** (max(0, epoch - 1) // rule.decay))


def _short(rule: Mask, rows: int) -> tuple[str, ...]:
    """Note if training is too short to move weights far: Adam moves none by more than about its rate in a step."""
    batches = -(-rows // rule.batch)
    reach = batches * sum(_rate(rule, epoch) for epoch in range(rule.epochs))
    if reach >= REACH:
        return ()
    return (
        f"training is short: {rule.epochs * batches} steps in which no weight moves by more than about {reach:.1f}; "
        "with few stimuli give more epochs (and decay)",
    )


def _maps(problem: Problem, grid: Grid) -> Callable[[Indices], Array]:
    """Function that returns the maps of rows on the device: (row, channel, place), or (row, place, channel) if deep."""
    workspace = problem.workspace
    X = problem.X

    def laid_out(values: Array) -> Array:
        flat = _single(workspace.put(values[:, grid.order]), workspace)
        return flat.reshape(len(values), *grid.shape)

    if X.shape[0] * X.shape[1] * 8 > HELD:
        return lambda rows: laid_out(X[rows])
    maps = laid_out(X)
    return lambda rows: maps[workspace.indices(rows)]


def _single(values: Array, workspace: Workspace) -> Array:
    """Convert values to the precision of the workspace."""
    if workspace.dtype == "float64":
        return values
    tensor: Any = values
    return cast(
        Array,
        tensor.astype(np.float32) if isinstance(tensor, np.ndarray) else tensor.float(),
    )


def _initial_weights(
    grid: Grid, neuroids: int, random: np.random.RandomState, workspace: Workspace
) -> Weights:
    drawn = random.standard_normal((neuroids, grid.places + grid.channels))
    parts = (drawn[:, : grid.places], drawn[:, grid.places :], np.zeros(neuroids))
    # Copies, because training changes them in place.
    return Weights(
        *(_single(workspace.put(np.array(part)), workspace) for part in parts)
    )


def _read(weights: Weights, X: Array, grid: Grid) -> tuple[Array, Array]:
    """Sums over the longer axis of the maps, (row, shorter axis, neuroid), and the predictions (row × neuroid)."""
    long, short = (
        (weights.channels, weights.masks)
        if grid.deep
        else (weights.masks, weights.channels)
    )
    inner = (X.reshape(-1, X.shape[2]) @ long.T).reshape(len(X), X.shape[1], -1)
    return inner, (inner * short.T).sum(1) + weights.offsets


def slopes_of(
    weights: Weights, X: Array, Y: Array, rule: Mask, grid: Grid
) -> tuple[Array, Weights]:
    """Norm of the errors of a batch, and the gradient of the loss with respect to all weights."""
    inner, predicted = _read(weights, X, grid)
    residual = predicted - Y
    error = (residual * residual).sum() ** 0.5
    residual = residual / (error + (error == 0))
    short = weights.masks if grid.deep else weights.channels
    by_short = (inner * residual[:, None]).sum(0).T
    spread = (residual[:, None] * short.T).reshape(-1, len(short))
    by_long = spread.T @ X.reshape(-1, X.shape[2])
    masks, channels = (by_short, by_long) if grid.deep else (by_long, by_short)
    rough = _laplacian(weights.masks, grid)
    size = (rough * rough).sum(1)[:, None] ** 0.5
    smooth = _laplacian(rough / (size + (size == 0)), grid)
    masks = masks + rule.spatial_penalty * (2 * weights.masks + smooth)
    channels = channels + 2 * rule.channel_penalty * weights.channels
    return error, Weights(masks, channels, residual.sum(0))


def _laplacian(masks: Array, grid: Grid) -> Array:
    """Four times each place minus its four neighbours (zeros around the map); this operator is its own transpose."""
    flat = masks.reshape(len(masks), grid.width, grid.height)
    rough = 4 * flat
    rough[:, 1:] -= flat[:, :-1]
    rough[:, :-1] -= flat[:, 1:]
    rough[:, :, 1:] -= flat[:, :, :-1]
    rough[:, :, :-1] -= flat[:, :, 1:]
    return rough.reshape(len(masks), -1)


def _descend(
    weights: Weights,
    slopes: Weights,
    first: Weights,
    second: Weights,
    rate: float,
    step: int,
) -> None:
    """Apply one step of Adam (Kingma and Ba 2015, the form at the end of their section 2), in place."""
    rate *= (1 - DECAYS[1] ** step) ** 0.5 / (1 - DECAYS[0] ** step)
    for value, slope, mean, square in zip(weights, slopes, first, second, strict=True):
        mean *= DECAYS[0]
        mean += (1 - DECAYS[0]) * slope
        square *= DECAYS[1]
        square += (1 - DECAYS[1]) * slope * slope
        value -= rate * mean / (square**0.5 + FLOOR)


def _answers(
    weights: Weights,
    maps: Callable[[Indices], Array],
    rows: Indices,
    grid: Grid,
    batch: int,
    workspace: Workspace,
) -> Array:
    """Predictions (row × neuroid), computed batch by batch to need no more memory than training."""
    parts = [
        _read(weights, maps(rows[at : at + batch]), grid)[1]
        for at in range(0, len(rows), batch)
    ]
    joined: Array = workspace.xp.concatenate(parts)
    return joined
