"""plot: figures of boards from records, and of models that are scored for them, written to a file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neuroledger.cli.output import say
from neuroledger.errors import RequestError

if TYPE_CHECKING:
    import xarray as xr

    from neuroledger.stats.score import Score


def plot(options: argparse.Namespace) -> int:
    """One figure."""
    from neuroledger.report.plots.style import save

    say(str(save(_drawn(options), options.out)))
    return 0


def _drawn(options: argparse.Namespace) -> Any:
    """The figure that was asked for."""
    from neuroledger import plot as figures
    from neuroledger.engine.compare import compare
    from neuroledger.engine.public import layers
    from neuroledger.report.table import leaderboard
    from neuroledger.spec.catalog import open_catalog

    kind, names = options.figure, options.names
    catalog = open_catalog(options.root)

    def board(*alone: str) -> Any:
        return leaderboard(suite=options.suite, benchmarks=() if options.suite else alone, catalog=catalog)

    draw: dict[str, Callable[[], Any]] = {
        "agreement": lambda: figures.agreement(board()),
        "bars": lambda: figures.bars(_named(options, 1, "benchmark")[0], board(*names)),
        "confusion": lambda: figures.confusion(_scores(options, 1)[names[0]]),
        "controls": lambda: figures.controls(_named(options, 1, "benchmark")[0], board(*names)),
        "differences": lambda: figures.differences(
            compare(
                *_named(options, 2, "model"), suite=options.suite, benchmark=_one(options), catalog=catalog
            )
        ),
        "heat_map": lambda: figures.heat_map(board()),
        "layer_map": lambda: figures.layer_map(
            {each: layers(_named(options, 1, "model")[0], each) for each in _some(options)}
        ),
        "layers": lambda: figures.layers(
            {each: layers(_named(options, 1, "model")[0], each) for each in _some(options)}
        ),
        "paired": lambda: figures.paired(_scores(options), by=options.by or "subject"),
        "ranks": lambda: figures.ranks(board()),
        "rdm": lambda: figures.rdm(
            {name: _responses(name) for name in _named(options, None, "data set")}, by=options.by
        ),
        "reliability": lambda: figures.reliability(_scores(options, 1)[names[0]]),
        "scatter": lambda: figures.scatter(_scores(options, 2)),
        "time": lambda: figures.time(_scores(options)),
        "tradeoff": lambda: figures.tradeoff(*_two(options, "benchmark"), board(*names)),
    }
    return draw[kind]()


def _two(options: argparse.Namespace, what: str) -> tuple[str, str]:
    first, second = _named(options, 2, what)
    return first, second


def _responses(dataset: str) -> xr.DataArray:
    """The data set's responses, repetitions of a stimulus averaged."""
    from neuroledger.data.assembly import average_repetitions
    from neuroledger.engine.public import load

    assembly = load(dataset).assembly
    if assembly is None:
        raise RequestError(f"{dataset} has stimuli alone: there are no responses to compare")
    return average_repetitions(assembly) if "presentation" in assembly.dims else assembly


def _named(options: argparse.Namespace, count: int | None, what: str) -> list[str]:
    """The names given, which must be as many as the figure shows."""
    names: list[str] = options.names
    if not names or count not in (None, len(names)):
        wanted = f"{count or 'at least 1'} {what}{'s' * ((count or 1) > 1)}"
        raise RequestError(f"plot {options.figure} needs {wanted}, got {len(names)}")
    return names


def _one(options: argparse.Namespace) -> str | None:
    if len(options.benchmark) > 1:
        raise RequestError(f"plot {options.figure} shows one benchmark, got {len(options.benchmark)}")
    return options.benchmark[0] if options.benchmark else None


def _some(options: argparse.Namespace) -> list[str]:
    benchmarks: list[str] = options.benchmark
    if not benchmarks:
        raise RequestError(f"plot {options.figure} needs a benchmark: --benchmark B")
    return benchmarks


def _scores(options: argparse.Namespace, count: int | None = None) -> dict[str, Score]:
    """The models' scores on the benchmark, computed now: a figure needs their samples."""
    from neuroledger.engine.public import score

    benchmark = _one(options)
    if benchmark is None:
        raise RequestError(f"plot {options.figure} needs a benchmark: --benchmark B")
    return {name: score(name, benchmark) for name in _named(options, count, "model")}
