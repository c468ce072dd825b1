"""Simulated windows, and what MOABB makes of them: ``python tests/golden/moabb_cases.py`` where moabb is installed."""

import json
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).with_name("moabb.json")
RATE = 128.0
HERTZ = np.array([9.0, 11.0, 13.0, 15.0, 17.0])


def people(subjects=3, sessions=2, trials=20, channels=4, samples=48, seed=7):
    """Two classes that differ in the power of a channel; (x, y, subject, session)."""
    rng = np.random.default_rng(seed)
    count = subjects * sessions * trials
    y = np.array(["left", "right"])[rng.permutation(np.arange(count) % 2)]
    mixing = rng.standard_normal((subjects, channels, channels))
    x = rng.standard_normal((count, channels, samples))
    x[:, 0] *= np.where(y == "right", 1.5, 1.0)[:, None]
    x[:, 1] += 0.4 * (y == "right")[:, None] * np.sin(np.arange(samples) / 5)
    subject = np.repeat(np.arange(1, subjects + 1), sessions * trials)
    session = np.tile(np.repeat(np.arange(sessions), trials), subjects)
    return mixing[subject - 1] @ x, y, subject.astype(str), session.astype(str)


def flicker(repetitions=10, channels=6, samples=256, seed=0):
    """Windows with a rhythm of five frequencies; (x, y)."""
    rng = np.random.default_rng(seed)
    which = np.tile(np.arange(5), repetitions)
    time = np.arange(samples) / RATE
    x = rng.standard_normal((len(which), channels, samples))
    mixing = rng.standard_normal((5, channels))
    for row, k in enumerate(which):
        wave = np.sin(2 * np.pi * HERTZ[k] * time + 0.4) + 0.5 * np.sin(
            4 * np.pi * HERTZ[k] * time
        )
        x[row] += 0.35 * mixing[k][:, None] * wave
    return x, HERTZ[which].astype(int).astype(str)


def _folds() -> dict[str, object]:
    import pandas as pd
    from moabb.evaluations import splitters as of
    from sklearn.model_selection import GroupKFold

    _, y, subject, session = people()
    about = pd.DataFrame({"subject": subject, "session": session})
    curve = {
        "cv_class": of.LearningCurveSplitter,
        "data_size": {"policy": "ratio", "value": np.array([0.3, 1.0])},
        "n_perms": 2,
    }
    rules = {
        "within_session": of.WithinSessionSplitter(
            n_folds=5, shuffle=True, random_state=42
        ),
        "cross_session": of.CrossSessionSplitter(),
        "cross_subject": of.CrossSubjectSplitter(),
        "cross_subject_folds": of.CrossSubjectSplitter(cv_class=GroupKFold, n_splits=2),
        "calibration": of.CrossSubjectSplitter(calibration_size=0.2),
        "learning_curve": of.WithinSessionSplitter(
            n_folds=1, shuffle=True, random_state=42, **curve
        ),
    }
    return {
        name: [
            [np.sort(part).tolist() for part in fold] for fold in rule.split(y, about)
        ]
        for name, rule in rules.items()
    }


def _flicker() -> dict[str, object]:
    import mne
    from moabb.pipelines import classification as of

    x, y = flicker()
    codes = {str(int(hertz)): place + 1 for place, hertz in enumerate(HERTZ)}
    events = np.c_[
        np.arange(len(y)) * 1000, np.zeros(len(y), int), [codes[name] for name in y]
    ]
    epochs = mne.EpochsArray(
        x, mne.create_info(x.shape[1], RATE, "eeg"), events, event_id=codes
    )
    made = {
        "cca": of.SSVEP_CCA(),
        "template_cca": of.SSVEP_itCCA(),
        "extended_cca": of.SSVEP_eCCA(),
        "trca_references": of.SSVEP_TRCA_R(n_fbands=3, is_ensemble=False),
        "trca_unit": of.SSVEP_SSCOR(n_fbands=3, is_ensemble=False),
        "tdca": of.SSVEP_TDCA(n_fbands=3),
    }
    fitted = {name: one.fit(epochs[:30], y[:30]) for name, one in made.items()}
    return {
        name: [str(label) for label in one.predict(epochs[30:].get_data())]
        for name, one in fitted.items()
    }


def _statistics() -> dict[str, object]:
    import pandas as pd
    from moabb.analysis import meta_analysis as of

    table = results()
    small = of.compute_dataset_statistics(table)
    p, effect = of.find_significant_differences(small)
    pd.DataFrame(p)
    return {
        "datasets": small[["dataset", "pipe1", "pipe2", "p", "smd", "nsub"]]
        .fillna(-9)
        .to_dict("list"),
        "p": p.fillna(-9).to_numpy().tolist(),
        "effect": effect.fillna(-9).to_numpy().tolist(),
    }


def results():
    """Scores of three pipelines on three data sets of 8, 12 and 24 people, two sessions each, in MOABB's columns."""
    import pandas as pd

    rng = np.random.default_rng(3)
    rows = []
    for dataset, count in (("A", 8), ("B", 12), ("C", 24)):
        for person in range(count):
            ability = 0.1 * rng.standard_normal()
            for session in "01":
                for pipeline, gain in (("one", 0.0), ("three", 0.06), ("two", 0.02)):
                    score = 0.7 + ability + gain + 0.05 * rng.standard_normal()
                    row = {
                        "dataset": dataset,
                        "subject": str(person),
                        "session": session,
                    }
                    rows.append({**row, "pipeline": pipeline, "score": score})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    GOLDEN.write_text(
        json.dumps(
            {"folds": _folds(), "flicker": _flicker(), "statistics": _statistics()}
        )
        + "\n"
    )
