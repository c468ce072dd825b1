"""Runs in Brain-Score's own environment: writes simulated packages from a seed, in its layouts, by its own library.

There is one function for each family of data sets. Responses are mixtures of the stored features of the model, plus noise,
and simulated subjects answer correctly more often for easy stimuli.
"""

import zipfile
import zlib
from io import BytesIO

import numpy as np
import pandas as pd
import xarray as xr
from brainscore_core.supported_data_standards.brainio.assemblies import (
    BehavioralAssembly,
    DataAssembly,
    NeuroidAssembly,
    NeuronRecordingAssembly,
    PropertyAssembly,
    walk_coords,
)
from brainscore_core.supported_data_standards.brainio.packaging import write_netcdf
from PIL import Image

from tests.parity.forms import shaped

HIDDEN, FEATURES = 6, 40
# Positions of the model's features: ten maps with four positions each.
PLACES = dict(
    zip(
        ("channel", "channel_x", "channel_y"),
        np.indices((10, 2, 2)).reshape(3, FEATURES),
        strict=True,
    )
)
# Stimuli whose order their code goes by: grids of gratings, and tables that are taken for the rows of recordings.
IN_ORDER = ("Marques", "Coggan2024", "Igustibagus2024", "hvm-public")
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
ANIMALS = [
    "bear",
    "bunny",
    "cat",
    "elephant",
    "frog",
    "lizard",
    "tiger",
    "turtle",
    "wolf",
]
SYNSETS = ["n01440764", "n01443537", "n01484850", "n01491361"]
REGIONS = ["V1", "V2", "V4", "IT"]


class Packages:
    """The packages written so far, and the model's features and labels for all stimuli."""

    def __init__(self, folder, listed, seed, odd=False, forms=()):
        self.folder, self.listed, self.seed, self.odd, self.forms = (
            folder,
            listed,
            seed,
            odd,
            forms,
        )
        self.rng = np.random.default_rng([seed, 0])
        self.mixing = self.rng.normal(size=(HIDDEN, FEATURES))
        self.hidden, self.features, self.labels, self.tables, self.written = (
            {},
            {},
            {},
            {},
            [],
        )

    def some(self, number):
        """The number; a seventh larger with `odd`, and a tenth smaller in the form `few`."""
        number = number + number // 7 if self.odd else number
        return number - number // 10 if "few" in self.forms else number

    def begin(self, key):
        """Seed the generator for a data set, independently of the previous ones."""
        self.rng = np.random.default_rng([self.seed, zlib.crc32(key.encode())])

    def table(
        self, key, columns, said=None, decides="truth", numbered=False, legacy=False
    ):
        """Write stimuli with the columns of their layout and images; ``said`` are the labels that the model predicts."""
        names = self.listed["stimuli"][key]
        if names["csv"] in self.tables:
            return self.tables[names["csv"]]
        count = len(next(iter(columns.values())))
        stem = names["csv"].removeprefix("stimulus_").removesuffix(".csv")
        ids = [f"{stem.replace('_', '').replace('-', '')}{n:04d}" for n in range(count)]
        if self.odd:
            ids = [
                f"{one[:4]}é β,{one[4:]} {'x' * (n % 3)}" for n, one in enumerate(ids)
            ]
        if numbered:  # the id of a stimulus is its row number
            ids = [str(n) for n in range(count)]
        rows = pd.DataFrame(
            {"stimulus_id": ids, **columns, "filename": [f"{one}.png" for one in ids]}
        )
        classes = columns.get(decides)
        with zipfile.ZipFile(self.folder / names["zip"], "w") as archive:
            for number, id in enumerate(ids):
                rng = np.random.default_rng([self.seed, zlib.crc32(id.encode())])
                hidden = rng.normal(size=HIDDEN)
                if classes is not None:
                    about = np.random.default_rng(
                        [self.seed, zlib.crc32(str(classes[number]).encode())]
                    )
                    hidden += 1.5 * about.normal(size=HIDDEN)
                self.hidden[id] = hidden
                self.features[id] = hidden @ self.mixing + 0.5 * rng.normal(
                    size=FEATURES
                )
                if said is not None:
                    self.labels[id] = said[number]
                shown = BytesIO()
                Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(
                    shown, "png"
                )
                archive.writestr(f"{id}.png", shown.getvalue())
        csv = rows.rename(columns={"stimulus_id": "image_id"}) if legacy else rows
        if self.odd and not numbered and not any(one in key for one in IN_ORDER):
            order = np.random.default_rng([self.seed, count]).permutation(count)
            csv = csv.iloc[order].assign(Größe=[f"{n % 3} µm" for n in range(count)])
        csv.to_csv(self.folder / names["csv"], index=False)
        self.tables[names["csv"]] = rows
        return rows

    def rows(self, key):
        """The table of stimuli that was written for a key."""
        return self.tables[self.listed["stimuli"][key]["csv"]]

    def wrong(self, truth, choices, easy=0.6):
        """Answers that are correct with some probability, and random otherwise."""
        right = self.rng.random(len(truth)) < easy
        return [
            t if r else choices[self.rng.integers(len(choices))]
            for t, r in zip(truth, right)
        ]

    def recorded(self, ids, neuroids, repetitions, noise=1.0):
        """Responses ``(presentation, neuroid)``, grouped by stimulus."""
        signal = np.stack([self.hidden[id] for id in ids]) @ self.rng.normal(
            size=(HIDDEN, neuroids)
        )
        signal /= signal.std(axis=0)
        shape = (len(ids) * repetitions, neuroids)
        return np.repeat(signal, repetitions, axis=0) + noise * self.rng.normal(
            size=shape
        )

    def write(self, key, assembly, **attrs):
        """Write the assembly with the registry's file name."""
        assembly = shaped(oddly(self, assembly) if self.odd else assembly, self.forms)
        assembly.attrs.update(attrs)
        name = self.listed["assemblies"][key]
        write_netcdf(assembly, self.folder / name)
        self.written.append(name)


def oddly(make, assembly):
    """The assembly with an additional coordinate, some last repetitions missing, and presentations in random order."""
    if (
        list(assembly.dims).count("presentation") != 1
        or "stimulus_id" not in assembly.coords
    ):
        return assembly
    cls, ids = type(assembly), assembly["stimulus_id"].values.astype(str)
    every = {name: (dims, values) for name, dims, values in walk_coords(assembly)}
    values = assembly.transpose("presentation", ...).values
    keep = np.arange(len(ids))
    if "repetition" in every:
        counts = np.asarray(every["repetition"][1])
        lost = np.array([zlib.crc32(id.encode()) % 7 == 3 for id in ids]) & (
            counts == counts.max()
        )
        keep = (
            np.flatnonzero(~lost) if counts.max() < 20 else keep
        )  # as many as a benchmark asks for stay
    keep = make.rng.permutation(keep)
    coords = {
        name: (dims, np.asarray(held)[keep] if dims == ("presentation",) else held)
        for name, (dims, held) in every.items()
    }
    coords["note"] = (
        "presentation",
        np.array([f"„{zlib.crc32(id.encode()) % 5}“" for id in ids])[keep],
    )
    if "neuroid" in assembly.dims:
        coords["depth µm"] = (
            "neuroid",
            np.linspace(0, 1500, assembly.sizes["neuroid"]),
        )
    dims = ["presentation", *(dim for dim in assembly.dims if dim != "presentation")]
    found = cls(values[keep], dims=dims, coords=coords).transpose(*assembly.dims)
    found.attrs.update(assembly.attrs)
    return found


def presented(rows, repetitions, *columns):
    """Coordinates of repeated presentations."""
    found = {
        name: ("presentation", np.repeat(rows[name].values, repetitions))
        for name in ("stimulus_id", *columns)
    }
    return found | {
        "repetition": ("presentation", np.tile(np.arange(repetitions), len(rows)))
    }


def binned(starts, width):
    """Coordinates of time bins."""
    starts = np.asarray(starts)
    return {
        "time_bin_start": ("time_bin", starts),
        "time_bin_end": ("time_bin", starts + width),
    }


def cycle(values, count):
    """The values, repeated cyclically."""
    return [values[n % len(values)] for n in range(count)]


def units(regions, per, **more):
    """Coordinates of neuroids of several regions and animals."""
    count = per * len(regions)
    coords = {
        "neuroid_id": ("neuroid", [f"n{n}" for n in range(count)]),
        "region": ("neuroid", np.repeat(regions, per)),
    }
    return coords | {name: ("neuroid", values) for name, values in more.items()}


def majajhong(make, key):
    """Neuroids as the first dimension, repeated presentations, one time bin or bins of 10 ms."""
    stimuli = "hvm-public" if key.endswith("public") else "hvm-private"
    count = make.some(60)
    columns = {
        "object_name": cycle(OBJECTS, count),
        "variation": [0 if n < count // 2 else 3 for n in range(count)],
    }
    rows = make.table(stimuli, columns, decides="object_name", legacy=True)
    starts, width = (range(0, 50, 10), 10) if "temporal" in key else ([70], 100)
    values = make.recorded(
        rows["stimulus_id"], 56, 4
    )  # more in each region than components of a regression
    values = np.stack(
        [values + 0.3 * make.rng.normal(size=values.shape) for _ in starts], axis=-1
    )
    coords = (
        presented(rows, 4)
        | units(["V4", "IT"], 28, animal=["Chabo", "Tito"] * 28)
        | binned(starts, width)
    )
    assembly = NeuronRecordingAssembly(
        values.transpose(1, 0, 2),
        dims=["neuroid", "presentation", "time_bin"],
        coords=coords,
    )
    make.write(key, assembly)


def freeman(make, key):
    """Time bins of 1 ms, textures and noise."""
    access = key.rsplit(".", 1)[1]
    columns = {
        "texture_type": cycle(["noise", "texture"], 40),
        "texture_family": [n // 4 for n in range(40)],
    }
    rows = make.table(f"FreemanZiemba2013.aperture-{access}", columns)
    starts = range(45, 205)
    values = make.recorded(rows["stimulus_id"], 8, 4)
    values = values[:, :, None] + 0.5 * make.rng.normal(
        size=(*values.shape, len(starts))
    )
    coords = presented(rows, 4) | units(["V1", "V2"], 4) | binned(starts, 1)
    make.write(
        key,
        NeuronRecordingAssembly(
            values, dims=["presentation", "neuroid", "time_bin"], coords=coords
        ),
    )


def cadena(make, key):
    """Repetitions with another name, a running number, and presentations without responses."""
    rows = make.table(
        "Cadena2017", {"image_type": ["original"] * 60, "image_number": list(range(60))}
    )
    values = make.recorded(rows["stimulus_id"], 6, 4)
    values[:8] = np.nan
    values[40:44, 2] = np.nan
    coords = presented(rows, 4)
    coords["repetition_id"] = coords.pop("repetition")
    coords |= (
        {"id": ("presentation", np.arange(240))} | units(["V1"], 6) | binned([40], 60)
    )
    assembly = NeuronRecordingAssembly(
        values[:, :, None], dims=["presentation", "neuroid", "time_bin"], coords=coords
    )
    make.write(key, assembly)


REPEATED = {
    "Sanghavi2020": 28,
    "SanghaviJozwik2020": 37,
    "SanghaviMurty2020": 50,
    "Rajalingham2020": 33,
}


def sanghavi(make, key):
    """Numbered time bins, and as many repetitions as the benchmark needs."""
    columns = {"object_name": cycle(OBJECTS, make.some(60))}
    own = make.listed["sets"][key]
    rows = make.table(own, columns, decides="object_name")
    one = key == "Rajalingham2020"
    starts = [70] if one else [70, 170]
    values = make.recorded(rows["stimulus_id"], 6, REPEATED[key], 3.0)
    values = np.stack(
        [values + 0.3 * make.rng.normal(size=values.shape) for _ in starts], axis=-1
    )
    regions = ["IT"] if one else ["V4", "IT"]
    coords = presented(rows, REPEATED[key]) | units(
        regions, 6 // len(regions), animal=["a"] * 6
    )
    coords |= binned(starts, 100) | {
        "time_bin_id": ("time_bin", list(range(len(starts))))
    }
    assembly = NeuronRecordingAssembly(
        values, dims=["presentation", "neuroid", "time_bin"], coords=coords
    )
    make.write(key, assembly, image_size_degree=5 if "Murty" in key else 8)


def solution_times(make, key):
    """Solution times of two decoders for each image; two images occur twice."""
    columns = {"image_label": cycle(OBJECTS, 60), "image_num": list(range(60))}
    rows = make.table("Kar2019", columns, decides="image_label")
    order = [*range(60), 3, 7]
    coords = {
        "stimulus_id": ("presentation", rows["stimulus_id"].values[order]),
        "image_label": ("presentation", rows["image_label"].values[order]),
        "i1": ("presentation", make.rng.normal(1.0, 0.5, 62)),
        "decoder": ["svm", "logistic"],
    }
    times = make.rng.uniform(80, 240, (2, 62))
    make.write(
        key, DataAssembly(times, dims=["decoder", "presentation"], coords=coords)
    )


def discrimination(make, key):
    """Choices between two objects; the readout is fitted to other images."""
    tested = "objectome.private" if "private" in key else "objectome.public"
    for stimuli, count in (("objectome.public", 100), ("objectome.private", 40)):
        make.table(
            stimuli, {"image_label": cycle(OBJECTS, count)}, decides="image_label"
        )
    rows = make.rows(tested)
    count = len(rows)
    shown = make.rng.integers(0, count, 4000)
    truth = rows["image_label"].values[shown]
    other = np.array(
        [make.rng.choice([o for o in OBJECTS if o != label]) for label in truth]
    )
    right = make.rng.random(4000) < 0.55 + 0.4 * (shown * 7919 % 97) / 97
    said = np.where(right, truth, other)
    coords = {
        "stimulus_id": rows["stimulus_id"].values[shown],
        "sample_obj": truth,
        "dist_obj": other,
        "choice": said,
        "truth": truth,
        "reaction_time": make.rng.random(4000),
    }
    coords = {name: ("presentation", values) for name, values in coords.items()}
    make.write(key, BehavioralAssembly(said, dims=["presentation"], coords=coords))


def named(make, key, rows, choices, people=5, **more):
    """Subjects who name every image."""
    count = len(rows)
    truth = np.tile(rows["truth"].values, people)
    hard = np.tile(make.rng.uniform(0.2, 0.95, count), people)
    right = make.rng.random(count * people) < hard
    said = np.where(
        right,
        truth,
        np.array(choices)[make.rng.integers(0, len(choices), count * people)],
    )
    coords = {
        "stimulus_id": np.tile(rows["stimulus_id"].values, people),
        "truth": truth,
        "choice": said,
        "subject": np.repeat(np.arange(1, people + 1), count),
    }
    coords |= {name: np.tile(values, people) for name, values in more.items()}
    coords = {name: ("presentation", values) for name, values in coords.items()}
    make.write(key, BehavioralAssembly(said, dims=["presentation"], coords=coords))


CONDITIONS = {
    "colour": ["cr", "bw"],
    "contrast": ["c100", "c50", "c30", "c15", "c10", "c05", "c03", "c01"],
    "high-pass": [np.inf, 3.0, 1.5, 1.0, 0.7, 0.55, 0.45, 0.4],
    "low-pass": [0, 1, 3, 5, 7, 10, 15, 40],
    "phase-scrambling": [0, 30, 60, 90, 120, 150, 180],
    "power-equalisation": ["0", "pow"],
    "false-colour": ["True-Colour", "False-Colour"],
    "rotation": [0, 90, 180, 270],
    "eidolonI": ["1-10-10", "2-10-10", "4-10-10", "64-10-10", "128-10-10"],
    "eidolonII": ["1-3-10", "2-3-10", "4-3-10", "32-3-10", "64-3-10", "128-3-10"],
    "eidolonIII": [
        "1-0-10",
        "2-0-10",
        "4-0-10",
        "16-0-10",
        "32-0-10",
        "64-0-10",
        "128-0-10",
    ],
    "uniform-noise": [0.0, 0.03, 0.05, 0.1, 0.2, 0.35, 0.6, 0.9],
}


def geirhos(make, key):
    """Sixteen categories in several conditions; the table has the older name of the ids."""
    conditions = CONDITIONS.get(key.removeprefix("Geirhos2021_"), ["0", "1"])
    count = 16 * max(6, len(conditions))
    truth = cycle(SIXTEEN, count)
    shown = [conditions[n // 16 % len(conditions)] for n in range(count)]
    columns = {"truth": truth, "condition": shown, "category": truth}
    if "cue-conflict" in key:
        other = [SIXTEEN[(n * 5 + n // 16) % 16] for n in range(count)]
        columns |= {"original_image_category": truth, "conflict_image_category": other}
    rows = make.table(key, columns, said=make.wrong(truth, SIXTEEN), legacy=True)
    named(
        make,
        key,
        rows,
        SIXTEEN,
        4,
        condition=np.array(shown),
        image_id=rows["stimulus_id"].values,
    )


KITCHEN = [
    "banana",
    "beanie",
    "binoculars",
    "boot",
    "bowl",
    "cup",
    "glasses",
    "lamp",
    "pan",
    "sewingmachine",
    "shovel",
    "truck",
]


def labelled(make, key):
    """Subjects who name images of one condition."""
    choices = SIXTEEN[:10] if key.startswith("BMD") else KITCHEN
    count = 8 * len(choices)
    columns = {"truth": cycle(choices, count), "condition": ["c"] * count}
    if key.startswith("Scialom"):
        columns["percentage_elements"] = ["RGB"] * count
    stimuli = make.listed["sets"][key]
    rows = make.table(stimuli, columns, said=make.wrong(columns["truth"], choices))
    named(make, key, rows, choices, condition=np.array(columns["condition"]))


def triplets(make, key):
    """Odd-one-out choices among three objects."""
    make.table("Hebart2023", {"unique_id": [f"u{n}" for n in range(40)]}, numbered=True)
    ids = np.arange(40)
    shown = np.array([make.rng.choice(40, 3, replace=False) for _ in range(300)])
    made = np.stack([make.features[str(id)] for id in ids])
    pairs = np.stack(
        [
            (made[shown[:, i]] * made[shown[:, j]]).sum(axis=1)
            for i, j in ((1, 2), (0, 2), (0, 1))
        ]
    )
    odd = np.where(
        make.rng.random(300) < 0.6, pairs.argmax(axis=0), 2
    )  # subjects often choose by the features
    rest = np.array([[n for n in range(3) if n != one] for one in odd])
    shown = np.take_along_axis(
        shown, np.concatenate([rest, odd[:, None]], axis=1), axis=1
    )
    coords = {
        "stimulus_id": ids[shown[:, 2]],
        "triplet_id": [f"triplet_{n}" for n in range(300)],
    }
    coords |= {f"image_{n + 1}": ids[shown[:, n]] for n in range(3)}
    coords = {name: ("presentation", values) for name, values in coords.items()}
    make.write(
        key, BehavioralAssembly(ids[shown[:, 2]], dims=["presentation"], coords=coords)
    )


def baker(make, key):
    """Whole, fragmented and scrambled animals; correct or not for each subject."""
    count = 9 * 3 * 6
    kinds = [["w", "f", "o"][n // 9 % 3] for n in range(count)]
    orientation = key.split("_")[1]
    truth = cycle(ANIMALS, count)
    columns = {
        "truth": truth,
        "animal": truth,
        "image_type": kinds,
        "orientation": [orientation] * count,
    }
    rate = {"w": 0.8, "f": 0.6, "o": 0.5}
    said = [make.wrong([t], ANIMALS, rate[k])[0] for t, k in zip(truth, kinds)]
    rows = make.table(key, columns, said=said)
    people = 9
    human = {"w": 0.9, "f": 0.6, "o": 0.4}
    correct = [int(make.rng.random() < human[k]) for _ in range(people) for k in kinds]
    coords = {
        "stimulus_id": np.tile(rows["stimulus_id"].values, people),
        "subject": np.repeat(range(1, 10), count),
        "condition": ["1"] * count * people,
        "truth": np.tile(truth, people),
        "correct": correct,
    }
    coords = {name: ("presentation", values) for name, values in coords.items()}
    make.write(
        key, BehavioralAssembly(np.array(correct), dims=["presentation"], coords=coords)
    )


def thresholds(make, key):
    """One threshold for each subject; some are missing in a condition."""
    for one, count in ((key, 50), (f"{key}_fit", 80), ("Malania2007.vernier_only", 50)):
        if one in make.listed["stimuli"]:
            sides = cycle(["l", "r"], count)
            offsets = [10.0 * (n // 2 % 10) + 10.0 for n in range(count)]
            # Their fit takes the label for the offset, so it ends in an error where the readout is right: here it is not.
            shown = sides[1:] + sides[:1] if one.endswith("_fit") else sides
            columns = {
                "image_label": sides,
                "vernier_offset_arcsec": offsets,
                "shown": shown,
            }
            make.table(one, columns, decides="shown")
    values = make.rng.uniform(250, 330, 6) * (1 if key.endswith("only") else 1.4)
    if not key.endswith("only"):
        values[2] = np.nan
    subjects = {"subject": ("subject", [f"s{n}" for n in range(6)])}
    make.write(key, PropertyAssembly(values, dims=["subject"], coords=subjects))


GRATINGS = {
    "Marques2020_receptive_field": {
        "position_x": [-0.25, 0.0, 0.25],
        "position_y": [-0.25, 0.0, 0.25],
        "orientation": [0.0, 90.0],
        "phase": [0.0, 180.0],
    },
    "Marques2020_orientation": {
        "spatial_frequency": [1.0, 2.0],
        "orientation": np.arange(0, 180, 15.0).tolist(),
        "phase": np.arange(0, 360, 90.0).tolist(),
    },
    "Marques2020_spatial_frequency": {
        "spatial_frequency": (2.0 ** np.arange(-1, 4, 0.5)).tolist(),
        "orientation": [0.0, 45.0, 90.0, 135.0],
        "phase": [0.0, 90.0, 180.0, 270.0],
    },
    "Marques2020_size": {
        "radius": np.linspace(0.2, 3, 9).tolist(),
        "spatial_frequency": [1.0, 2.0],
        "orientation": [0.0, 90.0],
        "phase": [0.0, 90.0, 180.0, 270.0],
    },
}
ORDER = (
    "position_y",
    "position_x",
    "contrast",
    "radius",
    "spatial_frequency",
    "orientation",
    "phase",
)
MEASURED = {
    "Ringach2002": ("Marques2020_orientation", (
        "baseline", "max_dc", "min_dc", "max_ac", "modulation_ratio", "circular_variance", "bandwidth",
        "orthogonal_preferred_ratio", "orientation_selective", "circular_variance_bandwidth_ratio",
        "orthogonal_preferred_ratio_circular_variance_difference", "orthogonal_preferred_ratio_bandwidth_ratio")),
    "DeValois1982a": ("Marques2020_orientation", ("preferred_orientation",)),
    "DeValois1982b": ("Marques2020_spatial_frequency", ("peak_spatial_frequency",)),
    "Schiller1976c": ("Marques2020_spatial_frequency", (
        "spatial_frequency_selective", "spatial_frequency_bandwidth")),
    "Cavanaugh2002a": ("Marques2020_size", (
        "surround_suppression_index", "strongly_suppressed", "grating_summation_field", "surround_diameter",
        "surround_grating_summation_field_ratio")),
    "FreemanZiemba2013_V1_properties": ("FreemanZiemba2013_properties", (
        "texture_modulation_index", "absolute_texture_modulation_index", "texture_selectivity", "noise_selectivity",
        "texture_sparseness", "noise_sparseness", "variance_ratio", "sample_variance", "family_variance", "max_texture",
        "max_noise")),
}  # fmt: skip
SPANS = {
    "max_dc": 60,
    "max_ac": 60,
    "baseline": 10,
    "min_dc": 20,
    "modulation_ratio": 2,
    "bandwidth": 90,
    "circular_variance_bandwidth_ratio": 0.1,
    "orthogonal_preferred_ratio_bandwidth_ratio": 0.1,
    "preferred_orientation": 180,
    "peak_spatial_frequency": 8,
    "spatial_frequency_bandwidth": 100,
    "grating_summation_field": 6,
    "surround_diameter": 6,
    "variance_ratio": 20,
    "max_texture": 60,
    "max_noise": 60,
}


def gratings(make, stimuli):
    """Gratings with every combination of parameters, in the order that the benchmarks need."""
    varied = GRATINGS[stimuli]
    fixed = {
        "position_x": [0.0],
        "position_y": [0.0],
        "contrast": [1.0],
        "radius": [1.0],
        "spatial_frequency": [1.0],
        "orientation": [0.0],
        "phase": [0.0],
    }
    axes = [(fixed | varied)[name] for name in ORDER]
    grid = np.stack([one.ravel() for one in np.meshgrid(*axes, indexing="ij")], axis=1)
    columns = {name: grid[:, n] for n, name in enumerate(ORDER)}
    return make.table(stimuli, {"degrees": np.full(len(grid), 8.0), **columns})


def properties(make, key):
    """Properties of neurons, and gratings or textures to measure those of a model."""
    stimuli, names = MEASURED[key]
    make.table(
        "Marques2020_blank",
        {"degrees": [8.0], "position_x": [0.0], "position_y": [0.0]},
    )
    if key.startswith("Freeman"):
        kinds = [(t, f, s) for t in (0, 1) for f in range(6) for s in range(5)]
        columns = {
            "type": [k[0] for k in kinds],
            "family": [k[1] for k in kinds],
            "sample": [k[2] for k in kinds],
        }
        place = {name: np.zeros(60) for name in ("position_x", "position_y")}
        make.table(stimuli, {"degrees": np.full(60, 8.0), **place, **columns})
        gratings(make, "Marques2020_orientation")
    else:
        gratings(make, stimuli)
    gratings(make, "Marques2020_receptive_field")
    gratings(make, "Marques2020_orientation")
    tune(make)
    values = np.stack(
        [make.rng.random(80) * SPANS.get(name, 1.0) for name in names], axis=1
    )
    if "preferred_orientation" in names:
        values -= 22.5
    coords = {
        "neuroid_id": ("neuroid", list(range(80))),
        "region": ("neuroid", ["V1"] * 80),
        "neuronal_property": list(names),
    }
    bins = {f"{name}_bins": np.linspace(0, SPANS.get(name, 1.0), 11) for name in names}
    assembly = PropertyAssembly(
        values, dims=["neuroid", "neuronal_property"], coords=coords
    )
    make.write(key, assembly, number_of_trials=20, **bins)


def tune(make):
    """Features tuned like V1 neurons to position, orientation, frequency and size of gratings."""
    rng = np.random.default_rng([make.seed, 7])
    place, prefers = rng.normal(0, 0.1, (FEATURES, 2)), rng.uniform(0, 180, FEATURES)
    frequency, size, gain = (
        rng.uniform(0, 2, FEATURES),
        rng.uniform(0.4, 1.5, FEATURES),
        rng.uniform(0.5, 2, FEATURES),
    )
    simple = rng.random(FEATURES)
    for key, rows in make.tables.items():
        if not key.startswith("stimulus_Marques2020_"):
            continue
        for row in rows.to_dict("records"):
            if "phase" not in row:
                make.features[row["stimulus_id"]] = 0.05 * gain
                continue
            far = np.hypot(
                row["position_x"] - place[:, 0], row["position_y"] - place[:, 1]
            )
            angle = np.cos(2 * np.radians(row["orientation"] - prefers))
            octaves = np.log2(row["spatial_frequency"]) - frequency
            inside = row["radius"] / size
            strength = (
                np.exp(-(far**2) / 0.1)
                * np.exp(2 * (angle - 1))
                * np.exp(-(octaves**2) / 2)
            )
            strength *= (1 - np.exp(-(inside**2))) * np.exp(-0.15 * inside)
            wave = 1 + simple * np.cos(np.radians(row["phase"]) + prefers)
            noise = np.random.default_rng(
                zlib.crc32(row["stimulus_id"].encode())
            ).random(FEATURES)
            make.features[row["stimulus_id"]] = gain * (
                0.05 + strength * wave + 0.01 * noise
            )


def coggan_fmri(make, key):
    """Similarity matrices for each subject and region, with two dimensions of the same name."""
    columns = {
        "object_name": cycle(OBJECTS, 24),
        "occlusion_condition": [["none", "top", "bottom"][n // 8] for n in range(24)],
    }
    rows = make.table("Coggan2024_fMRI", columns)
    shown = np.stack([make.hidden[id] for id in rows["stimulus_id"]])
    for id in rows[
        "stimulus_id"
    ]:  # some units respond to every image, since the benchmark selects these
        make.features[id][:3] += 40.0
    held = [np.corrcoef(shown + make.rng.normal(size=shown.shape)) for _ in range(12)]
    coords = {
        name: ("presentation", rows[name].values)
        for name in ("stimulus_id", "object_name")
    }
    coords |= {
        "subject": ("neuroid", ["s1", "s2", "s3"] * 4),
        "region": ("neuroid", np.repeat(REGIONS, 3)),
    }
    assembly = NeuroidAssembly(
        np.stack(held, axis=-1),
        dims=["presentation", "presentation", "neuroid"],
        coords=coords,
    )
    make.write(key, assembly)


def coggan_behaviour(make, key):
    """Each subject names different occluded objects; correctness is stored."""
    kinds, colours, people = ["bars", "mud", "dots"], ["black", "white"], 5
    cells = [
        (k, c, v, o)
        for k in kinds
        for c in colours
        for v in (0.2, 0.6, 1.0)
        for o in OBJECTS
    ]
    count = len(cells) * people
    each = [cells[n // people] for n in range(count)]
    columns = {
        "object_class": [c[3] for c in each],
        "occluder_type": [c[0] for c in each],
        "occluder_color": [c[1] for c in each],
        "visibility": [c[2] for c in each],
        "subject": [f"p{n % people}" for n in range(count)],
    }
    rows = make.table("Coggan2024_behavior", columns, decides="object_class")
    make.table(
        "Coggan2024_behavior_fitting",
        {"image_label": cycle(OBJECTS, 80)},
        decides="image_label",
    )
    rate = {"bars": 0.5, "mud": 0.7, "dots": 0.9}
    right = [
        make.rng.random() < rate[c[0]] * (0.8 if c[1] == "black" else 1.0) for c in each
    ]
    said = [
        c[3] if r else make.rng.choice([o for o in OBJECTS if o != c[3]])
        for c, r in zip(each, right)
    ]
    coords = {
        "stimulus_id": ("presentation", rows["stimulus_id"].values),
        "human_accuracy": ("presentation", np.array(right, int)),
    }
    make.write(
        key, BehavioralAssembly(np.array(said), dims=["presentation"], coords=coords)
    )


PARTS = {
    "Papale2025": (["monkeyF", "monkeyN"], ["V1", "V4", "IT"], "reliability", 1.0),
    "Hebart2023_fmri": (["01", "02", "03"], REGIONS, "nc_testset", 100.0),
    "Allen2022": (["subj01", "subj02", "subj05"], REGIONS, "nc_testset", 100.0),
    "Gifford2022": (["sub-01", "sub-02"], ["O"], "none", 1.0),
}


def parted(make, key):
    """Train and test images; neuroids are numbered within each subject."""
    subjects, regions, measure, scale = next(
        v for start, v in PARTS.items() if key.startswith(start)
    )
    eeg = key.startswith("Gifford")
    per = 4
    count = per * len(regions) * len(subjects)
    own = np.random.default_rng([make.seed, zlib.crc32(key.rsplit("_", 1)[0].encode())])
    reliable = np.where(np.arange(count) % per == 0, 0.2, own.uniform(0.35, 0.9, count))
    weights = np.random.default_rng([make.seed, 11]).normal(size=(HIDDEN, count))
    train = key.endswith("train")
    number, repetitions = (
        (make.some(60), 4 if eeg else 1) if train else (make.some(25), 4)
    )
    rows = make.table(
        make.listed["sets"][key],
        {"label": cycle(OBJECTS, number), "label_idx": [n % 5 for n in range(number)]},
    )
    signal = np.stack([make.hidden[id] for id in rows["stimulus_id"]]) @ weights
    values = np.repeat(signal, repetitions, axis=0)
    values = values + 1.5 * make.rng.normal(size=values.shape)
    starts, width = ([70], 100)
    if eeg:
        starts, width = np.round(np.arange(-0.02, 0.62, 0.01), 2), 0.01
    elif "Allen" in key or "Hebart" in key:
        starts, width = [0], 1
    values = values[:, :, None] + 0.5 * make.rng.normal(
        size=(*values.shape, len(starts))
    )
    coords = presented(rows, repetitions)
    coords["stimulus_label"] = (
        "presentation",
        np.repeat(rows["label"].values, repetitions),
    )
    within = count // len(subjects)
    coords |= {
        "subject": ("neuroid", np.repeat(subjects, within)),
        "neuroid_id": ("neuroid", list(range(within)) * len(subjects)),
    }
    if eeg:
        coords["channel"] = ("neuroid", [f"O{n % within}" for n in range(count)])
        coords |= {
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", np.round(starts + width, 2)),
        }
    else:
        coords |= {
            "region": ("neuroid", np.tile(np.repeat(regions, per), len(subjects))),
            measure: ("neuroid", reliable * scale),
        }
        coords |= binned(starts, width)
    make.write(
        key,
        NeuroidAssembly(
            values, dims=["presentation", "neuroid", "time_bin"], coords=coords
        ),
    )


def bracci(make, key):
    """Voxels of three regions, numbered across the regions of each subject."""
    columns = {
        "stimulus_name": [f"s{n}" for n in range(27)],
        "exemplar_number": [n % 9 for n in range(27)],
        "image_label": cycle(OBJECTS, 27),
        "image_group": [n % 3 for n in range(27)],
    }
    rows = make.table("Bracci2019", columns)
    blocks, coords = [], {"roi": [], "subject": [], "voxels": []}
    for subject in range(4):
        first = 0
        for region, count in enumerate((8, 10, 12)):
            blocks.append(make.recorded(rows["stimulus_id"], count, 1))
            coords["roi"] += [region] * count
            coords["subject"] += [subject] * count
            coords["voxels"] += list(range(first, first + count))
            first += count
    held = {name: ("neuroid", values) for name, values in coords.items()}
    held |= {
        name: ("presentation", rows[name].values) for name in ("stimulus_id", *columns)
    }
    make.write(
        key,
        NeuroidAssembly(
            np.concatenate(blocks, axis=1),
            dims=["presentation", "neuroid"],
            coords=held,
        ),
    )


TASKS = {
    "control": ("control", "control"),
    "clutter_heavy": ("clutter", "heavy"),
    "clutter_light": ("clutter", "light"),
    "occlusion_few_large_blobs_high": ("occluder", "fewlarge-high"),
    "occlusion_many_small_blobs_low": ("occluder", "manysmall-low"),
    "scrambling_highpass": ("phasescrambling", "highpass"),
    "scrambling_lowpass": ("phasescrambling", "lowpass"),
}


def maniquet(make, key):
    """Objects in several tasks; the subjects' trials have other images."""
    names = list(TASKS)
    for stimuli, count in (
        ("Maniquet2024-test", 140),
        ("Maniquet2024-train", 100),
        ("Maniquet2024", 140),
    ):
        each = [TASKS[names[n // 5 % len(names)]] for n in range(count)]
        columns = {
            "manipulation": [one[0] for one in each],
            "manipulation_details": [one[1] for one in each],
            "image_label": cycle(OBJECTS, count),
            "exemplar_number": list(range(count)),
        }
        make.table(stimuli, columns, decides="image_label")
    rows = make.rows("Maniquet2024")
    shown = make.rng.integers(0, 140, 1500)
    tasks = np.array([names[n // 5 % len(names)] for n in shown])
    truth = rows["image_label"].values[shown]
    said = np.where(
        make.rng.random(1500) < 0.4 + 0.07 * np.array([names.index(t) for t in tasks]),
        truth,
        np.array(OBJECTS)[make.rng.integers(0, 5, 1500)],
    )
    coords = {
        "stimulus_id": rows["stimulus_id"].values[shown],
        "manipulation": rows["manipulation"].values[shown],
        "manipulation_details": rows["manipulation_details"].values[shown],
        "image_label": truth,
        "prediction": said,
        "response": said,
        "subject_id": make.rng.integers(0, 6, 1500),
        "task": tasks,
    }
    coords = {name: ("presentation", values) for name, values in coords.items()}
    make.write(
        key,
        BehavioralAssembly(
            (said == truth).astype(int), dims=["presentation"], coords=coords
        ),
    )


def curves(make, key):
    """Judgements whether a curve is connected, by subjects and a readout."""
    sides = ["connected", "disconnected"]
    for stimuli, count in (("Lonnqvist2024_test", 80), ("Lonnqvist2024_train", 81)):
        columns = {
            "truth": cycle(sides, count),
            "image_label": cycle(sides, count),
            "curve_length": [n % 4 for n in range(count)],
        }
        make.table(stimuli, columns)
    rows = make.rows("Lonnqvist2024_test")
    named(make, key, rows, sides, curve_length=rows["curve_length"].values)


DISTRACTORS = {0: "1.0", 1: "1.0", 2: "5.0", 3: "5.0", 4: "11.0", 5: "11.0"}


def search(make, key):
    """An odd element among 1, 5 or 11 others, in two blocks."""
    numbers = list(range(48))
    columns = {
        "image_number": [n % 24 for n in numbers],
        "block": ["first" if n < 24 else "second" for n in numbers],
    }
    columns["sides"] = cycle(["o", "s"], 48)
    rows = make.table(key, columns, decides="sides")
    make.table(
        f"{key}_training_stimuli",
        {"image_number": numbers, "sides": cycle(["o", "s"], 48)},
        decides="sides",
    )
    correct = (make.rng.random(48 * 6) < np.tile(np.linspace(0.6, 0.95, 48), 6)).astype(
        int
    )
    coords = {name: np.tile(rows[name].values, 6) for name in ("stimulus_id", "block")}
    coords |= {"distractor_nums": np.tile([DISTRACTORS[n % 6] for n in numbers], 6)}
    coords |= {
        "participant_id": np.repeat([f"p{n}" for n in range(6)], 48),
        "correct": correct,
        "trial_type": ["normal"] * 288,
    }
    coords = {name: ("presentation", values) for name, values in coords.items()}
    make.write(key, BehavioralAssembly(correct, dims=["presentation"], coords=coords))


def nsd(make, key):
    """Units with stored reliabilities, one presentation of each image."""
    rows = make.table(make.listed["sets"][key], {"nsd_id": list(range(make.some(60)))})
    each = 18  # enough in each region that no animal has patterns of only two units
    count = each * len(REGIONS)
    values = make.recorded(rows["stimulus_id"], count, 1)[:, :, None].astype(np.float32)
    reliable = np.where(
        np.arange(count) % 6 == 5, 0.3, make.rng.uniform(0.5, 0.9, count)
    ).astype(np.float32)
    coords = {
        name: ("presentation", rows[name].values) for name in ("stimulus_id", "nsd_id")
    }
    more = {
        "animal": ["m0", "m1", "m0", "m1", "m1", "m0"] * 3 * len(REGIONS),
        "reliability": reliable[::-1],
        "reliability_window": reliable,
    }
    coords |= units(REGIONS, each, **more) | binned([70], 100)
    make.write(
        key,
        NeuronRecordingAssembly(
            values, dims=["presentation", "neuroid", "time_bin"], coords=coords
        ),
    )


def laion(make, key):
    """A file for each subject, written by xarray; images and their division are in separate files."""
    subject = key.rsplit("_", 1)[1]
    own = "persubject" in key
    if "Zerbe2026" not in make.tables:
        count = 70
        ids = [f"laion{n:04d}" for n in range(count)]
        for id in ids:
            rng = np.random.default_rng([make.seed, zlib.crc32(id.encode())])
            make.hidden[id] = rng.normal(size=HIDDEN)
            make.features[id] = make.hidden[id] @ make.mixing + 0.5 * rng.normal(
                size=FEATURES
            )
        rows = pd.DataFrame(
            {"stimulus_id": ids, "filename": [f"{id}.png" for id in ids]}
        )
        with zipfile.ZipFile(make.folder / "images_extracted.zip", "w") as archive:
            for id in ids:
                shown = BytesIO()
                pixels = np.random.default_rng(zlib.crc32(id.encode())).integers(
                    0, 255, (8, 8, 3), dtype=np.uint8
                )
                Image.fromarray(pixels).save(shown, "png")
                archive.writestr(f"{id}.png", shown.getvalue())
        rows.to_csv(make.folder / "stimuli.csv", index=False)
        division = {
            name: ["test" if (n + shift) % 4 == 0 else "train" for n in range(count)]
            for shift, name in enumerate(("tau", "ood"))
        }
        pd.DataFrame({"stimulus_id": ids, **division}).to_csv(
            make.folder / "splits.csv", index=False
        )
        make.tables["Zerbe2026"] = rows
    ids = make.tables["Zerbe2026"]["stimulus_id"].values
    if own:
        at = int(subject.removeprefix("sub-"))
        ids = np.concatenate([ids[:30], ids[30 + at * 3 : 30 + at * 3 + 15]])
    repetitions, count = 3, 3 * len(REGIONS)
    values = make.recorded(ids, count, repetitions).astype(np.float32)
    names = np.array(np.repeat(REGIONS, 3), dtype=object)
    coords = {
        "stimulus_id": ("presentation", np.repeat(ids, repetitions)),
        "repetition": ("presentation", np.tile(np.arange(repetitions), len(ids))),
        "subject_id": ("neuroid", np.full(count, subject, dtype=object)),
        "region": ("neuroid", names),
        "nc_12rep": ("neuroid", make.rng.uniform(35, 90, count).astype(np.float32)),
    }
    if not own:
        coords["subject_id_pres"] = (
            "presentation",
            np.full(len(values), subject, dtype=object),
        )
    else:
        coords |= {
            "session": (
                "presentation",
                np.array(["ses-01"] * len(values), dtype=object),
            ),
            "run": ("presentation", np.arange(len(values)) % 7),
            "beta_index": ("presentation", np.arange(len(values))),
        }
    data = xr.DataArray(
        values, dims=("presentation", "neuroid"), name="data", coords=coords
    )
    name = make.listed["assemblies"][key]
    data.to_netcdf(make.folder / name)
    make.written.append(name)


def images(make, key):
    """Images of classes, without subjects."""
    count = 60
    columns = {"synset": cycle(SYNSETS, count)}
    if key.startswith("imagenet_c"):
        kinds = {
            "noise": ["gaussian_noise", "shot_noise", "impulse_noise"],
            "blur": ["glass_blur", "motion_blur", "zoom_blur", "defocus_blur"],
            "weather": ["snow", "frost", "fog", "brightness"],
            "digital": [
                "pixelate",
                "contrast",
                "elastic_transform",
                "jpeg_compression",
            ],
        }[key.split(".")[1]]
        count = 5 * len(kinds) * 4
        columns = {
            "synset": cycle(SYNSETS, count),
            "noise_type": [kinds[n // 4 % len(kinds)] for n in range(count)],
            "noise_level": [n // (4 * len(kinds)) + 1 for n in range(count)],
        }
    make.table(key, columns, said=make.wrong(columns["synset"], SYNSETS))


def islam(make, key):
    """Two pictures of each of twenty shapes, in five textures."""
    columns = {
        "texture": [f"t{n % 5}" for n in range(200)],
        "shape": [f"s{n // 10}" for n in range(200)],
        "original_image_id": [f"o{n // 5}" for n in range(200)],
    }
    make.table(key, columns, decides="shape")


DRAWN = {
    "Silhouette": ["original", "convex_hull", "outline", "skeleton", "silhouette"],
    "Art": ["cartoon", "line_drawing", "mosaic", "painting", "sketch"],
}


# The styles that their selection names beside these are of other sources.
PLAIN = [
    ("COCOColor", "nan"),
    ("COCOGray", "nan"),
    ("TDW", "nan"),
    ("Plain", "grayscale"),
    ("Plain", "textures"),
]


def domains(make, key):
    """Objects in many styles on numbered backgrounds (0: none); two animals, one of which saw half of the repetitions.

    Names are in order: their filter takes reliabilities of sorted neuroids for those of the neuroids as they are.
    """
    shown = [
        (source, style, n, 1 + n)
        for source, styles in DRAWN.items()
        for style in styles
        for n in range(60)
    ]
    shown += [(source, style, n, 0) for source, style in PLAIN for n in range(40)]
    columns = {
        "object_label": [OBJECTS[n % 5] for _, _, n, _ in shown],
        "object_style": [style for _, style, _, _ in shown],
        "stimulus_source": [source for source, *_ in shown],
        "background_id": [
            back if source == "Silhouette" else 0 for source, _, _, back in shown
        ],
    }
    rows = make.table(key, columns, decides="object_label")
    repetitions, neuroids = 4, 12
    values = make.recorded(rows["stimulus_id"], neuroids, repetitions, 0.7)
    values[:, [2, 9]] = make.rng.normal(
        size=(len(values), 2)
    )  # two that answer nothing
    values = np.stack(
        [values + 0.2 * make.rng.normal(size=values.shape) for _ in range(2)], axis=-1
    )
    values[2::repetitions, neuroids // 2 :] = np.nan
    values[3::repetitions, neuroids // 2 :] = np.nan
    values[7 : 7 + 3 * repetitions : repetitions] = np.nan
    animals = np.repeat(["Oleo", "Pico"], neuroids // 2)
    coords = presented(rows, repetitions, *columns) | {
        "neuroid_id": (
            "neuroid",
            [f"{animal}_{n:02d}" for n, animal in enumerate(animals)],
        ),
        "region": ("neuroid", ["IT"] * neuroids),
        "animal": ("neuroid", animals),
    }
    coords |= binned([70, 170], 100) | {"time_bin_id": ("time_bin", [0, 1])}
    assembly = NeuronRecordingAssembly(
        values, dims=["presentation", "neuroid", "time_bin"], coords=coords
    )
    make.write(key, assembly, stimulus_set_identifier=key)


# The beginning of a data set's key, and the rule of its layout; the first that fits.
LAYOUTS = {
    "MajajHong2015": majajhong, "FreemanZiemba2013.p": freeman, "Cadena2017": cadena, "Sanghavi": sanghavi,
    "Rajalingham2020": sanghavi, "Kar2019": solution_times, "Rajalingham2018": discrimination, "Geirhos2021": geirhos,
    "BMD2024": labelled, "Scialom2024": labelled, "Hebart2023_fmri": parted, "Hebart2023": triplets, "Baker2022": baker,
    "Malania2007": thresholds, "Coggan2024_fMRI": coggan_fmri, "Coggan2024_behavior": coggan_behaviour,
    "Papale2025": parted, "Allen2022": parted, "Gifford2022": parted, "Bracci2019": bracci, "Maniquet2024": maniquet,
    "Lonnqvist2024": curves, "Ferguson2024": search, "Li2026": nsd, "Zerbe2026": laion, "imagenet_c": images,
    "BarbuMayo2019": images, "Islam2021": islam, "Igustibagus2024": domains, **dict.fromkeys(MEASURED, properties),
}  # fmt: skip
