"""``python -m perf.presenting``: 60 layers, 4 regions, 2 assemblies: one pass stored on disk against a pass per request."""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from neuroledger.data.screen import THREADS, shown, shown_as
from neuroledger.data.stimuli import StimulusSet
from neuroledger.models import api
from neuroledger.models.activation_store import DiskStore
from neuroledger.models.activations import Extract, Trial, probe, stream
from neuroledger.models.model import LayeredModel
from neuroledger.models.preprocessing import Preprocessing

DEPTH = 60
REGIONS = ("V1", "V2", "V4", "IT")
ASSEMBLIES = 2


def network() -> LayeredModel:
    """Sixty convolutions of 32 maps on 14 × 14 places, 15 to a region: 376,320 activations an image."""
    torch.manual_seed(0)
    blocks: list[tuple[str, torch.nn.Module]] = []
    for number in range(DEPTH):
        conv = torch.nn.Conv2d(
            3 if number == 0 else 32, 32, 3, padding=1, stride=4 if number == 0 else 1
        )
        blocks.append(
            (f"layer{number:02d}", torch.nn.Sequential(conv, torch.nn.ReLU()))
        )
    names = [name for name, _ in blocks]
    share = DEPTH // len(REGIONS)
    regions = {
        region: tuple(names[n * share : (n + 1) * share])
        for n, region in enumerate(REGIONS)
    }
    module = torch.nn.Sequential()
    for name, block in blocks:
        module.add_module(name, block)
    return api.torch(
        module, id="deep", layers=names, regions=regions, preprocessing={"resize": 56}
    )


def images(count: int) -> StimulusSet:
    """Images of noise, 64 × 64 pixels."""
    rng = np.random.default_rng(count)
    contents = {}
    for number in range(count):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(
            file, "PNG"
        )
        contents[f"{number}.png"] = file.getvalue()
    table = pd.DataFrame(
        {"stimulus_id": [f"s{n}" for n in range(count)], "filename": list(contents)}
    )
    return StimulusSet("noise", table, contents=contents)


def ask(model: LayeredModel, stimuli: StimulusSet) -> float:
    """Seconds for all regions of all assemblies."""
    start = time.perf_counter()
    for _ in range(ASSEMBLIES):
        for region in REGIONS:
            model.record(stimuli, region)
    return time.perf_counter() - start


def photographs(count: int) -> StimulusSet:
    """JPEG images of smooth noise, 500 × 375 pixels."""
    rng = np.random.default_rng(0)
    contents = {}
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (25, 34, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(
            file, "JPEG", quality=90
        )
        contents[f"{number}.jpg"] = file.getvalue()
    table = pd.DataFrame(
        {"stimulus_id": [f"p{n}" for n in range(count)], "filename": list(contents)}
    )
    return StimulusSet("photographs", table, contents=contents)


def decoding(count: int) -> None:
    """Print the time to decode photographs: sequentially, in threads, and concurrently with a network."""
    stimuli, steps = (
        photographs(count),
        Preprocessing(resize=256, fit="shorter", crop=224),
    )
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3)
    )
    model = api.torch(module, id="shallow", layers=["2"], preprocessing=steps, batch=16)
    extract = model.extract

    def seconds_of_pass(show: Extract) -> float:
        start = time.perf_counter()
        probed = probe(extract, stimuli, ("2",), model="shallow")
        for _ in stream(show, stimuli, probed, model="shallow", batch=16):
            pass
        return time.perf_counter() - start

    def plain(
        stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> Mapping[str, Any]:
        return extract(stimuli, ids, layers, trial)

    start = time.perf_counter()
    one_by_one = steps(shown(stimuli, stimuli.ids), model="m")
    middle = time.perf_counter()
    threaded = np.stack(list(shown_as(stimuli, stimuli.ids, steps.one)))
    end = time.perf_counter()
    print(
        f"\n{count} JPEG images of 500 × 375 to 224 × 224, {THREADS} threads: sequentially {middle - start:.2f} s, "
        f"in threads {end - middle:.2f} s, bit-identical: {np.array_equal(one_by_one, threaded)}\n"
        f"with a network: {seconds_of_pass(plain):.2f} s, with concurrent preparation of the next batch "
        f"{seconds_of_pass(extract):.2f} s"
    )


def main() -> None:
    """Print the times of both alternatives, for few and for many images."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.presenting", description=__doc__
    )
    parser.add_argument(
        "--images", type=int, nargs=2, default=[60, 300], metavar=("FEW", "MANY")
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    few, many = options.images
    bare = network()
    ask(replace(bare, identity=None), images(4))
    print(
        "| images | one pass, kept on disk s | a pass per question s | ratio |\n|--:|--:|--:|--:|"
    )
    for count in (few, many):
        stimuli = images(count)
        with tempfile.TemporaryDirectory() as folder:
            ours = ask(replace(bare, store=DiskStore(Path(folder))), stimuli)
        naive = ask(replace(bare, identity=None), stimuli)
        print(f"| {count} | {ours:.1f} | {naive:.1f} | {naive / ours:.1f} |")
    decoding(many)


if __name__ == "__main__":
    main()
