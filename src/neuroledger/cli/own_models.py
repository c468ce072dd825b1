"""A user's own model: its scores on all benchmarks of a suite, its cost, and its checkpoint as pinned weights."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import pandas as pd

from neuroledger.data.arrays import Array
from neuroledger.data.integrity import compare, folder_of, sha256_of_file
from neuroledger.data.package import require_dvc, track
from neuroledger.data.pin.yaml_edit import spec_text, with_entries, without
from neuroledger.display import Display, choose, some
from neuroledger.engine.evaluate import evaluate as evaluate_pair
from neuroledger.engine.outcome import Pending, pending_for, pending_lines
from neuroledger.engine.resolve import model_of
from neuroledger.engine.run import closed
from neuroledger.engine.session import Request, Session
from neuroledger.errors import (
    ModelError,
    NeuroLedgerError,
    RequestError,
    SpecError,
    UnavailableError,
    UnknownError,
    about_pair,
)
from neuroledger.families.efficiency.cost import shown_cost
from neuroledger.models.activation_store import open_store
from neuroledger.models.api import wrapped
from neuroledger.models.model import Model
from neuroledger.models.torch_weights import checkpoint_tensors, safetensors
from neuroledger.spec.catalog import (
    Catalog,
    open_catalog,
    open_catalog_with,
    open_definitions,
)
from neuroledger.spec.kinds import ModelSpec
from neuroledger.spec.load import read_params
from neuroledger.spec.suites import suites_of
from neuroledger.spec.trusted import VARIABLE
from neuroledger.stats.score import Score
from neuroledger.stats.stored_score import StoredScore
from neuroledger.store.files import replacing, write_text

__all__ = [
    "evaluate",
    "Evaluated",
    "package_model",
    "require_published",
]

# Keys under which training scripts store the tensors of a model.
STATE_KEYS = ("state_dict", "model_state_dict", "model", "net", "network", "weights")


@dataclass(frozen=True)
class Evaluated(Mapping[str, Score]):
    """Scores of one model by benchmark, its costs, and the skipped, failed and pending benchmarks with reasons."""

    model: str
    scores: Mapping[str, Score]
    costs: Mapping[str, Score] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    pending: Mapping[str, Pending] = field(default_factory=dict)
    """Benchmarks for which this machine lacks something now, with the command that fixes it."""

    def __getitem__(self, benchmark: str) -> Score:
        return self.scores[benchmark]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per benchmark: score, interval, raw value, ceiling, scale, operations per stimulus, state."""
        cost = self.costs.get("synaptic_operations")
        operations = math.nan
        if cost is not None and cost.status != "failed":
            operations = cost.value
        rows = [_row(id, score, operations) for id, score in self.scores.items()]
        states = {id: f"failed: {reason}" for id, reason in self.failed.items()}
        states |= {id: f"pending: {what}" for id, what in self.pending.items()}
        if not (rows or states):  # an empty table would not say why
            states = {id: f"skipped: {reason}" for id, reason in self.skipped.items()}
        rows += [{"benchmark": id, "state": state} for id, state in states.items()]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def to_dict(self) -> dict[str, object]:
        """Return plain data: the scores and costs as records store them, and the other benchmarks with reasons."""

        def plain(scores: Mapping[str, Score]) -> dict[str, object]:
            return {
                id: StoredScore.of(score).model_dump(mode="json")
                for id, score in scores.items()
            }

        return {
            "model": self.model,
            "scores": plain(self.scores),
            "costs": plain(self.costs),
            "skipped": dict(self.skipped),
            "failed": dict(self.failed),
            "pending": {id: str(what) for id, what in self.pending.items()},
        }

    def notes(self) -> list[str]:
        """Return one line that says how many benchmarks were skipped and why; no line if none was."""
        if not self.skipped:
            return []
        reasons: dict[str, list[str]] = {}
        for id, reason in self.skipped.items():
            reasons.setdefault(reason, []).append(id)
        total = (
            len(self.skipped) + len(self.scores) + len(self.failed) + len(self.pending)
        )
        text = "; ".join(f"{some(ids)}: {reason}" for reason, ids in reasons.items())
        return [f"skipped {len(self.skipped)} of {total} benchmarks: {text}"]

    def __str__(self) -> str:
        table = self.to_frame().to_string(
            index=False, float_format=lambda value: f"{value:.4g}", na_rep="–"
        )
        return "\n".join([f"model {self.model}", table, *self.notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(
            index=False, float_format=lambda value: f"{value:.4g}", na_rep="–", border=0
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes())
        return f"<p><b>{escape(self.model)}</b></p>{table}{notes}"


# The columns of the table of `nl.evaluate`.
COLUMNS = (
    "benchmark",
    "score",
    "low",
    "high",
    "raw",
    "ceiling",
    "scale",
    "operations",
    "state",
)


def _row(id: str, score: Score, operations: float) -> dict[str, object]:
    """Return the row of one score, with the operations per stimulus of the model."""
    return {"benchmark": id, **score.in_row(), "operations": operations}


def evaluate(
    model: object,
    *,
    suite: str | None = None,
    benchmarks: Sequence[str] = (),
    costs: bool = True,
    seed: int = 0,
    limit: int | None = None,
    device: str = "cpu",
    **declared: object,
) -> Evaluated:
    """Score a model on every benchmark of a suite; nothing is recorded.

    Benchmarks that need an output that the model does not have are skipped; those for which this machine lacks
    something, such as data, are pending, and say which command fixes it.

    Parameters
    ----------
    model
        The id of a model, a model in memory, a Brain-Score object, or a torch module.
    suite, benchmarks
        What to score it on; default: the suite of ``params.yaml``. ``unlisted`` selects the benchmarks in no suite.
    costs
        Also count operations per stimulus, if the model is a network.
    declared
        Arguments of :func:`neuroledger.models.torch` for a torch module: ``regions`` or ``readout``,
        ``preprocessing``, ``visual_degrees`` and so on.

    Raises
    ------
    RequestError
        An id is unknown, or a module has neither regions nor a readout.
    SpecError
        The spec of a model or benchmark that is named is invalid.

    Examples
    --------
    >>> import torch
    >>> import neuroledger as nl
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 7, stride=8), torch.nn.AdaptiveAvgPool2d(2))
    >>> declared = {"regions": {"IT": "1"}, "preprocessing": {"resize": 32}}
    >>> found = nl.evaluate(network, benchmarks=["Kriegeskorte2008.monkeyIT-rdm"], costs=False, **declared)
    >>> list(found)
    ['Kriegeskorte2008.monkeyIT-rdm']
    """
    catalog = open_catalog_with("suites", suite) if suite else open_definitions()
    wrapped_model = wrapped(model, **declared)
    if isinstance(wrapped_model, str):
        catalog.model(wrapped_model)
    name = wrapped_model if isinstance(wrapped_model, str) else wrapped_model.id
    request = Request(seed=seed, limit=limit, device=device)
    ids = _selected(catalog, suite, benchmarks)
    with choose() as display:
        session = Session(catalog, request, open_store(catalog.root, display))
        found = _Evaluation(session, wrapped_model, display, with_costs=costs)
        for number, id in enumerate(ids):
            display.progress("evaluate", number, len(ids))
            found.add(id)
        for line in pending_lines(found.pending.items()):
            display.line(line)
        display.progress("evaluate", len(ids), len(ids))
    return Evaluated(
        name, found.scores, found.costs, found.skipped, found.failed, found.pending
    )


def _selected(
    catalog: Catalog, suite: str | None, benchmarks: Sequence[str]
) -> list[str]:
    """Return the named benchmarks and those of the suite, which is that of params.yaml if nothing is named."""
    ids = list(benchmarks)
    if suite or not benchmarks:
        name = suite or read_params(catalog.root).suite
        for each in suites_of(catalog, name):
            ids += [item.id for item in each.benchmarks]
    return list(dict.fromkeys(ids))


@dataclass
class _Evaluation:
    """The scores of one model so far, and the benchmarks without one."""

    session: Session
    model: str | Model
    display: Display
    with_costs: bool
    scores: dict[str, Score] = field(default_factory=dict)
    costs: Mapping[str, Score] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)

    def add(self, id: str) -> None:
        """Score the model on one more benchmark.

        Raises
        ------
        UnknownError
            There is no such benchmark.
        """
        try:
            self._score(id)
        except UnknownError:
            raise
        except Exception as error:
            if about_pair(error):
                self.failed[id] = str(error)
                self.display.line(f"{id}: failed: {error}")
            else:
                command = f"neuroledger evaluate MODEL --benchmark {id}"
                self.pending[id] = pending_for(error, again=command)

    def _score(self, id: str) -> None:
        catalog = self.session.catalog
        spec = catalog.benchmark(id)
        reason = closed(catalog, id, self.model)
        if isinstance(reason, Pending):
            self.pending[id] = reason
        elif reason is not None:
            self.skipped[id] = reason
        else:
            score = evaluate_pair(self.session, spec, self.model).headline
            self.scores[id] = score
            self.display.line(f"{id}: {score}")
            if self.with_costs and not self.costs:
                self.costs = shown_cost(self.session, self.model, spec.dataset)


def package_model(
    catalog: Catalog,
    id: str,
    checkpoint: Path,
    *,
    module: str | None = None,
    fields: Mapping[str, object] | None = None,
) -> list[Path]:
    """Convert a checkpoint to safetensors, track it with DVC, and pin it in the spec of model ``id``.

    Only tensors are read (``weights_only``), in a process with resource limits. A model without a spec gets one, which
    builds the torch class ``package.module:Class`` and has the ``fields`` (``regions``, ``layers``, ``preprocessing``, …).

    Raises
    ------
    RequestError
        The model has no spec and no module is given, or the checkpoint does not exist.
    DataError, ModelError
        The file is not a checkpoint, or its tensors do not fit the module.
    """
    path = catalog.path("models", id)
    if path is None and module is None:
        raise RequestError(
            f"model {id!r} has no spec: name its class with --module package.module:Class, or write the spec first "
            f"(`neuroledger new model {id}`)"
        )
    if not checkpoint.is_file():
        raise RequestError(f"{checkpoint} does not exist")
    if path is not None:
        require_published(catalog.model(id), checkpoint)
    tensors = _tensors(checkpoint)
    require_dvc(catalog.root)
    from safetensors.numpy import save_file

    target = folder_of(catalog.root, "models", id) / "model.safetensors"
    with replacing(target) as temporary:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary)
    track(catalog.root, [target])
    pin = {"dvc": True, "size": target.stat().st_size, "sha256": sha256_of_file(target)}
    if path is not None:
        text = without(path.read_text(encoding="utf-8"), "unavailable")
    else:
        path = catalog.root / "specs" / "models" / f"{id}.yaml"
        text = _new_spec(catalog, id, checkpoint, str(module), dict(fields or {}))
    before = None
    if path.is_file():
        before = path.read_text(encoding="utf-8")
    write_text(path, with_entries(text, ("weights",), {target.name: pin}))
    try:
        fresh = open_catalog(catalog.root)
        with choose("none") as display:
            model_of(Session(fresh, Request(), open_store(fresh.root, display)), id)
    except NeuroLedgerError as error:
        path.unlink() if before is None else write_text(path, before)
        if module is None or before is not None:
            raise
        raise _refused(module, error) from error
    return [target, path]


def _refused(module: str, error: NeuroLedgerError) -> NeuroLedgerError:
    """Return why a class cannot be packaged, in the words of the request: its spec was not kept, so no line is cited."""
    package = module.partition(":")[0].partition(".")[0]
    option = f"--module {module}"
    if isinstance(error, SpecError):
        reasons = "; ".join(finding.what for finding in error.findings)
        untrusted = any(finding.code == "trust.untrusted" for finding in error.findings)
        fix = f": `export {VARIABLE}={package}` trusts it in this shell"
        return RequestError(f"{option}: {reasons}{fix if untrusted else ''}")
    if (
        isinstance(error, UnavailableError)
        and importlib.util.find_spec(package) is None
    ):
        return UnavailableError(
            f"{option}: Python does not find {package!r}; if it is a file or folder here",
            "export PYTHONPATH=$PWD",
        )
    return error


def _new_spec(
    catalog: Catalog, id: str, checkpoint: Path, module: str, fields: dict[str, object]
) -> str:
    """Return the text of the spec of a torch class whose weights are a checkpoint."""
    builder: dict[str, object] = {"name": "torch", "module": module}
    for name in ("arguments", "preprocessing"):
        if name in fields:
            builder[name] = fields.pop(name)
    title = f"{module.rpartition(':')[2]} from {checkpoint.name}"
    spec = {"id": id, "version": 1, "title": title, "builder": builder, **fields}
    has_schemas = (catalog.root / "specs" / "schema").is_dir()
    return spec_text("model", spec, schema=has_schemas)


def require_published(spec: ModelSpec, checkpoint: Path) -> None:
    """Check that the checkpoint is one of the files that the spec's ``downloads`` list.

    Raises
    ------
    RequestError
        The spec lists other files.
    IntegrityError
        The size, a checksum, or the stated beginning of a checksum differs.
    """
    if not spec.downloads:
        return
    published = spec.downloads.get(checkpoint.name)
    if published is None:
        names = ", ".join(spec.downloads)
        raise RequestError(
            f"model {spec.id!r} is published as {names}, not {checkpoint.name}: package that file"
        )
    compare(
        checkpoint, published, fix="it is not the published file; download it again"
    )


def _tensors(path: Path) -> dict[str, Array]:
    """Return the tensors of a checkpoint by name, without the prefix of ``DataParallel``."""
    if path.suffix == ".safetensors":
        tensors = safetensors(path)
    else:
        tensors = checkpoint_tensors(path, STATE_KEYS)
    bfloat16 = [
        name for name, value in tensors.items() if str(value.dtype) == "torch.bfloat16"
    ]
    if bfloat16:
        raise ModelError(
            f"{path.name}: {bfloat16[0]!r} is bfloat16, which is not converted: save `model.float().state_dict()`"
        )
    return {
        name.removeprefix("module."): value.numpy() for name, value in tensors.items()
    }
