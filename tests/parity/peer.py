"""Runs in Brain-Score's own environment: writes packages with its library, and scores them with its code.

``python peer.py FOLDER``: reads ``FOLDER/jobs.json``, writes each data set below ``FOLDER/<data set>/``, the features and
the labels that stand for a model, and ``FOLDER/peer.json`` with raw score, ceiling and score of each benchmark.
"""

import json
import sys
import traceback
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from brainscore_core.metrics import Score
from brainscore_core.supported_data_standards.brainio.assemblies import (
    AssemblyLoader,
    BehavioralAssembly,
    NeuroidAssembly,
    NeuronRecordingAssembly,
    StimulusMergeAssemblyLoader,
)
from brainscore_core.supported_data_standards.brainio.packaging import write_netcdf
from brainscore_core.supported_data_standards.brainio.stimuli import StimulusSet
from brainscore_vision.benchmark_helpers.neural_common import (
    average_repetition,
    explained_variance,
    filter_reliable_neuroids,
)
from brainscore_vision.metrics.accuracy.metric import Accuracy
from brainscore_vision.metrics.accuracy_distance.metric import AccuracyDistance
from brainscore_vision.metrics.error_consistency.metric import ErrorConsistency
from brainscore_vision.metrics.internal_consistency.ceiling import InternalConsistency
from brainscore_vision.metrics.regression_correlation import metric as regressions

warnings.filterwarnings("ignore")
OBJECTS = ["bear", "car", "cat", "chair", "dog"]
SIXTEEN = [
    "airplane",
    "bear",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "car",
    "cat",
    "chair",
    "clock",
    "dog",
    "elephant",
    "keyboard",
    "knife",
    "oven",
    "truck",
]


def table(job, count, columns):
    """Stimuli with the columns of their layout and a file each, as their packaging writes them."""
    name = Path(job["csv"]).stem.removeprefix("stimulus_")
    ids = [f"{name.replace('_', '')}{n:04d}" for n in range(count)]
    rows = pd.DataFrame({"stimulus_id": ids, **columns, "filename": [f"{one}.png" for one in ids]})
    return rows


def write_stimuli(folder, job, rows):
    """A CSV table and a zip with one tiny image for each stimulus."""
    from io import BytesIO

    from PIL import Image

    rows.to_csv(folder / job["csv"], index=False)
    with zipfile.ZipFile(folder / job["zip"], "w") as archive:
        for number, name in enumerate(rows["filename"]):
            shown = BytesIO()
            Image.fromarray(np.full((8, 8, 3), number % 256, np.uint8)).save(shown, "png")
            archive.writestr(name, shown.getvalue())


def load(folder, job, cls):
    stimuli = StimulusSet(pd.read_csv(folder / job["csv"]))
    stimuli.identifier = job["dataset"]
    loader = StimulusMergeAssemblyLoader(
        cls=cls, file_path=folder / job["nc"], stimulus_set_identifier=job["dataset"], stimulus_set=stimuli
    )
    return loader.load()


def features_of(rng, count):
    latent = rng.normal(size=(count, 6))
    return latent, latent @ rng.normal(size=(6, 40)) + 0.5 * rng.normal(size=(count, 40))


def source_of(features, ids):
    number = features.shape[1]
    return NeuroidAssembly(
        features, dims=["presentation", "neuroid"],
        coords={"stimulus_id": ("presentation", ids), "object_name": ("presentation", ids),
                "neuroid_id": ("neuroid", [f"f{n}" for n in range(number)]), "layer": ("neuroid", ["l"] * number)},
    )  # fmt: skip


def stratified(source, target, by):
    """The source with the column that folds are stratified by."""
    if by is None:
        return source
    of = dict(zip(target["stimulus_id"].values, target[by].values))
    values = [of[id] for id in source["stimulus_id"].values]
    return NeuroidAssembly(
        source.values, dims=source.dims,
        coords={"stimulus_id": ("presentation", source["stimulus_id"].values), by: ("presentation", values),
                "neuroid_id": ("neuroid", source["neuroid_id"].values), "layer": ("neuroid", source["layer"].values)},
    )  # fmt: skip


def neural(folder, jobs, rng):
    """One assembly of repeated presentations, neuroids of several regions."""
    job = jobs[0]
    count, repetitions, per = 40, 3, 3
    strata = {"texture_type": [["noise", "texture"][n % 2] for n in range(count)]}
    if job["by"] != "texture_type":
        strata = {"object_name": [OBJECTS[n % 5] for n in range(count)]}
    rows = table(job, count, strata)
    latent, features = features_of(rng, count)
    regions = sorted({one["region"] for one in jobs})
    signal = latent @ rng.normal(size=(6, per * len(regions)))
    values = np.repeat(signal, repetitions, axis=0) + 1.5 * rng.normal(
        size=(count * repetitions, signal.shape[1])
    )
    starts, ends = job["bins"]
    values = np.stack([values + 0.2 * rng.normal(size=values.shape) for _ in starts], axis=-1)
    coords = {
        "stimulus_id": ("presentation", np.repeat(rows["stimulus_id"].values, repetitions)),
        "repetition": ("presentation", np.tile(np.arange(repetitions), count)),
        "neuroid_id": ("neuroid", [f"n{n}" for n in range(signal.shape[1])]),
        "region": ("neuroid", np.repeat(regions, per)), "animal": ("neuroid", ["a", "b", "c"] * (per * len(regions) // 3)),
        "time_bin_start": ("time_bin", starts), "time_bin_end": ("time_bin", ends),
    }  # fmt: skip
    if job["reliability"]:
        values = values[::repetitions]
        coords |= {k: ("presentation", coords[k][1][::repetitions]) for k in ("stimulus_id",)}
        del coords["repetition"]
        coords[job["reliability"]] = ("neuroid", rng.uniform(0.3, 0.9, signal.shape[1]))
    assembly = NeuronRecordingAssembly(values, dims=["presentation", "neuroid", "time_bin"], coords=coords)
    write_stimuli(folder, job, rows)
    write_netcdf(assembly, folder / job["nc"])
    np.savez(folder / "model.npz", ids=rows["stimulus_id"].values.astype(str), features=features)
    loaded = load(folder, job, NeuronRecordingAssembly)
    found = {}
    for one in jobs:
        part = loaded.sel(region=one["region"])
        part["region"] = "neuroid", [one["region"]] * part.sizes["neuroid"]
        if len(starts) > 1:
            keep = (np.array(starts) >= one["window"][0]) & (np.array(ends) <= one["window"][1])
            part = part.isel(time_bin=np.flatnonzero(keep)).mean("time_bin", keep_attrs=True)
        else:
            part = part.isel(time_bin=0, drop=True)
        part = NeuronRecordingAssembly(part).transpose("presentation", "neuroid")
        if one["reliability"]:
            part = filter_reliable_neuroids(part, 0.4, one["reliability"])
        target = part if one["reliability"] else average_repetition(part)
        source = stratified(source_of(features, rows["stimulus_id"].values), target, one["by"])
        metric = regressions.CrossRegressedCorrelation(
            regression=regressions.pls_regression(), correlation=regressions.pearsonr_correlation(),
            crossvalidation_kwargs={"stratification_coord": one["by"]},
        )  # fmt: skip
        raw = metric(source, target)
        ceiling = (
            Score(np.median(part[one["reliability"]].values))
            if one["reliability"]
            else InternalConsistency()(part)
        )
        found[one["key"]] = (float(raw), float(ceiling), float(explained_variance(raw, ceiling)))
    return found


def subjects(folder, jobs, rng):
    """Train and test assemblies, one fit for each subject."""
    job = jobs[0]
    regions, names, per = sorted({one["region"] for one in jobs}), ["s1", "s2"], 3
    count = per * len(regions) * len(names)
    loaded, ids, shown, weights = {}, [], [], rng.normal(size=(6, count))
    mixing = rng.normal(size=(6, 40))
    reliability = rng.uniform(0.1, 0.9, count) * job["percent"]
    for split, number, repetitions in (("train", 60, 1), ("test", 20, 3)):
        own = {name: job[f"{split}_{name}"] for name in ("nc", "csv", "zip")} | {"dataset": job["dataset"]}
        rows = table(own, number, {"label": [OBJECTS[n % 5] for n in range(number)]})
        latent = rng.normal(size=(number, 6))
        features = latent @ mixing + 0.5 * rng.normal(size=(number, 40))
        values = np.repeat(latent @ weights, repetitions, axis=0) + rng.normal(
            size=(number * repetitions, count)
        )
        assembly = NeuroidAssembly(
            values[:, :, None], dims=["presentation", "neuroid", "time_bin"],
            coords={
                "stimulus_id": ("presentation", np.repeat(rows["stimulus_id"].values, repetitions)),
                "repetition": ("presentation", np.tile(np.arange(repetitions), number)),
                "subject": ("neuroid", np.repeat(names, count // 2)),
                "neuroid_id": ("neuroid", list(range(count // 2)) * 2),
                "region": ("neuroid", np.tile(np.repeat(regions, per), len(names))),
                job["noise"]: ("neuroid", reliability),
                "time_bin_start": ("time_bin", [job["start"]]), "time_bin_end": ("time_bin", [job["start"] + 100]),
            },
        )  # fmt: skip
        write_stimuli(folder, own, rows)
        write_netcdf(assembly, folder / own["nc"])
        loaded[split] = load(folder, own, NeuroidAssembly)
        ids.append(rows["stimulus_id"].values.astype(str))
        shown.append(features)
    np.savez(folder / "model.npz", ids=np.concatenate(ids), features=np.concatenate(shown))
    found = {}
    for one in jobs:
        part = {
            name: filter_reliable_neuroids(held, one["above"], one["noise"]) for name, held in loaded.items()
        }
        part = {
            name: held.sel(region=one["region"]).isel(time_bin=0, drop=True) for name, held in part.items()
        }
        for held in part.values():
            held["region"] = "neuroid", [one["region"]] * held.sizes["neuroid"]
        part = {
            name: NeuroidAssembly(held).transpose("presentation", "neuroid") for name, held in part.items()
        }
        values = []
        for name in names:
            train, test = (
                NeuroidAssembly(part[split][:, part[split]["subject"].values == name])
                for split in ("train", "test")
            )
            regression = (
                regressions.ridge_cv_regression()
                if one["metric"] == "ridgecv_split"
                else regressions.ridge_regression()
            )
            regression.fit(source_of(shown[0], ids[0]), average_repetition(train))
            target = average_repetition(test)
            prediction = regression.predict(source_of(shown[1], ids[1]))
            raw = float(np.nanmedian(regressions.pearsonr_correlation()(prediction, target).values))
            ceiling = float(InternalConsistency()(test))
            values.append((raw, ceiling, raw**2 / ceiling))
        found[one["key"]] = tuple(float(np.mean([value[n] for value in values])) for n in range(3))
    return found


def labels(folder, jobs, rng):
    """People who name images in conditions; a model that names them too."""
    job = jobs[0]
    count, people = 96, 4
    conditions = [str(one) for one in job["excluded"]] + ["c1", "c2"]
    shown = [conditions[n // len(SIXTEEN) % len(conditions)] for n in range(count)]
    truth = [SIXTEEN[n % 16] for n in range(count)]
    rows = table(job, count, {"truth": truth, "condition": shown})
    hard = rng.uniform(0.1, 0.9, count)

    def answers():
        return [t if rng.random() < h else SIXTEEN[rng.integers(16)] for t, h in zip(truth, hard)]

    said = np.concatenate([answers() for _ in range(people)])
    names = np.repeat([f"p{n}" for n in range(people)], count)
    coords = {
        "stimulus_id": ("presentation", np.tile(rows["stimulus_id"].values, people)), "subject": ("presentation", names),
        "condition": ("presentation", np.tile(shown, people)), "truth": ("presentation", np.tile(truth, people)),
        "choice": ("presentation", said),
    }  # fmt: skip
    assembly = BehavioralAssembly(said, dims=["presentation"], coords=coords)
    write_stimuli(folder, job, rows)
    write_netcdf(assembly, folder / job["nc"], compress=False)
    decided = np.asarray(answers())
    np.savez(folder / "model.npz", ids=rows["stimulus_id"].values.astype(str), labels=decided)
    human = AssemblyLoader(cls=BehavioralAssembly, file_path=folder / job["nc"]).load()
    human = human[
        {"presentation": ~np.isin(human["condition"].values, [str(one) for one in job["excluded"]])}
    ]
    kept = np.isin(rows["stimulus_id"].values, human["stimulus_id"].values)
    columns = {
        name: ("presentation", rows[name].values[kept]) for name in ("stimulus_id", "truth", "condition")
    }
    model = BehavioralAssembly(decided[kept], dims=["presentation"], coords=columns)
    found = {}
    for one in jobs:
        if one["metric"] == "accuracy":
            raw = float(Accuracy()(model, rows["truth"].values[kept]))
            found[one["key"]] = (raw, None, raw)
            continue
        metric = {"error_consistency": ErrorConsistency, "accuracy_distance": AccuracyDistance}[
            one["metric"]
        ]()
        raw, ceiling = float(metric(model, human)), float(metric.ceiling(human))
        score = raw / ceiling
        found[one["key"]] = (raw, ceiling, min(max(score, 0.0), 1.0) if one["clip"] else score)
    return found


LAYOUTS = {"neural": neural, "subjects": subjects, "labels": labels}

if __name__ == "__main__":
    root = Path(sys.argv[1])
    asked = json.loads((root / "jobs.json").read_text())
    result = {}
    # Those that take long last.
    order = sorted(
        asked["datasets"].items(),
        key=lambda item: ["labels", "neural", "subjects"].index(item[1][0]["layout"]),
    )
    for number, (dataset, jobs) in enumerate(order):
        (root / dataset).mkdir(exist_ok=True)
        try:
            found = LAYOUTS[jobs[0]["layout"]](
                root / dataset, jobs, np.random.default_rng([asked["seed"], number])
            )
            result |= {
                key: {"raw": raw, "ceiling": top, "score": score} for key, (raw, top, score) in found.items()
            }
        except Exception as error:
            traceback.print_exc()
            result |= {one["key"]: {"failed": f"{type(error).__name__}: {error}"} for one in jobs}
        (root / "peer.json").write_text(json.dumps(result, indent=1))
