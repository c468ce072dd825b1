"""Small simulated fMRI data sets in the published layouts: names, headers, tables, lists, and their oddities."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import xarray as xr
from scipy.io import savemat
from scipy.stats import gamma

from neuroledger.data import assembly

SHAPE = (20, 24, 20)
AFFINE = np.array(
    [[10.0, 0, 0, -95], [0, 10.0, 0, -130], [0, 0, 10.0, -80], [0, 0, 0, 1]]
)
"""10 mm over the whole of a head in the space of MNI."""
FEATURES = 6
COUNT = 300  # vertices of the coarse native surfaces of the stand-in of NSD
FINE = 10242  # of fsaverage, as many as are read


def response(seconds: float, length: int) -> np.ndarray:
    """The hemodynamic answer to a short event, for each volume: latest after 5 s, an undershoot after 15 s."""
    times = np.arange(length) * seconds
    answer = gamma.pdf(times, 6) - gamma.pdf(times, 16) / 6
    return answer / answer.max()


def embeddings(stimuli: Sequence[str]) -> xr.DataArray:
    """A table of six features for each stimulus."""
    values = np.random.default_rng(5).standard_normal((len(stimuli), FEATURES))
    return xr.DataArray(
        values,
        dims=("stimulus", "feature"),
        coords={"stimulus_id": ("stimulus", list(stimuli))},
    )


def patterns(shape: Sequence[int], seed: int = 1) -> np.ndarray:
    """Which voxels answer to which feature, in blobs: (x, y, z, feature)."""
    from scipy.ndimage import gaussian_filter

    noise = np.random.default_rng(seed).standard_normal((*shape, FEATURES))
    blobs = gaussian_filter(noise, (1.5, 1.5, 1.5, 0))
    return blobs / blobs.std()


def series(
    shape: Sequence[int],
    volumes: int,
    seconds: float,
    shown: Sequence[tuple[float, str]],
    table: xr.DataArray,
    *,
    seed: int,
    strength: float = 3.0,
) -> np.ndarray:
    """Noise, drift and a mean around 1000, and in each voxel the answers to the features of what was shown."""
    rng = np.random.default_rng(seed)
    rows = {str(name): row for row, name in enumerate(table["stimulus_id"].values)}
    events = np.zeros((volumes, FEATURES))
    for onset, name in shown:
        events[min(volumes - 1, round(onset / seconds))] += table.values[rows[name]]
    answer = response(seconds, volumes)
    courses = np.stack(
        [np.convolve(events[:, f], answer)[:volumes] for f in range(FEATURES)]
    )
    values = (
        1000 + rng.standard_normal((*shape, volumes)) * 2 + np.linspace(0, 8, volumes)
    )
    return values + strength * patterns(shape) @ courses


def brain(shape: Sequence[int] = SHAPE) -> np.ndarray:
    """A mask: all but the edges."""
    inside = np.zeros(shape, np.uint8)
    inside[1:-1, 1:-1, 1:-1] = 1
    return inside


def write(
    path: Path,
    values: np.ndarray,
    seconds: float | None = None,
    affine: np.ndarray = AFFINE,
) -> None:
    """A NIfTI image, gzipped; series as signed integers of two bytes, like most published ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = np.round(values).astype(
        np.int16 if values.ndim == 4 or values.min() < 0 else np.uint8
    )
    loaded = nibabel.Nifti1Image(kept, affine)
    loaded.header.set_xyzt_units("mm", "sec")
    if seconds is not None:
        loaded.header.set_zooms((*loaded.header.get_zooms()[:3], seconds))
    nibabel.save(loaded, path)


def derivative(
    root: Path, stem: str, values: np.ndarray, seconds: float, *, volume_space: str
) -> None:
    """What fMRIPrep writes of a run: series, sidecar, mask, and a table of confounds, which nobody reads here."""
    path = root.joinpath("derivatives", *stem.split("_")[:2], "func", stem)
    named = f"{path}_space-{volume_space}_desc-"
    write(Path(f"{named}preproc_bold.nii.gz"), values, seconds)
    write(Path(f"{named}brain_mask.nii.gz"), brain(values.shape[:3]))
    said = {
        "RepetitionTime": seconds,
        "SkullStripped": False,
        "TaskName": stem.split("task-")[1].split("_")[0],
    }
    Path(f"{named}preproc_bold.json").write_text(json.dumps(said))
    Path(f"{path}_desc-confounds_timeseries.tsv").write_text("csf\n0.0\n")


def raw(root: Path, stem: str, lines: Sequence[str]) -> None:
    """The raw run, of which only the table of events is read."""
    path = root.joinpath(*stem.split("_")[:2], "func", stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{path}_bold.nii.gz").write_bytes(b"raw, not read")
    Path(f"{path}_events.tsv").write_text("\n".join(lines) + "\n")


def described(root: Path, name: str) -> None:
    """The files at the top of a BIDS folder."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "dataset_description.json").write_text(
        json.dumps({"Name": name, "BIDSVersion": "1.6.0"})
    )


def bold5000(
    root: Path,
    *,
    people: int = 4,
    repeated: int = 20,
    runs: int = 3,
    strength: float = 3.0,
) -> dict[str, Any]:
    """BOLD5000 (ds001499) with derivatives: sessions with one run more or less, images that are repeated across sessions."""
    described(root, "BOLD5000")
    again = [f"COCO_train2014_{n:012d}.jpg" for n in range(repeated // 2)]
    again += [f"n0{1833805 + n}_54{n}.JPEG" for n in range(repeated - len(again))]
    once = [f"kitchen{n}.jpg" for n in range(600)]
    listed = root / "BOLD5000_Stimuli/Scene_Stimuli/repeated_stimuli_113_list.txt"
    listed.parent.mkdir(parents=True)
    listed.write_text("\r\n".join(again) + "\r\n")
    table = embeddings([*again, *once])
    assembly.write(table, root / "embedding.nc")
    head = "onset\tduration\tSubj\tSess\tRun\tTrial\tImgName\tImgType\tStimOn(s)\tStimOff(s)\tResponse\tRT\tstim_file"
    fresh = iter(once * people)
    truth: dict[str, list[str]] = {}
    for person in range(1, people + 1):
        for session in (1, 2):
            for run in range(1, runs + (session == 1 and person < people) + 1):
                # Three repeated images a run, in turn; all others are new.
                turn = 3 * (run + 4 * session)
                shown = [again[(turn + k) % repeated] for k in range(3)] + [
                    next(fresh) for _ in range(5)
                ]
                np.random.default_rng(person * 100 + session * 10 + run).shuffle(shown)
                onsets = [6.0 + 10 * n for n in range(len(shown))]
                stem = (
                    f"sub-CSI{person}_ses-{session:02d}_task-5000scenes_run-{run:02d}"
                )
                kinds = ["rep_coco" if name in again else "scenes" for name in shown]
                lines = [
                    f"{onset}\t2\t{person}\t{session}\t{run}\t{n + 1}\t{name}\t{kind}\t{onset}\t{onset + 1}\t1\t0.8\t{name}"
                    for n, (onset, name, kind) in enumerate(
                        zip(onsets, shown, kinds, strict=True)
                    )
                ]
                raw(root, stem, [head, *lines])
                values = series(
                    SHAPE,
                    50,
                    2.0,
                    list(zip(onsets, shown, strict=True)),
                    table,
                    strength=strength,
                    seed=person * 1000 + session * 100 + run,
                )
                derivative(root, stem, values, 2.0, volume_space="MNI152NLin2009aSym")
                truth[stem] = shown
    return truth


def things(
    root: Path, *, people: int = 3, runs: int = 4, strength: float = 3.0
) -> dict[str, Any]:
    """THINGS-fMRI (ds004192) with derivatives: catch trials, and person 2 without run 2 of session 3 (published: run 7)."""
    described(root, "THINGS-fMRI")
    tested = [f"air_conditioner{n}_26s.jpg" for n in range(1, 21)]
    trained = [f"object{n:03d}_01b.jpg" for n in range(700)]
    table = embeddings([*tested, *trained])
    assembly.write(table, root / "embedding.nc")
    truth: dict[str, list[str]] = {}
    fresh = iter(trained * people)
    for person in range(1, people + 1):
        for session in (1, 3, 12):
            for run in range(1, runs + 1):
                if (person, session, run) == (2, 3, 2):
                    continue
                shown = [tested[(4 * run + session + k) % 20] for k in range(4)] + [
                    next(fresh) for _ in range(8)
                ]
                rng = np.random.default_rng(person * 1000 + session * 10 + run)
                rng.shuffle(shown)
                shown.insert(5, "catch")
                lines, seen = ["onset\tduration\ttrial_type\tfile_path"], []
                for n, name in enumerate(shown):
                    onset = 3.0 + 4.5 * n
                    kind = (
                        "catch"
                        if name == "catch"
                        else "test"
                        if name in tested
                        else "exp"
                    )
                    file = (
                        "stimuli/catch.jpg"
                        if kind == "catch"
                        else f"images_resized/{name.split('_')[0]}/{name}"
                    )
                    lines.append(f"{onset}\t0.5\t{kind}\t{file}")
                    if kind != "catch":
                        seen.append((onset, name))
                stem = f"sub-{person:02d}_ses-things{session:02d}_task-things_run-{run:02d}"
                raw(root, stem, lines)
                values = series(
                    SHAPE,
                    52,
                    1.5,
                    seen,
                    table,
                    strength=strength,
                    seed=person * 999 + session * 20 + run,
                )
                # fMRIPrep keeps the label of the run; some published derivatives write it without the zero.
                derivative(
                    root,
                    stem.replace("run-0", "run-"),
                    values,
                    1.5,
                    volume_space="MNI152NLin2009aSym",
                )
                truth[stem] = [name for _, name in seen]
    return truth


NSD_SHAPES = {1: (11, 12, 10), 2: (12, 11, 10), 3: (10, 12, 11)}


def nsd(root: Path, *, people: int = 2, strength: float = 3.0) -> dict[str, Any]:
    """The Natural Scenes Dataset's func1pt8mm series, each person on an own grid, of ten images a run.

    Person 1 has sessions 1 and 21, which has resting runs 1 and 14; person 2 has session 1 only, and so never sees some of
    the images that are shared.
    """
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    shared = np.sort(rng.choice(np.arange(1, 73001), 20, replace=False))
    rest = rng.permutation(np.setdiff1d(np.arange(1, 73001), shared))
    # Images 1 to 20 of each person's own 4,000 are shared, all others are of one person only.
    pictures = np.array(
        [[*shared, *rest[3980 * n : 3980 * (n + 1)]] for n in range(people)]
    )
    order = np.arange(4800) % 3980 + 21
    for session in (1, 21):
        for run in range(1, 13):
            at = ((session - 1) * 12 + run - 1) * 10
            order[at : at + 2] = [
                (2 * run + k) % (16 if session == 1 else 20) + 1 for k in range(2)
            ]
            np.random.default_rng(session * 20 + run).shuffle(order[at : at + 10])
    pattern = np.zeros((40, 12, 75))
    pattern[:, :, 3:13] = 1
    design = {
        "sharedix": shared[None].astype(float),
        "subjectim": pictures.astype(float),
    }
    savemat(
        root / "nsd_expdesign.mat",
        {**design, "masterordering": order[None].astype(float), "stimpattern": pattern},
    )
    shown_at_all = {
        (person, session, run): pictures[
            person - 1, order[((session - 1) * 12 + run - 1) * 10 :][:10] - 1
        ]
        for person in range(1, people + 1)
        for session in ((1, 21) if person == 1 else (1,))
        for run in range(1, 13)
    }
    table = embeddings(
        [
            f"{n}.png"
            for n in np.unique(np.concatenate([shared, *shown_at_all.values()]))
        ]
    )
    assembly.write(table, root / "embedding.nc")
    truth: dict[str, Any] = {"shared": shared.tolist()}
    for (person, session, run), images in shown_at_all.items():
        _nsd_run(
            root,
            person,
            f"session{session:02d}_run{run + (session == 21):02d}",
            images,
            table,
            strength,
            truth,
        )
    for person in range(1, people + 1):
        shape = NSD_SHAPES[person]
        for run in (1, 14) if person == 1 else ():
            _nsd_run(
                root,
                person,
                f"session21_run{run:02d}",
                np.zeros(10, int),
                table,
                strength,
                truth,
            )
        general = np.zeros(shape)
        general[3:8, 3:6, 3:7] = 1
        general[0, 0, 0] = -1
        folder = root / f"nsddata/ppdata/subj{person:02d}"
        write(
            folder / "func1pt8mm/roi/nsdgeneral.nii.gz",
            general,
            None,
            np.diag([1.8, 1.8, 1.8, 1]),
        )
        transforms(folder / "transforms", person, shape)
    return truth


def _nsd_run(
    root: Path,
    person: int,
    name: str,
    images: np.ndarray,
    table: xr.DataArray,
    strength: float,
    truth: dict[str, Any],
) -> None:
    shape = NSD_SHAPES[person]
    home = root / f"nsddata_timeseries/ppdata/subj{person:02d}/func1pt8mm"
    lines = np.zeros(60, int)
    lines[3 + 3 * np.arange(10)] = images
    design = home / "design" / f"design_{name}.tsv"
    design.parent.mkdir(parents=True, exist_ok=True)
    design.write_text("".join(f"{number}\n" for number in lines))
    shown = [(at * 4 / 3, f"{number}.png") for at, number in enumerate(lines) if number]
    values = series(
        shape,
        46,
        4 / 3,
        shown,
        table,
        strength=strength,
        seed=person * 7777 + int(name[-2:]) + 50 * len(truth),
    )
    grid = np.diag([1.8, 1.8, 1.8, 1])
    write(
        home / "timeseries" / f"timeseries_{name}.nii.gz",
        values * brain(shape)[..., None],
        4 / 3,
        grid,
    )
    truth[f"{person}/{name}"] = [name for _, name in shown]


def transforms(folder: Path, person: int, shape: Sequence[int]) -> None:
    """Coordinates of a native surface's vertices in the series, from 1, 9999 for nowhere, and what fsaverage takes."""
    folder.mkdir(parents=True)
    for hemi in ("lh", "rh"):
        rng = np.random.default_rng(person + (hemi == "rh") * 10)
        places = rng.uniform(2.2, np.array(shape) - 1.2, (COUNT, 3))
        for depth in range(1, 4):
            here = (places + 0.2 * depth).astype(np.float32)
            here[:3] = 9999
            mgz(
                folder / f"{hemi}.func1pt8-to-layerB{depth}.mgz",
                here.reshape(COUNT, 1, 1, 3),
            )
        taken = rng.integers(1, COUNT + 1, (163842, 1, 1)).astype(np.float32)
        mgz(folder / f"{hemi}.white-to-fsaverage.mgz", taken)


def mgz(path: Path, values: np.ndarray) -> None:
    """An image of FreeSurfer."""
    nibabel.save(
        nibabel.freesurfer.MGHImage(values.astype(np.float32), np.eye(4)), path
    )


def files_of(root: Path) -> Mapping[str, Path]:
    """Every file below a folder, by its name in it."""
    return {
        path.relative_to(root).as_posix(): path
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
