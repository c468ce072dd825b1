"""Declared steps convert layouts of other projects to this project's assemblies, with the numbers of plain NumPy."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image
from pydantic import TypeAdapter

import neuroledger as nl
from neuroledger.data.assembly import average_repetitions, check
from neuroledger.data.dataset import Dataset
from neuroledger.data.gate.validate import validate
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Session
from neuroledger.errors import AssemblyError, DataError, RequestError
from neuroledger.families.alignment.preparation import Step, prepared
from neuroledger.families.alignment.session_effects import session_effects
from neuroledger.spec.registry import get
from neuroledger.stats.score import Score, clipped, mean_of, normalise
from tests.engine.lab import build

STEPS = TypeAdapter(list[Step])
NAMES = ["monkeyF", "monkeyN"]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def after(assembly: xr.DataArray, *steps: dict[str, Any]) -> xr.DataArray:
    return prepared(assembly, STEPS.validate_python(list(steps)))


def recorded(
    rng: np.random.Generator, ids: list[str], repetitions: int = 4, bins: int = 1
) -> xr.DataArray:
    rows = len(ids) * repetitions
    return xr.DataArray(
        np.repeat(rng.normal(size=(len(ids), 6, bins)), repetitions, axis=0)
        + rng.normal(size=(rows, 6, bins)),
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", np.repeat(ids, repetitions)),
            "repetition": ("presentation", np.tile(np.arange(repetitions), len(ids))),
            "neuroid_id": ("neuroid", [0, 1, 2] * 2),
            "subject": ("neuroid", np.repeat(NAMES, 3)),
            "time_bin_start": ("time_bin", np.arange(bins) * 10),
            "time_bin_end": ("time_bin", np.arange(bins) * 10 + 10),
        },
    )


def files_of(
    folder: Path, name: str, assembly: xr.DataArray | None, ids: list[str]
) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    if assembly is not None:
        assembly.rename("data").to_netcdf(folder / f"assy_{name}.nc")
    pd.DataFrame({"stimulus_id": ids, "filename": [f"{id}.png" for id in ids]}).to_csv(
        folder / f"stimulus_{name}.csv", index=False
    )
    with zipfile.ZipFile(folder / f"stimulus_{name}.zip", "w") as archive:
        for at, id in enumerate(ids):
            buffer = io.BytesIO()
            pixels = np.random.default_rng(at).integers(0, 256, (4, 4), dtype=np.uint8)
            Image.fromarray(pixels).save(buffer, "PNG")
            archive.writestr(f"{id}.png", buffer.getvalue())
    return {
        "assembly": f"assy_{name}.nc",
        "stimuli": f"stimulus_{name}.csv",
        "archive": f"stimulus_{name}.zip",
    }


def read(folder: Path, **parameters: Any) -> Dataset:
    component = get("reader", "brainio")
    data: Dataset = component.function(
        {path.name: path for path in folder.iterdir()}, **component.bind(parameters)
    )
    return data


def test_numbers_that_repeat_for_each_subject_become_ids(
    rng: np.random.Generator,
) -> None:
    assembly = recorded(rng, ["a", "b"])
    with pytest.raises(AssemblyError, match="neuroid_id is not unique"):
        check(assembly)
    labelled = after(
        assembly,
        {
            "step": "label",
            "dim": "neuroid",
            "coord": "neuroid_id",
            "of": ["subject", "neuroid_id"],
        },
    )
    assert labelled["neuroid_id"].values[3] == "monkeyN.0"
    check(labelled)


def test_windows_bins_and_groups_are_averaged_as_numpy_does(
    rng: np.random.Generator,
) -> None:
    assembly = recorded(rng, ["a", "b", "c"], bins=8)
    window = after(assembly, {"step": "mean", "window": [20, 50]})
    np.testing.assert_allclose(
        window.values[..., 0], assembly.values[..., 2:5].mean(-1)
    )
    assert (window["time_bin_start"].item(), window["time_bin_end"].item()) == (20, 50)
    flat = after(assembly, {"step": "flatten"})
    np.testing.assert_array_equal(flat.values[:, 11, 0], assembly.values[:, 1, 3])
    assert flat.sizes["neuroid"] == 48 and flat["recording_time"].values[11] == 30
    voxels = after(assembly, {"step": "mean", "over": "neuroid", "by": "neuroid_id"})
    np.testing.assert_allclose(voxels.values[:, 2], assembly.values[:, [2, 5]].mean(1))
    centred = after(assembly, {"step": "centre", "by": "subject"})
    np.testing.assert_allclose(centred.values.mean(0), 0, atol=1e-12)
    both = after(
        assembly,
        {"step": "centre", "over": ["presentation", "neuroid"], "by": "subject"},
    ).values
    np.testing.assert_allclose(both[:, :3].mean((0, 1)), 0, atol=1e-12)
    assert abs(both[:, 0].mean()) > 1e-3
    scaled = after(assembly, {"step": "standardise"}).values
    np.testing.assert_allclose(scaled.std(0), 1)


def test_responses_are_standardised_within_each_session(
    rng: np.random.Generator,
) -> None:
    assembly = recorded(rng, [f"s{i}" for i in range(10)], 4)
    session = np.arange(assembly.sizes["presentation"]) % 3
    assembly = assembly.assign_coords(session=("presentation", session))
    values = np.asarray(assembly.values)
    values[session == 1, 0] = np.nan  # this neuroid was not recorded in session 1
    values[2, 3] = np.nan
    scaled = after(assembly, {"step": "standardise", "by": "session"}).values
    for number in range(3):
        rows = session == number
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            expected = (values[rows] - np.nanmean(values[rows], axis=0)) / np.nanstd(
                values[rows], axis=0
            )
        np.testing.assert_allclose(scaled[rows], expected, atol=1e-9)
    assert np.isnan(scaled[session == 1, 0]).all() and np.isnan(scaled[2, 3])
    values[session == 2, 4] = 7.0
    with pytest.raises(
        AssemblyError,
        match="do not vary within session 2, which has 13 items of 'presentation'",
    ):
        after(assembly, {"step": "standardise", "by": "session"})
    with pytest.raises(
        AssemblyError, match="belongs to 'neuroid', not to 'presentation'"
    ):
        after(assembly, {"step": "standardise", "by": "neuroid_id"})


def test_effects_of_sessions_are_removed_and_found() -> None:
    """The simulation of three presentations, signal and noise of variance 1: the reliability of the mean is .75."""
    rng = np.random.default_rng(0)
    stimuli, neuroids, sessions = 200, 20, 6
    signal = rng.normal(size=(stimuli, neuroids))
    order = np.concatenate([rng.permutation(stimuli) for _ in range(3)])
    session = np.repeat(np.arange(sessions), len(order) // sessions)
    plain = signal[order] + rng.normal(size=(len(order), neuroids))
    gains, offsets = np.exp(rng.normal(size=(2, sessions, neuroids)))
    assembly = xr.DataArray(
        plain,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", [f"im{n}" for n in order]),
            "repetition": ("presentation", np.repeat(np.arange(3), stimuli)),
            "session": ("presentation", session),
            "neuroid_id": ("neuroid", [f"v{n}" for n in range(neuroids)]),
        },
    )
    mixed = assembly.copy(data=plain * gains[session] + 3 * offsets[session])
    standardised = after(mixed, {"step": "standardise", "by": "session"})
    for ceiling in ("internal_consistency", "signal_reliability"):
        raw, removed, without = (
            nl.ceiling(ceiling)(each).value for each in (mixed, standardised, assembly)
        )
        assert (
            raw < 0.6 and abs(removed - 0.75) < 0.02 and abs(removed - without) < 0.01
        )
    effects = session_effects(mixed)
    assert (
        effects is not None
        and (effects.sessions, effects.neuroids, effects.spreads) == (6, 20, 20)
        and effects.means > 15
    )
    none = session_effects(assembly)
    assert none is not None and not none.differ
    assert (
        session_effects(standardised) is not None
        and not session_effects(standardised).differ
    )  # type: ignore[union-attr]
    apart = assembly.isel(presentation=slice(0, stimuli))
    assert session_effects(apart) is None, "every stimulus was shown in one session"


def test_neuroids_are_selected_by_their_responses(rng: np.random.Generator) -> None:
    assembly = recorded(rng, [f"s{i}" for i in range(40)], 8)
    assembly.values[:, 4] = 3.0
    assert after(assembly, {"step": "varying"})["neuroid_id"].values.tolist() == [
        0,
        1,
        2,
        0,
        2,
    ]
    assembly.values[:, 4] += 50 + rng.normal(size=(320, 1))
    assert after(assembly, {"step": "responsive", "deviations": 2})[
        "neuroid_id"
    ].values.tolist() == [1]
    kept = after(assembly, {"step": "reliable", "above": 0.6})
    assert kept.sizes["neuroid"] == 5, "a neuroid of noise has no reliability"
    halves = [
        assembly.isel(presentation=assembly["repetition"].values % 2 == at, time_bin=0)
        for at in (0, 1)
    ]
    a, b = (average_repetitions(half.drop_vars("repetition")).values for half in halves)
    r = np.array([np.corrcoef(a[:, n], b[:, n])[0, 1] for n in range(6)])
    assert (
        after(
            assembly, {"step": "reliable", "above": float(np.sort(2 * r / (1 + r))[2])}
        ).sizes["neuroid"]
        == 3
    )


def test_halves_may_be_drawn_as_the_ceiling_draws_them(
    rng: np.random.Generator,
) -> None:
    assembly = recorded(rng, [f"s{i}" for i in range(40)], 8).isel(
        time_bin=0, drop=True
    )
    assembly.values[:, 3] = rng.normal(size=320)
    assembly.values[assembly["repetition"].values > 5, :2] = (
        np.nan
    )  # one animal saw fewer repetitions
    drawn = nl.ceiling(
        "internal_consistency", compare={"correction": "spearman_brown"}
    )(assembly)
    each = drawn.samples.mean("split").values
    bound = float(np.sort(each)[2] - 1e-9)
    kept = after(assembly, {"step": "reliable", "above": bound, "halves": "drawn"})
    np.testing.assert_array_equal(kept.values, assembly.values[:, each > bound])
    assert kept.sizes["neuroid"] == 4 and each[3] < bound
    with pytest.raises(
        AssemblyError, match=r"step 1 \(reliable\): there is no coordinate 'repetition'"
    ):
        after(
            assembly.drop_vars("repetition"),
            {"step": "reliable", "above": 0.5, "halves": "drawn"},
        )
    with pytest.raises(
        AssemblyError,
        match=r"step 1 \(reliable\): no repetitions: each of the 40 stimuli",
    ):
        once = assembly.isel(presentation=slice(None, None, 8)).assign_coords(
            repetition=("presentation", [0, 1] * 20)
        )
        after(once, {"step": "reliable", "above": 0.5, "halves": "drawn"})


def test_repetitions_are_renamed_and_incomplete_presentations_left_out(
    rng: np.random.Generator,
) -> None:
    assembly = recorded(rng, ["a", "b", "c"]).rename(repetition="repetition_id")
    assembly = assembly.assign_coords(id=("presentation", np.arange(12)))
    assembly.values[:4, 0] = np.nan
    steps = [
        {"step": "rename", "coords": {"repetition_id": "repetition"}},
        {"step": "drop", "coords": ["id"]},
        {"step": "complete"},
    ]
    assert average_repetitions(after(assembly, *steps)).sizes["presentation"] == 2
    assert (
        after(assembly, {"step": "complete", "missing": "all"}).sizes["presentation"]
        == 12
    )


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            {"step": "drop", "coords": ["nothing"]},
            r"step 1 \(drop\): there is no coordinate 'nothing'; there are stimulus_id",
        ),
        (
            {"step": "mean", "window": [500, 600]},
            "no bin is within 500 to 600 ms; bins start at 0",
        ),
        ({"step": "take", "at": {"decoder": "svm"}}, "no coordinate 'decoder'"),
        ({"step": "rename", "dims": {"voxel": "neuroid"}}, "no dimension 'voxel'"),
        ({"step": "responsive", "deviations": 100}, "leaves nothing"),
        (
            {"step": "label", "dim": "neuroid", "coord": "x", "of": ["repetition"]},
            "belongs to 'presentation'",
        ),
    ],
)
def test_an_invalid_step_is_refused_with_its_number_and_reason(
    rng: np.random.Generator, step: dict[str, Any], words: str
) -> None:
    with pytest.raises(AssemblyError, match=words):
        after(recorded(rng, ["a", "b"]), step)


def test_single_labels_repeated_dimensions_and_values_per_subject(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """The peer's writer appends `_` to the only coordinate of a dimension, and may repeat a dimension."""
    import netCDF4

    with netCDF4.Dataset(tmp_path / "assy_rsm.nc", "w") as file:
        for dim, size in (
            ("presentation", 3),
            ("neuroid", 2),
            ("subject", 4),
            ("decoder", 2),
        ):
            file.createDimension(dim, size)
        file.createVariable("stimulus_id", str, ("presentation",))[:] = np.array(
            ["a", "b", "c"], object
        )
        file.createVariable("subject_", str, ("subject",))[:] = np.array(
            list("wxyz"), object
        )
        file.createVariable("data", "f8", ("presentation", "presentation", "neuroid"))[
            :
        ] = rng.random((3, 3, 2))
    dims = {
        "presentation": "stimulus",
        "presentation_b": "stimulus_b",
        "neuroid": "subject",
    }
    assembly = read(
        tmp_path, assembly="assy_rsm.nc", prepare=[{"step": "rename", "dims": dims}]
    ).assembly
    assert assembly is not None and assembly.dims == (
        "stimulus",
        "stimulus_b",
        "subject",
    )
    assert assembly["stimulus_id_b"].values.tolist() == ["a", "b", "c"]
    check(assembly)
    for name in ("baseline", "test"):
        xr.DataArray(
            rng.random(4),
            dims="subject",
            coords={"subject_": ("subject", list("wxyz"))},
            name="data",
        ).to_netcdf(tmp_path / f"{name}.nc")
    both = read(
        tmp_path,
        along="subject",
        part="condition",
        parts={name: {"assembly": f"{name}.nc"} for name in ("baseline", "test")},
    ).assembly
    assert (
        both is not None
        and both["condition"].values.tolist() == ["baseline"] * 4 + ["test"] * 4
    )
    assert both["subject"].values.tolist() == list("wxyz") * 2
    check(both)


LABEL = [
    {
        "step": "label",
        "dim": "neuroid",
        "coord": "neuroid_id",
        "of": ["subject", "neuroid_id"],
    }
]


def test_train_and_test_files_are_one_data_set(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    train, test = [f"t{i}" for i in range(5)], [f"e{i}" for i in range(3)]
    parts = {
        "train": files_of(tmp_path, "train", recorded(rng, train, 1), train),
        "test": files_of(tmp_path, "test", recorded(rng, test, 4), test),
    }
    data = read(tmp_path, parts=parts, prepare=LABEL)
    assert data.assembly is not None and data.stimuli is not None
    check(data.assembly)
    assert data.assembly["part"].values.tolist() == ["train"] * 5 + ["test"] * 12
    with zipfile.ZipFile(tmp_path / "stimulus_test.zip") as archive:
        assert data.stimuli.bytes("e1") == archive.read("e1.png")
    parts["test"] |= {"stimuli": "stimulus_train.csv", "archive": "stimulus_train.zip"}
    with pytest.raises(AssemblyError, match="stimulus 't0' is in several of the parts"):
        read(tmp_path, parts=parts, prepare=LABEL)


def test_files_of_one_subject_each_are_matched_by_stimulus_and_repetition(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    one, two = recorded(rng, ["a", "b", "c"], 2), recorded(rng, ["b", "c", "d"], 2)
    for name, array in (("01", one), ("02", two)):
        files_of(
            tmp_path,
            name,
            array.isel(neuroid=slice(3)).assign_coords(subject=("neuroid", [name] * 3)),
            list("abcd"),
        )
    data = read(
        tmp_path,
        parts={name: {"assembly": f"assy_{name}.nc"} for name in ("01", "02")},
        along="neuroid",
        stimuli="stimulus_01.csv",
        archive="stimulus_01.zip",
        prepare=LABEL,
    )
    joined = data.assembly
    assert joined is not None and joined.sizes == {
        "presentation": 8,
        "neuroid": 6,
        "time_bin": 1,
    }
    check(joined)
    shown = joined.isel(
        presentation=(joined["stimulus_id"].values == "b")
        & (joined["repetition"].values == "1")
    )
    np.testing.assert_allclose(shown.values[0, :3], one.values[3, :3])
    np.testing.assert_allclose(shown.values[0, 3:], two.values[1, :3])
    assert np.isnan(joined.values[joined["stimulus_id"].values == "d"][:, :3]).all()


def test_tables_add_columns_and_missing_rows_are_refused(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    names = files_of(tmp_path, "x", recorded(rng, ["1", "2"]), ["1", "2"])
    (tmp_path / "division.csv").write_text("stimulus_id,split\n2,test\n1,train\n")
    data = read(tmp_path, **names, tables=["division.csv"], prepare=LABEL)
    assert data.stimuli is not None and data.stimuli.table["split"].tolist() == [
        "train",
        "test",
    ]
    (tmp_path / "division.csv").write_text("stimulus_id,split\n2,test\n")
    with pytest.raises(
        AssemblyError, match=r"division\.csv has no row for stimulus '1'"
    ):
        read(tmp_path, **names, tables=["division.csv"], prepare=LABEL)


def test_rows_files_and_ids_that_do_not_match_are_refused(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    names = files_of(tmp_path, "x", recorded(rng, ["1", "2"]), ["1", "2"])
    table = tmp_path / "stimulus_x.csv"
    table.write_text("image_id,filename\n1,1.png\n2,2.png\n2,2.png\n")
    data = read(tmp_path, **names, prepare=LABEL)
    assert data.stimuli is not None and data.stimuli.ids == ["1", "2"], (
        "image_id alone, and a row twice"
    )
    table.write_text("image_id,filename\n1,1.png\n2,2.png\n2,1.png\n")
    with pytest.raises(
        AssemblyError, match="stimulus '2' has several rows that differ"
    ):
        read(tmp_path, **names, prepare=LABEL)
    table.write_text("stimulus_id,filename\n1,1.png\n2,3.png\n")
    with pytest.raises(
        AssemblyError, match=r"lacks 1 of 2 files of stimulus_x\.csv, first '3\.png'"
    ):
        read(tmp_path, **names, prepare=LABEL)
    table.write_text("stimulus_id,filename\n1,1.png\n")
    with pytest.raises(
        AssemblyError,
        match=r"contains 1 files that stimulus_x\.csv does not name, first '2\.png'",
    ):
        read(tmp_path, **names, prepare=LABEL)


def test_ids_that_are_written_as_floats_are_the_same_stimuli(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    names = files_of(
        tmp_path,
        "x",
        recorded(rng, ["0", "1"]).assign_coords(
            stimulus_id=("presentation", np.repeat([0.0, 1.0], 4))
        ),
        ["0", "1"],
    )
    data = read(tmp_path, **names, prepare=LABEL)
    assert data.assembly is not None
    assert data.assembly["stimulus_id"].values.tolist() == [0] * 4 + [1] * 4


def test_the_ratio_of_squares_and_clipping() -> None:
    raw, top = Score(-0.3, scale="correlation"), Score(0.6, scale="correlation")
    assert normalise(raw, top, formula="square").value == pytest.approx(-0.25)
    assert normalise(
        raw, top, formula="square", compat="brainscore"
    ).value == pytest.approx(0.25)
    assert normalise(raw, top, formula="explained").value == pytest.approx(-0.15)
    low = clipped(normalise(raw, top))
    assert low.value == 0 and "it was -0.5" in low.notes[-1]


def test_the_mean_of_separate_scores() -> None:
    parts = {
        name: normalise(
            Score(
                r,
                scale="correlation",
                n={"neuroid": 3, "stimuli": 9},
                notes=("a note",),
            ),
            Score(c, scale="reliability"),
        )
        for name, r, c in (("x", 0.5, 0.8), ("y", 0.2, 0.4))
    }
    score = mean_of(parts, "subject")
    assert score.value == pytest.approx((0.25 / 0.8 + 0.04 / 0.4) / 2)
    assert (
        score.raw == pytest.approx(0.35)
        and score.ceiling is not None
        and score.ceiling.value == pytest.approx(0.6)
    )
    assert score.n == {"neuroid": 6, "stimuli": 9, "subject": 2} and score.notes == (
        "x: a note",
        "y: a note",
    )


def test_each_subject_is_fitted_scored_and_normalised_separately(
    tmp_path: Path, repository: Path
) -> None:
    lab = build(tmp_path / "lab", repository)
    path = lab.data / "responses.nc"
    assembly = xr.load_dataarray(path).assign_coords(
        subject=("neuroid", ["a", "a", "b", "b", "b"])
    )
    assembly = assembly.copy(data=assembly.values.copy())
    assembly.values[:, :2] += (
        np.random.default_rng(5).normal(size=(len(assembly), 2)) * 2
    )
    assembly.to_netcdf(tmp_path / "new.nc")
    (tmp_path / "new.nc").replace(path)
    lab.dataset()
    lab.benchmark(each="subject")
    lab.benchmark("pooled")
    lab.benchmark("wrong", each="monkey")
    lab.benchmark("new", each="subject", generalise=["stimulus", "subject"])
    lab.benchmark("pooled-new", generalise=["stimulus", "subject"])
    for name in "ab":
        lab.benchmark(f"only-{name}", select={"subject": name})
    validate(lab.open(), "lab")
    session = Session(lab.open())
    scores = {
        id: evaluate(
            session, session.catalog.benchmark(id), "pixels4", controls=False
        ).headline
        for id in ("lab.V4-ridge", "pooled", "only-a", "only-b", "new", "pooled-new")
    }
    both = (scores["only-a"].value + scores["only-b"].value) / 2
    each = scores["lab.V4-ridge"]
    assert each.value == pytest.approx(both, abs=1e-12) and each.n["subject"] == 2
    assert abs(each.value - scores["pooled"].value) > 1e-3
    assert each.low < each.value < each.high
    assert (
        each.interval_covers
        == "the 95 % interval covers new stimuli and new neuroids of the same subjects"
    )
    for id, same in (("new", each), ("pooled-new", scores["pooled"])):
        claim = scores[id]
        assert (
            claim.value == same.value and claim.high - claim.low > same.high - same.low
        )
        assert (
            claim.interval_covers
            == "the 95 % interval covers new stimuli and new subjects"
        )
        assert claim.uncertainty is not None and set(claim.uncertainty.factors) == {
            "stimulus",
            "subject",
        }
    with pytest.raises(DataError, match="no coordinate 'monkey'"):
        evaluate(session, session.catalog.benchmark("wrong"), "pixels4", controls=False)


def test_as_is_shows_the_unchanged_files(tmp_path: Path, repository: Path) -> None:
    lab = build(tmp_path / "lab", repository)
    lab.spec("models", "wide", builder={"name": "pixels", "size": 4}, visual_degrees=20)
    lab.benchmark(
        "placed", paradigm={"name": "recording", "region": "V4", "visual_degrees": 4}
    )
    lab.benchmark(
        "bare", paradigm={"name": "recording", "region": "V4", "screen": "as_is"}
    )
    lab.benchmark(
        "both",
        paradigm={
            "name": "recording",
            "region": "V4",
            "screen": "as_is",
            "visual_degrees": 4,
        },
    )
    validate(lab.open(), "lab")
    session = Session(lab.open())

    def value(benchmark: str, model: str) -> float:
        return evaluate(
            session, session.catalog.benchmark(benchmark), model, controls=False
        ).headline.value

    assert (
        value("bare", "wide")
        == value("bare", "pixels4")
        == value("lab.V4-ridge", "pixels4")
    )
    assert value("placed", "wide") < value("bare", "wide") - 0.1
    with pytest.raises(RequestError, match="remove `visual_degrees`"):
        value("both", "wide")


def test_a_ceiling_stored_in_the_data(rng: np.random.Generator) -> None:
    assembly = recorded(rng, ["a", "b"]).assign_coords(
        nc=("neuroid", [64.0, 49, 81, 0, 36, 25])
    )
    ceiling = nl.ceiling("stored", coordinate="nc", divide_by=100, root=True)
    score = ceiling(assembly)
    assert (
        score.value == pytest.approx(0.7)
        and "1 of 6 neuroids have no nc above 0" in score.notes[0]
    )
    with pytest.raises(
        nl.errors.CeilingError, match="have no coordinate 'reliability'"
    ):
        nl.ceiling("stored")(assembly)


def test_time_is_cut_into_bins_of_one_width(rng: np.random.Generator) -> None:
    starts = np.array([-20, -10, 0, 10, 20, 30])
    values = rng.normal(size=(3, 4, 6))
    coords = {
        "stimulus_id": ("presentation", list("abc")),
        "neuroid_id": ("neuroid", list("wxyz")),
        "time_bin_start": ("time_bin", starts),
        "time_bin_end": ("time_bin", starts + 10),
    }
    recording = xr.DataArray(
        values, dims=("presentation", "neuroid", "time_bin"), coords=coords
    )
    binned = after(recording, {"step": "bins", "width": 15})
    assert binned["time_bin_start"].values.tolist() == [0, 15] and binned[
        "time_bin_end"
    ].values.tolist() == [
        15,
        30,
    ]
    np.testing.assert_allclose(
        binned.values[..., 0], (values[..., 2] + values[..., 3] / 2) / 1.5
    )
    np.testing.assert_allclose(
        binned.values[..., 1], (values[..., 3] / 2 + values[..., 4]) / 1.5
    )
    assert binned["neuroid_id"].values.tolist() == list("wxyz")
    # As with Python's range up to the end minus one width, the last bin is missing.
    fewer = after(recording, {"step": "bins", "width": 10, "last": False})
    np.testing.assert_array_equal(fewer.values, values[..., 2:5])
    with pytest.raises(
        AssemblyError, match="no bin of 50 ms from 0 ms on is within -20 to 40 ms"
    ):
        after(recording, {"step": "bins", "width": 50})
    with pytest.raises(
        AssemblyError, match="nothing was recorded in a part of the bin -30 to -15 ms"
    ):
        after(recording, {"step": "bins", "width": 15, "start": -30})
