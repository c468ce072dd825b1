"""fMRI windows: the repository's specs read published layouts, and numbers agree with nilearn and SciPy."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import xarray as xr
import yaml
from pydantic import ValidationError
from scipy.ndimage import map_coordinates
from scipy.signal import detrend

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.fmri.runs import Rest, runs_among
from neuroledger.families.signals.recordings import window_store
from neuroledger.spec import registry
from tests.families.signals import scans

BOLD, THINGS, NSD = "Chang2019Bold5000", "Hebart2023ThingsBold", "Allen2022MassiveRaw"


def told(repository: Path, id: str, **changes: Any) -> dict[str, Any]:
    """The reader of a spec of the repository, some of its fields changed; None takes one away."""
    spec = yaml.safe_load(
        (repository / "specs/datasets" / f"{id}.yaml").read_text(encoding="utf-8")
    )
    fields: dict[str, Any] = {**spec["reader"], **changes}
    if id == NSD and "volumes" not in changes:
        fields["volumes"] = 45
    return {name: value for name, value in fields.items() if value is not None}


def read(root: Path, fields: Mapping[str, Any]) -> Dataset:
    """The data set of just the files that the reader says it reads."""
    component = registry.get("reader", "fmri_windows")
    bound = component.bind(
        {name: value for name, value in fields.items() if name != "name"}
    )
    files = scans.files_of(root)
    assert component.reads is not None
    chosen = {name: files[name] for name in component.reads(sorted(files), bound)}
    data: Dataset = component.function(chosen, **bound)
    return data


@pytest.fixture(scope="module")
def bold(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    root = tmp_path_factory.mktemp("scans") / "ds001499"
    return root, scans.bold5000(root)


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    root = tmp_path_factory.mktemp("scans") / "ds004192"
    return root, scans.things(root)


@pytest.fixture(scope="module")
def nsd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    root = tmp_path_factory.mktemp("scans") / "nsd"
    return root, scans.nsd(root)


@pytest.mark.slow
def test_bold5000_is_read_in_its_published_layout(
    repository: Path, bold: tuple[Path, dict[str, Any]]
) -> None:
    root, truth = bold
    data = read(root, told(repository, BOLD))
    windows = data.assembly
    assert windows is not None
    assert windows.shape == (27 * 8, 20484, 4)
    assert windows.dtype == np.float32
    assert windows["time_bin_start"].values.tolist() == [2000, 4000, 6000, 8000]
    stimuli = windows["stimulus_id"].values.astype(str).tolist()
    assert stimuli == [name for stem in sorted(truth) for name in truth[stem]]
    assert windows["onset"].values[:8].tolist() == [6 + 10 * n for n in range(8)]
    split = windows["split"].values.astype(str)
    assert Counter(split) == {"test": 27 * 3, "train": 27 * 5}
    assert {s for s, part in zip(stimuli, split, strict=True) if part == "test"} == {
        s for s in stimuli if "kitchen" not in s
    }
    assert set(windows["image_type"].values.astype(str)) == {"rep_coco", "scenes"}
    # Sessions have one run more or less, and how often a person saw an image goes on over sessions.
    sessions = Counter(key.rsplit("/", 1)[0] for key in _runs(windows))
    assert (sessions["CSI1/01"], sessions["CSI1/02"], sessions["CSI4/01"]) == (4, 3, 3)
    seen: Counter[tuple[str, str]] = Counter()
    for person, stimulus, again in zip(
        windows["subject"].values.astype(str),
        stimuli,
        windows["repetition"].values,
        strict=True,
    ):
        assert again == seen[person, stimulus]
        seen[person, stimulus] += 1
    assert max(seen.values()) == 2
    assert data.notes == ()
    assert data.extras["embedding"].shape[1] == scans.FEATURES


def _runs(windows: Any) -> set[str]:
    facts = (windows[name].values.astype(str) for name in ("subject", "session", "run"))
    return {"/".join(row) for row in zip(*facts, strict=True)}


@pytest.mark.slow
def test_things_is_read_without_catch_trials_and_without_the_missing_run(
    repository: Path, things: tuple[Path, dict[str, Any]]
) -> None:
    root, truth = things
    windows = read(root, told(repository, THINGS)).assembly
    assert windows is not None
    assert windows.shape == (35 * 12, 20484, 4)
    assert windows["stimulus_id"].values.astype(str).tolist() == [
        name for stem in sorted(truth) for name in truth[stem]
    ]
    runs = _runs(windows)
    assert len(runs) == 35
    assert {key for key in runs if key.startswith("02/things03")} == {
        "02/things03/1",
        "02/things03/3",
        "02/things03/4",
    }
    concepts = windows["concept"].values.astype(str)
    tested = windows["split"].values.astype(str) == "test"
    assert {name.startswith("air_conditioner") for name in concepts[tested]} == {True}
    assert {name.startswith("object") for name in concepts[~tested]} == {True}


@pytest.mark.slow
def test_nsd_is_read_without_resting_runs_and_with_the_grid_of_each_subject(
    repository: Path, nsd: tuple[Path, dict[str, Any]]
) -> None:
    root, truth = nsd
    fields = told(repository, NSD)
    component = registry.get("reader", "fmri_windows")
    bound = component.bind(
        {name: value for name, value in fields.items() if name != "name"}
    )
    assert component.reads is not None
    names = component.reads(sorted(scans.files_of(root)), bound)
    assert not [
        name for name in names if "session21_run01" in name or "session21_run14" in name
    ]
    assert len(names) == 36 * 2 + 2 * 8 + 2
    windows = read(root, fields).assembly
    assert windows is not None
    assert windows.shape == (36 * 10, 20484, 5)
    found = zip(
        *(
            windows[n].values.astype(str)
            for n in ("subject", "session", "run", "stimulus_id")
        ),
        strict=True,
    )
    kept: dict[str, list[str]] = {}
    for subject, session, run, stimulus in found:
        kept.setdefault(f"{int(subject)}/session{session}_run{run}", []).append(
            stimulus
        )
    assert kept == {
        key: value for key, value in truth.items() if key != "shared" and value
    }
    shared = {f"{number}.png" for number in truth["shared"]}
    split = windows["split"].values.astype(str)
    stimuli, people = (
        windows["stimulus_id"].values.astype(str),
        windows["subject"].values.astype(str),
    )
    assert set(stimuli[split == "test"]) == shared
    assert len(set(stimuli[(split == "test") & (people == "02")])) == 16
    # Vertices that are nowhere in a person's images have no signal, and are kept.
    taken = np.asarray(
        nibabel.load(
            root / "nsddata/ppdata/subj01/transforms/lh.white-to-fsaverage.mgz"
        ).dataobj
    )
    nowhere = taken.ravel()[: scans.FINE] <= 3
    flat = (windows.values[people == "01"] == 0).all(axis=(0, 2))
    assert (flat[: scans.FINE] == nowhere).all() and nowhere.any()


def cleaned(values: np.ndarray) -> np.ndarray:
    """(channel, volume) without its trend, and standardised, by SciPy."""
    straight = detrend(values.astype(float), axis=1)
    spread = straight.std(axis=1, ddof=1, keepdims=True)
    return np.where(spread > 1e-6, straight / np.where(spread > 1e-6, spread, 1), 0)


def test_surface_projection_and_windows_match_nilearn(
    repository: Path, bold: tuple[Path, dict[str, Any]]
) -> None:
    from nilearn.datasets import fetch_surf_fsaverage
    from nilearn.surface import vol_to_surf

    root, _ = bold
    windows = read(root, told(repository, BOLD, subjects=["CSI2"])).assembly
    assert windows is not None
    stem = "sub-CSI2_ses-02_task-5000scenes_run-01_space-MNI152NLin2009aSym_desc-"
    folder = root / "derivatives/sub-CSI2/ses-02/func"
    series = nibabel.load(folder / f"{stem}preproc_bold.nii.gz")
    mask = nibabel.load(folder / f"{stem}brain_mask.nii.gz").get_fdata() > 0
    inside = nibabel.Nifti1Image(series.get_fdata() * mask[..., None], series.affine)
    mesh = fetch_surf_fsaverage("fsaverage5")
    both = [
        vol_to_surf(
            inside,
            surf_mesh=mesh[f"pial_{side}"],
            inner_mesh=mesh[f"white_{side}"],
            radius=3.0,
        )
        for side in ("left", "right")
    ]
    expected = cleaned(np.nan_to_num(np.vstack(both)))
    recording = windows["recording"].values.astype(str)
    rows = np.flatnonzero(
        [name.endswith(f"{stem}preproc_bold.nii.gz") for name in recording]
    )
    for row, onset in zip(rows, windows["onset"].values[rows], strict=True):
        first = int((onset + 2) / 2)
        np.testing.assert_allclose(
            windows.values[row], expected[:, first : first + 4], atol=2e-3
        )


def test_voxels_match_the_masker_of_nilearn(
    repository: Path, bold: tuple[Path, dict[str, Any]]
) -> None:
    from nilearn.maskers import NiftiMasker

    root, _ = bold
    fields = told(repository, BOLD, subjects=["CSI1"], space={"name": "voxels"})
    windows = read(root, fields).assembly
    assert windows is not None
    assert windows.sizes["channel"] == int(scans.brain().sum())
    row = 11
    series = nibabel.load(root / str(windows["recording"].values[row]))
    mask = nibabel.Nifti1Image(scans.brain(), series.affine)
    masker = NiftiMasker(mask, standardize="zscore_sample", detrend=True, t_r=2.0)
    expected = masker.fit_transform(series).T
    # nilearn goes through voxels with z fastest, images of the brain are written with x fastest.
    order = np.lexsort(np.argwhere(scans.brain())[:, ::1].T)
    first = int((windows["onset"].values[row] + 2) / 2)
    np.testing.assert_allclose(
        windows.values[row], expected[order][:, first : first + 4], atol=2e-3
    )
    places = (
        nibabel.affines.apply_affine(series.affine, np.argwhere(scans.brain()))[order]
        / 1000
    )
    np.testing.assert_allclose(
        np.stack([windows[axis].values for axis in "xyz"], axis=1), places
    )


def test_transforms_interpolate_like_scipy(
    repository: Path, nsd: tuple[Path, dict[str, Any]]
) -> None:
    root, _ = nsd
    windows = read(root, told(repository, NSD, cleaning={}, subjects=["2"])).assembly
    assert windows is not None
    folder = root / "nsddata/ppdata/subj02/transforms"
    series = nibabel.load(root / str(windows["recording"].values[0])).get_fdata()
    layers = []
    for depth in (1, 2, 3):
        sides = []
        for hemi in ("lh", "rh"):
            places = (
                nibabel.load(folder / f"{hemi}.func1pt8-to-layerB{depth}.mgz")
                .get_fdata()
                .squeeze()
            )
            taken = (
                nibabel.load(folder / f"{hemi}.white-to-fsaverage.mgz")
                .get_fdata()
                .ravel()
            )
            sides.append(places[taken[: scans.FINE].astype(int) - 1])
        at = np.concatenate(sides).T - 1
        layers.append(
            np.stack(
                [map_coordinates(series[..., k], at, order=1) for k in range(12)],
                axis=1,
            )
        )
    expected = np.mean(layers, axis=0)
    first = int(np.floor((windows["onset"].values[0] + 2) * 0.75 + 0.5))
    known = np.abs(at).max(axis=0) < 9000
    found = windows.values[0]
    np.testing.assert_allclose(
        found[known], expected[known][:, first : first + 5], rtol=1e-5
    )
    assert (found[~known] == 0).all() and (~known).any()


def test_fmriprep_surfaces_are_read_unchanged(tmp_path: Path) -> None:
    """Two GIFTI files a run, of fsaverage with more vertices than are taken."""
    rng = np.random.default_rng(0)
    stem = "sub-01_ses-nsd01_task-nsdcore_run-1"
    func = tmp_path / "sub-01/ses-nsd01/func"
    func.mkdir(parents=True)
    values = {
        side: rng.standard_normal((40962, 12)).astype(np.float32) for side in "LR"
    }
    for side, held in values.items():
        arrays = [
            nibabel.gifti.GiftiDataArray(
                column, intent="NIFTI_INTENT_TIME_SERIES", datatype="NIFTI_TYPE_FLOAT32"
            )
            for column in held.T
        ]
        nibabel.save(
            nibabel.gifti.GiftiImage(darrays=arrays),
            func / f"{stem}_hemi-{side}_space-fsaverage6_bold.func.gii",
        )
    (func / f"{stem}_hemi-L_space-fsaverage6_bold.json").write_text(
        json.dumps({"RepetitionTime": 1.6})
    )
    (func / "sub-01_ses-nsd01_task-nsdcore_run-01_events.tsv").write_text(
        "onset\tduration\t73k_id\n4.0\t3.0\t46003\n8.0\t3.0\t61883\n"
    )
    fields = {
        "series": "sub-{subject}_ses-{session}_task-nsdcore_run-{run}_hemi-{hemi}_space-fsaverage6_bold.func.gii",
        "events": {
            "file": "sub-{subject}_ses-{session}_task-nsdcore_run-{run}_events.tsv",
            "stimulus": {"column": "{73k_id}.png"},
        },
        "seconds": 1.6,
        "window": {"start": 2.0, "duration": 7.0},
        "space": {"name": "vertices", "mesh": "fsaverage4"},
    }
    windows = read(tmp_path, fields).assembly
    assert windows is not None
    assert windows.shape == (2, 2 * 2562, 4)
    assert windows["stimulus_id"].values.tolist() == ["46003.png", "61883.png"]
    both = np.concatenate([values["L"][:2562], values["R"][:2562]])
    # 4 + 2 s is nearest to volume 4 (6.4 s), 8 + 2 s to volume 6 (9.6 s).
    np.testing.assert_array_equal(
        windows.values, np.stack([both[:, 4:8], both[:, 6:10]])
    )
    with pytest.raises(DataError, match="is in the space fsaverage6"):
        read(tmp_path, {**fields, "space": {"name": "surface"}})
    left = fields["series"].replace("{hemi}", "L")
    with pytest.raises(
        DataError,
        match=r"is not an image of voxels: for surfaces, declare `space: \{name: vertices\}`",
    ):
        read(
            tmp_path,
            {**fields, "series": left, "mask": left, "space": {"name": "voxels"}},
        )
    (func / f"{stem}_hemi-R_space-fsaverage6_bold.func.gii").unlink()
    with pytest.raises(DataError, match=r"has no other hemisphere, R"):
        read(tmp_path, fields)


@pytest.fixture
def one(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """One small run of one person, and a reader of its voxels."""
    values = np.random.default_rng(0).standard_normal((4, 4, 4, 20)) * 50 + 500
    stem = "sub-1_ses-1_task-see_run-1"
    scans.raw(
        tmp_path,
        stem,
        [
            "onset\tduration\tstim_file",
            "4.0\t1\ta.png",
            "10.0\t1\tb.png",
            "32.0\t1\ta.png",
        ],
    )
    scans.derivative(tmp_path, stem, values, 2.0, volume_space="MNI")
    head = "sub-{subject}_ses-{session}_task-see_run-{run}_"
    return tmp_path, {
        "series": f"{head}space-MNI_desc-preproc_bold.nii.gz",
        "mask": f"{head}space-MNI_desc-brain_mask.nii.gz",
        "events": {"file": f"{head}events.tsv", "stimulus": "stim_file"},
        "seconds": 2.0,
        "window": {"start": 2.0, "duration": 4.0},
        "space": {"name": "voxels"},
    }


def test_a_lag_shifts_the_volumes_but_not_the_time_bins(
    one: tuple[Path, dict[str, Any]],
) -> None:
    root, fields = one
    now = read(root, {**fields, "window": {"start": 2.0, "duration": 4.0}}).assembly
    later = read(
        root, {**fields, "window": {"start": 0.0, "duration": 4.0, "lag": 2.0}}
    ).assembly
    assert now is not None and later is not None
    np.testing.assert_array_equal(now.values, later.values)
    assert (now["time_bin_start"].values[0], later["time_bin_start"].values[0]) == (
        2000,
        0,
    )
    near = read(root, {**fields, "window": {"start": 1.0, "duration": 4.0}}).assembly
    assert near is not None
    np.testing.assert_array_equal(
        near.values, now.values
    )  # 1 s is as near to volume 0 as to volume 1


def test_windows_beyond_the_run_are_refused_or_left_out_and_counted(
    one: tuple[Path, dict[str, Any]],
) -> None:
    root, fields = one
    longer = {**fields, "window": {"start": 2.0, "duration": 8.0}}
    with pytest.raises(
        DataError,
        match=r"1 of 3 windows extend beyond its 20 volumes, first that of the event at 32",
    ):
        read(root, longer)
    data = read(root, {**longer, "beyond": "left_out"})
    assert data.assembly is not None
    assert data.assembly["stimulus_id"].values.tolist() == ["a.png", "b.png"]
    assert data.assembly["left_out"].values.tolist() == [1, 1]
    assert data.notes == (
        "1 windows that do not lie within their run were left out, of 1 runs",
    )
    with pytest.raises(DataError, match="3 of 3 windows extend beyond"):
        read(
            root,
            {
                **longer,
                "window": {"start": 60.0, "duration": 8.0},
                "beyond": "left_out",
            },
        )
    with pytest.raises(
        DataError, match="has 20 volumes, fewer than the 30 that are used"
    ):
        read(root, {**fields, "volumes": 30})


def test_cleaning_matches_nilearn(one: tuple[Path, dict[str, Any]]) -> None:
    from nilearn.signal import clean

    root, fields = one
    values = np.random.default_rng(1).standard_normal((4, 4, 4, 60)) * 50 + 500
    scans.derivative(
        root, "sub-1_ses-1_task-see_run-1", values, 2.0, volume_space="MNI"
    )
    plain = read(root, fields).assembly
    steps = {
        "detrend": True,
        "high_pass": 0.02,
        "low_pass": 0.2,
        "filter": "butterworth",
        "standardise": "percent",
    }
    windows = read(root, {**fields, "cleaning": steps}).assembly
    assert plain is not None and windows is not None
    assert (plain.attrs["units"], windows.attrs["units"]) == ("arbitrary", "percent")
    series = nibabel.load(root / str(plain["recording"].values[0])).get_fdata()
    inside = np.argwhere(scans.brain((4, 4, 4)))
    inside = inside[np.lexsort(inside.T)]
    flat = series[tuple(inside.T)]
    np.testing.assert_allclose(plain.values[0], flat[:, 3:5])
    slow = read(
        root, {**fields, "cleaning": {"high_pass": 0.02, "filter": "cosine"}}
    ).assembly
    assert slow is not None
    without = clean(
        flat.T,
        detrend=False,
        standardize=False,
        filter="cosine",
        high_pass=0.02,
        t_r=2.0,
    )
    np.testing.assert_allclose(slow.values[0], without.T[:, 3:5], rtol=1e-4, atol=1e-3)
    expected = clean(
        flat.T,
        detrend=True,
        standardize="psc",
        filter="butterworth",
        high_pass=0.02,
        low_pass=0.2,
        t_r=2.0,
    )
    np.testing.assert_allclose(
        windows.values[0], expected.T[:, 3:5], rtol=1e-4, atol=1e-4
    )


FUNC = "derivatives/sub-1/ses-1/func/sub-1_ses-1_task-see_run-1_space-MNI_desc-"


def _cut_off(root: Path) -> None:
    path = root / f"{FUNC}preproc_bold.nii.gz"
    path.write_bytes(path.read_bytes()[:-400])


def _other_grid(root: Path) -> None:
    scans.write(
        root / f"{FUNC}brain_mask.nii.gz",
        scans.brain((4, 4, 4)),
        None,
        np.diag([3.0, 3, 3, 1]),
    )


def _other_rate(root: Path) -> None:
    values = np.ones((4, 4, 4, 20))
    (root / f"{FUNC}preproc_bold.json").unlink()
    scans.write(root / f"{FUNC}preproc_bold.nii.gz", values, 1.5)


def _silent(root: Path) -> None:
    scans.write(root / f"{FUNC}preproc_bold.nii.gz", np.ones((4, 4, 4, 20)), 2.0)


def _again(root: Path) -> None:
    scans.write(
        root / f"old/{FUNC}preproc_bold.nii.gz".replace("run-1", "run-01"),
        np.ones((4, 4, 4, 20)),
        2.0,
    )


def _events(text: str) -> Any:
    return lambda root: (
        root / "sub-1/ses-1/func/sub-1_ses-1_task-see_run-1_events.tsv"
    ).write_text(text)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_cut_off, "cannot be read as an image of voxels"),
        (
            lambda root: (root / f"{FUNC}preproc_bold.nii.gz").write_bytes(b"no image"),
            "cannot be read as an image by nibabel",
        ),
        (_other_grid, "have different grids"),
        (_other_rate, r"states 1\.5 s between volumes, but `seconds` is 2 s"),
        (_silent, "100% of 8 channels have no signal"),
        (_again, "are the same run: keep one"),
        (
            lambda root: (root / f"{FUNC}brain_mask.nii.gz").unlink(),
            "has no mask: .* is not among",
        ),
        (
            lambda root: (root / f"{FUNC}preproc_bold.json").write_text(
                '{"RepetitionTime": 1.5}'
            ),
            r"states 1\.5 s between",
        ),
        (
            lambda root: (root / f"{FUNC}preproc_bold.json").write_text("{"),
            "cannot be read as a sidecar in JSON",
        ),
        (_events("onset\tduration\n4.0\t1\n"), "no column stim_file"),
        (_events("onset\tduration\tstim_file\n"), "no column stim_file|no event"),
        (
            lambda root: (
                root / "sub-1/ses-1/func/sub-1_ses-1_task-see_run-1_events.tsv"
            ).unlink(),
            "has no events: .* is not among",
        ),
    ],
)
def test_errors_name_the_problem_of_a_run(
    one: tuple[Path, dict[str, Any]], spoil: Any, words: str
) -> None:
    root, fields = one
    spoil(root)
    with pytest.raises(DataError, match=words):
        read(root, fields)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask": None}, "needs `mask`"),
        ({"subjects": ["7"]}, "no file matches .* of 7"),
        ({"series": "sub-{subject}_nothing.nii.gz"}, "no file matches"),
        ({"space": {"name": "vertices"}}, "one file per hemisphere"),
        ({"embeddings": {"embedding": "embedding.nc"}}, "the embeddings of what was"),
        (
            {"events": {"file": "{subject}_{task}_x.tsv", "stimulus": "stim_file"}},
            r"placeholder \{task\}",
        ),
    ],
)
def test_errors_name_the_missing_fields_of_a_spec(
    one: tuple[Path, dict[str, Any]], change: dict[str, Any], words: str
) -> None:
    root, fields = one
    told_so = {
        name: value for name, value in {**fields, **change}.items() if value is not None
    }
    with pytest.raises((DataError, RequestError), match=words):
        read(root, told_so)


@pytest.mark.parametrize(
    "change",
    [
        {"series": "sub-{person}_bold.nii.gz"},
        {"cleaning": {"high_pass": 0.01}},
        {"cleaning": {"filter": "cosine", "low_pass": 0.1}},
        {
            "space": {
                "name": "transforms",
                "layers": ["a.mgz"],
                "vertices": "{hemi}.b.mgz",
            }
        },
        {"events": {"file": "e.tsv", "stimulus": "x", "listed": {"Split": {}}}},
        {"events": {"file": "e.tsv", "stimulus": "x", "order": "nsd_expdesign.mat"}},
        {"events": {"file": "e.tsv", "stimulus": "x", "ambiguous": "drop"}},
    ],
)
def test_contradictory_specs_are_refused(
    one: tuple[Path, dict[str, Any]], change: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        registry.get("reader", "fmri_windows").bind({**one[1], **change})


def test_windows_on_disk_equal_those_in_memory(
    one: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, fields = one
    told_so = {
        **fields,
        "beyond": "left_out",
        "window": {"start": 2.0, "duration": 8.0},
    }
    held = read(root, told_so)
    monkeypatch.setattr(window_store, "IN_MEMORY", 0)
    kept = read(root, told_so)
    again = read(root, told_so)
    assert (
        held.assembly is not None
        and kept.assembly is not None
        and again.assembly is not None
    )
    assert "content_sha256" in kept.assembly.encoding
    for found in (kept, again):
        assert found.assembly is not None
        xr.testing.assert_identical(held.assembly, found.assembly)
        assert found.notes == held.notes != ()


@pytest.mark.parametrize("id", [BOLD, THINGS, NSD])
def test_stimuli_are_listed_from_the_tables_alone(
    repository: Path, tmp_path: Path, id: str, request: pytest.FixtureRequest
) -> None:
    root, truth = request.getfixturevalue(
        {BOLD: "bold", THINGS: "things", NSD: "nsd"}[id]
    )
    fields = told(repository, id)
    bound = registry.get("reader", "fmri_windows").bind(
        {k: v for k, v in fields.items() if k != "name"}
    )
    tables = {
        n: p
        for n, p in scans.files_of(root).items()
        if n.endswith((".tsv", ".txt", ".mat"))
    }
    lists = registry.get("stimuli", "fmri_windows")
    found = lists.function(
        tables, **{name: bound[name] for name in lists.parameters.model_fields}
    )
    names = {name for key, shown in truth.items() if key != "shared" for name in shown}
    assert found["stimulus_id"].tolist() == found["filename"].tolist() == sorted(names)


def test_series_in_native_space_are_not_projected(
    one: tuple[Path, dict[str, Any]],
) -> None:
    root, fields = one
    values = np.random.default_rng(2).standard_normal((4, 4, 4, 20))
    scans.derivative(
        root, "sub-1_ses-1_task-see_run-1", values, 2.0, volume_space="T1w"
    )
    own = {
        name: fields[name].replace("space-MNI", "space-T1w")
        for name in ("series", "mask")
    }
    with pytest.raises(
        DataError, match=r"is in the space T1w, but .* projects from an MNI space"
    ):
        read(root, {**fields, **own, "space": {"name": "surface"}})


def test_subjects_with_different_grids_have_no_common_voxels(
    repository: Path, nsd: tuple[Path, dict[str, Any]]
) -> None:
    root, _ = nsd
    general = {
        "mask": "subj{subject}/func1pt8mm/roi/nsdgeneral.nii.gz",
        "space": {"name": "voxels"},
    }
    with pytest.raises(DataError, match="have different grids"):
        read(root, told(repository, NSD, **general))
    one_person = read(root, told(repository, NSD, **general, subjects=["01"])).assembly
    assert one_person is not None
    assert (
        one_person.sizes["channel"] == 5 * 3 * 4
    )  # what is below 0 is not in the region


def test_a_file_of_another_subject_is_detected_by_the_order_of_images(
    repository: Path, nsd: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    root = tmp_path / "nsd"
    shutil.copytree(nsd[0], root, copy_function=os.link)
    designs = root / "nsddata_timeseries/ppdata/subj02/func1pt8mm/design"
    other = designs / "design_session01_run05.tsv"
    other.unlink()
    shutil.copy(str(other).replace("subj02", "subj01"), other)
    with pytest.raises(
        DataError,
        match=r"design_session01_run05\.tsv shows 10 images.*no run of session 01 of subject 02",
    ):
        read(root, told(repository, NSD))
    other.write_text("0\n" * 60)
    with pytest.raises(DataError, match=r"contains only 0: no image is shown"):
        read(root, told(repository, NSD))
    other.write_text("onset\n1\n")
    with pytest.raises(DataError, match="one number per line"):
        read(root, told(repository, NSD))
    (root / "nsd_expdesign.mat").unlink()
    with pytest.raises(
        DataError,
        match=r"nsd_expdesign\.mat, which `events` names, is not among the files",
    ):
        read(root, told(repository, NSD))


def test_runs_are_ordered_by_number_and_rest_is_removed_only_from_complete_sessions() -> (
    None
):
    names = [
        f"s1_v{session}_r{run}.nii"
        for session in (1, 2, 10)
        for run in range(1, 14 + (session == 2))
    ]
    names += [name.replace(".nii", ".tsv") for name in names]
    runs = runs_among(
        names,
        "s{subject}_v{session}_r{run}.nii",
        "s{subject}_v{session}_r{run}.tsv",
        rest=Rest(of=14, runs=("01", "14")),
    )
    assert [(run.session, run.number) for run in runs][:3] == [
        ("1", "1"),
        ("1", "2"),
        ("1", "3"),
    ]
    assert [run.number for run in runs if run.session == "2"] == [
        str(n) for n in range(2, 14)
    ]
    assert [run.session for run in runs][-1] == "10"
    assert len(runs) == 13 + 12 + 13
