"""Every example of docs/preparation.md is run: each step, and each spec on simulated files in the layout it is about."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml
from PIL import Image
from pydantic import TypeAdapter

from neuroledger.data.gate.validate import validate
from neuroledger.data.package import expectations_text
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Session
from neuroledger.families.alignment.preparation import Step, prepared
from neuroledger.families.alignment.readers.brainio import brainio
from neuroledger.spec.registry import get
from tests.engine.lab import Lab, build

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "preparation.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
STEPS = re.findall(r"`(\{step: .*?\})`(?= [|·])", TEXT)
SPECS = {
    (spec := yaml.safe_load(block))["id"]: (kind, spec)
    for kind, block in re.findall(
        r"```yaml\n# yaml-language-server: \$schema=\.\./schema/(\w+)\.json\n(.*?)```",
        TEXT,
        re.S,
    )
}
BENCHMARKS = [id for id, (kind, _) in SPECS.items() if kind == "benchmark"]


def wide() -> xr.DataArray:
    """Whatever a step asks for: two decoders, several bins, voxels of two subjects, repetitions and a missing value."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=(12, 1, 1, 1))
    values = np.repeat(signal, 4, axis=0) + 0.2 * rng.normal(size=(48, 6, 8, 2))
    values[1::2, 5] *= -1  # odd repetitions contradict the even ones
    values[3, 1, 2, 0] = np.nan
    coords = {
        "stimulus_id": ("presentation", np.repeat([f"s{n}" for n in range(12)], 4)),
        "repetition": ("presentation", np.tile(np.arange(4), 12)),
        "trial": ("presentation", np.arange(48)),
        "session": ("presentation", np.arange(48) % 2),
        "subject": ("neuroid", list("aaabbb")),
        "number": ("neuroid", [0, 1, 2] * 2),
        "voxel": ("neuroid", [0, 0, 1, 2, 2, 3]),
        "neuroid_id": ("neuroid", [f"n{n}" for n in range(6)]),
        "decoder": ("decoder", ["svm", "logistic"]),
        "time_bin_start": ("time_bin", np.arange(0, 320, 40)),
        "time_bin_end": ("time_bin", np.arange(40, 360, 40)),
    }
    return xr.DataArray(
        values, dims=("presentation", "neuroid", "time_bin", "decoder"), coords=coords
    )


@pytest.mark.parametrize("text", STEPS)
def test_every_step_that_is_shown_changes_an_assembly(text: str) -> None:
    step = yaml.safe_load(text)
    assembly = wide() if "decoder" in text else wide().isel(decoder=0, drop=True)
    if "neuronal_property" in text:
        assembly = assembly.isel(
            time_bin=0, presentation=slice(3, 9), drop=True
        ).rename(presentation="neuronal_property")
        assembly = assembly.drop_vars(
            [name for name in assembly.coords if assembly[name].dims != ("neuroid",)]
        )
        assembly = assembly.assign_coords(neuronal_property=list("pqrstu"))
    if step["step"] == "varying":
        assembly = assembly.where(assembly["number"] > 0, 1.0)
    if step["step"] in {"responsive", "reliable"}:
        level = 30.0 - 15.0 * (
            assembly["neuroid_id"] == "n5"
        )  # half as responsive as the others
        assembly = assembly.fillna(0.0) + level * (step["step"] == "responsive")
    if step["step"] == "align":
        assembly = assembly.isel(time_bin=0, drop=True).fillna(0.0)
    if step["step"] == "distinct":
        assembly = assembly.drop_vars("repetition")
    after = prepared(assembly, TypeAdapter(list[Step]).validate_python([step]))
    assert not after.identical(assembly) and 0 not in after.shape


def test_every_kind_of_step_is_shown() -> None:
    kinds = {
        branch["properties"]["step"]["const"]
        for branch in TypeAdapter(Step).json_schema()["$defs"].values()
    }
    assert {yaml.safe_load(text)["step"] for text in STEPS} == kinds


def images(
    folder: Path, name: str, table: pd.DataFrame, shade: np.ndarray[Any, Any]
) -> dict[str, str]:
    """``stimulus_<name>.csv`` and its zip: each image is as bright as ``shade`` says, with its own noise."""
    folder.mkdir(parents=True, exist_ok=True)
    table.assign(filename=[f"{id}.png" for id in table["stimulus_id"]]).to_csv(
        folder / f"stimulus_{name}.csv", index=False
    )
    with zipfile.ZipFile(folder / f"stimulus_{name}.zip", "w") as archive:
        for at, (id, bright) in enumerate(
            zip(table["stimulus_id"], shade, strict=True)
        ):
            noise = np.random.default_rng([at, len(name)]).integers(0, 40, (8, 8))
            held = io.BytesIO()
            Image.fromarray((np.clip(bright, 0, 200) + noise).astype(np.uint8)).save(
                held, "PNG"
            )
            archive.writestr(f"{id}.png", held.getvalue())
    return {"stimuli": f"stimulus_{name}.csv", "archive": f"stimulus_{name}.zip"}


def written(folder: Path, name: str, assembly: xr.DataArray) -> str:
    assembly.rename("data").to_netcdf(folder / f"assy_{name}.nc")
    return f"assy_{name}.nc"


def by_trial(answers: np.ndarray[Any, Any], coords: dict[str, Any]) -> xr.DataArray:
    """Answers of people; texts as netCDF holds them."""

    def plain(values: Any) -> np.ndarray[Any, Any]:
        held = np.asarray(values)
        return held.astype(object) if held.dtype.kind == "U" else held

    named = {name: ("presentation", plain(values)) for name, values in coords.items()}
    return xr.DataArray(plain(answers), dims="presentation", coords=named)


def numbered(name: str, count: int, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {"stimulus_id": [f"{name}{n}" for n in range(count)], **columns}
    )


def responses(
    ids: list[str], shade: np.ndarray[Any, Any], repetitions: int, **coords: Any
) -> xr.DataArray:
    """Eight neuroids of two subjects that answer to brightness, in bins of 50 ms."""
    rng = np.random.default_rng(len(ids))
    signal = (shade - shade.mean())[:, None, None] / shade.std() * np.ones((1, 8, 5))
    values = np.repeat(signal, repetitions, axis=0) + 0.7 * rng.normal(
        size=(len(ids) * repetitions, 8, 5)
    )
    known = {
        "stimulus_id": ("presentation", np.repeat(ids, repetitions)),
        "subject": ("neuroid", ["a"] * 4 + ["b"] * 4),
        "region": ("neuroid", ["IT"] * 8),
        "time_bin_start": ("time_bin", np.arange(0, 250, 50)),
        "time_bin_end": ("time_bin", np.arange(50, 300, 50)),
    }
    return xr.DataArray(
        values, dims=("presentation", "neuroid", "time_bin"), coords=known | coords
    )


def traintest(folder: Path) -> dict[str, Any]:
    """The files that the document's own spec names."""
    for name, count in (("train", 40), ("test", 24)):
        shade = np.random.default_rng(count).uniform(0, 200, count)
        table = numbered(name, count)
        images(folder, name, table, shade)
        held = responses(list(table["stimulus_id"]), shade, 4)
        held = held.isel(time_bin=[0]).assign_coords(
            repetition=("presentation", np.tile(np.arange(4), count)),
            neuroid_id=("neuroid", [0, 1, 2, 3] * 2),
            reliability=("neuroid", [0.9, 0.8, 0.2, 0.7] * 2),
        )
        written(folder, name, held)
    reader: dict[str, Any] = SPECS["Example.traintest"][1]["reader"]
    return reader


def window(folder: Path) -> dict[str, Any]:
    count = 60
    shade = np.random.default_rng(1).uniform(0, 200, count)
    table = numbered(
        "im", count, background_id=[0 if n % 3 else n % 15 for n in range(count)]
    )
    held = responses(list(table["stimulus_id"]), shade, 3).assign_coords(
        repetition_id=("presentation", np.tile(np.arange(3), count)),
        neuroid_id=("neuroid", [f"n{n}" for n in range(8)]),
        region=("neuroid", ["V4"] * 8),
        nc_12rep=("neuroid", np.linspace(64, 81, 8)),
    )
    held.values[5, 3, 2] = np.nan
    return {"name": "brainio", "assembly": written(folder, "recorded", held)} | images(
        folder, "recorded", table, shade
    )


def search(folder: Path) -> dict[str, Any]:
    count = 48
    odd = np.arange(count) % 2
    levels = {
        "distractor_nums": np.array([1, 5, 11])[np.arange(count) // 2 % 3],
        "block": np.array(["first", "second"])[np.arange(count) // 24],
    }
    table = numbered("shown", count, image_number=np.arange(count), **levels)
    sets = {
        "training": images(
            folder,
            "training",
            numbered("fit", 40, image_number=np.arange(40)),
            60.0 + 80 * (np.arange(40) % 2),
        )
    }
    own = images(folder, "search", table, 90.0 + 25 * odd)
    rng = np.random.default_rng(2)
    rows = np.repeat(np.arange(count), 6)
    coords = {
        "stimulus_id": table["stimulus_id"].to_numpy()[rows],
        "subject": np.tile([f"p{n}" for n in range(6)], count),
        **{name: values[rows] for name, values in levels.items()},
    }
    right = (rng.random(len(rows)) < 0.6 + 0.3 * (rows // 24)).astype(int)
    people = by_trial(right, coords)
    return {
        "name": "brainio",
        "assembly": written(folder, "search", people),
        "fitting_stimuli": sets,
    } | own


def flankers(folder: Path) -> dict[str, Any]:
    """Verniers to the left or right, easier with their offset; thresholds of people with and without flankers."""

    def verniers(name: str, count: int, ease: float) -> dict[str, str]:
        sides = np.arange(count) % 2
        offset = 10.0 * (1 + np.arange(count) // 2 % 10)
        table = numbered(
            name, count, image_label=np.array(["l", "r"])[sides], offset_arcsec=offset
        )
        rng = np.random.default_rng(count)
        return images(
            folder,
            name,
            table,
            100 + ease * offset * (sides - 0.5) + 12 * rng.normal(size=count),
        )

    parts = {}
    for name, values in (
        ("alone", [300.0, 280, 320, 310]),
        ("few", [450.0, np.nan, 440, 470]),
    ):
        subjects = {"subject_": ("subject", np.asarray(list("wxyz"), dtype=object))}
        parts[name] = {
            "assembly": written(
                folder, name, xr.DataArray(values, dims="subject", coords=subjects)
            )
        }
    sets = {name: verniers(name, 160, 1.2) for name in ("fit_alone", "fit_few")} | {
        "alone": verniers("alone", 200, 1.2)
    }
    own = verniers("few", 200, 0.8)
    return {
        "name": "brainio",
        "parts": parts,
        "part": "condition",
        "along": "subject",
        "fitting_stimuli": sets,
    } | own


def clutter(folder: Path) -> dict[str, Any]:
    def objects(name: str, count: int, gap: float) -> dict[str, str]:
        sides = np.arange(count) % 2
        kinds = np.arange(count) // 2 % 3
        noise = (
            30
            * np.random.default_rng(3).normal(size=count)
            * np.array([0.2, 1.5, 3.0])[kinds]
        )
        columns = {
            "manipulation": np.array(["none", "clutter", "phases"])[kinds],
            "details": np.array(["none", "heavy", "none"])[kinds],
        }
        table = numbered(
            name, count, image_label=np.array(["car", "dog"])[sides], **columns
        )
        return images(folder, name, table, 100 + gap * (sides - 0.5) + noise)

    tasks = np.repeat(["plain", "clutter_heavy", "scrambled"], 60)
    rng = np.random.default_rng(4)
    right = rng.random(180) < np.repeat([0.95, 0.8, 0.6], 60)
    truth = np.tile(["car", "dog"], 90)
    coords = {
        "stimulus_id": [f"human{n}" for n in range(180)],
        "subject": np.tile(["p", "q", "r"], 60),
        "task": tasks,
        "truth": truth,
    }
    said = np.where(right, truth, np.where(truth == "car", "dog", "car"))
    people = by_trial(said, coords)
    sets = {"train": objects("train", 60, 90), "test": objects("test", 120, 60)}
    shown = images(folder, "human", numbered("human", 180), np.full(180, 100.0))
    return {
        "name": "brainio",
        "assembly": written(folder, "clutter", people),
        "merge": False,
        "fitting_stimuli": sets,
    } | shown


def shapes(folder: Path) -> dict[str, Any]:
    n = np.arange(60)
    columns = {
        "texture": [f"t{k % 5}" for k in n],
        "shape": [f"s{k // 10}" for k in n],
        "original_image_id": [f"o{k // 5}" for k in n],
    }
    return {"name": "brainio"} | images(
        folder, "shapes", numbered("im", 60, **columns), 20.0 * (n // 10) + 9 * (n % 5)
    )


def styles(folder: Path) -> dict[str, Any]:
    """Three objects in three styles; the outlines are of the photographs' backgrounds."""
    n = np.arange(240)
    kind, style = n % 3, n // 80
    columns = {
        "object_name": np.array(["car", "cat", "dog"])[kind],
        "style": np.array(["photo", "sketch", "outline"])[style],
        "background_id": n % 80,
    }
    shade = 40.0 + 50 * kind + 12 * np.random.default_rng(6).normal(size=n.size)
    return {"name": "brainio"} | images(
        folder, "styles", numbered("im", n.size, **columns), shade
    )


FILES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "Example.traintest": traintest,
    "Example.recorded": window,
    "Example.search": search,
    "Example.flankers": flankers,
    "Example.clutter": clutter,
    "Example.shapes": shapes,
    "Example.styles": styles,
}


@pytest.mark.parametrize("id", BENCHMARKS)
def test_every_benchmark_that_is_shown_is_scored(
    id: str, tmp_path: Path, repository: Path
) -> None:
    lab: Lab = build(tmp_path / "lab", repository)
    spec = SPECS[id][1]
    folder = lab.root / "data" / spec["dataset"]
    folder.mkdir(parents=True)
    reader = FILES[spec["dataset"]](folder)
    pins = {
        path.name: {
            "url": f"https://example.org/{path.name}",
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.iterdir())
    }
    parameters = {name: value for name, value in reader.items() if name != "name"}
    data = brainio(
        {name: folder / name for name in pins},
        **get("reader", "brainio").bind(parameters),
    )
    known = yaml.safe_load(expectations_text(data))
    lab.spec(
        "datasets",
        spec["dataset"],
        license="CC0-1.0",
        simulated=True,
        files=pins,
        reader=reader,
        **known,
    )
    lab.spec("benchmarks", **spec)
    report = validate(lab.open(), spec["dataset"])
    assert report.success, report
    session = Session(lab.open())
    found = evaluate(
        session, session.catalog.benchmark(id), "pixels4", controls=False
    ).headline
    assert np.isfinite(found.value) and found.value > 0, (
        "brightness is what the simulated brains and people answer to"
    )
    assert (found.ceiling is not None) == ("ceiling" in spec)
    if "each" in spec:
        assert found.n[spec["each"]] == 2


def test_the_data_set_that_is_shown_has_the_files_of_its_example(
    tmp_path: Path,
) -> None:
    kind, spec = SPECS["Example.traintest"]
    traintest(tmp_path)
    assert kind == "dataset" and set(spec["files"]) == {
        path.name for path in tmp_path.iterdir()
    }
