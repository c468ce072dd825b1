"""Records for the trackers of other projects: one run per record in MLflow, Weights & Biases and DVCLive."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from neuroledger.data.integrity import pinned_files
from neuroledger.engine.record import Record, read_record
from neuroledger.errors import RequestError, require_package
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import json_files, replacing

__all__ = [
    "dataset_card",
    "numbers_of",
    "records_of",
    "to_dvclive",
    "to_mlflow",
    "to_wandb",
]

PROJECT: Final = "neuroledger"


def records_of(catalog: Catalog, id: str) -> list[Record]:
    """Return the records with a score on a benchmark, or on the benchmarks of a suite.

    Raises
    ------
    RequestError
        There is no such benchmark or suite, or it has no scores.
    """
    if catalog.has("suites", id):
        benchmarks = {item.id for item in catalog.suite(id).benchmarks}
    else:
        benchmarks = {catalog.benchmark(id).id}
    folder = catalog.root / "results" / "records"
    paths = [path for path in json_files(folder) if path.parent.name in benchmarks]
    records = [record for record in map(read_record, paths) if record.value is not None]
    if not records:
        raise RequestError(
            f"{id} has no scores: run `neuroledger run --benchmark {min(benchmarks)}`"
        )
    return records


def numbers_of(record: Record) -> dict[str, float]:
    """Return each score of a record by metric, with its interval, raw value and ceiling where it has them."""
    numbers: dict[str, float | None] = {}
    for metric, score in record.scores.items():
        ceiling = None if score.ceiling is None else score.ceiling.value
        parts = {"low": score.low, "high": score.high, "raw": score.raw}
        numbers[metric] = score.value
        numbers |= {f"{metric}.{part}": value for part, value in parts.items()}
        numbers[f"{metric}.ceiling"] = ceiling
    return {name: value for name, value in numbers.items() if value is not None}


def _facts_of(record: Record) -> dict[str, str]:
    """Return what was scored, how, and the identity of the record."""
    return {
        "benchmark": record.benchmark,
        "model": record.model,
        "seed": str(record.request.seed),
        "status": record.status,
        "record": record.id,
    }


def to_mlflow(records: Iterable[Record], out: Path) -> Iterator[Path]:
    """Log a run per record, in an experiment per benchmark; yield the database of the runs, if they are not on a server.

    Runs go to the server of ``MLFLOW_TRACKING_URI`` if that is set, otherwise to ``mlflow.db`` in ``out``.
    """
    require_package("mlflow")
    import mlflow

    database = out.resolve() / "mlflow.db"
    is_local = not os.environ.get("MLFLOW_TRACKING_URI")
    if is_local:
        out.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(f"sqlite:///{database}")
    for record in records:
        mlflow.set_experiment(f"{PROJECT}/{record.benchmark}")
        with mlflow.start_run(run_name=record.model):
            mlflow.log_params(_facts_of(record))
            mlflow.log_metrics(numbers_of(record))
    if is_local:
        yield database


def to_wandb(records: Iterable[Record], out: Path) -> Iterator[Path]:
    """Log a run per record, in a group per benchmark; yield the folder of each run.

    Runs stay in ``out`` until ``wandb sync``, unless ``WANDB_MODE`` says otherwise.
    """
    require_package("wandb")
    import wandb

    out.mkdir(parents=True, exist_ok=True)
    for record in records:
        run = wandb.init(
            project=PROJECT,
            group=record.benchmark,
            name=f"{record.benchmark} {record.model}",
            config=_facts_of(record),
            dir=str(out),
            mode=os.environ.get("WANDB_MODE", "offline"),
            reinit="finish_previous",
            settings=wandb.Settings(silent=True),
        )
        folder = Path(run.dir).parent
        run.log(numbers_of(record))
        run.finish()
        yield folder


def to_dvclive(records: Iterable[Record], out: Path) -> Iterator[Path]:
    """Log parameters and metrics per record, as `dvc metrics` and `dvc params` read them; yield the metrics files."""
    require_package("dvclive")
    from dvclive import Live

    for record in records:
        folder = out / record.benchmark / record.model
        with Live(str(folder), save_dvc_exp=False, dvcyaml=None) as live:
            live.log_params(_facts_of(record))
            for name, value in numbers_of(record).items():
                live.log_metric(name, value, plot=False)
        yield folder / "metrics.json"


def dataset_card(catalog: Catalog, id: str, out: Path) -> Path:
    """Write the card of a data set for the Hugging Face Hub, ``README.md`` in ``out``, and return its path.

    The card has the licence, citation and contents that the spec states, and no values of the data.
    """
    require_package("huggingface_hub")
    from huggingface_hub import DatasetCard, DatasetCardData

    spec = catalog.dataset(id)
    license = spec.license.lower()
    is_listed = not license.startswith("licenseref")
    named = {} if is_listed else {"license_name": license.removeprefix("licenseref-")}
    about = DatasetCardData(
        license=license if is_listed else "other",
        pretty_name=spec.title,
        tags=["neuroscience", "neuroledger", *spec.tags],
        **named,
    )
    files = [
        f"| `{name}` | {pin.size:,} | `{pin.sha256}` |"
        for name, pin in pinned_files(catalog, "datasets", id).pins.items()
    ]
    benchmarks = [
        f"* `{name}`: {catalog.benchmark(name).title}"
        for name in catalog.ids("benchmarks")
        if catalog.benchmark(name).dataset == id
    ]
    lines = [
        f"# {spec.title}",
        *([spec.description] if spec.description else []),
        f"Data set `{id}`, version {spec.version}, licence {spec.license}, access {spec.access}.",
        "## Files\n\n| file | bytes | SHA-256 |\n|---|--:|---|\n" + "\n".join(files),
        *(["## Benchmarks\n\n" + "\n".join(benchmarks)] if benchmarks else []),
        "## Citation\n\n" + (", ".join(spec.cite) or "none stated"),
    ]
    text = f"---\n{about.to_yaml()}\n---\n\n" + "\n\n".join(lines) + "\n"
    path = out / "README.md"
    with replacing(path) as temporary:
        DatasetCard(text).save(temporary)
    return path
