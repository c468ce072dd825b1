"""plot: writes figures of leaderboards, scores, models and data to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from neuroledger.cli.options import Benchmarks, Json, Root, Suite, argument, option
from neuroledger.cli.output import SUCCESS, Output
from neuroledger.errors import RequestError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from neuroledger.families.alignment.layer_curves.curve import Layers
    from neuroledger.report.board import Leaderboard
    from neuroledger.spec.catalog import Catalog
    from neuroledger.stats.score import Score

__all__ = ["FIGURES", "plot"]


def _plots() -> ModuleType:
    """Return the functions that draw, which import matplotlib."""
    from neuroledger import plot

    return plot


class _Asked(NamedTuple):
    """The request for a figure; its methods return what the figure shows, or say what is missing."""

    figure: str
    names: list[str]
    benchmarks: list[str]
    suite: str | None
    by: str | None
    catalog: Catalog

    def named(self, count: int | None, kind: str) -> list[str]:
        """Return the names; their number must be ``count``, or at least 1 for None."""
        if not self.names or count not in (None, len(self.names)):
            needed = f"{count or 'at least 1'} {kind}{'s' * ((count or 1) > 1)}"
            raise RequestError(
                f"plot {self.figure} needs {needed}, got {len(self.names)}"
            )
        return self.names

    def board(self, *benchmarks: str) -> Leaderboard:
        """Return the leaderboard of the suite, otherwise of these benchmarks."""
        from neuroledger.report.table import leaderboard

        chosen = () if self.suite else benchmarks
        return leaderboard(suite=self.suite, benchmarks=chosen, catalog=self.catalog)

    def on_some_benchmarks(self) -> list[str]:
        """Return the benchmarks, at least one."""
        if not self.benchmarks:
            raise RequestError(f"plot {self.figure} needs a benchmark: --benchmark B")
        return self.benchmarks

    def on_one_benchmark(self) -> str | None:
        """Return the benchmark, or None if none is given."""
        if len(self.benchmarks) > 1:
            raise RequestError(
                f"plot {self.figure} shows one benchmark, got {len(self.benchmarks)}"
            )
        if self.benchmarks:
            return self.benchmarks[0]
        return None

    def scores(self, count: int | None = None) -> dict[str, Score]:
        """Score the models on the benchmark: a figure needs samples, which records do not contain."""
        from neuroledger.engine.public import score

        self.on_one_benchmark()
        benchmark = self.on_some_benchmarks()[0]
        return {name: score(name, benchmark) for name in self.named(count, "model")}

    def score(self) -> Score:
        """Score one model on the benchmark."""
        return self.scores(1)[self.names[0]]

    def layer_scores(self) -> dict[str, Layers]:
        """Return the layer curve of one model on each benchmark."""
        from neuroledger.families.alignment.layer_curves.curve import layers

        # Only the figure of a single curve shows the untrained twin.
        twin = self.figure == "layers" and len(self.benchmarks) == 1
        model = self.named(1, "model")[0]
        return {
            id: layers(model, id, untrained=twin) for id in self.on_some_benchmarks()
        }


def _of_one_benchmark(asked: _Asked) -> Axes:
    """Draw a figure of all models on one benchmark."""
    benchmark = asked.named(1, "benchmark")[0]
    draw = getattr(_plots(), asked.figure)
    ax: Axes = draw(benchmark, asked.board(benchmark))
    return ax


def _of_a_suite(asked: _Asked) -> Axes:
    """Draw a figure of a whole board."""
    ax: Axes = getattr(_plots(), asked.figure)(asked.board())
    return ax


def _of_one_model(asked: _Asked) -> Axes:
    """Draw a figure of the samples of one score."""
    ax: Axes = getattr(_plots(), asked.figure)(asked.score())
    return ax


def _differences(asked: _Asked) -> Axes:
    from neuroledger.engine.compare import compare

    first, second = asked.named(2, "model")
    benchmark = asked.on_one_benchmark()
    compared = compare(
        first, second, suite=asked.suite, benchmark=benchmark, catalog=asked.catalog
    )
    ax: Axes = _plots().differences(compared)
    return ax


def _layers(asked: _Asked) -> Axes:
    curves = asked.layer_scores()
    only = next(iter(curves.values()))
    ax: Axes = _plots().layers(curves if len(curves) > 1 else only)
    return ax


def _rdm(asked: _Asked) -> Axes:
    responses = {name: _responses(name) for name in asked.named(None, "data set")}
    ax: Axes = _plots().rdm(responses, by=asked.by)
    return ax


def _tradeoff(asked: _Asked) -> Axes:
    first, second = asked.named(2, "benchmark")
    ax: Axes = _plots().tradeoff(first, second, asked.board(first, second))
    return ax


# How each figure of `nl.plot` that needs no more than ids is drawn.
FIGURES: Final[Mapping[str, Callable[[_Asked], Axes]]] = MappingProxyType(
    {
        "agreement": _of_a_suite,
        "bars": _of_one_benchmark,
        "confusion": _of_one_model,
        "controls": _of_one_benchmark,
        "differences": _differences,
        "heat_map": _of_a_suite,
        "layer_map": lambda asked: _plots().layer_map(asked.layer_scores()),
        "layers": _layers,
        "paired": lambda asked: _plots().paired(
            asked.scores(), by=asked.by or "subject"
        ),
        "ranks": _of_a_suite,
        "rdm": _rdm,
        "reliability": _of_one_model,
        "scatter": lambda asked: _plots().scatter(asked.scores(2)),
        "time": lambda asked: _plots().time(asked.scores()),
        "tradeoff": _tradeoff,
    }
)


def _complete_figure(incomplete: str) -> list[str]:
    return [name for name in FIGURES if name.startswith(incomplete)]


def plot(
    figure: Annotated[
        str,
        argument("FIGURE", ", ".join(FIGURES), complete=_complete_figure),
    ],
    out: Annotated[
        Path,
        option("--out", "FILE", "output file: svg, pdf or png"),
    ],
    names: Annotated[
        list[str] | None,
        argument(
            "NAME",
            "ids of benchmarks, models or data sets, depending on the figure",
            ids=("benchmarks", "models", "datasets"),
        ),
    ] = None,
    benchmarks: Benchmarks = None,
    suite: Suite = None,
    by: Annotated[
        str | None,
        option(
            "--by",
            "COORDINATE",
            "paired: coordinate of the pairs (default: subject); rdm: coordinate that groups stimuli",
        ),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Write a figure of scores, models or data to a file.

    JSON: written (paths), notes, and next (commands that usually follow).
    """
    from neuroledger.report.plots.style import save
    from neuroledger.spec.catalog import open_catalog

    if figure not in FIGURES:
        near = get_close_matches(figure, FIGURES, n=1)
        if near:
            hint = f"did you mean {near[0]!r}?"
        else:
            hint = f"use {', '.join(FIGURES)}"
        raise RequestError(f"no figure {figure!r}: {hint}")
    asked = _Asked(figure, names or [], benchmarks or [], suite, by, open_catalog(root))
    path = save(FIGURES[figure](asked), out)
    answer = Output(json)
    answer.written.append(str(path))
    answer.line(str(path))
    answer.end()
    return SUCCESS


def _responses(dataset: str) -> xr.DataArray:
    """Return the responses of a data set, averaged over repetitions of a stimulus."""
    from neuroledger.data.assembly import average_repetitions
    from neuroledger.engine.public import load

    assembly = load(dataset).assembly
    if assembly is None:
        raise RequestError(
            f"data set {dataset} has no responses: choose one with an assembly"
        )
    if "presentation" in assembly.dims:
        return average_repetitions(assembly)
    return assembly
