"""NeuroLedger: benchmarks for models of the brain, declared as data.

Public names are imported when they are first used, so that ``import neuroledger`` is fast.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# NumPy and SciPy each have their own OpenBLAS threads, which spin for 2^26 cycles after a call and slow down the other
# library when calls alternate. This sets 2^12 cycles; it only takes effect before NumPy is loaded.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "12")

if TYPE_CHECKING:
    from neuroledger import errors, plot
    from neuroledger.cli.own_models import evaluate
    from neuroledger.cli.start import start
    from neuroledger.data.stimuli import StimulusSet
    from neuroledger.engine.bound_metric import ceiling, metric
    from neuroledger.engine.compare import compare
    from neuroledger.engine.public import find, load, records, run, score
    from neuroledger.engine.record import Record
    from neuroledger.engine.why import explain as why
    from neuroledger.families.alignment.layer_curves.curve import layers
    from neuroledger.families.decoding import results as decoding
    from neuroledger.families.decoding.as_estimator import as_estimator
    from neuroledger.families.decoding.decode import decode
    from neuroledger.families.decoding.own_decoders import evaluate_decoder
    from neuroledger.families.efficiency.cost import cost
    from neuroledger.families.efficiency.same import same
    from neuroledger.families.signals.recordings.mne_objects import windows
    from neuroledger.models import api as models
    from neuroledger.report.table import leaderboard
    from neuroledger.stats.score import Score

_PUBLIC = {
    "Record": ("neuroledger.engine.record", "Record"),
    "Score": ("neuroledger.stats.score", "Score"),
    "StimulusSet": ("neuroledger.data.stimuli", "StimulusSet"),
    "as_estimator": ("neuroledger.families.decoding.as_estimator", "as_estimator"),
    "ceiling": ("neuroledger.engine.bound_metric", "ceiling"),
    "compare": ("neuroledger.engine.compare", "compare"),
    "cost": ("neuroledger.families.efficiency.cost", "cost"),
    "decode": ("neuroledger.families.decoding.decode", "decode"),
    "decoding": ("neuroledger.families.decoding.results", None),
    "errors": ("neuroledger.errors", None),
    "evaluate": ("neuroledger.cli.own_models", "evaluate"),
    "evaluate_decoder": (
        "neuroledger.families.decoding.own_decoders",
        "evaluate_decoder",
    ),
    "find": ("neuroledger.engine.public", "find"),
    "layers": ("neuroledger.families.alignment.layer_curves.curve", "layers"),
    "leaderboard": ("neuroledger.report.table", "leaderboard"),
    "load": ("neuroledger.engine.public", "load"),
    "metric": ("neuroledger.engine.bound_metric", "metric"),
    "models": ("neuroledger.models.api", None),
    "plot": ("neuroledger.plot", None),
    "records": ("neuroledger.engine.public", "records"),
    "run": ("neuroledger.engine.public", "run"),
    "same": ("neuroledger.families.efficiency.same", "same"),
    "score": ("neuroledger.engine.public", "score"),
    "start": ("neuroledger.cli.start", "start"),
    "why": ("neuroledger.engine.why", "explain"),
    "windows": ("neuroledger.families.signals.recordings.mne_objects", "windows"),
}

__all__ = [
    "Record",
    "Score",
    "StimulusSet",
    "as_estimator",
    "ceiling",
    "compare",
    "cost",
    "decode",
    "decoding",
    "errors",
    "evaluate",
    "evaluate_decoder",
    "find",
    "layers",
    "leaderboard",
    "load",
    "metric",
    "models",
    "plot",
    "records",
    "run",
    "same",
    "score",
    "start",
    "why",
    "windows",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'neuroledger' has no attribute {name!r}")
    from neuroledger.errors import naming_extras

    module_name, attribute = _PUBLIC[name]
    with naming_extras():
        module = importlib.import_module(module_name)
    if attribute is None:
        return module
    return getattr(module, attribute)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
