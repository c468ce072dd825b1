"""Change of accuracy between two blocks, integrated over the levels of a variable, compared with that of people."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.factorize import coordinate
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import correctness
from neuroledger.spec.registry import metric

__all__ = ["accuracy_integral"]


@metric("accuracy_integral", version=2, input="behaviour")
def accuracy_integral(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    over: str,
    block: str,
    blocks: tuple[str, str],
    lapse: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    lapses: Literal["people", "both"] = "people",
    scale: Annotated[float, Field(gt=0)] = 1.0,
    decimals: Annotated[int, Field(ge=0)] | None = None,
) -> xr.DataArray:
    """Return ``exp(−scale · |a − b|)`` from the model's integral ``a`` and people's ``b``: ``()``.

    The integrand is the accuracy in the second of ``blocks`` minus that in the first, over the levels of ``over``, by the
    trapezoidal rule. People's accuracies ``p`` are first corrected for lapses ``l``: ``(p − l/2) / (1 − l)``.

    Parameters
    ----------
    source, target
        Answers ``(presentation,)`` or ``(presentation, choice)`` of the model, and trials of people. Both have the
        coordinates ``over`` (numbers) and ``block``, and the right answers unless they are 1 and 0 for right and wrong.
    lapse, lapses
        Proportion of trials that people answer regardless of the stimulus; ``both`` also corrects the model's accuracies.
    decimals
        Number of decimals to which both integrals are rounded.

    Raises
    ------
    MetricError
        A coordinate is missing, or a level has no answers in a block.

    Notes
    -----
    Ferguson et al. (2024).
    """
    model_lapse = lapse if lapses == "both" else 0.0
    model = _integral(source, over, block, blocks, model_lapse, "the model")
    people = _integral(target, over, block, blocks, lapse, "people")
    if decimals is not None:
        model, people = round(model, decimals), round(people, decimals)
    notes = [f"integrals: {model:.4g} of the model, {people:.4g} of people"]
    return xr.DataArray(np.exp(-scale * abs(model - people)), attrs={"notes": notes})


def _integral(
    answers: xr.DataArray, over: str, block: str, blocks: tuple[str, str], lapse: float, who: str
) -> float:
    x, part = coordinate(answers, over), coordinate(answers, block)
    if x is None or part is None:
        raise MetricError(f"answers of {who} have no coordinate {over if x is None else block!r}")
    try:
        levels = np.asarray(x, dtype=np.float64)
    except ValueError:
        raise MetricError(
            f"{over!r} of {who} holds {x[0]!r}, which cannot be integrated over: levels must be numbers"
        ) from None
    right = np.asarray(correctness(answers), dtype=np.float64)
    grid = np.unique(levels)
    if len(grid) < 2:
        raise MetricError(f"{over!r} of {who} has {len(grid)} level: an integral needs at least 2")
    curves = []
    for name in blocks:
        rows = [(levels == level) & (part.astype(str) == name) for level in grid]
        empty = [level for level, row in zip(grid, rows, strict=True) if not row.any()]
        if empty:
            raise MetricError(f"{who} gave no answers at {over} = {empty[0]:g} in block {name!r}")
        curves.append([(right[row].mean() - lapse / 2) / (1 - lapse) for row in rows])
    return float(np.trapezoid(np.subtract(curves[1], curves[0]), grid))
