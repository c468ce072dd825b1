"""Tests of classical decoders with several labels, declared objectives, and too many windows."""

import warnings

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import LimitError, ModelError
from neuroledger.families.decoding.models.classical_decoders import (
    cospectra_decoder,
    covariance_decoder,
    shrinkage_lda,
    sklearn_decoder,
)
from neuroledger.families.decoding.pipelines.declare import declared_step
from neuroledger.families.decoding.protocols import array_cache
from neuroledger.families.decoding.protocols.decoder import Signature, answer
from neuroledger.families.decoding.training.linear_heads import sample_rows


def signature(objective, outputs, samples=128):
    return Signature(objective, 3, samples, outputs, 64.0, ("C0", "C1", "C2"), 33)


def rhythms(n=120, seed=0):
    """Windows in which each of three labels is a rhythm of its own on a channel of its own."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, 3)) < [0.5, 0.3, 0.2]).astype(int)
    time = np.arange(128) / 64
    x = rng.standard_normal((n, 3, 128))
    for channel, hertz in enumerate((8, 12, 20)):
        wave = np.sin(2 * np.pi * hertz * time + rng.uniform(0, 6, (n, 1)))
        x[:, channel] += 1.5 * labels[:, channel, None] * wave
    return x, labels


def published_one_vs_rest(x, y, tested):
    """The published chain, put together from pyriemann and scikit-learn alone."""
    from pyriemann.estimation import Covariances, Shrinkage
    from pyriemann.tangentspace import TangentSpace
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    last = LogisticRegressionCV(
        Cs=[10.0**k for k in range(-3, 4)],
        cv=5,
        max_iter=1000,
        class_weight="balanced",
        scoring="accuracy",
    )
    chain = make_pipeline(
        Covariances("oas"),
        Shrinkage(0.1),
        TangentSpace(metric="riemann"),
        StandardScaler(),
        OneVsRestClassifier(last),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return chain.fit(x, y).predict_proba(tested)


def test_several_labels_are_one_against_the_rest_as_published():
    x, y = rhythms()
    decoder = covariance_decoder(
        id="c", shrinkage=0.1, head=declared_step("logistic_search")
    )
    fitted = decoder.make(signature("multilabel", 3)).fit(x[:80], y[:80])
    predicted = answer(fitted, x[80:], "multilabel", np.empty(0), id="c")
    # Both means stop where the norm of the gradient is 1e-8, after steps of other kinds.
    np.testing.assert_allclose(
        predicted, published_one_vs_rest(x[:80], y[:80], x[80:]), atol=1e-10, rtol=0
    )
    assert fitted.notes_ == []
    np.testing.assert_array_equal(fitted.predict(x[80:]), (predicted > 0.5).astype(int))


@pytest.mark.slow
def test_several_labels_through_decode_beat_the_dummy_and_their_shuffle():
    x, y = rhythms(200)
    by = {"metric": "macro_f1", "splits": 4, "sampling_rate": 64}
    score = nl.decode("covariance_logistic_search", x, y, **by)
    assert score.value > 0.8
    assert score.value > nl.decode("dummy", x, y, **by).value + 0.3
    assert (
        nl.decode("covariance_logistic_search", x, y, shuffle_labels=True, **by).value
        < 0.6
    )
    assert (
        nl.decode("covariance_logistic_search", x, y, normalise=True, **by).value > 0.6
    )


def test_a_label_without_two_examples_of_each_answer_is_constant_and_noted():
    x, y = rhythms(60)
    y[:, 1], y[:, 2] = 0, 1
    y[0, 1] = 1
    fitted = (
        covariance_decoder(id="c", head=declared_step("logistic_search"))
        .make(signature("multilabel", 3))
        .fit(x, y)
    )
    predicted = fitted.predict_proba(x)
    assert (predicted[:, 1] == 0).all()
    assert (predicted[:, 2] == 1).all()
    assert predicted[:, 0].std() > 0.1
    assert fitted.notes_ == [
        "label 2 of 3 is in 1 of 60 training windows: always answered no",
        "label 3 of 3 is in 60 of 60 training windows: always answered yes",
    ]
    again = (
        covariance_decoder(id="c", head=declared_step("logistic"))
        .make(signature("multilabel", 3))
        .fit(x, y)
    )
    assert again.notes_ == [
        "label 3 of 3 is in 60 of 60 training windows: always answered yes"
    ]
    y[:, 2] = 1
    score = nl.decode(
        "covariance_logistic", x, y, metric="macro_f1", splits=3, sampling_rate=64
    )
    assert any(
        "label 3 of 3 is in 40 of 40 training windows" in note for note in score.notes
    )


@pytest.mark.parametrize(
    "decoder",
    [shrinkage_lda(id="l", every=1), cospectra_decoder(id="s", window=64)],
    ids=["lda", "cospectra"],
)
def test_other_classical_decoders_answer_several_labels(decoder):
    x, y = rhythms(80)
    predicted = answer(
        decoder.make(signature("multilabel", 3)).fit(x, y),
        x,
        "multilabel",
        np.empty(0),
        id="d",
    )
    assert predicted.shape == (80, 3)
    assert (predicted >= 0).all()
    assert (predicted <= 1).all()


def test_a_decoder_offers_only_the_objectives_of_its_head():
    assert covariance_decoder(id="c").objectives == ("classification", "multilabel")
    assert covariance_decoder(
        id="c", head=declared_step("ridge_search")
    ).objectives == (
        "regression",
        "retrieval",
    )
    assert covariance_decoder(id="x", xdawn=2).objectives == ("classification",)
    with pytest.raises(ModelError, match="Xdawn needs classes"):
        covariance_decoder(id="x", xdawn=2, head=declared_step("ridge_search"))


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("sklearn.linear_model.LogisticRegression", {}),  # knows one label
        ("sklearn.svm.LinearSVC", {}),  # has no probabilities
        (
            "sklearn.ensemble.RandomForestClassifier",
            {"n_estimators": 20},
        ),  # knows several
        ("sklearn.neighbors.KNeighborsClassifier", {}),
    ],
)
def test_any_classifier_can_be_declared_for_several_labels(path, parameters):
    rng = np.random.default_rng(0)
    y = (rng.random((120, 2)) < 0.4).astype(int)
    x = rng.standard_normal((120, 3, 8))
    x[:, :2] += 2 * y[:, :, None]
    decoder = sklearn_decoder(
        id="s", path=path, parameters=parameters, objective="multilabel"
    )
    fitted = decoder.make(signature("multilabel", 2, 8)).fit(x[:80], y[:80])
    said = answer(fitted, x[80:], "multilabel", np.empty(0), id="s")
    assert ((said > 0.5) == y[80:]).mean() > 0.9


@pytest.mark.parametrize("path", ["sklearn.linear_model.Ridge", "sklearn.svm.SVR"])
@pytest.mark.parametrize("objective", ["regression", "retrieval"])
def test_any_regressor_can_be_declared_for_several_numbers_or_embeddings(
    path, objective
):
    rng = np.random.default_rng(0)
    y = rng.standard_normal((150, 2))
    x = rng.standard_normal((150, 3, 8))
    x[:, :2] += 2 * y[:, :, None]
    decoder = sklearn_decoder(id="s", path=path, objective=("regression", "retrieval"))
    fitted = decoder.make(signature(objective, 2, 8)).fit(x[:110], y[:110])
    said = answer(fitted, x[110:], objective, np.empty(0), id="s")
    assert np.corrcoef(said[:, 1], y[110:, 1])[0, 1] > 0.8


def test_whole_texts_can_be_predicted_by_nearest_neighbours():
    rng = np.random.default_rng(0)
    texts = np.array(["yes", "no", "maybe"])[rng.integers(0, 3, 90)]
    x = (
        0.3 * rng.standard_normal((90, 2, 4))
        + np.array([len(text) for text in texts])[:, None, None]
    )
    decoder = sklearn_decoder(
        id="k", path="sklearn.neighbors.KNeighborsClassifier", objective="sequence"
    )
    score = nl.decode(decoder, x, texts, metric="character_error_rate", splits=3)
    assert score.value < 0.05


def test_wrong_declarations_are_one_clear_error(tmp_path):
    regressor = sklearn_decoder(
        id="r", path="sklearn.linear_model.Ridge", objective="multilabel"
    )
    with pytest.raises(
        ModelError,
        match=r"model 'r': sklearn.linear_model.Ridge predicts numbers, but multilabel",
    ):
        regressor.make(signature("multilabel", 2))
    classifier = sklearn_decoder(id="c", path="sklearn.svm.SVC", objective="retrieval")
    with pytest.raises(
        ModelError, match=r"predicts classes, but retrieval needs a regressor"
    ):
        classifier.make(signature("retrieval", 2))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 2, 4)), rng.standard_normal(40)
    with pytest.raises(
        ModelError, match=r"does not support regression; it supports classification"
    ):
        nl.decode(
            sklearn_decoder(id="c", path="sklearn.svm.SVC"),
            x,
            y,
            metric="decoding_pearson_r",
        )


def test_subsampled_windows_keep_the_class_proportions():
    y = np.repeat(["a", "b", "c"], [900, 90, 10])
    rows = sample_rows(y, 100)
    assert np.unique(y[rows], return_counts=True)[1].tolist() == [90, 9, 1]
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, sample_rows(y, 100))
    np.testing.assert_array_equal(sample_rows(y, None), np.arange(1000))
    assert (
        len(sample_rows(np.zeros((50, 3)), 20))
        == len(sample_rows(np.arange(50.0), 20))
        == 20
    )
    assert len(sample_rows(np.arange(50).astype(str), 20)) == 20
    assert np.unique(y[sample_rows(y, 7)]).tolist() == ["a", "b", "c"]


def test_a_decoder_learns_from_no_more_windows_than_it_says():
    x, y = rhythms(90)
    some = (
        covariance_decoder(id="c", most=40).make(signature("multilabel", 3)).fit(x, y)
    )
    rows = sample_rows(y, 40)
    whole = (
        covariance_decoder(id="c")
        .make(signature("multilabel", 3))
        .fit(x[rows], y[rows])
    )
    np.testing.assert_array_equal(some.predict_proba(x), whole.predict_proba(x))
    assert some.notes_ == ["fitted on 40 windows, drawn from all of the training part"]


def test_a_mean_that_does_not_exist_is_replaced_and_noted(monkeypatch):
    import pyriemann.tangentspace

    x, y = rhythms(60)
    original = pyriemann.tangentspace.gmean
    refused: list[str] = []

    def failing(covariances, metric=None, **options):
        if getattr(metric, "__name__", str(metric)).removeprefix("mean_") in refused:
            raise ValueError("Matrices must be positive definite")
        return original(covariances, metric=metric, **options)

    monkeypatch.setattr(pyriemann.tangentspace, "gmean", failing)
    for name, metric in (("log-Euclidean", "riemann"), ("arithmetic", "logeuclid")):
        refused.append(metric)
        array_cache.clear_cache()
        fitted = covariance_decoder(id="c").make(signature("multilabel", 3)).fit(x, y)
        assert fitted.notes_ == [
            f"tangent space at the {name} mean: no better one was found"
        ]
        assert np.isfinite(fitted.predict_proba(x)).all()
    refused.append("euclid")
    array_cache.clear_cache()
    with pytest.raises(ValueError, match="positive definite"):
        covariance_decoder(id="c").make(signature("multilabel", 3)).fit(x, y)


def test_covariances_that_memory_has_no_room_for_are_refused_before_they_are_made():
    x = np.zeros((4, 20_000, 4), dtype=np.float32)
    wide = Signature("retrieval", 20_000, 4, 2, 0.5, tuple(map(str, range(20_000))), 33)
    decoder = covariance_decoder(id="c", head=declared_step("ridge_search")).make(wide)
    decoder.bytes_each *= 1000
    words = r"computing the features of 4 windows of 20,000 channels needs about .* GiB of memory"
    with pytest.raises(LimitError, match=words):
        decoder.fit(x, np.zeros((4, 2)))
