"""Tests of the documented way from a folder of recordings to scores, against MNE, pyriemann and scikit-learn.

Each format is a folder of three simulated people with two sessions each, and a planted effect. It is pinned, validated and
decoded by commands within sessions, across sessions and across people. The peer opens the same files with MNE and runs the
same pipelines by hand, without any of the code that is tested.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from pyriemann.estimation import Covariances
from pyriemann.spatialfilters import CSP
from pyriemann.tangentspace import TangentSpace
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline

import neuroledger as nl
from neuroledger.cli import main
from tests.families.decoding.recorded_folders import (
    CHANNELS,
    FORMATS,
    KINDS,
    RATE,
    Format,
    place_of,
)

TRIALS, EVERY = 20, 1.5
PEOPLE, SESSIONS = ("anna", "bela", "carl"), ("1", "2")
PIPELINES = {
    "moabb.CSP_LDA": make_pipeline(
        Covariances("oas"), CSP(6), LinearDiscriminantAnalysis()
    ),
    "moabb.TangentSpace_LR": make_pipeline(
        Covariances("oas"), TangentSpace(), LogisticRegression()
    ),
}
PROTOCOLS = {
    "within": "{name: decoding, splits: {name: within_session}, train: each}",
    "sessions": "{name: decoding, splits: {name: cross_session}, train: each}",
    "people": "{name: decoding, splits: {name: cross_subject}}",
}


def simulated(person: str, session: str) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """(channel, sample) in µV and events by sample and kind, 0 or 1: after the second, one source is stronger."""
    rng = np.random.default_rng([PEOPLE.index(person), SESSIONS.index(session)])
    kinds = rng.permutation(np.arange(TRIALS) % 2)
    events = [
        (round((1 + EVERY * number) * RATE), int(kind))
        for number, kind in enumerate(kinds)
    ]
    sources = rng.normal(0, 10, (len(CHANNELS), round((TRIALS * EVERY + 2) * RATE)))
    for at, kind in events:
        sources[0, at : at + RATE] *= 1.7 if kind else 1.0
    mixing = np.eye(len(CHANNELS)) + 0.3 * np.random.default_rng(
        PEOPLE.index(person)
    ).normal(size=(len(CHANNELS),) * 2)
    return mixing @ sources, events


def peer_scores(folder: Path, one: Format) -> dict[tuple[str, str, str, str], float]:
    """Area under the curve by protocol, pipeline, subject and session, with nothing of the code that is tested."""
    x, y, person, session = [], [], [], []
    for who in PEOPLE:
        for when in SESSIONS:
            windows, kinds = one.peer(folder / one.ending.format(f"{who}_{when}"))
            x.append(windows)
            y += [KINDS[kind] for kind in kinds]
            person += [who] * len(windows)
            session += [when] * len(windows)
    X, Y, P, S = np.concatenate(x), np.array(y), np.array(person), np.array(session)
    assert len(X) == len(PEOPLE) * len(SESSIONS) * TRIALS
    scorer, found = get_scorer("roc_auc"), {}
    for name, pipeline in PIPELINES.items():
        for who in PEOPLE:
            for when in SESSIONS:
                here = (who == P) & (when == S)
                rows = np.flatnonzero(here)
                folds = [
                    scorer(
                        clone(pipeline).fit(X[rows[a]], Y[rows[a]]),
                        X[rows[b]],
                        Y[rows[b]],
                    )
                    for a, b in StratifiedKFold(5, shuffle=True, random_state=42).split(
                        rows, Y[rows]
                    )
                ]
                found["within", name, who, when] = float(np.mean(folds))
                for protocol, train in (
                    ("sessions", (who == P) & (when != S)),
                    ("people", who != P),
                ):
                    fitted = clone(pipeline).fit(X[train], Y[train])
                    found[protocol, name, who, when] = float(
                        scorer(fitted, X[here], Y[here])
                    )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_becomes_the_scores_of_mne_pyriemann_and_scikit_learn(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    one = FORMATS[name]
    folder = tmp_path / "downloads"
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for who in PEOPLE:
            for when in SESSIONS:
                one.write(
                    folder / one.ending.format(f"{who}_{when}"), *simulated(who, when)
                )
        expected = peer_scores(folder, one)
    specs = repository / "specs"
    copied = [specs / "models" / f"{id}.yaml" for id in ("dummy", *PIPELINES)]
    copied += [specs / "metrics/auroc.yaml", specs / "references.bib"]
    benchmarks = [f"{protocol}: {paradigm}" for protocol, paradigm in PROTOCOLS.items()]
    place = place_of(
        tmp_path / "place", one, people=len(PEOPLE), files=copied, benchmarks=benchmarks
    )
    shutil.copy(repository / "params.yaml", place)
    command = ["--root", str(place)]
    assert main([*command, "pin", "Mine", "--from", str(folder)]) == 0
    assert main([*command, "validate", "Mine"]) == 0
    monkeypatch.chdir(place)
    found = {}
    for protocol in PROTOCOLS:
        assert (
            main([*command, "run", "--benchmark", f"Mine-{protocol}", *PIPELINES]) == 0
        )
        table = nl.decoding.recorded(f"Mine-{protocol}")
        for row in table[table["pipeline"].isin(list(PIPELINES))].itertuples():
            found.setdefault(
                (protocol, row.pipeline, row.subject, row.session), []
            ).append(row.score)
    assert set(found) == set(expected)
    for where, scores in found.items():
        assert np.mean(scores) == pytest.approx(expected[where], abs=1e-9), where
    assert np.mean(list(expected.values())) > 0.65
