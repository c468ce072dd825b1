"""A real recording as tables, from a folder to the three protocols of MOABB, agrees with MNE, pyriemann and scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import neuroledger as nl
from neuroledger.data.load import load_dataset
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.families.decoding.audit import audit
from neuroledger.spec.catalog import open_catalog

mne = pytest.importorskip("mne")

RATE = 128.0
EYES = ["EOG1", "EOG2"]
SPEC = """\
id: Squares
version: 1
title: Squares and presses of a button, one recording in six parts
license: BSD-2-Clause
modality: eeg
access_steps: ["Cut the sample recording of EEGLAB into six."]
reader:
  name: mne_epochs
  recordings: []
  named: {"P{subject}_day{session}.csv": {}}
  table: {sampling_rate: 128, time: time, event: marker}
  window: {start: 0.0, duration: 0.8, labels: {square: square, rt: rt}}
  preprocessing: {pick: [eeg], drop: [EOG1, EOG2], stated: uV, high_pass: 1.0, low_pass: 40.0}
expectations:
  assembly:
    - {check: dims, dims: [presentation, channel, sample]}
    - {check: distinct, column: subject, count: 3}
unavailable: "Not pinned: follow access_steps."
"""


@pytest.fixture(scope="module")
def folder(mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six parts of the recording as three people's two days: the way is tried, no claim is made of people."""
    where = tmp_path_factory.mktemp("tables")
    raw = mne.io.read_raw_eeglab(
        mirror / "eeglab_sample" / "eeglab_data.set", preload=True, verbose="ERROR"
    )
    each = raw.n_times // 6
    for number in range(6):
        part = raw.copy().crop(number * each / RATE, ((number + 1) * each - 1) / RATE)
        frame = part.to_data_frame(picks="eeg", time_format=None)
        marks = np.full(len(frame), "", dtype=object)
        for mark in part.annotations:
            at = round((mark["onset"] - part.first_time) * RATE)
            marks[at : at + 3] = mark["description"]
        frame.assign(marker=marks).to_csv(
            where / f"P{number // 2 + 1}_day{number % 2 + 1}.csv", index=False
        )
    return where


def pinned(folder: Path, root: Path) -> Any:
    (root / "specs" / "datasets").mkdir(parents=True)
    (root / "dvc.yaml").write_text("stages: {}\n")
    (root / "specs" / "datasets" / "Squares.yaml").write_text(SPEC)
    pin(open_catalog(root), "Squares", Downloads(folder=folder))
    return load_dataset(open_catalog(root), "Squares").assembly


def by_hand(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Windows, labels, people and days, by MNE alone."""
    windows, labels, people, days = [], [], [], []
    for path in sorted(folder.glob("*.csv")):
        frame = pd.read_csv(path, keep_default_na=False)
        names = [
            name for name in frame.columns if name not in ("time", "marker", *EYES)
        ]
        raw = mne.io.RawArray(
            frame[names].to_numpy(float).T * 1e-6,
            mne.create_info(names, RATE, "eeg"),
            verbose="ERROR",
        )
        marks = frame["marker"].to_numpy()
        rows = [
            at
            for at in range(len(marks))
            if marks[at] and (at == 0 or marks[at] != marks[at - 1])
        ]
        raw.set_annotations(
            mne.Annotations(np.array(rows) / RATE, 0, marks[rows].tolist())
        )
        raw.filter(1.0, 40.0, verbose="ERROR")
        events, ids = mne.events_from_annotations(raw, verbose="ERROR")
        epochs = mne.Epochs(
            raw,
            events,
            ids,
            0,
            0.8 - 1 / RATE,
            baseline=None,
            preload=True,
            verbose="ERROR",
        )
        kinds = {code: name for name, code in ids.items()}
        windows.append(epochs.get_data() * 1e6)
        labels += [kinds[code] for code in epochs.events[:, 2]]
        people += [path.stem[1]] * len(epochs)
        days += [path.stem[-1]] * len(epochs)
    return np.concatenate(windows), np.array(labels), np.array(people), np.array(days)


def folds(
    rule: str, y: np.ndarray, people: np.ndarray, days: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Those of MOABB."""
    from sklearn.model_selection import LeaveOneGroupOut, StratifiedKFold

    if rule == "cross_subject":
        yield from LeaveOneGroupOut().split(y, y, people)
        return
    for person in np.unique(people):
        rows = np.flatnonzero(people == person)
        if rule == "cross_session":
            parts = [
                (rows, split)
                for split in LeaveOneGroupOut().split(rows, y[rows], days[rows])
            ]
        else:
            shuffled = StratifiedKFold(3, shuffle=True, random_state=42)
            held = [rows[days[rows] == day] for day in np.unique(days)]
            parts = [
                (one, split) for one in held for split in shuffled.split(one, y[one])
            ]
        for one, (train, test) in parts:
            yield one[train], one[test]


def test_three_protocols_reproduce_the_scores_of_mne_and_pyriemann(
    folder: Path, tmp_path: Path
) -> None:
    from pyriemann.classification import MDM
    from pyriemann.estimation import Covariances
    from pyriemann.tangentspace import TangentSpace
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline

    signals = pinned(folder, tmp_path / "own")
    assert [finding.code for finding in audit(signals)] == []
    x, y, people, days = by_hand(folder)
    assert signals.shape == x.shape == (151, 30, 102)
    theirs = {
        "moabb.TangentSpace_LR": make_pipeline(
            Covariances("oas"), TangentSpace(), LogisticRegression()
        ),
        "moabb.MDM": make_pipeline(Covariances("oas"), MDM()),
    }
    rules = {
        "cross_subject": {"name": "cross_subject"},
        "cross_session": {"name": "cross_session"},
        "within_session": {"name": "within_session", "folds": 3, "waive": ["overlap"]},
    }
    for name, pipeline in theirs.items():
        for rule, splits in rules.items():
            found = []
            for train, test in folds(rule, y, people, days):
                fitted = clone(pipeline).fit(x[train], y[train])
                found.append(
                    roc_auc_score(
                        y[test] == fitted.classes_[1],
                        fitted.predict_proba(x[test])[:, 1],
                    )
                )
            how = "pooled" if rule == "cross_subject" else "each"
            score = nl.decode(
                name, signals, "label", splits=splits, train=how, metric="auroc"
            )
            assert score.value == pytest.approx(np.mean(found), abs=1e-9), (name, rule)


def test_the_audit_detects_shifted_events_of_one_subject_in_real_recordings(
    folder: Path, tmp_path: Path
) -> None:
    late = tmp_path / "late"
    late.mkdir()
    for path in sorted(folder.glob("*.csv")):
        frame = pd.read_csv(path, keep_default_na=False)
        if path.name.startswith("P2"):
            frame["marker"] = np.roll(frame["marker"].to_numpy(), 38)
        frame.to_csv(late / path.name, index=False)
    (found,) = audit(pinned(late, tmp_path / "own"))
    assert found.code == "audit.shifted" and found.severity == "error"
    assert found.what.startswith(
        "2 recordings respond at another time than the others: P2_day1.csv (-2"
    )
