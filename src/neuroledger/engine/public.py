"""The functions that users call from Python: find, load, score, run, records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from neuroledger.data.dataset import Dataset
from neuroledger.data.load import load_dataset
from neuroledger.display import choose
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.outcome import Pending, pending_for, pending_lines
from neuroledger.engine.plan import plan
from neuroledger.engine.record import Outcome, Record, read_all
from neuroledger.engine.run import closed, run_object
from neuroledger.engine.run import run as run_jobs
from neuroledger.engine.session import Request, Session, require_device
from neuroledger.errors import PendingError, RequestError, is_about_machine
from neuroledger.models.activation_store import open_store
from neuroledger.models.api import wrapped
from neuroledger.spec.catalog import (
    Catalog,
    open_catalog,
    open_catalog_with,
    open_definitions,
)
from neuroledger.spec.kinds import KINDS
from neuroledger.spec.load import read_params
from neuroledger.spec.suites import suites_of, to_score
from neuroledger.stats.score import Score

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["find", "load", "records", "run", "score"]


def find(kind: str = "benchmarks", **wanted: str) -> pd.DataFrame:
    """Return the specs of one kind as a table, one row each, filtered by fields that equal the given text.

    Outside a repository these are the definitions that are part of the package, and the sample.
    ``find("benchmarks", parent="V4")``; ``kind`` may be singular or plural.

    Raises
    ------
    RequestError
        The kind or a field is unknown.

    Examples
    --------
    >>> import neuroledger as nl
    >>> nl.find("benchmarks", dataset="Kriegeskorte2008").index.to_list()
    ['Kriegeskorte2008.IT-rdm', 'Kriegeskorte2008.monkeyIT-rdm']
    >>> nl.find("metric").loc["rdm", "scale"]
    'similarity'
    """
    catalog = open_definitions()
    folder = kind if kind.endswith("s") else f"{kind}s"
    if folder not in KINDS:
        raise RequestError(f"no kind {kind!r}; kinds are {', '.join(KINDS)}")
    rows = [
        catalog.entry(folder, id).spec.model_dump(mode="json", by_alias=True)
        for id in catalog.ids(folder)
    ]
    table = pd.DataFrame(rows)
    for name, value in wanted.items():
        if name not in table.columns:
            raise RequestError(
                f"{folder} have no field {name!r}; fields are {', '.join(table.columns)}"
            )
        table = table[table[name].astype(str) == value]
    return table.set_index("id")


def load(dataset: str) -> Dataset:
    """Load the stimuli and the assembly of a data set, verified and checked; ``sample`` is part of the package.

    Raises
    ------
    DataError, UnavailableError
        The files are missing, or they contradict the spec.

    Examples
    --------
    >>> import neuroledger as nl
    >>> data = nl.load("Kriegeskorte2008")
    >>> data
    Dataset(Kriegeskorte2008: 92 stimuli, 5 subject × 92 stimulus × 92 stimulus_b)
    >>> dict(data.assembly.sizes)
    {'subject': 5, 'stimulus': 92, 'stimulus_b': 92}
    """
    return load_dataset(open_catalog_with("datasets", dataset), dataset)


def score(
    model: object,
    benchmark: str,
    *,
    seed: int = 0,
    limit: int | None = None,
    device: str = "cpu",
    **declared: object,
) -> Score:
    """Score a model, given as an id or an object, on a benchmark; nothing is recorded.

    A torch module needs arguments of :func:`neuroledger.models.torch`: ``regions={"IT": "layer4"}``, ``preprocessing={…}``.

    Raises
    ------
    PendingError
        Something is missing here: data, a package, a device, memory; the message and ``command`` say what fixes it, and
        then the same call works.
    NeuroLedgerError
        The model cannot be scored; the message states the reason.

    Examples
    --------
    >>> import neuroledger as nl
    >>> score = nl.score("kriegeskorte92.hmax", "Kriegeskorte2008.monkeyIT-rdm")
    >>> print(f"{score:.3f} {score.scale}")
    0.245 [0.143, 0.342] similarity
    """
    request = Request(seed=seed, limit=limit, device=device)
    with _session(open_catalog_with("benchmarks", benchmark), request) as session:
        spec = session.catalog.benchmark(benchmark)
        return evaluate(session, spec, wrapped(model, **declared)).headline


@contextmanager
def _session(catalog: Catalog, request: Request) -> Iterator[Session]:
    """Yield a session; errors of the machine, such as exhausted memory, are raised as `PendingError` with a command."""
    with choose("none") as display:
        try:
            require_device(request.device)
            yield Session(catalog, request, open_store(catalog.root, display))
        except Exception as error:
            if is_about_machine(error) and not isinstance(error, PendingError):
                raise pending_for(error).error() from error
            raise


def run(
    models: Sequence[object] = (),
    *,
    suite: str | None = None,
    benchmarks: Sequence[str] = (),
    seed: int | None = None,
    executor: str | Client = "local",
    **declared: object,
) -> list[Outcome]:
    """Compute the missing scores of a request and return its outcomes: records, and what is pending.

    Incompatible pairs are skipped; one line states the reason. A pair for which this machine lacks something, such as
    data, a package or memory, gives a :class:`~neuroledger.engine.outcome.Pending`, with the reason and the command that
    fixes it; nothing is written for it.

    Parameters
    ----------
    models
        Ids, models in memory, or torch modules. Records of objects are returned but not written, since only a model with
        a spec can be reproduced (``neuroledger package model ID CHECKPOINT``).
    suite, benchmarks, seed
        What to score; defaults are those of ``params.yaml``.
    executor
        Where models with an id are scored: as ``--executor`` of the command line, or a ``distributed.Client``.
    declared
        Arguments of :func:`neuroledger.models.torch` for torch modules.

    Raises
    ------
    RequestError
        An id is unknown, nothing is declared for a torch module, or something is declared without one.

    Examples
    --------
    >>> import neuroledger as nl
    >>> [record] = nl.run(["kriegeskorte92.hmax"], benchmarks=["Kriegeskorte2008.monkeyIT-rdm"])
    >>> record.status
    'scored'
    """
    catalog = open_catalog()
    params = read_params(catalog.root)
    request = Request(seed=params.seed if seed is None else seed, device=params.device)
    suites = (
        suites_of(catalog, suite)
        if suite
        else ()
        if benchmarks
        else to_score(catalog, params.suite)
    )
    subjects = [
        model if isinstance(model, str) else wrapped(model, **declared)
        for model in models
    ]
    ids = [model for model in subjects if isinstance(model, str)]
    if declared and len(ids) == len(subjects):
        raise RequestError(
            f"{', '.join(sorted(declared))}: only torch modules take declarations, and none is given"
        )
    with choose() as display:
        results: list[Outcome] = []
        if ids or not subjects:
            planned = plan(
                catalog,
                models=ids,
                benchmarks=benchmarks,
                suites=suites,
                request=request,
            )
            for note in planned.notes():
                display.line(note)
            for line in pending_lines(planned.pending):
                display.line(line)
            results += [
                done.pending or done.record
                for done in run_jobs(
                    catalog, planned.jobs, request, display, executor=executor
                )
            ]
            results += [what for _, what in planned.pending]
        benchmark_ids = dict.fromkeys(
            [*benchmarks, *(item.id for spec in suites for item in spec.benchmarks)]
        )
        session = Session(catalog, request, open_store(catalog.root, display))
        for model in (subject for subject in subjects if not isinstance(subject, str)):
            for id in benchmark_ids:
                reason = closed(catalog, id, model)
                if isinstance(reason, Pending):
                    results.append(reason)
                    display.line(next(pending_lines([(f"{id} · {model.id}", reason)])))
                elif reason is not None:
                    display.line(f"skipped {id} · {model.id}: {reason}")
                else:
                    outcome, words = run_object(session, id, model)
                    results.append(outcome)
                    display.line(words)
    return results


def records(folder: Path | None = None) -> list[Record]:
    """Return every record of the repository, or below ``folder``.

    Examples
    --------
    >>> import neuroledger as nl
    >>> records = nl.records()
    >>> sorted({one.model for one in records if one.benchmark == "Kriegeskorte2008.IT-rdm"})[:3]
    ['efficientnet_lite0', 'efficientnet_lite0.untrained', 'efficientnet_lite1']
    """
    return list(read_all(folder or open_catalog().root / "results" / "records"))
