"""``python -m perf.presenting``: 60 layers, 4 regions, 2 assemblies: one pass kept on disk beside a pass per question."""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

from neuroledger.core.model import LayeredModel
from neuroledger.core.stimuli import StimulusSet
from neuroledger.engine.present import DiskStore
from neuroledger.models import api

DEPTH = 60
REGIONS = ("V1", "V2", "V4", "IT")
ASSEMBLIES = 2


def network() -> LayeredModel:
    """Sixty convolutions of 32 maps on 14 × 14 places, 15 to a region: 376,320 activations an image."""
    torch.manual_seed(0)
    blocks: list[tuple[str, torch.nn.Module]] = []
    for number in range(DEPTH):
        conv = torch.nn.Conv2d(3 if number == 0 else 32, 32, 3, padding=1, stride=4 if number == 0 else 1)
        blocks.append((f"layer{number:02d}", torch.nn.Sequential(conv, torch.nn.ReLU())))
    names = [name for name, _ in blocks]
    share = DEPTH // len(REGIONS)
    regions = {region: tuple(names[n * share : (n + 1) * share]) for n, region in enumerate(REGIONS)}
    module = torch.nn.Sequential()
    for name, block in blocks:
        module.add_module(name, block)
    return api.torch(module, id="deep", layers=names, regions=regions, preprocessing={"resize": 56})


def images(count: int) -> StimulusSet:
    """Images of noise, 64 × 64 pixels."""
    rng = np.random.default_rng(count)
    contents = {}
    for number in range(count):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(file, "PNG")
        contents[f"{number}.png"] = file.getvalue()
    table = pd.DataFrame({"stimulus_id": [f"s{n}" for n in range(count)], "filename": list(contents)})
    return StimulusSet("noise", table, contents=contents)


def ask(model: LayeredModel, stimuli: StimulusSet) -> float:
    """Seconds for all regions of all assemblies."""
    start = time.perf_counter()
    for _ in range(ASSEMBLIES):
        for region in REGIONS:
            model.record(stimuli, region)
    return time.perf_counter() - start


def main() -> None:
    """Print the time of both ways, for few and for many images."""
    parser = argparse.ArgumentParser(prog="python -m perf.presenting", description=__doc__)
    parser.add_argument("--images", type=int, nargs=2, default=[60, 300], metavar=("FEW", "MANY"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    few, many = given.images
    bare = network()
    ask(replace(bare, identity=None), images(4))
    print("| images | one pass, kept on disk s | a pass per question s | ratio |\n|--:|--:|--:|--:|")
    for count in (few, many):
        stimuli = images(count)
        with tempfile.TemporaryDirectory() as folder:
            ours = ask(replace(bare, store=DiskStore(Path(folder))), stimuli)
        naive = ask(replace(bare, identity=None), stimuli)
        print(f"| {count} | {ours:.1f} | {naive:.1f} | {naive / ours:.1f} |")


if __name__ == "__main__":
    main()
