"""Runs in Brain-Score's own environment: scores its benchmarks on simulated packages instead of those in its buckets.

``python -m tests.parity.peer FOLDER [SECONDS]`` reads ``FOLDER/jobs.json``, and writes packages, ``FOLDER/model.npz`` and
``FOLDER/peer.json``: raw score, ceiling and score of each benchmark, computed by its own object, including loading.
Benchmarks in an existing ``peer.json`` are skipped; after SECONDS, no further benchmark is started.
"""

import functools
import json
import os
import sys
import time
import traceback
import types
import warnings
from pathlib import Path

# Their helpers import OpenCV for movements of the eye and h5py for images of ImageNet, which nothing here asks for.
sys.modules |= {name: types.ModuleType(name) for name in ("cv2", "h5py")}
os.environ |= {
    "BS_INSTALL_DEPENDENCIES": "no",
    "RESULTCACHING_DISABLE": "1",
    "BRAINSCORE_SKIP_MEMORY_CHECK": "1",
}

import numpy as np
import pandas as pd
from brainscore_core.supported_data_standards.brainio import s3
from brainscore_core.supported_data_standards.brainio.assemblies import (
    BehavioralAssembly,
    NeuroidAssembly,
)

from tests.parity import tensorflow1
from tests.parity.packages import LAYOUTS, PLACES, Packages

warnings.filterwarnings("ignore")
PERSON = "brainscore_vision.model_helpers.brain_transformation.behavior"


class Stored:
    """The stored features as a Brain-Score model: with Brain-Score's readouts and stored labels."""

    identifier = "stored"

    def __init__(self, features, labels):
        self.features, self.labels, self.degrees, self.task, self.bins = (
            features,
            labels,
            8,
            None,
            None,
        )
        self.first = "presentation"

    def visual_degrees(self):
        return self.degrees

    def start_recording(self, region, time_bins=None, **_):
        self.task, self.bins = None, time_bins

    def start_task(self, task, fitting_stimuli=None, **_):
        from brainscore_vision.model_helpers.brain_transformation.behavior import (
            OddOneOut,
            ProbabilitiesMapping,
        )

        self.task = getattr(task, "name", task)
        if self.task == "probabilities":
            self.readout = ProbabilitiesMapping("stored", self.activations, "layer")
            self.readout.start_task(task, fitting_stimuli)
        elif self.task == "odd_one_out":
            self.readout = OddOneOut("stored", self.activations, "layer")
            self.readout.start_task(task)

    def activations(self, stimuli, **_):
        rows = np.stack(
            [self.features[str(id)] for id in stimuli["stimulus_id"].values]
        )
        coords = {
            name: ("presentation", stimuli[name].values) for name in stimuli.columns
        }
        names = [f"f{n}" for n in range(rows.shape[1])]
        coords |= {
            "neuroid_id": ("neuroid", names),
            "neuroid_num": ("neuroid", list(range(len(names)))),
            "layer": ("neuroid", ["layer"] * len(names)),
        }
        coords |= {name: ("neuroid", at) for name, at in PLACES.items()}
        return NeuroidAssembly(
            rows.copy(), dims=["presentation", "neuroid"], coords=coords
        )

    def look_at(self, stimuli, number_of_trials=1, require_variance=False):
        if self.task == "label":
            said = [self.labels[str(id)] for id in stimuli["stimulus_id"].values]
            coords = {
                name: ("presentation", stimuli[name].values) for name in stimuli.columns
            }
            coords |= {
                "label": ("presentation", said),
                "logit": ("presentation", list(range(len(said)))),
            }
            return BehavioralAssembly(
                [said], coords=coords, dims=["choice", "presentation"]
            )
        if self.task is not None:
            return self.readout.look_at(stimuli)
        answer = self.activations(stimuli)
        bins = [
            one.item() if isinstance(one, np.ndarray) else tuple(one)
            for one in self.bins
        ]
        if len(bins) > 1:
            coords = {name: (dims, values) for name, dims, values in s3_walk(answer)}
            coords |= {
                "time_bin_start": ("time_bin", [b[0] for b in bins]),
                "time_bin_end": ("time_bin", [b[1] for b in bins]),
            }
            values = np.stack([answer.values] * len(bins), axis=-1)
            return NeuroidAssembly(
                values, dims=["presentation", "neuroid", "time_bin"], coords=coords
            )
        return (
            answer.transpose("neuroid", "presentation")
            if self.first == "neuroid"
            else answer
        )


def s3_walk(assembly):
    """Name, dimensions and values of each level of the indexes."""
    from brainscore_core.supported_data_standards.brainio.assemblies import walk_coords

    return list(walk_coords(assembly))


def division(folder):
    """A stand-in for the package that divides the images of LAION-fMRI, by a table next to them."""
    module = types.ModuleType("laion_fmri.splits")

    def masks(trials, split, pool="shared", **_):
        table = pd.read_csv(folder / "splits.csv").set_index("stimulus_id")[split]
        part = np.array([table[id] for id in trials["label"]])
        return part == "train", part == "test"

    module.get_split_masks = masks
    sys.modules |= {
        "laion_fmri": types.ModuleType("laion_fmri"),
        "laion_fmri.splits": module,
    }
    images = folder / "images_extracted"
    if (folder / "images_extracted.zip").is_file():
        import zipfile

        with zipfile.ZipFile(folder / "images_extracted.zip") as archive:
            archive.extractall(images)
        (images / "manifest.csv").write_bytes((folder / "stimuli.csv").read_bytes())
    os.environ["LAION_FMRI_STIMULI_DIR"] = str(images)


def seeded():
    """Seed the draws of properties, which have no seed at the peer, with 0 in each call."""
    from brainscore_vision.metrics.distribution_similarity import metric

    for cls in (metric.BootstrapDistributionSimilarity,):
        plain = cls.__call__

        def call(self, *values, plain=plain):
            np.random.seed(0)
            return plain(self, *values)

        cls.__call__ = call


def number(value):
    """A plain number, or None."""
    if value is None:
        return None
    if "aggregation" in getattr(
        value, "dims", ()
    ):  # an older form, with the error beside the number
        value = value.sel(aggregation="center")
    found = np.asarray(getattr(value, "values", value))
    return float(found) if found.ndim == 0 else float(np.mean(found))


def scored(key, model):
    """Raw score, ceiling and score of one benchmark."""
    import brainscore_vision

    benchmark = brainscore_vision.load_benchmark(key)
    degrees = getattr(benchmark, "_visual_degrees", None)
    if getattr(benchmark, "alpha_coord", None) is not None:
        benchmark._ceiling_func = functools.cache(
            benchmark._ceiling_func
        )  # they compute it anew for each subject
    model.degrees = 8 if degrees is None or not np.isscalar(degrees) else degrees
    model.first = "neuroid" if key.startswith("Islam") else "presentation"
    np.random.seed(0)  # what they draw without a seed
    score = benchmark(model)
    ceiling = score.attrs.get("ceiling")
    if ceiling is None and key.startswith(
        ("Zerbe", "Rajalingham2018", "Malania2007.vernieracuity")
    ):
        ceiling = benchmark.ceiling
    by = getattr(benchmark, "alpha_coord", None)
    if (
        by is not None
    ):  # each subject is divided by a ceiling of its own; what is told beside the score is another one
        subjects = np.unique(benchmark.test_assembly[by].values)
        ceiling = np.mean(
            [number(score.attrs[one].attrs["ceiling"]) for one in subjects]
        )
    raw = score.attrs.get("raw")
    return {"raw": number(raw), "ceiling": number(ceiling), "score": number(score)}


def written(folder, packages, asked):
    """Write every package with a known layout, then the model's features and labels."""
    make = Packages(packages, asked, asked["seed"], asked["odd"], asked["forms"])
    failed = {}
    for key in asked["packages"]:
        rule = next(
            (rule for start, rule in LAYOUTS.items() if key.startswith(start)), None
        )
        if rule is None:
            continue
        make.begin(key)
        try:
            rule(make, key)
        except Exception as error:
            traceback.print_exc()
            failed[key] = f"{type(error).__name__}: {error}"
    ids = sorted(make.features)
    labels = [str(make.labels.get(id, "")) for id in ids]
    (folder / "failed.json").write_text(json.dumps(failed, indent=1))
    np.savez(
        folder / "model.npz",
        ids=ids,
        features=np.stack([make.features[id] for id in ids]),
        labels=labels,
    )


def main(folder, seconds):
    """Write the packages, then score every benchmark with complete files."""
    began = time.monotonic()
    asked = json.loads((folder / "jobs.json").read_text())
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    if not (folder / "model.npz").is_file():
        written(folder, packages, asked)
    held = np.load(folder / "model.npz")
    features = dict(zip(held["ids"].tolist(), held["features"]))
    labels = dict(zip(held["ids"].tolist(), held["labels"].tolist()))
    s3.get_path = lambda identifier, kind, *_, **__: str(
        packages
        / f"{'assy_' if kind == 'nc' else 'stimulus_'}{identifier.replace('.', '_')}.{kind}"
    )
    division(packages)
    tensorflow1.install()
    seeded()
    target = folder / "peer.json"
    result = json.loads(target.read_text()) if target.is_file() else {}
    model = Stored(features, labels)
    for key in asked["keys"]:
        if key in result or (seconds and time.monotonic() - began > seconds):
            continue
        try:
            result[key] = scored(key, model)
        except Exception as error:
            traceback.print_exc()
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = str(error).splitlines()[0] if str(error) else ""
            result[key] = {
                "failed": f"{type(error).__name__}: {said[:120]} ({Path(where.filename).name}:{where.lineno})"
            }
        target.write_text(json.dumps(result, indent=1))
    return all(key in result for key in asked["keys"])


if __name__ == "__main__":
    sys.exit(
        not main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0)
    )
