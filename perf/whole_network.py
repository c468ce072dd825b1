"""``python -m perf.whole_network``: every layer of AlexNet on 16 benchmarks, beside one pass and one Gram matrix a layer."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
import xarray as xr
from PIL import Image
from torch import nn

from perf.growth import REPOSITORY

if TYPE_CHECKING:
    from neuroledger.engine.session import Session
    from neuroledger.models.model import LayeredModel

PIXELS, REGIONS, NEUROIDS, REPETITIONS = 224, "ABCD", 42, 4
METRICS = ("pls", "ridge", "rdm", "cka")
LAYERS = (
    *(f"features.{number}" for number in range(13)),
    "avgpool",
    *(f"classifier.{number}" for number in (1, 2, 4, 5, 6)),
)
BATCH, COLUMNS = 32, 4096
PEER_LAYERS = ("features.0", "features.5", "features.12", "classifier.5")
COMPONENTS, SPLITS = 1000, 10


class AlexNet(nn.Module):
    """The network of 2014 (one tower), with 1,084,904 features in 19 layers for an image."""

    def __init__(self) -> None:
        super().__init__()
        convolutions: list[nn.Module] = [nn.Conv2d(3, 64, 11, 4, 2)]
        for inputs, outputs, width in (
            (64, 192, 5),
            (192, 384, 3),
            (384, 256, 3),
            (256, 256, 3),
        ):
            convolutions.append(nn.Conv2d(inputs, outputs, width, padding=width // 2))
        parts: list[nn.Module] = []
        for number, convolution in enumerate(convolutions):
            parts += [convolution, nn.ReLU(inplace=True)]
            if number in (0, 1, 4):
                parts.append(nn.MaxPool2d(3, 2))
        self.features = nn.Sequential(*parts)
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(9216, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, 1000),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def repository(root: Path, count: int) -> None:
    """Write a repository with simulated images and neurons in four regions, and a benchmark for each region and metric."""
    (root / "dvc.yaml").write_text((REPOSITORY / "dvc.yaml").read_text())
    data = root / "data" / "Pictures"
    data.mkdir(parents=True)
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((20, 12, 12, 3))
    ids = [f"i{number:05d}" for number in range(count)]
    with zipfile.ZipFile(data / "stimuli.zip", "w") as archive:
        for number, id in enumerate(ids):
            coarse = objects[number % 20] + 0.7 * rng.standard_normal((12, 12, 3))
            pixels = np.clip(128 + 45 * coarse, 0, 255).astype(np.uint8)
            file = io.BytesIO()
            image = Image.fromarray(pixels).resize((PIXELS, PIXELS))
            image.save(file, "JPEG", quality=90)
            archive.writestr(f"{id}.jpg", file.getvalue())
    table = {"stimulus_id": ids, "filename": [f"{id}.jpg" for id in ids]}
    pd.DataFrame(table).to_csv(data / "stimuli.csv", index=False)
    signal = np.stack([objects[number % 20].ravel() for number in range(count)])
    neuroids = NEUROIDS * len(REGIONS)
    signal = signal @ rng.standard_normal((signal.shape[1], neuroids)) / 20
    noise = rng.standard_normal((count, REPETITIONS, neuroids))
    shown = (signal[:, None] + noise).reshape(-1, neuroids).astype("float32")
    coords = {
        "stimulus_id": ("presentation", np.repeat(ids, REPETITIONS)),
        "repetition": ("presentation", np.tile(np.arange(REPETITIONS), count)),
        "neuroid_id": ("neuroid", [f"n{number}" for number in range(neuroids)]),
        "region": ("neuroid", np.repeat(list(REGIONS), NEUROIDS)),
    }
    responses = xr.Dataset({"data": (("presentation", "neuroid"), shown)}, coords)
    responses.to_netcdf(data / "responses.nc")
    pins = {
        path.name: {
            "dvc": True,
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(data.iterdir())
    }
    head = {"version": 1, "title": "Simulated"}
    write = _writer(root / "specs")
    write(
        "datasets/Pictures",
        **head,
        license="CC0-1.0",
        simulated=True,
        modality="simulated",
        files=pins,
        reader={"name": "netcdf"},
        degrees=8,
        expectations={
            "stimuli": [{"check": "unique", "column": "stimulus_id"}],
            "assembly": [{"check": "dims", "dims": ["presentation", "neuroid"]}],
        },
    )
    for region in REGIONS:
        for metric in METRICS:
            ceiling = {"ceiling": "internal_consistency"}
            write(
                f"benchmarks/Pictures.{region}-{metric}",
                **head,
                parent="neural",
                dataset="Pictures",
                select={"region": region},
                paradigm={"name": "recording", "region": region, "visual_degrees": 8},
                metric=metric,
                controls={"negative": ["noise"]},
                **(ceiling if metric in ("pls", "ridge") else {}),
            )
    write(
        "models/alexnet",
        **head,
        builder={
            "name": "torch",
            "module": "perf.whole_network:AlexNet",
            "preprocessing": {"resize": PIXELS},
        },
        layers=LAYERS,
        regions=dict.fromkeys(REGIONS, "features.8"),
    )


def _writer(folder: Path) -> Callable[..., None]:
    def write(place: str, **fields: object) -> None:
        path = folder / f"{place}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        id = path.name.removesuffix(".yaml")
        path.write_text(json.dumps({"id": id, **fields}))  # which is YAML

    return write


def bare(root: Path) -> dict[str, float]:
    """Processor seconds of decoding, of a pass, and of a Gram matrix of every layer, without anything else."""
    seconds: dict[str, float] = {}
    start = time.process_time()
    with zipfile.ZipFile(root / "data/Pictures/stimuli.zip") as archive:
        files = [archive.read(name) for name in sorted(archive.namelist())]
    decoded = [
        np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files
    ]
    images = torch.from_numpy(np.stack(decoded)).permute(0, 3, 1, 2) / 255
    seconds["decode"] = time.process_time() - start
    network = AlexNet().eval()
    answers: dict[str, list[np.ndarray]] = {layer: [] for layer in LAYERS}

    def show() -> None:
        with torch.no_grad():
            for at in range(0, len(images), BATCH):
                network(images[at : at + BATCH])

    start = time.process_time()
    show()
    seconds["forward"] = time.process_time() - start
    for name, module in network.named_modules():
        if name in answers:
            module.register_forward_hook(
                lambda _m, _i, out, name=name: answers[name].append(
                    out.flatten(1).numpy().copy()
                )
            )
    show()
    for layer in LAYERS:
        features = np.concatenate(answers.pop(layer))
        start = time.process_time()
        products = np.zeros((len(features),) * 2)
        for at in range(0, features.shape[1], COLUMNS):
            part = features[:, at : at + COLUMNS].astype(np.float64)
            part -= part.mean(axis=0)
            products += part @ part.T
        seconds["gram"] = seconds.get("gram", 0.0) + time.process_time() - start
    return seconds


def _opened(root: Path) -> tuple[Session, LayeredModel]:
    from neuroledger.data.gate.validate import validate
    from neuroledger.engine.resolve import model_of
    from neuroledger.engine.session import Request, Session
    from neuroledger.models.activation_store import open_store
    from neuroledger.models.model import LayeredModel
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    validate(catalog, "Pictures")
    own = Session(catalog, Request(), open_store(root))
    model = model_of(own, "alexnet")
    assert isinstance(model, LayeredModel)
    return own, model


def session(root: Path, intervals: bool) -> dict[str, float]:
    """Processor seconds of all scores in one session, after imports, and the number of images that the network was shown."""
    import dask.array  # noqa: F401 (xarray imports it with the first array)
    import scipy.stats  # noqa: F401
    import sklearn.model_selection  # noqa: F401

    from neuroledger.families.alignment.layer_curves.choice import score_layers

    own, model = _opened(root)
    shown: list[int] = []
    network = model.extract.module  # type: ignore[attr-defined]
    network.register_forward_pre_hook(lambda _, given: shown.append(len(given[0])))
    result: dict[str, float] = {}
    for metric in METRICS:
        start = time.process_time()
        for region in REGIONS:
            benchmark = own.catalog.benchmark(f"Pictures.{region}-{metric}")
            for score in score_layers(own, benchmark, model, LAYERS).values():
                if intervals:
                    _ = score.low
        result[metric] = time.process_time() - start
    return {**result, "images shown": sum(shown)}


def against_peer(root: Path) -> dict[str, float]:
    """Processor seconds of PLS and ridge of some layers with all regions, from stored activations: here, and the peer's way.

    The peer reduces a layer to its principal components, then fits each region and split (:mod:`perf.procedure`).
    """
    from sklearn.cross_decomposition import PLSRegression
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge

    from neuroledger.engine.evaluate import headline_of
    from neuroledger.engine.resolve import resolve
    from neuroledger.families.alignment.layer_curves.choice import (
        score_layers,
        with_layers,
    )
    from perf.procedure import indexed, regressed

    own, whole = _opened(root)
    model = with_layers(whole, PEER_LAYERS)
    benchmarks = {
        (metric, region): own.catalog.benchmark(f"Pictures.{region}-{metric}")
        for metric in ("pls", "ridge")
        for region in REGIONS
    }
    shown = resolve(own, benchmarks["pls", "A"], whole, headline_of).data.stimuli
    assert shown is not None
    activations = model.activations(shown, PEER_LAYERS)
    responses = xr.open_dataset(root / "data/Pictures/responses.nc")["data"]
    means = responses.values.reshape(len(shown.ids), REPETITIONS, -1).mean(axis=1)

    def assembly(values: np.ndarray) -> xr.DataArray:
        objects = np.arange(len(values)) % 20
        coords = {
            "stimulus_id": ("presentation", list(shown.ids)),
            "object_name": ("presentation", objects),
            "neuroid_id": ("neuroid", np.arange(values.shape[1])),
            "region": ("neuroid", ["region"] * values.shape[1]),
        }
        return indexed(xr.DataArray(values, coords, ("presentation", "neuroid")))

    seconds: dict[str, float] = {}
    for layer in PEER_LAYERS:
        features = np.array(activations[layer]).reshape(len(shown.ids), -1)
        start = time.process_time()
        for benchmark in benchmarks.values():
            score_layers(own, benchmark, model, [layer])
        seconds[f"{layer} here"] = time.process_time() - start
        start = time.process_time()
        components = min(COMPONENTS, len(features))
        reduced = assembly(PCA(components, random_state=0).fit_transform(features))
        seconds[f"{layer} components"] = time.process_time() - start
        for name, make in {
            "pls": lambda: PLSRegression(25, scale=False),
            "ridge": lambda: Ridge(1.0),
        }.items():
            start = time.process_time()
            for at in range(len(REGIONS)):
                targets = means[:, at * NEUROIDS : (at + 1) * NEUROIDS]
                regressed(make, reduced, assembly(targets), SPLITS)
            seconds[f"{layer} {name}"] = time.process_time() - start
    return seconds


def _print_peer(seconds: dict[str, float]) -> None:
    whole = [0.0, 0.0]
    for layer in PEER_LAYERS:
        here = seconds[f"{layer} here"]
        parts = {
            name: seconds[f"{layer} {name}"] for name in ("components", "pls", "ridge")
        }
        there = sum(parts.values())
        whole = [whole[0] + here, whole[1] + there]
        words = ", ".join(f"{name} {value:.1f}" for name, value in parts.items())
        print(
            f"{layer}: here {here:.1f} s, peer {there:.1f} s ({words}): {there / here:.0f} ×"
        )
    print(
        f"all: here {whole[0]:.1f} s, peer {whole[1]:.1f} s: {whole[1] / whole[0]:.0f} ×"
    )


def main() -> None:
    """Print the seconds of the bare pass, and of two sessions of all scores, with and without intervals."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.whole_network", description=__doc__
    )
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--session", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--intervals", action="store_true")
    parser.add_argument(
        "--peer", action="store_true", help="PLS and ridge the peer's way"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.session is not None:
        if options.peer:
            print(json.dumps(against_peer(options.session)))
        else:
            print(json.dumps(session(options.session, options.intervals)))
        return
    with tempfile.TemporaryDirectory(prefix="network-") as folder:
        root = Path(folder).resolve()
        repository(root, options.images)
        if options.peer:
            _print_peer(_in_process(root, ["--peer"]))
            return
        alone = bare(root)
        whole = sum(alone.values())
        parts = ", ".join(f"{name} {value:.1f}" for name, value in alone.items())
        print(f"{options.images} images, bare {whole:.1f} s: {parts}")
        words = ["--intervals"] if options.intervals else []
        for run in ("first", "again"):
            found = _in_process(root, words)
            images = found.pop("images shown")
            total = sum(found.values())
            parts = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
            kept = sum(
                path.stat().st_size
                for path in root.glob(".cache/neuroledger/**/*")
                if path.is_file()
            )
            print(
                f"{run}: {len(METRICS) * len(REGIONS) * len(LAYERS)} scores {total:.1f} s = {total / whole:.2f} × bare "
                f"({parts}), {images:.0f} images shown, {kept / 1e6:.1f} MB kept"
            )


def _in_process(root: Path, words: list[str]) -> dict[str, float]:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "NEUROLEDGER_TRUSTED": "perf"}
    command = [sys.executable, "-m", "perf.whole_network", "--session", str(root)]
    done = subprocess.run(
        [*command, *words],
        cwd=REPOSITORY,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
