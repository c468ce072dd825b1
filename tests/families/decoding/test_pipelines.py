"""Tests of pipelines of declared steps: equal to scikit-learn, pyriemann and MOABB, cached, refused if steps do not fit."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from pyriemann import classification, estimation, spatialfilters, tangentspace
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import neuroledger as nl
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.families.decoding.models.classical_decoders import pipeline_decoder
from neuroledger.families.decoding.pipelines import covariances as of_windows
from neuroledger.families.decoding.pipelines import declare
from neuroledger.families.decoding.pipelines.coded_labels import CodedLabels
from neuroledger.families.decoding.pipelines.covariances import covariances
from neuroledger.families.decoding.pipelines.flicker import CLASSIFIERS
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.registry import get
from tests.docs.blocks import agreed_blocks_of
from tests.golden import moabb_cases

X, Y, SUBJECT, SESSION = moabb_cases.people()
COV = {"name": "covariances", "estimator": "oas"}
TS = {"name": "tangent_space"}
LR = {"name": "logistic", "c": 1.0, "balanced": False, "iterations": 100}


def declared(*steps, **given):
    bound = get("builder", "pipeline_decoder").bind({"steps": list(steps), **given})
    return pipeline_decoder(id="p", **bound)


@pytest.mark.parametrize("estimator", ["oas", "lwf", "cov"])
@pytest.mark.parametrize("shape", [(8, 80), (22, 129), (2, 5), (9, 512)])
def test_covariances_of_all_windows_are_bit_for_bit_those_of_each(estimator, shape):
    rng = np.random.default_rng(0)
    x = (
        rng.standard_normal((shape[0], shape[0])) @ rng.standard_normal((60, *shape))
        + 3
    )
    np.testing.assert_array_equal(
        covariances(x, estimator), estimation.Covariances(estimator).fit_transform(x)
    )


PAIRS = {
    "csp_lda": (
        [COV, {"name": "csp"}, {"name": "lda"}],
        lambda: make_pipeline(
            estimation.Covariances("oas"),
            spatialfilters.CSP(6),
            LinearDiscriminantAnalysis(),
        ),
    ),
    "mdm": (
        [COV, {"name": "mdm"}],
        lambda: make_pipeline(estimation.Covariances("oas"), classification.MDM()),
    ),
    "fgmdm": (
        [COV, {"name": "fgmdm"}],
        lambda: make_pipeline(estimation.Covariances("oas"), classification.FgMDM()),
    ),
    "ts_lr": (
        [COV, TS, LR],
        lambda: make_pipeline(
            estimation.Covariances("oas"),
            tangentspace.TangentSpace(),
            LogisticRegression(),
        ),
    ),
    "ts_svm": (
        [COV, TS, {"name": "svm", "kernel": "linear"}],
        lambda: make_pipeline(
            estimation.Covariances("oas"),
            tangentspace.TangentSpace(),
            SVC(kernel="linear"),
        ),
    ),
    "erp_mdm": (
        [{"name": "erp_covariances"}, {"name": "mdm"}],
        lambda: make_pipeline(
            estimation.ERPCovariances(estimator="oas"), classification.MDM()
        ),
    ),
    "xdawn_mdm": (
        [{"name": "xdawn_covariances", "estimator": "oas"}, {"name": "mdm"}],
        lambda: make_pipeline(
            estimation.XdawnCovariances(estimator="oas"), classification.MDM()
        ),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_declared_steps_give_the_areas_of_the_libraries_in_every_fold(name):
    steps, peer = PAIRS[name]
    areas = nl.decode(
        declared(*steps), X, Y, groups=SUBJECT, metric="auroc"
    ).samples.values[0]
    known = []
    for train, test in LeaveOneGroupOut().split(X, Y, SUBJECT):
        fitted = peer().fit(X[train], Y[train])
        decides = hasattr(fitted, "decision_function")
        scores = (
            fitted.decision_function(X[test])
            if decides
            else fitted.predict_proba(X[test])[:, 1]
        )
        right = scores[Y[test] == "right"][:, None]
        wrong = scores[Y[test] == "left"][None]
        known.append((right > wrong).mean() + (right == wrong).mean() / 2)
    np.testing.assert_allclose(areas, known, atol=1e-12, rtol=0)


@pytest.mark.slow
def test_a_search_chooses_and_answers_as_scikit_learn_does():
    grid = {
        "csp.filters": [1, 2, 4],
        "svm.c": [0.1, 1.0],
        "svm.kernel": ["rbf", "linear"],
    }
    ours = declared(COV, {"name": "csp"}, {"name": "svm"}, search={"grid": grid})
    fitted = nl.decode(
        ours, X, Y, groups=SUBJECT, metric="decoding_accuracy"
    ).samples.values[0]
    pipe = make_pipeline(estimation.Covariances("oas"), spatialfilters.CSP(6), SVC())
    known = {
        "csp__nfilter": [1, 2, 4],
        "svc__C": [0.1, 1.0],
        "svc__kernel": ["rbf", "linear"],
    }
    search = GridSearchCV(
        pipe,
        known,
        cv=StratifiedKFold(3, shuffle=True, random_state=42),
        scoring="roc_auc",
    )
    peer = nl.decode(
        search, X, Y, groups=SUBJECT, metric="decoding_accuracy"
    ).samples.values[0]
    np.testing.assert_array_equal(fitted, peer)
    for fold, (train, test) in enumerate(LeaveOneGroupOut().split(X, Y, SUBJECT)):
        assert search.fit(X[train], Y[train]).predict(X[test]).tolist().count("x") == 0
        assert fitted[fold] == (search.predict(X[test]) == Y[test]).mean()


def test_covariances_are_computed_once_for_folds_controls_and_pipelines(monkeypatch):
    windows = []
    original = of_windows._ESTIMATORS["oas"]
    counted = {
        **of_windows._ESTIMATORS,
        "oas": lambda x: (windows.append(len(x)), original(x))[1],
    }
    monkeypatch.setattr(of_windows, "_ESTIMATORS", counted)
    x = X + 1e-7  # content that nobody has seen
    for decoder in (
        declared(COV, TS, LR),
        declared(COV, {"name": "mdm"}),
        make_pipeline(estimation.Covariances("oas"), classification.MDM()),
    ):
        nl.decode(decoder, x, Y, groups=SUBJECT)
    nl.decode(declared(COV, TS, LR), x, Y, groups=SUBJECT, shuffle_labels=True)
    assert sum(count for count in windows if count > 1) == len(x)
    x[0] += 1  # changed in place: nothing that was made of the old values is used
    nl.decode(declared(COV, {"name": "mdm"}), x, Y, groups=SUBJECT)
    assert sum(count for count in windows if count > 1) == 2 * len(x)


@pytest.mark.parametrize(
    ("steps", "search", "words"),
    [
        (
            [{"name": "csp"}, {"name": "lda"}],
            None,
            "step 1, csp, takes covariances, .* windows before it: put covariances",
        ),
        (
            [COV, TS],
            None,
            "the last step, tangent_space, gives features, and answers are needed",
        ),
        (
            [COV, {"name": "mdm"}, {"name": "lda"}],
            None,
            "step 3, lda, takes features, and there are answers",
        ),
        (
            [{"name": "filter_bank", "bands": 2, "steps": [COV]}, {"name": "lda"}],
            None,
            "filter_bank: the last step, covariances",
        ),
        (
            [COV, {"name": "mdm"}],
            {"grid": {"svm.c": [1]}},
            "field 'svm.c' does not exist",
        ),
        ([COV, TS, {"name": "svm"}], {"grid": {"svm.c": [-1]}}, "greater than 0"),
    ],
)
def test_steps_that_do_not_fit_are_refused_before_anything_runs(steps, search, words):
    given = {"steps": steps} | ({"search": search} if search else {})
    with pytest.raises(ValidationError, match=words):
        get("builder", "pipeline_decoder").bind(given)


def test_a_filter_bank_and_augmentation_read_what_one_band_does_not():
    rng = np.random.default_rng(0)
    time = np.arange(128) / 64
    y = np.tile(["a", "b"], 40)
    x = rng.standard_normal((80, 2, 128))
    x[:, 0] += np.where(
        (y == "a")[:, None],
        np.sin(2 * np.pi * 10 * time),
        np.sin(2 * np.pi * 24 * time),
    )
    bank = {
        "name": "filter_bank",
        "bands": [[8, 12], [22, 26]],
        "steps": [COV, {"name": "csp", "filters": 2}],
    }
    groups = np.repeat(list("abcd"), 20)
    asked = {"groups": groups, "sampling_rate": 64.0}
    assert nl.decode(declared(bank, {"name": "lda"}), x, y, **asked).value > 0.95
    assert (
        nl.decode(
            declared(COV, {"name": "csp", "filters": 2}, {"name": "lda"}), x, y, **asked
        ).value
        < 0.75
    )
    augmented = declared({"name": "augment", "order": 3, "lag": 1}, COV, TS, LR)
    assert nl.decode(augmented, x, y, **asked).value > 0.9
    grouped = {**bank, "bands": 2}
    stacked = np.concatenate([x, x], axis=1)
    with pytest.raises(ModelError, match="3 channels are not 2 equal groups"):
        nl.decode(declared(grouped, {"name": "lda"}), stacked[:, :3], y, **asked)
    with pytest.raises(ModelError, match="does not fit between 0 and 32 Hz"):
        nl.decode(
            declared({**bank, "bands": [[8, 40]]}, {"name": "lda"}), x, y, **asked
        )


def test_a_filter_bank_of_a_filtered_recording_is_that_of_mne_and_pyriemann():
    mne = pytest.importorskip("mne")
    from pyriemann.estimation import Covariances
    from pyriemann.spatialfilters import CSP
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng, rate, bands = np.random.default_rng(3), 64.0, [[8, 12], [16, 24]]
    kinds = np.tile(["a", "b"], 30)
    onsets = 3.0 + 2.5 * np.arange(len(kinds))
    times = np.arange(int(rate * 160)) / rate
    values = rng.standard_normal((3, len(times)))
    for onset, kind in zip(onsets, kinds, strict=True):
        here = (times >= onset) & (times < onset + 2)
        values[0, here] += 0.6 * np.sin(
            2 * np.pi * (10 if kind == "a" else 20) * times[here]
        )
    raw = mne.io.RawArray(
        values * 1e-5, mne.create_info(["C3", "Cz", "C4"], rate, "eeg"), verbose="ERROR"
    )
    raw.set_annotations(mne.Annotations(onsets, 0.0, kinds))
    window = {"start": 0.0, "duration": 2.0, "labels": {"a": "a", "b": "b"}}
    made = nl.windows(
        {"1": raw}, window=window, preprocessing={"bands": bands, "filter": "iir"}
    )
    assert made["channel_id"].values.tolist()[:4] == [
        "C3 8-12 Hz",
        "Cz 8-12 Hz",
        "C4 8-12 Hz",
        "C3 16-24 Hz",
    ]
    bank = {
        "name": "filter_bank",
        "bands": "recorded",
        "steps": [COV, {"name": "csp", "filters": 2}],
    }
    score = nl.decode(
        declared(bank, {"name": "lda"}),
        made,
        "label",
        splits={"name": "blocked", "folds": 3},
    )

    # The same by hand: each band of the recording, cut, through filters of its own.
    first = np.round(onsets * rate).astype(int)
    parts = []
    for low, high in bands:
        filtered = (
            raw.copy()
            .filter(low, high, method="iir", picks="eeg", verbose="ERROR")
            .get_data()
            * 1e6
        )
        cut = (
            np.stack([filtered[:, at : at + 128] for at in first])
            .astype(np.float32)
            .astype(float)
        )
        parts.append(Covariances("oas").transform(cut))
    predictions = score.predictions
    rows = np.round((predictions["onset"].values - 3.0) / 2.5).astype(int)
    for fold in np.unique(predictions["split"].values):
        test = rows[predictions["split"].values == fold]
        train = np.setdiff1d(np.arange(len(kinds)), test)
        features = [CSP(2).fit(part[train], kinds[train]) for part in parts]
        both = np.concatenate(
            [one.transform(part) for one, part in zip(features, parts, strict=True)],
            axis=1,
        )
        theirs = (
            LinearDiscriminantAnalysis()
            .fit(both[train], kinds[train])
            .predict_proba(both[test])
        )
        ours = predictions.values[predictions["split"].values == fold]
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert score.value > 0.9
    with pytest.raises(
        ModelError, match=r"not filtered in bands; its channels are C3, Cz, C4"
    ):
        plain = nl.windows({"1": raw}, window=window)
        nl.decode(
            declared(bank, {"name": "lda"}),
            plain,
            "label",
            splits={"name": "blocked", "folds": 3},
        )
    with pytest.raises(
        DataError, match="band 8 to 40 Hz does not fit between 0 and 32 Hz"
    ):
        nl.windows({"1": raw}, window=window, preprocessing={"bands": [[8, 40]]})


def test_flicker_is_answered_as_moabb_does():
    known = json.loads(moabb_cases.GOLDEN.read_text())["flicker"]
    x, y = moabb_cases.flicker()
    trca = {"bands": 3, "ensemble": False, "harmonics": None, "unit_variance": False}
    cases = {
        "cca": ("cca", {"harmonics": 3}),
        "template_cca": ("template_cca", {}),
        "extended_cca": ("extended_cca", {"harmonics": 3}),
        "trca_references": ("trca", {**trca, "harmonics": 3}),
        "trca_unit": ("trca", {**trca, "unit_variance": True}),
        "tdca": ("tdca", {"bands": 3, "components": 1, "delays": 6}),
    }
    for name, (kind, fields) in cases.items():
        fitted = CLASSIFIERS[kind](rate=moabb_cases.RATE, frequencies={}, **fields).fit(
            x[:30], y[:30]
        )
        assert fitted.predict(x[30:]).tolist() == known[name], name


def test_published_definitions_are_kept_where_moabb_departs_from_them():
    # MOABB removes the mean over channels, which leaves TRCA no inverse, and takes the blocks of MsetCCA from another order.
    x, y = moabb_cases.flicker()
    for step in ({"name": "trca", "bands": 3}, {"name": "multiset_cca"}):
        fitted = declared(step).make(_signature(x)).fit(x[:30], y[:30])
        assert (fitted.predict(x[30:]) == y[30:]).mean() >= 0.9
    with pytest.raises(ModelError, match="is not a frequency"):
        declared({"name": "cca"}).make(_signature(x)).fit(x, np.char.add("class", y))
    by_frequency = declared(
        {
            "name": "cca",
            "frequencies": {f"class{name}": float(name) for name in np.unique(y)},
        }
    )
    assert (
        by_frequency.make(_signature(x)).fit(x, np.char.add("class", y)).predict(x)
        == np.char.add("class", y)
    ).mean() > 0.9


def _signature(x):
    from neuroledger.families.decoding.protocols.decoder import Signature

    return Signature(
        "classification",
        x.shape[1],
        x.shape[2],
        5,
        moabb_cases.RATE,
        ("C",) * x.shape[1],
        33,
    )


# Files of the folder `pipelines` in NeuroTechX/moabb, whatever their ending; those that were renamed stand once.
FILES = {
    "AUG_TANG_SVM_grid": "AugmentedTangentSpace_SVM_grid", "Braindecode_ShallowFBCSPNET": "ShallowFBCSPNet_cosine",
    "CCA-SSVEP": "SSVEP_CCA", "CSP": "CSP_LDA", "CSP_SVM": "CSP_SVM", "CSP_SVM_grid": "CSP_SVM_grid",
    "CSP_svm_search": "CSP_SVM_optimised", "EN_grid": "TangentSpace_EN_grid", "ERPCov_MDM": "ERPCovariances_MDM",
    "FBCSP": "FilterBankCSP_SVM_recorded", "FgMDM": "FgMDM", "Keras_DeepConvNet": "DeepConvNet",
    "Keras_EEGITNet": "EEGITNet", "Keras_EEGNeX": "EEGNeX", "Keras_EEGNet_8_2": "EEGNet_8_2",
    "Keras_EEGTCNet": "EEGTCNet", "Keras_ShallowConvNet": "ShallowConvNet", "LogVar": "LogVariance_LDA",
    "LogVarSVM": "LogVariance_SVM", "LogVar_grid": "LogVariance_SVM_grid", "MDM-SSVEP": "SSVEP_MDM", "MDM": "MDM",
    "MsetCCA-SSVEP": "SSVEP_MsetCCA", "ShallowFBCSPNet": "ShallowFBCSPNet_cosine", "TDCA-SSVEP": "SSVEP_TDCA",
    "TRCA-SSVEP": "SSVEP_TRCA", "TRCA_R-SSVEP": "SSVEP_TRCA_R", "TSLR-SSVEP": "SSVEP_TangentSpace_LR",
    "TSLR": "TangentSpace_LR", "TSSVM-SSVEP": "SSVEP_TangentSpace_SVM", "TSSVM": "TangentSpace_SVM",
    "TSSVM_grid": "TangentSpace_SVM_grid", "WTRCSP": "TikhonovCSP_LDA", "XdawnCov_MDM": "XdawnCovariances_MDM",
    "XdawnCov_TS_SVM": "XdawnCovariances_TangentSpace_SVM", "braindecode_Deep4Net": "Deep4Net",
    "braindecode_EEGInception": "EEGInception", "braindecode_EEGNetv4": "EEGNetv4",
    "braindecode_EEGNetv4_resample": "EEGNetv4", "braindecode_ShallowFBCSPNet": "ShallowFBCSPNet",
    "eCCA-SSVEP": "SSVEP_eCCA", "itCCA-SSVEP": "SSVEP_itCCA", "regCSP+shLDA": "RegularisedCSP_LDA",
    "regCSP+shLDA_grid": "RegularisedCSP_LDA_grid", "xDAWN_LDA": "Xdawn_LDA",
}  # fmt: skip


def test_every_pipeline_file_of_moabb_has_a_spec():
    ids = set(open_catalog().ids("models"))
    assert {f"moabb.{name}" for name in FILES.values()} <= ids


def test_every_pipeline_spec_of_moabb_is_built_and_fits():
    from neuroledger.engine.resolve import model_of
    from neuroledger.engine.session import Session

    session = Session(open_catalog())
    ids = [one for one in session.catalog.ids("models") if one.startswith("moabb.")]
    specs = {one: session.catalog.model(one) for one in ids}
    assert sum(spec.builder.name == "pipeline_decoder" for spec in specs.values()) == 35
    x, y = moabb_cases.flicker(repetitions=6)
    for one, spec in specs.items():
        if (
            spec.builder.name != "pipeline_decoder"
            or "search" in spec.builder.parameters
        ):
            continue
        seen = y if "SSVEP" in one else np.where(y == "9", "a", "b")
        model = model_of(session, one)
        fitted = model.make(_signature(x)).fit(x, seen)
        assert (np.asarray(fitted.predict(x)) == seen).mean() > 0.5, one


def test_a_tested_person_is_recentred_by_windows_without_labels():
    rng = np.random.default_rng(1)
    y = np.tile(["a", "b"], 60)
    person = np.repeat(["1", "2", "3"], 40)
    x = (
        rng.standard_normal((120, 3, 60))
        * np.where(y == "b", 1.4, 1.0)[:, None, None] ** np.array([1, 0, 0])[:, None]
    )
    scale = np.stack(
        [np.diag(values) for values in ([1, 1, 1], [9, 1, 0.2], [0.1, 3, 5])]
    )
    x = scale[person.astype(int) - 1] @ x
    steps = (COV, {"name": "recentre"}, {"name": "mdm"})
    rule = {"name": "cross_subject", "calibration": {"share": 0.5}}
    adapted = nl.decode(declared(*steps), x, y, groups=person, splits=rule)
    assert "shown without labels to the steps that adapt" in " ".join(adapted.notes)
    assert (
        adapted.value
        > nl.decode(
            declared(COV, {"name": "mdm"}), x, y, groups=person, splits=rule
        ).value
        + 0.1
    )
    whole = nl.decode(
        declared(*steps),
        x,
        y,
        groups=person,
        splits={**rule, "calibration": {"share": 1}},
    )
    assert whole.predictions.sizes["presentation"] == 120 and whole.value > 0.75
    taught = nl.decode(
        declared(COV, {"name": "mdm"}),
        x,
        y,
        groups=person,
        splits={**rule, "calibration": {"share": 0.5, "labels": True}},
    )
    assert "joined the training part" in " ".join(taught.notes)
    assert (taught.predictions["trained"].values == 100).all()
    with pytest.raises(RequestError, match=r"0\.5 at most"):
        nl.decode(
            declared(*steps),
            x,
            y,
            groups=person,
            splits={**rule, "calibration": {"share": 0.8, "labels": True}},
        )


# A step of another package

USE = """
from neuroledger.spec.registry import get
from pydantic import ValidationError

builder = get("builder", "pipeline_decoder")
chain = [{"name": "log_variance"}, {"name": "labkit_quantiles", "count": 7}, {"name": "lda"}]
bound = builder.bind({"steps": chain})
signature = Signature("classification", 2, 50, 2, 100.0, ("a", "b"), 0)
pipeline = builder.function(id="p", **bound).make(signature).pipeline
print([type(part).__name__ for _, part in pipeline.steps], pipeline[1].n_quantiles)
inner = [{"name": "log_variance"}, {"name": "labkit_quantiles"}]
builder.bind({"steps": [{"name": "filter_bank", "bands": 2, "steps": inner}, {"name": "lda"}]})
for wrong in ({"name": "labkit_quantiles", "count": 1}, {"name": "labkit_quantile"}):
    try:
        builder.bind({"steps": [chain[0], wrong, chain[2]]})
    except ValidationError as error:
        print(error.errors()[0]["type"], "labkit_quantiles" in str(error))
"""


def test_a_step_of_another_package_is_as_good_as_ours(
    repository: Path, tmp_path: Path
) -> None:
    (block,) = [
        block.text
        for block in agreed_blocks_of("docs/decoding.md")
        if "@step(" in block.text
    ]
    script = tmp_path / "labkit.py"
    script.write_text(block + USE)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "['Stateless', 'QuantileTransformer', 'LinearDiscriminantAnalysis'] 7",
        "greater_than_equal True",
        "union_tag_invalid True",
    ], done.stderr


def test_a_step_cannot_take_the_name_of_another() -> None:
    with pytest.raises(
        RequestError,
        match=r"step 'lda' is registered twice: by .*steps\.lda and by .*other",
    ):

        @declare.step("lda", "features", "answers")
        def other(signature: object) -> None:
            """Another step of this name."""


def test_texts_that_look_like_integers_are_classes_too():
    rng = np.random.default_rng(0)
    labels = np.array(["13", "17", "21"] * 20)
    features = rng.standard_normal((60, 6))
    features[:, 0] += 2.0 * (labels == "17")
    named = np.where(labels == "13", "a", np.where(labels == "17", "b", "c"))
    head = CodedLabels(LogisticRegressionCV(Cs=[0.1], cv=3, class_weight="balanced"))
    of_texts, of_names = (
        clone(head).fit(features, y).predict_proba(features) for y in (labels, named)
    )
    np.testing.assert_array_equal(of_texts, of_names)
    fitted = clone(head).fit(features, labels)
    assert set(fitted.predict(features)) <= {"13", "17", "21"}
    assert (fitted.predict(features) == labels).mean() > 0.5
