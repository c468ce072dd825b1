"""plot: writes figures of leaderboards, scores, models and data to files."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neuroledger.display import say
from neuroledger.errors import RequestError

if TYPE_CHECKING:
    import xarray as xr

    from neuroledger.families.alignment.layer_curves.curve import Layers
    from neuroledger.stats.score import Score


def plot(options: argparse.Namespace) -> int:
    """Write one figure."""
    from neuroledger.report.plots.style import save

    say(str(save(_draw(options), options.out)))
    return 0


def _draw(options: argparse.Namespace) -> Any:
    """Return the axes of the requested figure."""
    from neuroledger import plot as figures
    from neuroledger.engine.compare import compare
    from neuroledger.families.alignment.layer_curves.curve import layers
    from neuroledger.report.table import leaderboard
    from neuroledger.spec.catalog import open_catalog

    kind, names = options.figure, options.names
    catalog = open_catalog(options.root)

    def board(*benchmarks: str) -> Any:
        return leaderboard(
            suite=options.suite,
            benchmarks=() if options.suite else benchmarks,
            catalog=catalog,
        )

    def layer_scores() -> dict[str, Layers]:
        # Only the figure of a single curve shows the twin.
        twin = options.figure == "layers" and len(options.benchmark) == 1
        model = _names(options, 1, "model")[0]
        return {id: layers(model, id, untrained=twin) for id in _benchmarks(options)}

    def layer_curves() -> Any:
        curves = layer_scores()
        return figures.layers(
            curves if len(curves) > 1 else next(iter(curves.values()))
        )

    draw: dict[str, Callable[[], Any]] = {
        "agreement": lambda: figures.agreement(board()),
        "bars": lambda: figures.bars(_names(options, 1, "benchmark")[0], board(*names)),
        "confusion": lambda: figures.confusion(_scores(options, 1)[names[0]]),
        "controls": lambda: figures.controls(
            _names(options, 1, "benchmark")[0], board(*names)
        ),
        "differences": lambda: figures.differences(
            compare(
                *_names(options, 2, "model"),
                suite=options.suite,
                benchmark=_benchmark(options),
                catalog=catalog,
            )
        ),
        "heat_map": lambda: figures.heat_map(board()),
        "layer_map": lambda: figures.layer_map(layer_scores()),
        "layers": layer_curves,
        "paired": lambda: figures.paired(_scores(options), by=options.by or "subject"),
        "ranks": lambda: figures.ranks(board()),
        "rdm": lambda: figures.rdm(
            {name: _responses(name) for name in _names(options, None, "data set")},
            by=options.by,
        ),
        "reliability": lambda: figures.reliability(_scores(options, 1)[names[0]]),
        "scatter": lambda: figures.scatter(_scores(options, 2)),
        "time": lambda: figures.time(_scores(options)),
        "tradeoff": lambda: figures.tradeoff(
            *_two(options, "benchmark"), board(*names)
        ),
    }
    return draw[kind]()


def _two(options: argparse.Namespace, kind: str) -> tuple[str, str]:
    first, second = _names(options, 2, kind)
    return first, second


def _responses(dataset: str) -> xr.DataArray:
    """Return the responses of a data set, averaged over repetitions of a stimulus."""
    from neuroledger.data.assembly import average_repetitions
    from neuroledger.engine.public import load

    assembly = load(dataset).assembly
    if assembly is None:
        raise RequestError(
            f"data set {dataset} has no responses: choose one with an assembly"
        )
    return (
        average_repetitions(assembly) if "presentation" in assembly.dims else assembly
    )


def _names(options: argparse.Namespace, count: int | None, kind: str) -> list[str]:
    """Return the names on the command line; their number must be ``count``, or at least 1 for None."""
    names: list[str] = options.names
    if not names or count not in (None, len(names)):
        needed = f"{count or 'at least 1'} {kind}{'s' * ((count or 1) > 1)}"
        raise RequestError(f"plot {options.figure} needs {needed}, got {len(names)}")
    return names


def _benchmark(options: argparse.Namespace) -> str | None:
    if len(options.benchmark) > 1:
        raise RequestError(
            f"plot {options.figure} shows one benchmark, got {len(options.benchmark)}"
        )
    return options.benchmark[0] if options.benchmark else None


def _benchmarks(options: argparse.Namespace) -> list[str]:
    benchmarks: list[str] = options.benchmark
    if not benchmarks:
        raise RequestError(f"plot {options.figure} needs a benchmark: --benchmark B")
    return benchmarks


def _scores(options: argparse.Namespace, count: int | None = None) -> dict[str, Score]:
    """Score the models on the benchmark: a figure needs samples, which records do not contain."""
    from neuroledger.engine.public import score

    benchmark = _benchmark(options)
    if benchmark is None:
        raise RequestError(f"plot {options.figure} needs a benchmark: --benchmark B")
    return {name: score(name, benchmark) for name in _names(options, count, "model")}
