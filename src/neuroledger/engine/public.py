"""What users call from Python: find, load, score, layers, run, records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from neuroledger.data.dataset import Dataset
from neuroledger.data.load import load_dataset
from neuroledger.display import choose
from neuroledger.engine.evaluate import evaluate, layer_scores
from neuroledger.engine.plan import plan
from neuroledger.engine.record import Record, read_all
from neuroledger.engine.run import closed, run_object
from neuroledger.engine.run import run as run_jobs
from neuroledger.engine.session import Request, Session
from neuroledger.errors import RequestError
from neuroledger.models.activation_store import open_store
from neuroledger.models.api import wrapped
from neuroledger.models.model import Model
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.kinds import KINDS
from neuroledger.spec.load import read_params
from neuroledger.spec.suites import suites_of, to_score
from neuroledger.stats.score import Score

__all__ = ["find", "layers", "load", "records", "run", "score"]


def find(kind: str = "benchmarks", **wanted: str) -> pd.DataFrame:
    """Specs of one kind as a table, one row each, where every named field equals the given text.

    ``find("benchmarks", parent="V4")``; ``kind`` may be singular.

    Raises
    ------
    RequestError
        No such kind or field.
    """
    catalog = open_catalog()
    folder = kind if kind.endswith("s") else f"{kind}s"
    if folder not in KINDS:
        raise RequestError(f"no kind {kind!r}; kinds are {', '.join(KINDS)}")
    rows = [
        catalog.entry(folder, id).spec.model_dump(mode="json", by_alias=True) for id in catalog.ids(folder)
    ]
    table = pd.DataFrame(rows)
    for name, value in wanted.items():
        if name not in table.columns:
            raise RequestError(f"{folder} have no field {name!r}; fields are {', '.join(table.columns)}")
        table = table[table[name].astype(str) == value]
    return table.set_index("id")


def load(dataset: str) -> Dataset:
    """The stimuli and the assembly of a data set, verified and checked.

    Raises
    ------
    DataError, UnavailableError
        They are not here, or not what the spec says.
    """
    return load_dataset(open_catalog(), dataset)


def score(
    model: Any,
    benchmark: str,
    *,
    seed: int = 0,
    limit: int | None = None,
    device: str = "cpu",
    **declared: Any,
) -> Score:
    """Score a model, by id or as an object in memory, on a benchmark; nothing is recorded.

    A torch module needs what :func:`neuroledger.models.torch` takes: ``regions={"IT": "layer4"}``, ``preprocessing={…}``.

    Raises
    ------
    NeuroLedgerError
        With the reason.
    """
    with _session(Request(seed=seed, limit=limit, device=device)) as session:
        return evaluate(session, session.catalog.benchmark(benchmark), wrapped(model, **declared)).headline


def layers(
    model: Model | str,
    benchmark: str,
    *,
    layers: Sequence[str] = (),
    seed: int = 0,
    limit: int | None = None,
    device: str = "cpu",
) -> dict[str, Score]:
    """The benchmark's score for each layer of a model in the place of its region; nothing is recorded.

    See :func:`neuroledger.engine.evaluate.layer_scores`, and :func:`neuroledger.plot.layers` for the figure.

    Raises
    ------
    NeuroLedgerError
        With the reason.
    """
    with _session(Request(seed=seed, limit=limit, device=device)) as session:
        return layer_scores(session, session.catalog.benchmark(benchmark), model, layers)


@contextmanager
def _session(request: Request) -> Iterator[Session]:
    catalog = open_catalog()
    with choose("none") as display:
        yield Session(catalog, request, open_store(catalog.root, display))


def run(
    models: Sequence[Any] = (),
    *,
    suite: str | None = None,
    benchmarks: Sequence[str] = (),
    seed: int | None = None,
    **declared: Any,
) -> list[Record]:
    """Score what is missing and return the records of the request.

    Incompatible pairs, and benchmarks whose data are not here or not validated, are skipped: one line says which and why.

    Parameters
    ----------
    models
        Ids, models in memory, or torch modules. The records of objects are returned and not kept: a record that others can
        reproduce is of a model with a spec (``neuroledger package model ID CHECKPOINT``).
    declared
        Of torch modules, the arguments of :func:`neuroledger.models.torch`.

    Raises
    ------
    RequestError
        Unknown ids, or a module of which nothing is declared.
    """
    catalog = open_catalog()
    params = read_params(catalog.root)
    request = Request(seed=params.seed if seed is None else seed, device=params.device)
    suites = suites_of(catalog, suite) if suite else () if benchmarks else to_score(catalog, params.suite)
    given = [model if isinstance(model, str) else wrapped(model, **declared) for model in models]
    ids = [model for model in given if isinstance(model, str)]
    with choose() as display:
        found = []
        if ids or not given:
            planned = plan(catalog, models=ids, benchmarks=benchmarks, suites=suites, request=request)
            for note in planned.notes():
                display.line(note)
            found = [outcome.record for outcome in run_jobs(catalog, planned.jobs, request, display)]
        asked = dict.fromkeys([*benchmarks, *(item.id for each in suites for item in each.benchmarks)])
        session = Session(catalog, request, open_store(catalog.root, display))
        for one in (model for model in given if not isinstance(model, str)):
            for id in asked:
                if reason := closed(catalog, id, one):
                    display.line(f"skipped {id} · {one.id}: {reason}")
                else:
                    record, words = run_object(session, id, one)
                    found.append(record)
                    display.line(words)
    return found


def records(folder: Path | None = None) -> list[Record]:
    """Every record of the repository, or below ``folder``."""
    return list(read_all(folder or open_catalog().root / "results" / "records"))
