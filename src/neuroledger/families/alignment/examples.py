"""Small inputs of metrics and ceilings of alignment for contract checks, where responses of two subjects do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.assembly import average_repetitions
from neuroledger.spec.registry import Example

__all__ = [
    "of_continuous",
    "of_distributions",
    "of_domains",
    "of_mapped_properties",
    "of_numbers",
    "of_pairs",
    "of_properties",
    "of_readouts",
    "of_several_subjects",
    "of_voxels",
    "over_time",
    "repeated_over_time",
    "repeated_runs",
    "trials_over_time",
    "with_reliabilities",
]

Given = Mapping[str, Any]


def _recordings(rng: np.random.Generator) -> tuple[xr.DataArray, xr.DataArray]:
    # The components of this family are imported by every command, the checks by few.
    from neuroledger.testing.inputs import recordings

    return recordings(rng)


def of_readouts(rng: np.random.Generator, given: Given) -> Example:
    """Features and mean responses: over time, or of a layer whose units lie on a grid, if the spec asks for these."""
    source, repeated = _recordings(rng)
    target = average_repetitions(repeated)
    if given.get("estimator", {}).get("name") == "mask":
        units = np.arange(source.sizes["neuroid"])
        places = {
            "channel": units % 3,
            "channel_x": units // 3 % 2,
            "channel_y": units // 6,
        }
        source = source.assign_coords({n: ("neuroid", v) for n, v in places.items()})
        few = {"name": "mask", "epochs": 2, "decay": 1, "batch": 20}
        return Example((source, target), {"estimator": few, "splits": {"folds": 2}})
    if given.get("time", "none") != "none":
        return Example((_over_time(source, rng), _over_time(target, rng)))
    return Example((source, target))


def _over_time(assembly: xr.DataArray, rng: np.random.Generator) -> xr.DataArray:
    bins = {
        "time_bin_start": ("time_bin", [70.0, 90.0]),
        "time_bin_end": ("time_bin", [90.0, 110.0]),
    }
    late = assembly + 0.3 * rng.standard_normal(assembly.shape)
    timed = xr.concat([assembly, late], "time_bin").assign_coords(bins)
    return timed.transpose("presentation", "neuroid", "time_bin")


def of_continuous(rng: np.random.Generator, _: Given) -> Example:
    """Features of two feature spaces during two runs, and responses that follow them by a bin."""
    runs, units, bins = 2, 4, 120
    features = rng.standard_normal((runs, units, bins))
    responses = np.roll(features, 1, axis=2)[:, :3] + rng.standard_normal(
        (runs, 3, bins)
    )
    edges = 100.0 * np.arange(bins + 1)
    shared = {
        "stimulus_id": ("presentation", ["film1", "film2"]),
        "time_bin_start": ("time_bin", edges[:-1]),
        "time_bin_end": ("time_bin", edges[1:]),
    }
    dims = ("presentation", "neuroid", "time_bin")
    spaces = {"feature_space": ("neuroid", ["sound", "sound", "words", "words"])}
    source = xr.DataArray(features, dims=dims, coords=shared | spaces)
    names = {"neuroid_id": ("neuroid", ["voxel1", "voxel2", "voxel3"])}
    target = xr.DataArray(responses, dims=dims, coords=shared | names)
    few = {"candidates": 3, "alphas": (0.1, 1.0, 10.0), "folds": 2}
    return Example((source, target), {"delays": (0, 1), "search": few})


def of_voxels(rng: np.random.Generator, _: Given) -> Example:
    """Features, and mean responses of voxels on a line."""
    source, repeated = _recordings(rng)
    target = average_repetitions(repeated)
    place = np.arange(target.sizes["neuroid"], dtype=np.float64)
    lights = {"coordinates": ("x",), "neighbours": 5}
    return Example(
        (source, target.assign_coords(x=("neuroid", place))), {"lights": lights}
    )


def of_distributions(rng: np.random.Generator, given: Given) -> Example:
    """Features and mean responses to stimuli of two distributions."""
    source, repeated = _recordings(rng)
    target = average_repetitions(repeated)
    place = np.arange(target.sizes["presentation"]) % 2
    labels = np.array([str(given["fitted"][0]), "another"])[place]
    return Example(
        (source, target.assign_coords({given["by"]: ("presentation", labels)}))
    )


def over_time(rng: np.random.Generator, _: Given) -> Example:
    """Features and mean responses in two time bins."""
    source, repeated = _recordings(rng)
    target = average_repetitions(repeated)
    return Example((_over_time(source, rng), _over_time(target, rng)))


def repeated_over_time(rng: np.random.Generator, _: Given) -> Example:
    """Repeated responses in two time bins."""
    return Example((_over_time(_recordings(rng)[1], rng),))


def trials_over_time(rng: np.random.Generator, _: Given) -> Example:
    """Features and repeated responses in two time bins."""
    source, repeated = _recordings(rng)
    return Example((_over_time(source, rng), _over_time(repeated, rng)))


def repeated_runs(rng: np.random.Generator, given: Given) -> Example:
    """Responses to two runs, each shown four times."""
    _, target = of_continuous(rng, given).inputs
    noisy = [
        (target + rng.standard_normal(target.shape)).assign_coords(
            repetition=("presentation", [number] * 2)
        )
        for number in range(4)
    ]
    return Example((xr.concat(noisy, "presentation"),))


def of_domains(rng: np.random.Generator, given: Given) -> Example:
    """Responses to objects in three styles, and their labels."""
    styles = (given["fitted"], "sketch", "outline")
    stimuli = 30
    style = np.repeat(np.arange(3), stimuli)
    label = np.tile(np.arange(stimuli) % 3, 3)
    codes = rng.standard_normal((3, 8))[label]
    ids = [f"{styles[s]}{i:03d}" for i, s in enumerate(style)]
    source = xr.DataArray(
        codes + rng.standard_normal(codes.shape),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids),
            "neuroid_id": ("neuroid", [f"unit{i}" for i in range(8)]),
        },
    )
    target = xr.DataArray(
        np.array(["cat", "dog", "owl"])[label],
        dims="presentation",
        coords={
            "stimulus_id": ("presentation", ids),
            "domain": ("presentation", np.array(styles)[style]),
        },
    )
    return Example((source, target), {"tested": 9, "divisions": 3})


def of_pairs(rng: np.random.Generator, given: Given) -> Example:
    """Responses to the two stimuli of pairs that share a shape or a texture."""
    pairs, units = 40, 20
    factor = np.arange(pairs) % 2
    shared = rng.standard_normal((pairs, units))
    sides = [
        xr.DataArray(
            shared * np.where(factor == 0, 1.0, 0.3)[:, None]
            + rng.standard_normal((pairs, units)),
            dims=("presentation", "neuroid"),
            coords={
                given["by"]: ("presentation", np.array(["shape", "texture"])[factor])
            },
        )
        for _ in range(2)
    ]
    return Example(tuple(sides), {"factor": "shape"})


def of_properties(rng: np.random.Generator, _: Given) -> Example:
    """A property of 40 units of a model and of 25 neurons."""
    return Example(
        (_property(rng, 40, 0.6), _property(rng, 25, 0.4)),
        {
            "property_name": "selectivity",
            "bins": (0.0, 0.25, 0.5, 0.75, 1.0),
            "draws": 50,
        },
    )


def of_mapped_properties(rng: np.random.Generator, given: Given) -> Example:
    """The neurons of :func:`of_properties`."""
    example = of_properties(rng, given)
    return Example(example.inputs[1:], example.parameters)


def _property(rng: np.random.Generator, count: int, mean: float) -> xr.DataArray:
    values = np.clip(mean + 0.2 * rng.standard_normal((count, 1)), 0, 1)
    return xr.DataArray(
        values,
        dims=("neuroid", "property"),
        coords={
            "neuroid_id": ("neuroid", [f"n{i:02d}" for i in range(count)]),
            "property": ["selectivity"],
        },
    )


def of_numbers(rng: np.random.Generator, _: Given) -> Example:
    """Two single numbers."""
    first, second = rng.random(2)
    return Example((xr.DataArray(first), xr.DataArray(second)))


def of_several_subjects(rng: np.random.Generator, _: Given) -> Example:
    """Repeated responses of four subjects."""
    repeated = _recordings(rng)[1]
    subjects = [f"subject{i % 4}" for i in range(repeated.sizes["neuroid"])]
    assembly = repeated.assign_coords(subject=("neuroid", subjects))
    return Example((assembly,), {"bootstraps": 5, "splits": {"folds": 2}})


def with_reliabilities(rng: np.random.Generator, given: Given) -> Example:
    """Responses of neuroids whose reliabilities are known."""
    repeated = _recordings(rng)[1]
    known = rng.uniform(0.5, 0.9, repeated.sizes["neuroid"])
    return Example((repeated.assign_coords({given["coordinate"]: ("neuroid", known)}),))
