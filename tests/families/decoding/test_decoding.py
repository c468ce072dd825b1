"""Tests of decoding scores against scikit-learn and closed forms, of intervals against known truth, of seeds and units."""

import numpy as np
import pytest
import xarray as xr
from scipy.special import logit
from scipy.stats import norm
from sklearn import metrics as sk

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.families.decoding.metrics.decoding import decoding
from neuroledger.families.decoding.metrics.decoding_measures import (
    MEASURES,
    Rows,
    edit_distance,
)
from tests.long import long


def rows(truth, answer, choices=None, subject=None, stimulus=None):
    truth, answer = np.asarray(truth), np.asarray(answer)
    names = np.full(len(truth), "1") if subject is None else np.asarray(subject)
    shown = (
        np.arange(len(truth)).astype(str) if stimulus is None else np.asarray(stimulus)
    )
    return Rows(
        truth, answer, None if choices is None else np.asarray(choices), names, shown
    )


@pytest.fixture
def classes():
    rng = np.random.default_rng(3)
    truth = rng.choice(list("abc"), 200, p=[0.6, 0.3, 0.1])
    scores = rng.random((200, 3)) + 0.6 * (truth[:, None] == np.array(list("abc")))
    weights = rng.integers(0, 4, 200).astype(float)
    return truth, scores / scores.sum(axis=1, keepdims=True), weights


@pytest.mark.parametrize("weighted", [False, True])
def test_classes_agree_with_scikit_learn(classes, weighted):
    truth, scores, weights = classes
    weights = weights if weighted else np.ones(200)
    said = np.array(list("abc"))[scores.argmax(axis=1)]
    case = rows(truth, scores, list("abc"))
    given = {"sample_weight": weights}
    assert MEASURES["accuracy"](case)(weights) == pytest.approx(
        sk.accuracy_score(truth, said, **given)
    )
    balanced = sk.balanced_accuracy_score(truth, said, **given)
    assert MEASURES["balanced_accuracy"](case)(weights) == pytest.approx(balanced)
    macro = sk.f1_score(truth, said, average="macro", **given)
    assert MEASURES["macro_f1"](case)(weights) == pytest.approx(macro)
    areas = [
        sk.roc_auc_score(truth == name, scores[:, k], **given)
        for k, name in enumerate("abc")
    ]
    assert MEASURES["auroc"](case)(weights) == pytest.approx(np.mean(areas))


def test_two_classes_have_one_curve_with_ties():
    truth, score = np.array(list("nynyyn")), np.array([0.1, 0.4, 0.4, 0.8, 0.4, 0.9])
    area = MEASURES["auroc"](
        rows(truth, np.stack([1 - score, score], axis=1), ["n", "y"])
    )(np.ones(6))
    assert area == pytest.approx(sk.roc_auc_score(truth == "y", score))


def test_several_labels_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    truth, answer = rng.integers(0, 2, (80, 4)), rng.random((80, 4))
    expected = sk.f1_score(truth, answer > 0.5, average="macro")
    assert MEASURES["macro_f1"](rows(truth, answer))(np.ones(80)) == pytest.approx(
        expected
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_agree_with_numpy_and_scikit_learn(weighted):
    rng = np.random.default_rng(1)
    truth = rng.standard_normal(60)
    answer = 0.5 * truth + rng.standard_normal(60)
    weights = rng.integers(0, 3, 60) if weighted else np.ones(60, int)
    t, a = np.repeat(truth, weights), np.repeat(answer, weights)
    w = weights.astype(float)
    assert MEASURES["pearson_r"](rows(truth, answer))(w) == pytest.approx(
        np.corrcoef(t, a)[0, 1]
    )
    assert MEASURES["rmse"](rows(truth, answer))(w) == pytest.approx(
        np.sqrt(np.mean((t - a) ** 2))
    )
    assert MEASURES["r2"](rows(truth, answer))(w) == pytest.approx(sk.r2_score(t, a))


def test_a_constant_prediction_has_no_correlation():
    assert np.isnan(
        MEASURES["pearson_r"](rows([1.0, 2.0, 3.0], [0.3, 0.3, 0.3]))(np.ones(3))
    )
    assert MEASURES["r2"](rows([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]))(
        np.ones(3)
    ) == pytest.approx(0)


def test_binned_error_weights_ranges_equally():
    case = rows([1.0, 2.0, 3.0, 11.0], [2.0, 3.0, 4.0, 16.0])
    assert MEASURES["binned_mae"](case, (0.0, 10.0, 20.0))(np.ones(4)) == pytest.approx(
        (1 + 5) / 2
    )
    with pytest.raises(MetricError, match="no true value"):
        MEASURES["binned_mae"](case, (50.0, 60.0))


def test_numbers_at_the_cap_are_in_the_last_bin():
    case = rows([0.0, 10.0, 20.0, 20.5], [1.0, 12.0, 24.0, 90.0])
    assert MEASURES["binned_mae"](case, (0.0, 10.0, 20.0))(np.ones(4)) == pytest.approx(
        (1 + 3) / 2
    )


def retrieval_by_hand(truth, answer, subject, stimulus, k):
    """Retrieval with loops: candidates, pairs, and ranks where ties count half."""
    names = sorted(set(stimulus))
    candidates = {
        s: np.mean([t for t, u in zip(truth, stimulus, strict=True) if u == s], axis=0)
        for s in names
    }
    hits = []
    for who, shown in sorted(set(zip(subject, stimulus, strict=True))):
        mine = [
            a
            for a, p, s in zip(answer, subject, stimulus, strict=True)
            if (p, s) == (who, shown)
        ]
        x = np.mean(mine, axis=0)
        score = {s: x @ c / np.linalg.norm(c) for s, c in candidates.items()}
        above = sum(v > score[shown] for v in score.values())
        level = sum(v >= score[shown] for v in score.values())
        hits.append((above + level - 1) / 2 < k)
    return np.mean(hits)


@pytest.mark.parametrize("k", [1, 5])
def test_retrieval_agrees_with_loops(k):
    rng = np.random.default_rng(5)
    stimulus = np.tile([f"s{i}" for i in range(12)], 6)
    subject = np.repeat(["p", "q", "r"], 24)
    centres = rng.standard_normal((12, 7))
    truth = np.tile(centres, (6, 1))
    answer = truth + 2 * rng.standard_normal(truth.shape)
    case = rows(truth, answer, subject=subject, stimulus=stimulus)
    expected = retrieval_by_hand(truth, answer, subject, stimulus, k)
    assert MEASURES["retrieval"](case, k)(np.ones(72)) == pytest.approx(expected)
    assert (
        MEASURES["retrieval"](
            rows(truth, truth, subject=subject, stimulus=stimulus), 1
        )(np.ones(72))
        == 1
    )


def test_constant_predictions_retrieve_k_in_m():
    rng = np.random.default_rng(6)
    truth = rng.standard_normal((200, 16))
    constant = np.tile(truth.mean(axis=0), (200, 1))
    assert MEASURES["retrieval"](rows(truth, constant), 5)(
        np.ones(200)
    ) == pytest.approx(5 / 200)


def test_words_and_characters_are_edited():
    assert edit_distance(list("intention"), list("execution")) == 5
    assert edit_distance([], list("ab")) == 2
    case = rows(["a b c d", "e f"], ["a x c", "e f"])
    assert MEASURES["word_error_rate"](case, "word")(np.ones(2)) == pytest.approx(2 / 6)
    assert (
        MEASURES["word_error_rate"](rows(["abc"], [""]), "character")(np.ones(1)) == 1
    )


def predictions(
    subjects=6, trials=20, hit=0.8, seeds=(33,), seed=0, windows_per_recording=1
):
    rng = np.random.default_rng(seed)
    count = subjects * trials
    truth = np.tile(["a", "b"], count // 2)
    parts = []
    for _ in seeds:
        right = rng.random(count) < hit
        predicted = np.where(right, truth, np.where(truth == "a", "b", "a"))
        parts.append(
            np.stack([predicted == "a", predicted == "b"], axis=1).astype(float)
        )
    subject = np.repeat([f"S{i}" for i in range(subjects)], trials)
    n = len(seeds)
    coords = {
        "subject": ("presentation", np.tile(subject, n)),
        "stimulus_id": ("presentation", np.tile(truth, n)),
        "recording": (
            "presentation",
            np.tile(np.arange(count) // windows_per_recording, n).astype(str),
        ),
        "seed": ("presentation", np.repeat(seeds, count)),
        "split": ("presentation", np.tile(np.repeat(np.arange(subjects), trials), n)),
        "row": ("presentation", np.tile(np.arange(count), n)),
        "choice": ("choice", ["a", "b"]),
    }
    source = xr.DataArray(
        np.concatenate(parts), dims=("presentation", "choice"), coords=coords
    )
    target = xr.DataArray(
        np.tile(truth, n),
        dims=("presentation",),
        coords={k: v for k, v in coords.items() if k != "choice"},
    )
    return source, target


def test_one_value_per_seed_and_split_and_the_predictions_are_kept():
    source, target = predictions(seeds=(33, 34))
    samples = decoding(source, target)
    assert samples.values.dims == ("seed", "split")
    assert samples.values.shape == (2, 6)
    first = sk.balanced_accuracy_score(
        target.values[:20], np.array(["a", "b"])[source.values[:20].argmax(1)]
    )
    assert samples.values.values[0, 0] == pytest.approx(first)
    assert samples.counts == {"windows": 120, "subject": 6}
    assert (samples.predictions["truth"].values == target.values).all()


def interval(source, target, **options):
    score = nl.metric("balanced_accuracy", **options)(source, target)
    return score.low, score.high


def half_in_log_odds(low, high, value):
    """Half the length of an interval of log odds, as a deviation of the value."""
    return (logit(high) - logit(low)) / 2 * value * (1 - value)


def test_the_interval_is_students_interval_of_the_scores_of_subjects_in_log_odds():
    source, target = predictions(subjects=8, trials=50, seed=4)
    values = decoding(source, target).values.values[0]
    half = 2.3646 * values.std(ddof=1) / np.sqrt(8)
    ends = interval(source, target)
    expected = half * np.sqrt(
        1 + 8 * 1 / 7
    )  # eight folds, each tests one subject and trains on seven
    assert half_in_log_odds(*ends, values.mean()) == pytest.approx(expected, rel=1e-4)
    once = source.assign_coords(
        split=("presentation", np.zeros(source.sizes["presentation"], int))
    )
    ends = interval(once, target, measure="accuracy")
    assert half_in_log_odds(*ends, values.mean()) == pytest.approx(half, rel=0.05)


@pytest.mark.parametrize(
    "measure", ["accuracy", long("balanced_accuracy"), long("macro_f1")]
)
def test_people_with_high_scores_differ_less_than_those_with_low_ones(measure):
    """People's discriminability varies; the mean accuracy of all people is known. Student's interval covers .83."""
    people, trials = 6, 40
    truth = float(norm.cdf(2.2 / np.sqrt(1 + 0.6**2)))
    coords = {
        "subject": (
            "presentation",
            np.repeat([f"S{i}" for i in range(people)], trials),
        ),
        "row": ("presentation", np.arange(people * trials)),
    }
    labels = np.tile(["a", "b"], people * trials // 2)
    target = xr.DataArray(labels, dims="presentation", coords=coords)
    covered, students = 0, 0
    for run in range(300):
        rng = np.random.default_rng([run, 6])
        right = (
            rng.random((people, trials))
            < norm.cdf(rng.normal(2.2, 0.6, people))[:, None]
        )
        other = np.where(labels == "a", "b", "a")
        answers = xr.DataArray(
            np.where(right.ravel(), labels, other), dims="presentation", coords=coords
        )
        low, high = interval(answers, target, measure=measure)
        covered += low <= truth <= high
        half = 2.5706 * right.mean(axis=1).std(ddof=1) / np.sqrt(people)
        students += abs(right.mean() - truth) <= half
    assert students < 0.88 * 300 and covered >= 0.93 * 300


def test_the_interval_of_a_correlation_is_fishers():
    rng = np.random.default_rng(1)
    truth = rng.standard_normal((6, 30))
    answers = truth + rng.uniform(0.2, 1.0, (6, 1)) * rng.standard_normal((6, 30))
    coords = {"subject": ("presentation", np.repeat([f"S{i}" for i in range(6)], 30))}
    source, target = (
        xr.DataArray(each.ravel(), dims="presentation", coords=coords)
        for each in (answers, truth)
    )
    score = nl.metric("decoding_pearson_r")(source, target)
    up, down = np.arctanh([score.high, score.low]) - np.arctanh(score.value)
    assert up == pytest.approx(-down) and score.value > 0.7


def test_the_interval_of_cross_validated_noise_covers_chance_at_its_nominal_rate():
    """Nearest class means, leaving out one of eight subjects: folds trained on the same noise are correlated."""
    covered, bare = 0, 0
    people, trials = 8, 24
    for seed in range(150):
        rng = np.random.default_rng(seed)
        y = np.tile(["a", "b"], (people, trials // 2))
        sign = np.where(y == "b", 1.0, -1.0)
        x = rng.standard_normal((people, trials, 6))
        answers = []
        for person in range(people):
            others = np.arange(people) != person
            weights = np.einsum("ptf,pt->f", x[others], sign[others])
            answers.append((x[person] - x[others].mean(axis=(0, 1))) @ weights)
        scores = np.concatenate(answers)
        who = np.repeat(np.arange(people), trials)
        coords = {
            "subject": ("presentation", who.astype(str)),
            "split": ("presentation", who),
        }
        source = xr.DataArray(
            np.stack([-scores, scores], axis=1),
            dims=("presentation", "choice"),
            coords={**coords, "choice": ["a", "b"]},
        )
        target = xr.DataArray(y.ravel(), dims=("presentation",), coords=coords)
        low, high = interval(source, target)
        covered += low <= 0.5 <= high
        middle, narrow = (low + high) / 2, np.sqrt(2)
        bare += abs(middle - 0.5) * narrow <= (high - low) / 2
    assert 138 <= covered <= 147
    assert bare < covered - 5


def test_the_interval_of_noise_covers_chance_at_its_nominal_rate():
    covered = 0
    for seed in range(120):
        source, target = predictions(subjects=6, trials=20, hit=0.5, seed=seed)
        low, high = interval(source, target)
        covered += low <= 0.5 <= high
    assert 110 <= covered <= 120


def pictures(run, people=6, stimuli=40, fixed_people=False):
    """Predicted embeddings of pictures that all people saw, some pictures and some people being harder."""
    rng = np.random.default_rng([7, run])
    embeddings, ease = (
        rng.normal(size=(stimuli, 12)),
        np.exp(0.3 * rng.normal(size=stimuli)),
    )
    gain = np.exp(
        0.3 * (np.random.default_rng(1) if fixed_people else rng).normal(size=people)
    )
    predicted = gain[:, None, None] * ease[:, None] * embeddings + 1.5 * rng.normal(
        size=(people, stimuli, 12)
    )
    coords = {
        "subject": (
            "presentation",
            np.repeat([f"p{i}" for i in range(people)], stimuli),
        ),
        "stimulus_id": (
            "presentation",
            [f"{run}s{i:02d}" for i in range(stimuli)] * people,
        ),
    }
    dims = ("presentation", "neuroid")
    target = xr.DataArray(np.tile(embeddings, (people, 1)), dims=dims, coords=coords)
    return target.copy(data=predicted.reshape(-1, 12)), target


def test_retrieval_varies_with_the_pictures_that_are_asked_for_and_the_people():
    """The factors are those of a two-way table of hits; each has the variance of its means."""
    source, target = pictures(0)
    score = nl.metric("top5_retrieval")(source, target)
    assert set(score.uncertainty.factors) == {"stimulus", "subject"}
    asked = [
        MEASURES["retrieval"](
            rows(
                target.values,
                source.values,
                subject=target["subject"].values,
                stimulus=target["stimulus_id"].values,
            ),
            5,
        )
    ]
    hits = np.array([asked[0](np.eye(240)[row]) for row in range(240)]).reshape(6, 40)
    assert score.value == pytest.approx(hits.mean())
    for part in score.uncertainty.parts[:2]:
        means = hits.mean(axis=0 if part.over == ("stimulus",) else 1)
        assert part.variance == pytest.approx(means.var(ddof=1) / len(means))
    # Pictures of one person each are no second factor.
    own = [
        f"{who}{which}"
        for who, which in zip(
            target["subject"].values, target["stimulus_id"].values, strict=True
        )
    ]
    nested = [
        side.assign_coords(stimulus_id=("presentation", own))
        for side in (source, target)
    ]
    assert nl.metric("top5_retrieval")(*nested).uncertainty.factors == ("subject",)


def test_the_interval_of_retrieval_covers_new_pictures():
    scores = []
    for run in range(120):
        score = nl.metric("top5_retrieval")(*pictures(run, fixed_people=True))
        scores.append(score.replace(generalise=("stimulus",)))
    mean = np.mean([score.value for score in scores])
    assert 0.9 < np.mean([score.low <= mean <= score.high for score in scores]) < 0.99


@pytest.mark.parametrize("measure", ["macro_f1", "auroc"])
def test_predictions_without_any_error_are_as_uncertain_as_their_recalls(measure):
    source, target = predictions(subjects=6, trials=20, hit=1.0)
    perfect = source.copy(
        data=np.stack([target == label for label in source["choice"].values], axis=1)
        * 1.0
    )
    low, high = interval(perfect, target, measure=measure)
    assert (low, high) == pytest.approx(
        interval(perfect, target, measure="balanced_accuracy")
    )
    assert 0.9 < low < 0.99 and high == 1


def test_one_subject_has_no_interval_which_is_noted():
    source, target = predictions(subjects=1)
    samples = decoding(source, target)
    assert not np.isfinite(interval(source, target)).any()
    assert "no interval" in samples.notes[0]


def test_the_prediction_of_a_subject_is_the_vote_of_its_windows():
    source, target = predictions(subjects=4, trials=10)
    diagnosis = np.repeat(["a", "b", "a", "b"], 10)
    target = target.copy(data=diagnosis)
    predicted = np.repeat(["a", "b", "b", "b"], 10)
    predicted[[0, 1, 2, 15, 16]] = "b"
    source = source.copy(
        data=np.stack([predicted == "a", predicted == "b"], axis=1).astype(float)
    )
    samples = decoding(source, target, per="subject", pool=True)
    assert samples.values.item() == pytest.approx((0.5 + 1) / 2)
    with pytest.raises(MetricError, match="varies within a subject"):
        decoding(*predictions(), per="subject")


def test_non_finite_and_unmatched_predictions_are_refused():
    source, target = predictions()
    source.values[3, 0] = np.nan
    with pytest.raises(MetricError, match="1 predictions are not finite"):
        decoding(source, target)
    with pytest.raises(MetricError, match="120 predictions for 119"):
        decoding(source, target.isel(presentation=slice(1, None)))


def folded(truth, answer, split, **coords):
    names = {
        "subject": split,
        "recording": split,
        "stimulus_id": np.arange(len(truth)),
        "split": split,
        **coords,
    }
    at = {name: ("presentation", np.asarray(values)) for name, values in names.items()}
    return (
        xr.DataArray(values, dims=("presentation",), coords=at)
        for values in (answer, truth)
    )


def test_a_fold_with_constant_truth_is_left_out_and_noted():
    split = np.repeat(np.arange(6), 20)
    rng = np.random.default_rng(6)
    truth = rng.standard_normal(120)
    truth[split == 2] = 4.0
    source, target = folded(truth, truth + rng.standard_normal(120), split)
    score = nl.metric("decoding_pearson_r")(source, target)
    each = [
        np.corrcoef(source.values[split == k], truth[split == k])[0, 1]
        for k in (0, 1, 3, 4, 5)
    ]
    assert score.value == pytest.approx(np.mean(each))
    assert score.low < score.value < score.high
    assert any("1 of 6 trainings have no score" in note for note in score.notes)


def test_a_constant_prediction_in_one_fold_counts_as_nothing_found():
    split = np.repeat(np.arange(4), 25)
    rng = np.random.default_rng(7)
    truth = rng.standard_normal(100)
    answer = truth + rng.standard_normal(100)
    answer[split == 1] = 0.3
    score = nl.metric("decoding_pearson_r")(*folded(truth, answer, split))
    each = [np.corrcoef(answer[split == k], truth[split == k])[0, 1] for k in (0, 2, 3)]
    assert score.value == pytest.approx(np.sum(each) / 4)
    assert any("1 of 4 trainings predict a constant" in note for note in score.notes)
    with pytest.raises(
        MetricError, match="none of 4 trainings has a score: 4 predict a constant"
    ):
        nl.metric("decoding_pearson_r")(*folded(truth, np.full(100, 0.3), split))


@pytest.mark.parametrize("level", [0.1, 4.0, 1e9])
@pytest.mark.parametrize("measure", ["pearson_r", "r2"])
def test_a_constant_truth_has_no_score_whatever_its_rounding(measure, level):
    answer = np.random.default_rng(1).standard_normal(21)
    assert np.isnan(MEASURES[measure](rows(np.full(21, level), answer))(np.ones(21)))
    truth = level + 1e-3 * answer
    assert MEASURES[measure](rows(truth, truth))(np.ones(21)) == pytest.approx(1.0)
