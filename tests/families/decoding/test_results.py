"""Tests of the table of subject × session × pipeline, of statistics against MOABB, and of figures with known numbers."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neuroledger as nl
from neuroledger.errors import MetricError, RequestError
from tests.golden import moabb_cases

X, Y, SUBJECT, SESSION = moabb_cases.people()
FACTS = {"subject": SUBJECT, "session": SESSION}


def decoded(**asked):
    made = {"lda": LinearDiscriminantAnalysis(), "lr": LogisticRegression()}
    x = X.reshape(len(X), -1)
    return {
        name: nl.decode(one, x, Y, groups=FACTS, **asked) for name, one in made.items()
    }


def test_a_row_for_each_subject_session_and_pipeline():
    scores = decoded(splits="cross_session", train="each")
    table = nl.decoding.table(scores, dataset="simulated", metric="decoding_accuracy")
    assert len(table) == 3 * 2 * 2 and set(table["dataset"]) == {"simulated"}
    assert {
        "score",
        "time",
        "samples",
        "samples_test",
        "n_classes",
        "subject",
        "session",
        "pipeline",
    } <= set(table)
    for (pipeline, subject, session), row in table.set_index(
        ["pipeline", "subject", "session"]
    ).iterrows():
        test, train = (
            (subject == SUBJECT) & (session == SESSION),
            (subject == SUBJECT) & (session != SESSION),
        )
        estimator = {"lda": LinearDiscriminantAnalysis(), "lr": LogisticRegression()}[
            pipeline
        ]
        right = (
            estimator.fit(X.reshape(120, -1)[train], Y[train]).predict(
                X.reshape(120, -1)[test]
            )
            == Y[test]
        )
        assert row["score"] == pytest.approx(right.mean(), abs=1e-12)
        assert (row["samples"], row["samples_test"], row["n_classes"]) == (
            20,
            20,
            2,
        ) and row["time"] > 0
    folds = nl.decoding.table(
        decoded(splits="within_session", train="each"), metric="auroc"
    )
    assert (
        len(folds) == 12
        and (folds["samples"] == 16).all()
        and (folds["samples_test"] == 4).all()
    )


def test_a_learning_curve_has_a_row_for_each_size():
    rule = {"name": "learning_curve", "sizes": [0.25, 1.0], "permutations": 3}
    table = nl.decoding.table(
        decoded(splits=rule, train="each"), metric="decoding_accuracy"
    )
    assert len(table) == 3 * 2 * 2 * 2 and sorted(set(table["samples"])) == [4, 16]
    ax = nl.plot.learning_curve(table)
    assert ax.data["lda"]["samples"] == [4, 16] and len(ax.data["lr"]["error"]) == 2
    with pytest.raises(RequestError, match="one size of the training part"):
        nl.plot.learning_curve(
            nl.decoding.table(decoded(splits="cross_session", train="each"))
        )


def test_statistics_and_meta_analysis_are_those_of_moabb():
    known = json.loads(moabb_cases.GOLDEN.read_text())["statistics"]
    results = moabb_cases.results()
    expected = (
        pd.DataFrame(known["datasets"])
        .set_index(["dataset", "pipe1", "pipe2"])
        .sort_index()
    )
    actual = (
        nl.decoding.statistics(results)
        .set_index(["dataset", "pipe1", "pipe2"])
        .sort_index()
        .fillna(-9)
    )
    pairs = [key for key in expected.index if key[1] != key[2]]
    expected, actual = expected.loc[pairs], actual.loc[pairs]
    for column in ("p", "smd", "nsub"):
        np.testing.assert_allclose(actual[column], expected[column], rtol=0, atol=1e-12)
    whole = nl.decoding.meta_analysis(results).set_index(["pipe1", "pipe2"])
    names = ["one", "three", "two"]
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            if one != other:
                assert whole.loc[(one, other), "p"] == pytest.approx(
                    known["p"][i][j], rel=1e-9
                )
                assert whole.loc[(one, other), "smd"] == pytest.approx(
                    known["effect"][i][j], abs=1e-12
                )
    ax = nl.plot.forest(results, "three", "one")
    assert ax.data["rows"] == ["A (8)", "B (12)", "C (24)", "all"]
    assert ax.data["p"][-1] == pytest.approx(known["p"][1][0], rel=1e-9)
    low, high = ax.data["interval"][-1]
    assert 0 < low < whole.loc[("three", "one"), "smd"] < high
    with pytest.raises(RequestError, match="no data set has both"):
        nl.plot.forest(results, "three", "four")


def test_chance_is_rarely_significant_and_missing_subjects_are_refused():
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(200):
        rows = [
            {
                "dataset": "d",
                "subject": str(k),
                "session": "0",
                "pipeline": name,
                "score": rng.standard_normal(),
            }
            for k in range(9)
            for name in ("a", "b")
        ]
        stats = nl.decoding.statistics(pd.DataFrame(rows)).set_index(["pipe1", "pipe2"])
        hits.append(stats.loc[("a", "b"), "p"] <= 0.05)
    assert np.mean(hits) < 0.09
    with pytest.raises(RequestError, match="missing are"):
        nl.decoding.statistics(pd.DataFrame(rows[1:]))
    with pytest.raises(MetricError, match="no predictions"):
        nl.decoding.table(
            {"a": nl.Score(value=0.5, scale="accuracy", direction="higher")}
        )


def test_patterns_show_the_source_and_not_the_suppressed_noise():
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 400)
    noise = rng.standard_normal((800, 1)) * 3
    source = (y * 2.0 - 1)[:, None] + 0.3 * rng.standard_normal((800, 1))
    x = (
        source @ [[1.0, 0.5, 0.0, 0.0]]
        + noise @ [[1.0, 0.0, 1.0, 0.0]]
        + 0.1 * rng.standard_normal((800, 4))
    )
    fitted = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()).fit(x, y)
    weights = fitted[-1].coef_[0] / fitted[0].scale_
    assert abs(weights[2]) > 0.3 * abs(weights[0])  # weighs the channel of noise alone
    (pattern,) = nl.decoding.patterns(fitted, x)[:, :, 0]
    assert abs(pattern[2]) < 0.2 * pattern[0] and pattern[1] / pattern[
        0
    ] == pytest.approx(0.5, abs=0.08)
    places = np.array(
        [[0.0, 0.09, 0.03], [0.08, 0.0, 0.03], [-0.08, 0.0, 0.03], [0.0, -0.09, 0.03]]
    )
    panels = nl.plot.topography(
        np.stack([pattern, weights]), places, titles=("pattern", "weights")
    )
    assert [ax.get_title() for ax in panels] == ["pattern", "weights"]
    np.testing.assert_allclose(panels[0].data["values"], pattern)
    with pytest.raises(RequestError, match="a map needs four"):
        nl.plot.topography(pattern[:3], places[:3])
    with pytest.raises(RequestError, match="no coef_"):
        from sklearn.svm import SVC

        nl.decoding.patterns(SVC().fit(x, y), x)


def test_the_table_of_records_is_that_of_the_scores(tmp_path, monkeypatch):
    from neuroledger.engine.samples import keep_samples

    score = decoded(splits="cross_session", train="each")["lda"]
    (tmp_path / "specs").mkdir()
    keep_samples(tmp_path, "a" * 64, {"balanced_accuracy": score})

    class Kept:
        benchmark, status, model, id = (
            "MotorImagery.simulated-cross_session",
            "scored",
            "lda",
            "a" * 64,
        )

    catalog = type(
        "C", (), {"root": tmp_path, "benchmark": lambda self, id: Benchmark()}
    )()

    class Benchmark:
        all_metrics, dataset = ("balanced_accuracy",), "simulated"

    results = "neuroledger.families.decoding.results"
    monkeypatch.setattr(f"{results}.open_catalog", lambda root: catalog)
    monkeypatch.setattr(f"{results}.read_all", lambda root: [Kept()])
    recorded = nl.decoding.recorded("MotorImagery.simulated-cross_session").drop(
        columns="time"
    )
    pd.testing.assert_frame_equal(
        recorded,
        nl.decoding.table({"lda": score}, dataset="simulated").drop(columns="time"),
    )
    monkeypatch.setattr(f"{results}.read_all", lambda root: [])
    with pytest.raises(RequestError, match="no predictions of"):
        nl.decoding.recorded("MotorImagery.simulated-cross_session")


def _compared(differences: np.ndarray, dataset: str = "x") -> pd.DataFrame:
    people = [f"s{number}" for number in range(len(differences))]
    return pd.DataFrame(
        {
            "dataset": dataset,
            "pipeline": np.repeat(["one", "other"], len(people)),
            "subject": people * 2,
            "session": "0",
            "score": np.concatenate([0.5 + differences, np.full(len(people), 0.5)]),
        }
    )


def _first(comparisons: pd.DataFrame) -> pd.Series:
    return comparisons[
        (comparisons["pipe1"] == "one") & (comparisons["pipe2"] == "other")
    ].iloc[0]


@pytest.mark.parametrize("count", range(2, 31, 4))
def test_paired_tests_are_those_of_scipy_with_ties_and_with_outliers(
    count: int,
) -> None:
    """Shares of 24 trials tie often; one subject with a large loss reverses the mean, but not the ranks."""
    from scipy import stats

    rng = np.random.default_rng(count)
    for draw in range(6):
        differences = rng.integers(-4, 6, count) / 24
        if draw % 2:
            differences = rng.normal(0.02, 0.05, count)
            differences[0] = -1.5
        p = float(_first(nl.decoding.statistics(_compared(differences)))["p"])
        # Whole numbers tie exactly.
        differences = differences if draw % 2 else np.round(differences * 24)
        if count >= 20:
            better, worse = (
                stats.wilcoxon(differences, alternative=side).pvalue
                for side in ("greater", "less")
            )
            assert p == pytest.approx(
                better if better <= worse else 1 - worse, rel=1e-9
            )
        elif count <= 13:
            exact = stats.permutation_test(
                (differences,),
                np.sum,
                permutation_type="samples",
                alternative="greater",
                n_resamples=np.inf,
            )
            assert p == pytest.approx(min(exact.pvalue, 1 - 2.0**-count), abs=1e-12)


def test_data_sets_of_one_subject_and_of_equal_scores_have_a_defined_effect() -> None:
    one = nl.decoding.statistics(_compared(np.array([0.1])))
    assert np.isnan(_first(one)["smd"]) and _first(one)["p"] == 0.5
    assert _first(nl.decoding.statistics(_compared(np.zeros(6))))["smd"] == 0.0
    assert (
        _first(nl.decoding.statistics(_compared(np.full(6, 1 / 24))))["smd"] == np.inf
    )
    several = _compared(np.array([0.05, 0.1, -0.02, 0.04]), "y")
    both = _first(
        nl.decoding.meta_analysis(pd.concat([_compared(np.array([0.1])), several]))
    )
    assert both["smd"] == pytest.approx(_first(nl.decoding.statistics(several))["smd"])
