"""Brain-Score's vision benchmarks as specs of this repository: the rules of each family, not its code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.brainscore.upstream import Listed, assemblies, benchmarks, stimulus_sets

Spec = dict[str, Any]
Row = Mapping[str, str]

# Reasons for which a key has no job even if its data are present; each is a deliberate rule, not a missing feature.
FITTED_IS_TESTED = "Refused: Brain-Score fits the readout on the images on which it is tested; this repository never does."
NO_TABLE = "Refused: Brain-Score's registry pins no stimulus table for this benchmark; the table is only on its server."

MACAQUE, HUMAN = "Macaca mulatta", "Homo sapiens"
EPHYS, FMRI, EEG, BEHAVIOUR = "extracellular recordings", "fmri", "eeg", "behaviour"


@dataclass(frozen=True)
class Study:
    """A study: its title, references, species and modality."""

    what: str
    cite: tuple[str, ...] = ()
    species: str | None = HUMAN
    modality: str | None = BEHAVIOUR


STUDIES: Mapping[str, Study] = {
    "Allen2022": Study(
        "7T fMRI of people viewing natural scenes (NSD)", ("allen2022",), HUMAN, FMRI
    ),
    "Baker2022": Study(
        "People name animals from whole, fragmented or rearranged silhouettes",
        ("baker2022",),
    ),
    "BarbuMayo2019": Study(
        "ObjectNet: objects in unusual poses and settings", ("barbu2019",), None, None
    ),
    "BashivanKar2019": Study(
        "Macaque V4 responses to natural and synthesised images", (), MACAQUE, EPHYS
    ),
    "BMD2024": Study("People name moving bodies, shown as point lights or textured"),
    "BOLD5000": Study("Stimuli of BOLD5000", (), None, None),
    "Bracci2019": Study(
        "fMRI of people viewing animals and lookalike objects",
        ("bracci2019",),
        HUMAN,
        FMRI,
    ),
    "Cadena2017": Study(
        "Macaque V1 responses to natural images and textures",
        ("cadena2019",),
        MACAQUE,
        EPHYS,
    ),
    "Cavanaugh2002a": Study(
        "Size tuning of macaque V1 neurons", ("cavanaugh2002",), MACAQUE, EPHYS
    ),
    "Cichy2019": Study(
        "Brain responses of people to 118 natural images", (), HUMAN, None
    ),
    "Coggan2024_behavior": Study("People name occluded objects", ("coggan2024",)),
    "Coggan2024_fMRI": Study(
        "Similarity of fMRI patterns evoked by occluded objects",
        ("coggan2024",),
        HUMAN,
        FMRI,
    ),
    "David2004": Study("Macaque V1 responses to natural vision", (), MACAQUE, EPHYS),
    "DeValois1982a": Study(
        "Preferred orientations of macaque V1 neurons",
        ("devalois1982",),
        MACAQUE,
        EPHYS,
    ),
    "DeValois1982b": Study(
        "Preferred spatial frequencies of macaque V1 neurons",
        ("devalois1982",),
        MACAQUE,
        EPHYS,
    ),
    "Ferguson2024": Study(
        "People detect an odd element (visual search asymmetries)", ("ferguson2024",)
    ),
    "FreemanZiemba2013": Study(
        "Macaque V1 and V2 responses to textures and noise",
        ("freeman2013",),
        MACAQUE,
        EPHYS,
    ),
    "Geirhos2021": Study(
        "People name distorted images of sixteen categories", ("geirhos2021",)
    ),
    "Gifford2022": Study(
        "EEG of people viewing rapid series of objects (THINGS-EEG2)",
        ("gifford2022",),
        HUMAN,
        EEG,
    ),
    "Hebart2023": Study(
        "People choose the odd one out of three objects (THINGS)", ("hebart2023",)
    ),
    "Hebart2023_fmri": Study(
        "fMRI of people viewing objects (THINGS-fMRI)", ("hebart2023",), HUMAN, FMRI
    ),
    "Igustibagus2024": Study(
        "Macaque IT responses to objects across image domains", (), MACAQUE, EPHYS
    ),
    "ImageNet": Study("ImageNet validation images", ("deng2009",), None, None),
    "ImageNetSlim15000": Study("15,000 ImageNet images", ("deng2009",), None, None),
    "imagenet_val": Study("ImageNet validation images", ("deng2009",), None, None),
    "imagenet_c": Study(
        "Corrupted ImageNet images (ImageNet-C)", ("hendrycks2019",), None, None
    ),
    "Islam2021": Study(
        "Objects with the shape of one image and the texture of another",
        ("islam2021",),
        None,
        None,
    ),
    "Kar2018": Study("Macaque IT responses to objects", (), MACAQUE, EPHYS),
    "Kar2019": Study(
        "Times at which the object in each image can be decoded from macaque IT",
        ("kar2019",),
        MACAQUE,
        EPHYS,
    ),
    "Kuzovkin2018": Study(
        "Intracranial recordings of people viewing natural images", (), HUMAN, None
    ),
    "Li2026": Study(
        "Responses of thousands of units in four macaque areas to natural scenes",
        ("li2026",),
        MACAQUE,
        EPHYS,
    ),
    "Lonnqvist2024": Study("People judge whether a curve is connected"),
    "MajajHong2015": Study(
        "Macaque V4 and IT responses to objects on natural backgrounds",
        ("majaj2015",),
        MACAQUE,
        EPHYS,
    ),
    "Malania2007": Study(
        "Human vernier acuity with and without flankers", ("malania2007",)
    ),
    "Maniquet2024": Study(
        "People name cluttered, occluded and phase-scrambled objects", ("maniquet2024",)
    ),
    "Papale2025": Study(
        "Macaque V1, V4 and IT responses to objects (THINGS-TVSD)",
        ("papale2025",),
        MACAQUE,
        EPHYS,
    ),
    "Rajalingham2018": Study(
        "Choices of people between two objects", ("rajalingham2018",)
    ),
    "Rajalingham2020": Study(
        "Macaque IT responses to letters and words",
        ("rajalingham2020",),
        MACAQUE,
        EPHYS,
    ),
    "Ringach2002": Study(
        "Orientation tuning of macaque V1 neurons", ("ringach2002",), MACAQUE, EPHYS
    ),
    "Rust2012": Study(
        "Macaque IT responses to natural and scrambled images", (), MACAQUE, EPHYS
    ),
    "Sanghavi": Study(
        "Macaque V4 and IT responses to natural images", (), MACAQUE, EPHYS
    ),
    "SanghaviMurty": Study(
        "Macaque V4 and IT responses to objects", ("sanghavi2021",), MACAQUE, EPHYS
    ),
    "Schiller1976c": Study(
        "Spatial frequency tuning of macaque V1 neurons",
        ("schiller1976",),
        MACAQUE,
        EPHYS,
    ),
    "Scialom2024": Study(
        "People name objects in photographs, contours, phosphenes or segments"
    ),
    "Seibert2019": Study("Macaque IT responses to objects", (), MACAQUE, EPHYS),
    "Zerbe2026": Study(
        "7T fMRI of people viewing natural images (LAION-fMRI)",
        ("zerbe2026",),
        HUMAN,
        FMRI,
    ),
}


def study(id: str) -> Study:
    """The study of a data set: the one with the longest name that is a prefix of the id."""
    return STUDIES[max((name for name in STUDIES if id.startswith(name)), key=len)]


@dataclass
class Data:
    """A data set to write, with its parts by registry key."""

    id: str
    parts: dict[str, str] = field(default_factory=dict)
    """Label → assembly key; most data sets have one part, with an empty label."""
    stimuli: str | None = None
    further: dict[str, str] = field(default_factory=dict)
    reader: Spec = field(default_factory=dict)
    degrees: float | None = None
    refused: str | None = None


ALLEN = (
    "Allen2022_fmri",
    "Allen2022_fmri_4subj",
    "Allen2022_fmri_surface",
    "Allen2022_fmri_surface_4subj",
)
SUBJECTS = ("sub-01", "sub-03", "sub-05", "sub-06", "sub-07")
ACUITY = "Malania2007.vernieracuity"
GRATINGS = {
    "blank": "Marques2020_blank",
    "receptive_field": "Marques2020_receptive_field",
    "orientation": "Marques2020_orientation",
}


def datasets() -> dict[str, Data]:
    """Every data set that the registry or a benchmark of it needs, by id."""
    found = {
        key: Data(key, {"": key}, assembly.stimuli or None)
        for key, assembly in assemblies().items()
    }
    for id in (*ALLEN, "Papale2025", "Hebart2023_fmri", "Gifford2022"):
        parts = {split: f"{id}_{split}" for split in ("train", "test")}
        found[id] = Data(id, parts)
    for id in ("Zerbe2026_fmri", "Zerbe2026_fmri_persubject"):
        found[id] = Data(id, {subject: f"{id}_full_{subject}" for subject in SUBJECTS})
    for id in [id for id, data in found.items() if "" not in data.parts]:
        for key in found[id].parts.values():
            found.pop(key, None)
    for id, data in found.items():
        if id.startswith("Ferguson2024"):
            data.further = {"training": f"{id}_training_stimuli"}
        elif id.startswith("Lonnqvist2024"):
            data.further = {"train": "Lonnqvist2024_train"}
        elif id.startswith("Malania2007."):
            data.stimuli = id
            if id != "Malania2007.vernier_only":
                data.parts = {
                    id.split(".")[1]: id,
                    "vernier_only": "Malania2007.vernier_only",
                }
                data.further = {
                    "fit": f"{id}_fit",
                    "vernier_only": "Malania2007.vernier_only",
                }
        elif id.startswith("MajajHong2015"):
            data.degrees = 8
    found["Bracci2019"].stimuli = "Bracci2019"
    found["Coggan2024_behavior"].further = {"fitting": "Coggan2024_behavior_fitting"}
    # People were shown other images than models are.
    found["Maniquet2024"].stimuli = "Maniquet2024"
    found["Maniquet2024"].further = {
        part: f"Maniquet2024-{part}" for part in ("train", "test")
    }
    found["Rajalingham2018.private"].further = {"objectome.public": "objectome.public"}
    for id, _ in TUNING.values():
        found[id].further = dict(GRATINGS)
    conditions = (*FLANKED, "vernier_only")
    found[ACUITY] = Data(
        ACUITY,
        {name: f"Malania2007.{name}" for name in conditions},
        "Malania2007.vernier_only",
        {f"{name}_fit": f"Malania2007.{name}_fit" for name in FLANKED},
    )
    for id in ("BarbuMayo2019", "imagenet_val", "ImageNetSlim15000", "Islam2021",
               *(f"imagenet_c.{kind}" for kind in ("blur", "digital", "noise", "weather"))):  # fmt: skip
        found[id] = Data(id, {}, id)
    found["ImageNet"] = Data("ImageNet", refused=NO_TABLE)
    return found


EXCLUDED: Mapping[str, list[str | float]] = {
    "colour": ["cr"],
    "contrast": ["c100", "c03", "c01"],
    "high-pass": ["inf", 0.55, 0.45, 0.4],
    "low-pass": [0, 15, 40],
    "phase-scrambling": [0, 150, 180],
    "power-equalisation": ["0"],
    "false-colour": ["False-Colour"],
    "rotation": [0],
    "eidolonI": ["1-10-10", "64-10-10", "128-10-10"],
    "eidolonII": ["1-3-10", "32-3-10", "64-3-10", "128-3-10"],
    "eidolonIII": ["1-0-10", "16-0-10", "32-0-10", "64-0-10", "128-0-10"],
    "uniform-noise": [0.0, 0.6, 0.9],
}
OST_BINS = [[start, start + 10] for start in range(70, 250, 10)]
TUNING = {
    "Ringach2002": ("Ringach2002", "orientation"),
    "DeValois1982-pref_or": ("DeValois1982a", "preferred_orientation"),
    "DeValois1982-peak_sf": ("DeValois1982b", "peak_frequency"),
    "Schiller1976": ("Schiller1976c", "frequency_selectivity"),
    "Cavanaugh2002": ("Cavanaugh2002a", "size"),
    "FreemanZiemba2013": ("FreemanZiemba2013_V1_properties", "texture"),
}
PROPERTIES = {
    "pref_or": "preferred_orientation",
    "peak_sf": "peak_spatial_frequency",
    "abs_texture_modulation_index": "absolute_texture_modulation_index",
    "texture_variance_ratio": "variance_ratio",
    "cv_bandwidth_ratio": "circular_variance_bandwidth_ratio",
    "opr_cv_diff": "orthogonal_preferred_ratio_circular_variance_difference",
    "or_bandwidth": "bandwidth",
    "or_selective": "orientation_selective",
    "orth_pref_ratio": "orthogonal_preferred_ratio",
    "sf_bandwidth": "spatial_frequency_bandwidth",
    "sf_selective": "spatial_frequency_selective",
}
STUDIED = ["V1", "V2", "V4", "IT"]


def _recorded(row: Row, dataset: str, metric: Any, ceiling: Any, **more: Any) -> Spec:
    paradigm: Spec = {"name": "recording", "region": row["region"]} | more.pop(
        "paradigm", {}
    )
    if dataset_degrees(row):
        paradigm["visual_degrees"] = dataset_degrees(row)
    if int(row["trials"] or 1) > 1:
        paradigm["trials"] = int(row["trials"])
    spec = {
        "dataset": dataset,
        "select": {"region": row["region"]},
        "paradigm": paradigm,
    }
    return spec | {"metric": metric, "ceiling": ceiling} | more


def dataset_degrees(row: Row) -> float | None:
    """Visual angle of the stimuli as stated by the benchmark."""
    return number(row["degrees"])


def number(text: str) -> float | None:
    """The number in a table cell, an integer if it is whole; None if the cell is empty."""
    value = float(text) if text else None
    return int(value) if value is not None and value.is_integer() else value


def _task(
    row: Row, dataset: str, decide: str, metric: Any, ceiling: Any = None, **more: Any
) -> Spec:
    paradigm: Spec = {"name": "task", "decide": decide} | more.pop("paradigm", {})
    if dataset_degrees(row) and "screen" not in paradigm:
        paradigm["visual_degrees"] = dataset_degrees(row)
    if int(row["trials"] or 1) > 1 and "microsaccades" not in paradigm:
        paradigm["trials"] = int(row["trials"])
    spec: Spec = {
        "dataset": dataset,
        "select": more.pop("select", {}),
        "paradigm": paradigm,
        "metric": metric,
    }
    if ceiling is not None:
        spec["ceiling"] = ceiling
    return spec | more


def _stratified(metric: str, by: str | None) -> Spec:
    return {"name": metric, "splits": {"stratify": by}}


def _majajhong(key: str, row: Row) -> Spec:
    if "-temporal-" in key:
        metric = _stratified("spantime_pls", "object_name")
        bins = {"prepare": [{"step": "bins", "width": 10, "last": False}]}
        return _recorded(
            row,
            "MajajHong2015.temporal.public",
            metric,
            "internal_consistency_temporal",
            paradigm=bins,
        )
    if "reverse" in key:
        metric = _stratified("reverse_pls", "object_name")
        return _recorded(row, "MajajHong2015.public", metric, "predictor_consistency")
    access = "public" if "public" in key else "private"
    return _recorded(
        row,
        f"MajajHong2015.{access}",
        _stratified("pls", "object_name"),
        "internal_consistency",
    )


def _pls(key: str, row: Row) -> Spec:
    dataset = row["data"]
    by = "object_name" if dataset == "Sanghavi2020" else None
    first = (
        {"prepare": [{"step": "take", "at": {"time_bin_id": 0}}]}
        if "Sanghavi" in dataset
        else {}
    )
    return _recorded(
        row, dataset, _stratified("pls", by), "internal_consistency", paradigm=first
    )


def _geirhos(key: str, row: Row) -> Spec:
    flat = re.sub(r"Geirhos2021|-(error_consistency|top1)$", "", key)
    name = next(
        key for key in assemblies() if key.replace("-", "") == f"Geirhos2021_{flat}"
    )
    excluded = EXCLUDED.get(name.removeprefix("Geirhos2021_"))
    select: Spec = {"condition": {"not": excluded}} if excluded else {}
    if key.endswith("top1"):
        return _task(row, name, "label", "accuracy", select=select, paradigm=AS_IS)
    return _task(
        row,
        name,
        "label",
        "error_consistency",
        "error_consistency",
        select=select,
        normalise=CLIPPED,
    )


CLIPPED = {"clip": True}
AS_IS = {"label_column": "truth", "screen": "as_is"}


def _scialom(key: str, row: Row) -> Spec:
    name = re.match(r"Scialom2024_(?:rgb|contours|\w+-(?:all|\d+))", key)
    assert name, key
    if key.endswith("EngineeringAccuracy"):
        return _task(row, name[0], "label", "accuracy", paradigm=AS_IS)
    if key.endswith("ErrorConsistency"):
        return _task(row, name[0], "label", "error_consistency", "error_consistency")
    return _task(
        row,
        name[0],
        "label",
        "accuracy_distance",
        "accuracy_distance",
        paradigm=AS_IS,
        normalise=CLIPPED,
    )


def _baker(key: str, row: Row) -> Spec:
    types = ["w", "o"] if "fragmented" in key else ["w", "f"]
    orientation = "inverted" if "inverted" in key else "normal"
    metric = {"name": "baker_accuracy_delta", "image_types": types}
    select = {"orientation": orientation}
    return _task(
        row,
        f"Baker2022_{orientation}_distortion",
        "label",
        metric,
        metric,
        select=select,
        normalise=CLIPPED,
    )


def _marques(key: str, row: Row) -> Spec:
    name = key.removeprefix("Marques2020_")
    dataset, studied = next(
        study for start, study in TUNING.items() if name.startswith(start)
    )
    short = name.split("-", 1)[1]
    property_name = PROPERTIES.get(short, short)
    rates = (
        "study"
        if studied in {"orientation", "preferred_orientation"}
        else "orientation"
    )
    paradigm = {
        "name": "properties", "study": studied, "region": "V1", "blank": "blank",
        "receptive_fields": "receptive_field", "rates": rates, "time_bins": [[70, 170]],
    }  # fmt: skip
    similarity = {"name": "ks_similarity", "property_name": property_name}
    ceiling = {"name": "property_ceiling", "property_name": property_name}
    return {
        "dataset": dataset,
        "paradigm": paradigm,
        "metric": similarity,
        "ceiling": ceiling,
    }


def _maniquet(key: str, row: Row) -> Spec:
    name = key.split("-", 1)[1]
    paradigm = {"conditions": {"all": {"stimuli": "test", "fitting": "train"}}}
    metric = {"name": name, "match": TASKS} if name == "tasks_consistency" else name
    # As stated by its benchmarks; they depend on which people are in which half.
    value = 0.53526 if name == "confusion_similarity" else 0.9981
    ceiling = {
        "name": "stated",
        "value": value,
        "source": "Brain-Score: split halves of subjects",
    }
    ratio = {"formula": "ratio"}
    return _task(
        row,
        "Maniquet2024",
        "probabilities",
        metric,
        ceiling,
        paradigm=paradigm,
        normalise=ratio,
    )


# Task of people → column values of the stimuli that are presented to models.
TASKS = {
    "control": {"manipulation": "control", "manipulation_details": "control"},
    **{f"clutter_{kind}": {"manipulation": "clutter", "manipulation_details": kind} for kind in ("heavy", "light")},
    **{
        f"scrambling_{kind}": {"manipulation": "phasescrambling", "manipulation_details": kind}
        for kind in ("highpass", "lowpass")
    },
    **{
        f"occlusion_{size}_{kind}_{level}": {
            "manipulation": "occluder",
            "manipulation_details": f"{size.replace('_', '')}-{level}",
        }
        for size in ("few_large", "many_small")
        for kind in ("blobs", "deletion", "partial_viewing")
        for level in ("high", "low")
    },
}  # fmt: skip


def _lonnqvist(key: str, row: Row) -> Spec:
    name = next(
        part
        for part in row["data"].split()
        if part not in {"Lonnqvist2024_test", "Lonnqvist2024_train"}
    )
    paradigm: Spec = {"label_column": "truth", "fitting": "train"}
    if key.endswith("EngineeringAccuracy"):
        return _task(row, name, "probabilities", "accuracy", paradigm=paradigm)
    return _task(
        row,
        name,
        "probabilities",
        "accuracy_distance",
        "accuracy_distance",
        paradigm=paradigm,
        normalise=CLIPPED,
    )


def _rajalingham(key: str, row: Row) -> Spec:
    if "public" in key:
        spec = _task(row, "Rajalingham2018.public", "probabilities", "i2n", "i2n")
        return spec | {"unavailable": FITTED_IS_TESTED}
    fitted = {"label_column": "image_label", "fitting": "objectome.public"}
    spec = _task(
        row, "Rajalingham2018.private", "probabilities", None, "i2n", paradigm=fitted
    )
    del spec["metric"]
    figures = (("alexnet", 0.253), ("resnet34", 0.37787), ("resnet18", 0.3638))
    published = [
        _published(f"Rajalingham2018.{model}", value, "i2n") for model, value in figures
    ]
    return spec | {"metrics": ["i2n", "i1"], "published": published}


def _published(model: str, value: float, metric: str) -> Spec:
    return {
        "model": model, "value": value, "metric": metric, "source": "Brain-Score's tests", "note": "not normalised"
    }  # fmt: skip


def _kar(key: str, row: Row) -> Spec:
    paradigm = {"varies_in_time": True, "time_bins": OST_BINS}
    spec = _recorded(row, "Kar2019", "ost", "ost", paradigm=paradigm)
    del spec["select"]
    return spec | {"published": [_published("CORnet-S", 0.316, "ost")]}


def _hebart(key: str, row: Row) -> Spec:
    paradigm = {"alternatives": ["image_1", "image_2", "image_3"], "similarity": "dot"}
    floor = {"dummy": 0.3333333333333333, "perfect": number(row["ceiling"])}
    return _task(
        row,
        "Hebart2023",
        "odd_one_out",
        "accuracy",
        paradigm=paradigm,
        floor=floor,
        normalise=CLIPPED | {"by": "floor"},
    )


def _bmd(key: str, row: Row) -> Spec:
    name = key.split("Behavioral")[0]
    return _task(
        row,
        name,
        "label",
        "accuracy_distance",
        "accuracy_distance",
        paradigm={"label_column": "truth"},
        normalise=CLIPPED,
    )


def _imagenet(key: str, row: Row) -> Spec:
    if key == "ImageNet-top1":
        return _task(row, "ImageNet", "label", "accuracy", paradigm=CLASSES)
    return _task(
        row,
        "BarbuMayo2019" if "ObjectNet" in key else row["data"],
        "label",
        "accuracy",
        paradigm=CLASSES,
    )


SPLIT = {"train": {"split": "train"}, "test": {"split": "test"}, "ceiling_from": "test"}


def _subjects(key: str, row: Row) -> Spec:
    """Fixed train and test stimuli with one fit per subject, or dissimilarities per subject."""
    dataset = key.split(".")[0]
    noise: Spec = {"nc_testset": {"above": 30}}
    if dataset == "Papale2025":
        noise = {"reliability": {"above": 0.3}}
    if row["metric"].startswith("rdm"):
        spec = _recorded(
            row, dataset, "rdm_subjects", {"name": "rsa_ceiling", "bound": "upper"}
        )
    else:
        spec = _recorded(
            row,
            dataset,
            row["metric"],
            "internal_consistency",
            each="subject",
            paradigm=SPLIT,
        )
    spec["select"] |= noise
    return spec


# Brain-Score tries fewer penalties because neuroids and subjects are so many.
FEWER_ALPHAS = [
    0.01, 0.1, 0.5, 1.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0, 32500.0, 55000.0, 77500.0, 100000.0,
    325000.0, 550000.0, 775000.0, 1000000.0, 3250000.0, 5500000.0, 7750000.0, 10000000.0,
]  # fmt: skip


def _gifford(key: str, row: Row) -> Spec:
    flat = [{"step": "flatten"}, {"step": "take", "at": {"time_bin_start": 0}}]
    paradigm = {"prepare": flat} | SPLIT
    metric: Any = row["metric"]
    if metric == "ridgecv_split":
        metric = {
            "name": metric,
            "estimator": {"name": "ridge_cv", "alphas": FEWER_ALPHAS},
        }
    spec = _recorded(
        row,
        "Gifford2022",
        metric,
        "internal_consistency",
        each="subject",
        paradigm=paradigm,
    )
    return spec | {"select": {"time_bin_start": {"min": 0, "max": 0.59}}}


def _freeman(key: str, row: Row) -> Spec:
    dataset = "FreemanZiemba2013." + ("public" if "public" in key else "private")
    paradigm = {"prepare": [{"step": "mean", "over": "time_bin", "window": [50, 200]}]}
    return _recorded(
        row,
        dataset,
        _stratified("pls", "texture_type"),
        "internal_consistency",
        paradigm=paradigm,
    )


def _cadena(key: str, row: Row) -> Spec:
    prepare = [
        {"step": "drop", "coords": ["id"]},
        {"step": "rename", "coords": {"repetition_id": "repetition"}},
        {"step": "complete", "over": "presentation"},
    ]
    metric = _stratified("pls", None)
    if key.endswith("mask"):
        metric = {"name": "mask_regression", "splits": {"stratify": None, "folds": 4}}
    spec = _recorded(
        row, "Cadena2017", metric, "internal_consistency", paradigm={"prepare": prepare}
    )
    del spec["select"]
    return spec


def _li(key: str, row: Row) -> Spec:
    ceiling: Any = {"name": "stored", "coordinate": "reliability_window"}
    metric: Any = {"rdm": "rdm_subjects", "pls": _stratified("pls", None)}.get(
        key.rsplit("-", 1)[1]
    )
    if metric == "rdm_subjects":
        ceiling = {"name": "rsa_ceiling", "bound": "upper"}
    paradigm = {
        "prepare": [{"step": "take", "at": {"time_bin_start": 70}}],
        "time_bins": [[70, 170]],
    }
    metric = metric or _stratified("ridgecv", None)
    spec = _recorded(row, "Li2026", metric, ceiling, paradigm=paradigm)
    spec["select"] |= {"reliability_window": {"above": 0.4}}
    return spec


def _zerbe(key: str, row: Row) -> Spec:
    dataset, _, rest = key.partition(".")
    rule = rest.split("-", 1)[1]
    ceiling: Spec = {
        "name": "stored",
        "coordinate": "nc_12rep",
        "divide_by": 100,
        "root": True,
    }
    if rule == "rdm-pearson":
        ceiling["aggregate"] = [{"over": "neuroid", "with": "mean"}]
        spec = _recorded(
            row, dataset, "rdm", ceiling, each="subject", normalise={"formula": "ratio"}
        )
    elif rule == "cka":
        spec = _recorded(
            row, dataset, "cka_subjects", "cka_subjects", normalise={"formula": "ratio"}
        )
    else:
        split = rule.split("-")[0]
        alphas = [float(f"1e{power}") for power in range(-10, 11)]
        metric = {
            "name": "dual_ridgecv_split",
            "estimator": {"name": "ridge_cv", "alphas": alphas},
        }
        halves = {part: {split: part} for part in ("train", "test")}
        spec = _recorded(row, dataset, metric, ceiling, each="subject", paradigm=halves)
    spec["select"] |= {"nc_12rep": {"above": 30}}
    return spec


def _coggan(key: str, row: Row) -> Spec:
    if "behavior" in key:
        by = ["occluder_type", "occluder_color"]
        metric = {"name": "condition_accuracy", "variables": by}
        spec = _task(
            row,
            "Coggan2024_behavior",
            "probabilities",
            metric,
            metric,
            paradigm={"fitting": "fitting"},
        )
        return spec | {
            "select": {"visibility": {"below": 1}},
            "normalise": {"formula": "square"},
        }
    units = [
        {"step": "varying"},
        {"step": "responsive", "deviations": 3.1},
        {"step": "standardise"},
    ]
    spec = _recorded(
        row, "Coggan2024_fMRI", {"name": "rdm_subjects", "comparison": "pearson"},
        {"name": "rsa_ceiling_lower", "comparison": "pearson"}, paradigm={"prepare_model": units, "time_bins": [[0, 250]]},
    )  # fmt: skip
    return spec | {"normalise": {"formula": "square", "clip": True}}


def _hermann(key: str, row: Row) -> Spec:
    if key.endswith("shape_match"):
        conflict = {"test": {"texture": {"differs_from": "truth"}}}
        return _task(
            row,
            "Geirhos2021_cue-conflict",
            "label",
            "accuracy",
            paradigm=AS_IS | conflict,
        )
    return _task(row, "Geirhos2021_cue-conflict", "label", "shape_bias", paradigm=AS_IS)


CLASSES = {"choices": ["imagenet"], "label_column": "synset", "screen": "as_is"}

LAPSES = {
    "circle_line": 0.0335, "color": 0.0578, "convergence": 0.0372, "eighth": 0.05556, "gray_easy": 0.0414,
    "gray_hard": 0.02305, "half": 0.0637, "juncture": 0.3715, "lle": 0.0573, "llh": 0.0402, "quarter": 0.0534,
    "round_f": 0.08196, "round_v": 0.0561, "tilted_line": 0.04986,
}  # fmt: skip


def _bracci(key: str, row: Row) -> Spec:
    paradigm = {
        "name": "recording", "region": "IT", "visual_degrees": 8, "time_bins": [[70, 170]], "prepare": [{"step": "centre"}],
        "prepare_target": [{"step": "mean", "over": "neuroid", "by": "voxels"}],
    }  # fmt: skip
    return {
        "dataset": "Bracci2019", "select": {"roi": 2}, "paradigm": paradigm, "metric": "rdm", "ceiling": "rsa_ceiling_lower"
    }  # fmt: skip


def _islam(key: str, row: Row) -> Spec:
    factors = {
        "shape": {"same": ["original_image_id"], "differ": ["texture"]},
        "texture": {"same": ["texture"], "differ": ["shape"]},
    }
    paradigm = {
        "name": "stimulus_pairs", "region": row["region"], "factors": factors, "seed": 1751,
        "time_bins": [[70, 170]], "screen": "as_is"
    }  # fmt: skip
    factor = "shape" if "-shape_" in key else "texture"
    return {
        "dataset": "Islam2021",
        "paradigm": paradigm,
        "metric": {"name": "factor_dimensionality", "factor": factor},
    }


def _ferguson(key: str, row: Row) -> Spec:
    condition = key.removeprefix("Ferguson2024").removesuffix("-value_delta")
    others = {
        str(rest): number
        for rest, number in enumerate(("1.0", "1.0", "5.0", "5.0", "11.0", "11.0"))
    }
    derive = {
        "image_label": {
            "column": "image_number",
            "modulo": 2,
            "values": {"0": "oddball", "1": "same"},
        },
        "distractor_nums": {"column": "image_number", "modulo": 6, "values": others},
    }
    metric = {"name": "accuracy_integral", "lapse": LAPSES[condition], "scale": 0.75}
    ceiling = {
        "name": "stated",
        "value": number(row["ceiling"]),
        "source": "Brain-Score: mean of 500 split halves of subjects",
    }
    paradigm = {"fitting": "training", "derive": derive}
    dataset = f"Ferguson2024_{condition}"
    return _task(
        row,
        dataset,
        "probabilities",
        metric,
        ceiling,
        paradigm=paradigm,
        normalise=CLIPPED,
    )


FLANKED = (
    "short2",
    "short4",
    "short6",
    "short8",
    "short16",
    "equal2",
    "long2",
    "equal16",
    "long16",
)
MOVED = (
    "Brain-Score assigns answers to displaced images to the wrong stimuli, and its tests expect a score of 0 for every "
    "model. Here each answer is assigned to its stimulus."
)
# The number of trials that Brain-Score requests with `require_variance`.
MICROSACCADES: Spec = {"tested": 10, "fitted": 2}


def _acuity(row: Row) -> Spec:
    """The threshold without flankers, with readouts fitted on each kind of display with flankers in turn."""
    metric = {
        "name": "threshold",
        "independent_variable": "vernier_offset_arcsec",
        "threshold_accuracy": 0.75,
    }
    conditions = {name: {"fitting": f"{name}_fit"} for name in FLANKED}
    paradigm = {
        "conditions": conditions,
        "people": "vernier_only",
        "microsaccades": MICROSACCADES,
    }
    spec = _task(
        row,
        ACUITY,
        "probabilities",
        metric,
        "threshold",
        paradigm=paradigm,
        each="condition",
        normalise=CLIPPED,
    )
    return spec | {"notes": [MOVED]}


def _malania(key: str, row: Row) -> Spec:
    if key == "Malania2007.vernieracuity-threshold":
        return _acuity(row)
    dataset = key.split("-")[0]
    test = dataset.split(".")[1]
    metric = {
        "name": "threshold_elevation", "independent_variable": "vernier_offset_arcsec", "baseline_condition": "vernier_only",
        "test_condition": test, "threshold_accuracy": 0.75,
    }  # fmt: skip
    conditions = {
        test: {"fitting": "fit"},
        "vernier_only": {"stimuli": "vernier_only", "fitting": "fit"},
    }
    ceiling = {
        name: metric[name] for name in ("name", "baseline_condition", "test_condition")
    }
    paradigm = {"conditions": conditions, "microsaccades": MICROSACCADES}
    spec = _task(
        row,
        dataset,
        "probabilities",
        metric,
        ceiling,
        paradigm=paradigm,
        normalise=CLIPPED,
    )
    return spec | {"notes": [MOVED]}


def _igustibagus(key: str, row: Row) -> Spec:
    if key.endswith("accuracy"):
        return _domains(row)
    apart = {"by": "background_id", "except": {"background_id": [0]}}
    metric = {
        "name": "ridge",
        "splits": {"stratify": "object_label", "disjoint": apart},
    }
    spec = _recorded(row, "Igustibagus2024", metric, "internal_consistency")
    chosen = {"stimulus_source": list(SOURCES), "object_style": list(STYLES)}
    return spec | {"select": chosen, "notes": [BY_NAME]}


def _domains(row: Row) -> Spec:
    """The readout of objects: domains in the order in which they are drawn from."""
    styles = {
        style: {"stimulus_source": source, "object_style": style}
        for source, names in DRAWN
        for style in names
    }
    plain = {
        source.lower(): {"stimulus_source": source}
        for source in SOURCES
        if source not in dict(DRAWN)
    }
    paradigm = {
        "name": "labelled_responses", "region": "IT", "label_column": "object_label", "domains": styles | plain,
        "time_bins": [[70, 170]], "visual_degrees": dataset_degrees(row),
    }  # fmt: skip
    paired = {"by": "background_id", "domains": list(dict(DRAWN)["Silhouette"])}
    metric = {
        "name": "domain_readout",
        "fitted": "original",
        "tested": 30,
        "divisions": 1000,
        "paired": paired,
    }
    return {
        "dataset": "Igustibagus2024",
        "paradigm": paradigm,
        "metric": metric,
        "notes": [SEEDED],
    }


SEEDED = (
    "Brain-Score draws its divisions without a seed. Here they are drawn with seed 0, and they are the divisions of "
    "Brain-Score when its generator has that seed."
)
DRAWN = (
    ("Silhouette", ("original",)),
    ("Art", ("cartoon", "line_drawing", "mosaic", "painting", "sketch")),
    ("Silhouette", ("convex_hull", "outline", "skeleton", "silhouette")),
)
BY_NAME = (
    "Brain-Score applies reliabilities that are sorted by the name of the neuroid to neuroids in the order of the file. "
    "Where the two orders differ, it does not select the reliable neuroids; they are selected here."
)
SOURCES = ("COCOColor", "Art", "COCOGray", "TDW", "Silhouette")
# The remaining styles: no image from these sources has one of the other styles that Brain-Score names.
STYLES = (
    "original", "sketch", "painting", "mosaic", "convex_hull", "outline", "silhouette", "line_drawing", "cartoon"
)  # fmt: skip


FAMILIES: Mapping[str, Callable[[str, Row], Spec]] = {
    "allen2022_fmri": _subjects,
    "allen2022_fmri_surface": _subjects,
    "baker2022": _baker,
    "bmd2024": _bmd,
    "bracci2019": _bracci,
    "cadena2017": _cadena,
    "coggan2024_behavior": _coggan,
    "coggan2024_fMRI": _coggan,
    "ferguson2024": _ferguson,
    "freemanziemba2013": _freeman,
    "geirhos2021": _geirhos,
    "gifford2022": _gifford,
    "hebart2023": _hebart,
    "hebart2023_fmri": _subjects,
    "hermann2020": _hermann,
    "igustibagus2024": _igustibagus,
    "imagenet": _imagenet,
    "imagenet_c": _imagenet,
    "islam2021": _islam,
    "kar2019": _kar,
    "laion_fmri": _zerbe,
    "li2026": _li,
    "lonnqvist2024": _lonnqvist,
    "majajhong2015": _majajhong,
    "malania2007": _malania,
    "maniquet2024": _maniquet,
    "marques2020": _marques,
    "muzellec2026": _majajhong,
    "objectnet": _imagenet,
    "papale2025": _subjects,
    "rajalingham2018": _rajalingham,
    "rajalingham2020": _pls,
    "sanghavi2020": _pls,
    "scialom2024": _scialom,
}


def specs() -> Iterator[tuple[str, str, Spec]]:
    """Kind, registry key and content of each spec: data sets, benchmarks, suites."""
    sets = datasets()
    for id, data in sorted(sets.items()):
        yield "dataset", id, _dataset(data)
    rows = benchmarks()
    for key, row in rows.items():
        yield "benchmark", key, _benchmark(key, row)
    yield from (("suite", spec["id"], spec) for spec in _suites(rows))


def is_public(data: Data) -> bool:
    """Whether every file can be read without credentials, according to the registry's tests."""
    listed, sets = assemblies(), stimulus_sets()
    every = [listed[key].access for key in data.parts.values()]
    every += [sets[key].access for key in _sets_of(data).values() if key in sets]
    return bool(every) and all(access == "public" for access in every)


def _sets_of(data: Data) -> dict[str, str]:
    """The stimulus sets of a data set by their name in its reader."""
    own = {"": data.stimuli} if data.stimuli else {}
    return {name: key for name, key in (own | data.further).items() if key}


def _dataset(data: Data) -> Spec:
    about, listed, sets = study(data.id), assemblies(), stimulus_sets()
    public = is_public(data)
    spec: Spec = {
        "id": data.id,
        "version": 1,
        "title": f"{about.what}: {data.id} (Brain-Score package)",
    }
    spec["license"] = "LicenseRef-unknown"
    spec["license_note"] = "Brain-Score's registry states no licence; ask the authors."
    spec["access"] = "public" if public else "private"
    if about.species:
        spec["species"] = about.species
    if about.modality:
        spec["modality"] = about.modality
    spec["cite"] = [*about.cite, "schrimpf2018"]
    if data.refused:
        return spec | {"unavailable": data.refused}
    files: dict[str, dict[str, str]] = {}
    for key in data.parts.values():
        files |= listed[key].files
        if not data.stimuli and listed[key].stimuli in sets:
            files |= sets[listed[key].stimuli].files
    for key in _sets_of(data).values():
        files |= sets[key].files if key in sets else {}
    spec["downloads"] = files
    spec["reader"] = _reader(data, listed, sets)
    if data.degrees:
        spec["degrees"] = data.degrees
    command = f"`neuroledger import brainscore {data.id}`"
    spec["unavailable"] = (
        f"Not downloaded yet: {command} downloads and pins its files."
        if public
        else f"Private upstream: with credentials for Brain-Score's bucket, {command} downloads and pins its files."
    )
    return spec


def _named(sets: Mapping[str, Listed], key: str) -> Spec:
    return (
        {"stimuli": sets[key].name("csv"), "archive": sets[key].name("zip")}
        if key in sets
        else {}
    )


def _reader(
    data: Data, listed: Mapping[str, Listed], sets: Mapping[str, Listed]
) -> Spec:
    reader: Spec = {"name": "brainio"}
    if "" in data.parts:
        own = listed[data.parts[""]]
        reader["assembly"] = own.name("nc")
        if own.merge == "no":
            reader["merge"] = False
    elif data.parts:
        whole = data.id.startswith(("Zerbe2026", "Malania2007"))
        reader["parts"] = {
            part: {"assembly": listed[key].name("nc")}
            | ({} if whole else _named(sets, listed[key].stimuli))
            for part, key in data.parts.items()
        }
        reader["part"] = "split"
        if data.id.startswith("Malania2007"):
            reader |= {"part": "condition", "along": "subject"}
        elif whole:
            reader |= {"part": "subject", "along": "neuroid"}
            # The images and their splits have a licence of their own, and no checksum upstream.
            reader |= {
                "stimuli": "stimuli.csv",
                "archive": "images_extracted.zip",
                "tables": ["splits.csv"],
            }
    if data.stimuli:
        reader |= _named(sets, data.stimuli)
    if data.id == "Hebart2023":
        reader["several"] = ["image_1", "image_2", "image_3"]
    if data.further:
        reader["fitting_stimuli"] = {
            name: _named(sets, key) for name, key in data.further.items()
        }
    prepare = next(
        (steps for start, steps in PREPARE.items() if data.id.startswith(start)), None
    )
    if prepare:
        reader["prepare"] = prepare
    columns = next(
        (names for start, names in COLUMNS.items() if data.id.startswith(start)), None
    )
    if columns:
        reader["columns"] = columns
    return reader


UNIQUE = {
    "step": "label",
    "dim": "neuroid",
    "coord": "neuroid_id",
    "of": ["subject", "neuroid_id"],
}
NUMBERED = {"step": "label", "dim": "neuroid", "coord": "neuroid_id"}
PROPERTY = [
    {
        "step": "rename",
        "dims": {"neuronal_property": "property"},
        "coords": {"neuronal_property": "property"},
    }
]
PREPARE: Mapping[str, list[Spec]] = {
    "Allen2022": [UNIQUE, {"step": "take", "at": {"time_bin_start": 0}}],
    "Bracci2019": [NUMBERED],
    "Cadena2017": [NUMBERED],
    "Coggan2024_fMRI": [
        {
            "step": "rename",
            "dims": {
                "presentation": "stimulus",
                "presentation_b": "stimulus_b",
                "neuroid": "subject",
            },
        },
        {"step": "affine", "factor": -1, "offset": 1},
    ],
    "Gifford2022": [UNIQUE],
    "Hebart2023_fmri": [UNIQUE],
    "Igustibagus2024": [
        {"step": "take", "at": {"time_bin_id": 0}},
        {"step": "reliable", "above": 0.7, "halves": "drawn"},
        {"step": "complete", "over": "presentation", "missing": "all"},
    ],
    "Kar2019": [
        {"step": "take", "at": {"decoder": "svm"}},
        {"step": "distinct", "by": ["stimulus_id"]},
    ],
    "Li2026": [{"step": "rename", "coords": {"animal": "subject"}}],
    "Papale2025": [UNIQUE],
    # Neuroids are numbered per subject's file.
    "Zerbe2026": [NUMBERED, UNIQUE | {"of": ["subject_id", "neuroid_id"]}],
} | {id: PROPERTY for id, _ in TUNING.values()}
COLUMNS: Mapping[str, Spec] = {
    "Coggan2024_behavior": {"object_class": "truth"},
    "Geirhos2021_cue-conflict": {"conflict_image_category": "texture"},
}
IMAGES = {
    "BarbuMayo2019",
    "imagenet_val",
    "imagenet_c",
    "ImageNetSlim15000",
    "Islam2021",
    "ImageNet",
}


def _benchmark(key: str, row: Row) -> Spec:
    content = FAMILIES[row["plugin"]](key, row)
    if not content.get("select", True):
        del content["select"]
    about = study(content["dataset"])
    spec: Spec = {
        "id": key,
        "version": int(row["version"]),
        "title": _title(key, row, about),
    }
    spec["parent"] = row["parent"] or row["region"] or "IT"
    if spec["parent"] == "behavior":
        spec["parent"] = "behavior_vision"
    spec |= content
    if (
        "metric" in spec
        and spec.get("normalise") is None
        and "ceiling" not in spec
        and "floor" not in spec
    ):
        spec["normalise"] = "none"
    spec["compat"] = "brainscore"
    spec["cite"] = [
        *about.cite,
        *(("marques2021",) if "Marques" in key else ()),
        "schrimpf2018",
    ]
    spec["tags"] = ["brainscore"]
    notes = (
        [f"The benchmark has the identifier {row['identifier']} in Brain-Score."]
        if row["identifier"]
        else []
    )
    notes += (
        [f"Ceiling in Brain-Score's tests: {row['ceiling']}."] if row["ceiling"] else []
    )
    notes += content.get("notes", [])
    if not row["parent"]:
        notes.append(
            "Not part of Brain-Score's average; it is used to select the layers of models."
        )
    return spec | ({"notes": notes} if notes else {})


def _title(key: str, row: Row, about: Study) -> str:
    measure = key.rsplit("-", 1)[1] if "-" in key else row["metric"]
    where = f"{row['region']}, " if row["region"] else ""
    return f"{about.what}: {where}{measure.replace('_', ' ')}"


# Groups of Brain-Score's leaderboard: the mean of a group is one value in the mean of its parent.
HIERARCHY: Mapping[str, str] = {
    "V1": "neural_vision", "V2": "neural_vision", "V4": "neural_vision", "IT": "neural_vision",
    "neural_vision": "average_vision", "behavior_vision": "average_vision",
    "Baker2022": "behavior_vision", "BMD2024": "behavior_vision", "Geirhos2021": "behavior_vision",
    "Lonnqvist2024": "behavior_vision", "Malania2007": "behavior_vision", "Maniquet2024": "behavior_vision",
    "Scialom2024": "behavior_vision", "Bracci2019": "IT",
    **{f"V1-{topic}": "V1" for topic in (
        "orientation", "receptive_field_size", "response_magnitude", "response_selectivity", "spatial_frequency",
        "surround_modulation", "texture_modulation")},
    **{f"{name}.{region}": region for name in ("Li2026", "Zerbe2026_fmri") for region in STUDIED},
    **dict.fromkeys(("ImageNet", "Geirhos2021-top1", "Hermann2020", "Hendrycks2019-top1", "Islam2021",
                     "Scialom2024-top1"), "engineering"),
}  # fmt: skip


def _suites(rows: Mapping[str, Row]) -> Iterator[Spec]:
    ranked = [key for key, row in rows.items() if row["parent"]]
    yield {
        "id": "brainscore.vision", "version": 1, "title": "Brain-Score vision: all benchmarks in its average",
        "description": "Groups weigh equally: a group's score is the mean of its members, as on Brain-Score's board.",
        "hierarchy": dict(HIERARCHY), "cite": ["schrimpf2018"], "benchmarks": ranked,
    }  # fmt: skip
    sets = datasets()
    public = [
        key
        for key, row in rows.items()
        if is_public(sets[_benchmark(key, row)["dataset"]])
    ]
    yield {
        "id": "brainscore.public", "version": 1, "title": "Brain-Score benchmarks whose files are public",
        "cite": ["schrimpf2018"], "benchmarks": public,
    }  # fmt: skip
