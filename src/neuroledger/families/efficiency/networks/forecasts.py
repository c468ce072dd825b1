"""Forecasts in a closed loop: every answer is the next input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError
from neuroledger.families.efficiency.counting.counts import Need
from neuroledger.families.efficiency.networks.trainable_model import Examples, Learner

if TYPE_CHECKING:
    from torch import nn

    from neuroledger.families.efficiency.counting.counts import Trace

__all__ = ["forecast"]


def forecast(
    model: Learner,
    assembly: xr.DataArray,
    count: tuple[Need, ...],
    mode: Literal["strict", "neurobench-2.3"],
    train: int,
    test: int,
    windows: int,
    stride: float,
    per_time: float,
) -> tuple[Measurement, Trace | None]:
    """Closed-loop forecasts of every window of every series; costs are per value, of the first window."""
    rows: dict[str, list[Any]] = {name: [] for name in ("stimulus_id", "series", "step", "answer", "truth")}
    counted: Trace | None = None
    for number in range(assembly.sizes["presentation"]):
        name = str(assembly["stimulus_id"].values[number])
        series = np.asarray(assembly.values[number, 0], dtype=np.float64)
        for window in range(windows):
            start = int(window * stride)
            piece = series[start : start + train + test + 1]
            if len(piece) < train + test + 1:
                raise DataError(
                    f"series {name!r} has {len(series)} values, window {window} needs {start + train + test + 1}"
                )
            module = model.ready(Examples(piece[None, None, :train], piece[1 : train + 1]))
            answers, found = _closed_loop(
                module, piece[train], test, count if counted is None else None, mode
            )
            counted = found if counted is None else counted
            rows["stimulus_id"] += [f"{name}.w{window:02d}.k{step:04d}" for step in range(1, test + 1)]
            rows["series"] += [f"{name}.w{window:02d}"] * test
            rows["step"] += range(1, test + 1)
            rows["answer"] += answers
            rows["truth"] += piece[train + 1 :].tolist()
    steps = np.asarray(rows["step"])
    coords = {
        "stimulus_id": ("presentation", np.asarray(rows["stimulus_id"], dtype=object)),
        "series": ("presentation", np.asarray(rows["series"], dtype=object)),
        "horizon": ("presentation", steps / per_time),
    }
    source = xr.DataArray(np.asarray(rows["answer"]), dims=("presentation",), coords=coords)
    notes = ("costs are per value, counted over the first window",)
    right = xr.DataArray(np.asarray(rows["truth"]), dims=("presentation",), coords=coords)
    traced = None if counted is None else replace(counted, notes=(*counted.notes, *notes))
    return Measurement(source, right), traced


def _closed_loop(
    module: nn.Module, first: float, steps: int, count: tuple[Need, ...] | None, mode: Any
) -> tuple[list[float], Trace | None]:
    """Answers fed back as inputs, and what they cost where that is wanted."""
    import torch

    from neuroledger.families.efficiency.counting.run_trace import trace

    answers: list[float] = []
    value = torch.tensor([[first]], dtype=torch.float64)
    if count is None:
        module.eval()
        with torch.no_grad():
            for _ in range(steps):
                value = module(value)
                answers.append(float(value))
        return answers, None

    def inputs() -> Iterator[Any]:
        for step in range(steps):
            yield torch.tensor([[answers[-1] if step else first]], dtype=torch.float64)

    return answers, trace(
        module,
        inputs(),
        needs=count,
        mode=mode,
        time_axis=None,
        receive=lambda _, answer: answers.append(float(answer)),
    )
