"""Forecasters fitted by ridge regression: an echo state network, and a linear one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat

from neuroledger.data.arrays import Floats, floats
from neuroledger.errors import ModelError
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    answering,
)
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["echo_state", "linear_forecast", "ridge", "solve_ridge"]


def ridge(features: Floats, targets: Floats, penalty: float) -> Floats:
    """Return the weights (feature, output) that minimise ``‖features·w - targets‖² + penalty·‖w‖²``."""
    return solve_ridge(features.T @ features, features.T @ targets, penalty)


def solve_ridge(gram: Floats, cross: Floats, penalty: float) -> Floats:
    """Return the same weights from the products ``featuresᵀ·features`` (changed in place) and ``featuresᵀ·targets``."""
    gram[np.diag_indices_from(gram)] += penalty
    return floats(np.linalg.solve(gram, cross))


@builder("echo_state", version=1, takes=TAKES, gives=answering("forecast"))
def echo_state(
    *,
    id: str,
    units: Annotated[int, Field(gt=0, le=20_000)] = 200,
    connectivity: Annotated[float, Field(gt=0, le=1)] = 0.1,
    radius: PositiveFloat = 1.2,
    input_scale: PositiveFloat = 1.0,
    leak: Annotated[float, Field(gt=0, le=1)] = 0.5,
    penalty: PositiveFloat = 1e-8,
    warm_up: NonNegativeInt = 45,
    seed: NonNegativeInt = 0,
) -> Learner:
    """An echo state network: fixed sparse recurrent weights of spectral ``radius``, a readout fitted by ridge.

    Weights are uniform in -1…1, drawn with NumPy from ``seed``. The first ``warm_up`` values only set the state.
    """
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        import torch

        from neuroledger.families.efficiency.networks.layers import EchoState

        series = _series(examples, warm_up, id)
        rng = np.random.default_rng(seed)
        w_in = rng.uniform(-1, 1, (units, 2)) * input_scale
        w = rng.uniform(-1, 1, (units, units)) * (
            rng.random((units, units)) < connectivity
        )
        largest = np.abs(np.linalg.eigvals(w)).max()
        if largest == 0:
            raise ModelError(
                f"model {id!r}: no connections were drawn; raise `connectivity` or `units`"
            )
        w *= radius / largest
        network = EchoState(torch.from_numpy(w_in), torch.from_numpy(w), leak)
        state = np.zeros(units)
        features = np.empty((len(series), units + 2))
        for step, value in enumerate(series):
            drive = w_in @ [1.0, value] + w @ state
            state = (1 - leak) * state + leak * np.tanh(drive)
            features[step] = [1.0, value, *state]
        targets = examples.truth.reshape(-1, 1).astype(np.float64)
        fitted = ridge(features[warm_up:], targets[warm_up:], penalty)
        network.w_out.weight = torch.nn.Parameter(
            torch.from_numpy(fitted.T.copy()), requires_grad=False
        )
        network.state = torch.from_numpy(state[None])
        return network

    return Learner(id=id, tasks=("forecast",), ready=ready)


@builder("linear_forecast", version=1, takes=TAKES, gives=answering("forecast"))
def linear_forecast(
    *,
    id: str,
    lags: Annotated[int, Field(gt=0, le=10_000)] = 50,
    penalty: PositiveFloat = 1e-8,
) -> Learner:
    """The next value as a weighted sum of the last ``lags`` values and a constant, fitted by ridge."""
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        import torch

        from neuroledger.families.efficiency.networks.layers import Linear

        series = _series(examples, lags, id)
        rows = np.lib.stride_tricks.sliding_window_view(series, lags)
        features = np.hstack([np.ones((len(rows), 1)), rows])
        targets = examples.truth.reshape(-1, 1).astype(np.float64)[lags - 1 :]
        fitted = ridge(features, targets, penalty)
        return Linear(
            torch.from_numpy(fitted.T.copy()),
            torch.from_numpy(series[None, -lags:].copy()),
        )

    return Learner(id=id, tasks=("forecast",), ready=ready)


def _series(examples: Examples, needed: int, id: str) -> Floats:
    values = floats(examples.inputs)
    if values.ndim != 3 or values.shape[:2] != (1, 1):
        raise ModelError(
            f"model {id!r} forecasts one series of single values, not inputs {values.shape}"
        )
    if values.shape[2] <= needed:
        raise ModelError(
            f"model {id!r} needs more than {needed} training values, but there are {values.shape[2]}"
        )
    series: Floats = values[0, 0]
    return series
