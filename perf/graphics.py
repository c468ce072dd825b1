"""``python -m perf.graphics``: metrics on a graphics card, beside the same metrics on the processor."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

import neuroledger as nl
from neuroledger.stats.score import Score
from neuroledger.stats.workspace import Memo, Workspace
from perf.table import difference, in_turn

METRICS = ("pls", "ridge", "ridgecv", "rdm", "cka")
SIZES = ((135, 9216, 102), (2560, 25088, 168))
HEAD = (
    "| stimuli × features × neuroids | metric | processor, s | card, s | ratio | samples differ by | interval by |\n"
    "|---|---|--:|--:|--:|--:|--:|"
)


def assemblies(
    stimuli: int, features: int, neuroids: int
) -> tuple[xr.DataArray, xr.DataArray]:
    """Simulated features, and responses that are noisy projections of a few of their components."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((stimuli, 40))
    seen = np.maximum(latent @ rng.standard_normal((40, features)) / 6, 0).astype(
        np.float32
    )
    responses = latent @ rng.standard_normal((40, neuroids)) + 6 * rng.standard_normal(
        (stimuli, neuroids)
    )
    return labelled(seen, "f"), labelled(responses, "n")


def labelled(values: npt.NDArray[Any], kind: str) -> xr.DataArray:
    """Label rows as stimuli and columns as neuroids."""
    coords = {
        "stimulus_id": ("presentation", [f"s{i}" for i in range(len(values))]),
        "neuroid_id": ("neuroid", [f"{kind}{i}" for i in range(values.shape[1])]),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def main() -> None:
    """Run each metric on both sides alternately, each time with its interval and without stored Gram matrices."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.graphics", description=__doc__
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--metrics", nargs="*", default=list(METRICS), choices=METRICS, metavar="METRIC"
    )
    options = parser.parse_args()
    print(HEAD)
    for size in SIZES:
        source, target = assemblies(*size)
        for name in options.metrics:
            kept: dict[str, Score] = {}
            run: Callable[[str], Any] = partial(
                scored, name, source, target, options.dtype, kept
            )
            on_card, on_processor = partial(run, options.device), partial(run, "cpu")
            card, processor = in_turn(on_card, on_processor, options.rounds, "wall")
            ends = [np.array([score.low, score.high]) for score in kept.values()]
            print(
                f"| {' × '.join(map(str, size))} | {name} | {processor.median:.3g} | {card.median:.3g} "
                f"| {processor.median / card.median:.1f}× | {difference(card.values, processor.values):.0e} "
                f"| {np.abs(ends[0] - ends[1]).max():.0e} |",
                flush=True,
            )


def scored(
    name: str,
    source: xr.DataArray,
    target: xr.DataArray,
    dtype: Any,
    kept: dict[str, Score],
    device: str,
) -> npt.NDArray[np.float64]:
    """Return the samples of one score; ``kept`` receives it for the device."""
    score = nl.metric(
        name, workspace=Workspace(device=device, dtype=dtype, memo=Memo(0))
    )(source, target)
    kept[device] = score
    assert score.low is not None and score.samples is not None
    return np.asarray(score.samples.values)


if __name__ == "__main__":
    main()
