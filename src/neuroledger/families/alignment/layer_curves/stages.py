"""The stages of a network: the outputs of its blocks in the order of one forward pass, found without naming layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from neuroledger.models.torch_layers import Run

__all__ = ["FEWEST", "MOST", "depths", "recordable", "stages"]

FEWEST: Final = 5
MOST: Final = 20
"""A network is cut at the coarsest level of its modules that gives between ``FEWEST`` and ``MOST`` stages."""


def stages(runs: Sequence[Run]) -> list[str]:
    """Return the layers that stand for the stages of a network, in the order in which they finished.

    The rule, over the modules that ran, of which one is inside another as in the tree of modules (containers that do
    not run themselves, such as ``ModuleList``, do not count as a level):

    1. The network is cut at a level of the tree: modules at this level, and modules above it that contain none.
    2. A block (a module that contains others) with weights is a stage. So is a single layer with a weight matrix or a
       kernel, together with the normalisation, the nonlinearity and other weightless layers of equal output that
       directly follow it: the stage is the output of the last of them. Pooling, dropout after a block, flattening and
       the like are no stage.
    3. The coarsest level with at least ``FEWEST`` stages is taken, or the one with the most stages if no level has so
       many. Of more than ``MOST`` stages, ``MOST`` are taken at equal distances, with the first and the last.

    Parameters
    ----------
    runs
        The modules in the order in which their last run finished.

    Examples
    --------
    >>> def ran(name, *shape, weighted=True):
    ...     return Run(name, shape, weighted, per_stimulus=True)
    >>> stages([ran("conv", 2, 8, 4, 4), ran("relu", 2, 8, 4, 4, weighted=False), ran("pool", 2, 8, 2, 2, weighted=False),
    ...         ran("head", 2, 10)])
    ['relu', 'head']
    """
    usable = recordable(runs)
    parents = _parents([run.name for run in usable])
    levels = {name: _level(name, parents) for name in parents}
    blocks = set(parents.values())
    best: list[str] = []
    for level in range(1, max(levels.values(), default=0) + 1):
        cut = [
            run
            for run in usable
            if levels[run.name] == level
            or (levels[run.name] < level and run.name not in blocks)
        ]
        found = _stages_of(cut, blocks)
        if len(found) > len(best):
            best = found
        if len(best) >= FEWEST:
            break
    return _thinned(best)


def recordable(runs: Sequence[Run]) -> list[Run]:
    """Return the runs whose output has a row for each stimulus, without the network as a whole."""
    return [run for run in runs if run.name and run.per_stimulus]


def depths(runs: Sequence[Run], layers: Sequence[str]) -> dict[str, float]:
    """Return the relative depth of each layer: the share of weighted layers that have finished when it has.

    A weighted layer is a module with a weight matrix or a kernel that contains no other such module that ran. The depth
    of a layer that did not run is 1. In a network without weights the depth is the share of modules that have finished.

    Examples
    --------
    >>> depths([Run("a", (2, 3), True, True), Run("b", (2, 3), False, True), Run("c", (2, 3), True, True)], ["b", "c"])
    {'b': 0.5, 'c': 1.0}
    """
    weighted = {run.name for run in runs if run.weighted and run.name}
    inner = weighted - set(_parents(sorted(weighted)).values())
    counted = inner or {run.name for run in runs}
    finished = 0
    depth = {}
    for run in runs:
        finished += run.name in counted
        depth[run.name] = finished / len(counted)
    return {layer: depth.get(layer, 1.0) for layer in layers}


def _parents(names: Sequence[str]) -> dict[str, str]:
    """Return the innermost module around each module, among ``names``; the network itself is ``""``."""
    known = set(names)
    parents = {}
    for name in names:
        parent = name.rpartition(".")[0]
        while parent and parent not in known:
            parent = parent.rpartition(".")[0]
        parents[name] = parent
    return parents


def _level(name: str, parents: Mapping[str, str]) -> int:
    level = 0
    while name:
        name = parents[name]
        level = level + 1
    return level


def _stages_of(cut: Sequence[Run], blocks: set[str]) -> list[str]:
    """Return the stages of one level: blocks, and single layers with the layers that directly follow them."""
    found: list[Run] = []
    open_stage = False  # whether the last stage is a single layer that following layers still belong to
    for run in cut:
        if run.weighted:
            found.append(run)
            open_stage = run.name not in blocks
        elif open_stage and run.shape == found[-1].shape:
            found[-1] = run
        else:
            open_stage = False
    return [run.name for run in found]


def _thinned(names: Sequence[str]) -> list[str]:
    if len(names) <= MOST:
        return list(names)
    return [names[int(at)] for at in np.linspace(0, len(names) - 1, MOST).round()]
