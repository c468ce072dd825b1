"""The steps of declared decoders: each function makes the untrained estimator of a step from its fields in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from neuroledger.errors import ModelError, some_of
from neuroledger.families.decoding.pipelines import transforms
from neuroledger.families.decoding.pipelines.covariances import (
    CovarianceEstimator,
    MatrixOfWindows,
    pyriemann,
)
from neuroledger.families.decoding.pipelines.declare import (
    CLASSES,
    LABELS,
    NUMBERS,
    InnerStep,
    step,
)
from neuroledger.families.decoding.pipelines.riemannian_mean import by_newton
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.linear_heads import (
    for_objective,
    one_vs_rest,
)
from neuroledger.families.signals.bands import groups_of
from neuroledger.spec.trusted import SKLEARN, Arguments, EstimatorPath, trusted

__all__: list[str] = []

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Band = tuple[Positive, Positive]
Mean = Literal["riemann", "logeuclid", "euclid"]
Frequencies = Mapping[str, Positive] | None
"""The frequency of each class in Hz; by default, it is the name of the class."""

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)

# Steps that take windows


@step("log_variance", "windows", "features", learns=False)
def log_variance(signature: Signature) -> Any:
    """Logarithm of the variance of each channel."""
    return transforms.Stateless(transforms.log_variance)


@step("amplitudes", "windows", "features", learns=False)
def every_nth(signature: Signature, *, step: Count = 1) -> Any:
    """Amplitudes of every `step`-th sample, ordered by channel."""
    return transforms.Stateless(transforms.every_nth, step=step)


@step("cospectra", "windows", "features", learns=False)
def co_spectra(
    signature: Signature,
    *,
    window: Count = 128,
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.75,
    low: float = 2.0,
    high: float = 40.0,
) -> Any:
    """Co-spectra between channels: upper triangles, with log powers."""
    longest = 1 << (signature.samples.bit_length() - 1)
    spectra = pyriemann("estimation").CoSpectra(
        window=min(window, longest),
        overlap=overlap,
        fmin=low,
        fmax=min(high, signature.sampling_rate / 2),
        fs=signature.sampling_rate,
    )
    return transforms.Stateless(transforms.upper_log, of=spectra)


@step("augment", "windows", "windows", learns=False)
def augment(signature: Signature, *, order: Count = 1, lag: Count = 1) -> Any:
    """The window stacked with `order` - 1 copies of itself, each `lag` samples later [carrara2023]."""
    return transforms.Stateless(transforms.delayed, order=order, lag=lag)


@step("bands", "windows", "windows")
def bands(
    signature: Signature,
    *,
    bands: tuple[Band, ...] | Literal["classes"],
    width: Positive = 1.0,
    order: Count = 4,
) -> Any:
    """Band-passed copies of the window, one for each band, without delay, ordered by band.

    `bands` in Hz; with `classes`, bands of `width` around the frequency that is the name of each class. Windows are filtered
    individually, so that their ends are filtered less well than by a filter of the whole recording.
    """
    given = None if bands == "classes" else bands
    return transforms.BandStack(given, width, order, signature.sampling_rate)


@step("xdawn", "windows", "windows", objectives=CLASSES)
def xdawn(
    signature: Signature, *, filters: Count = 4, estimator: CovarianceEstimator = "scm"
) -> Any:
    """Windows filtered by spatial filters that enhance the mean response of each class [rivet2009]."""
    return pyriemann("spatialfilters").Xdawn(filters, estimator=estimator)


@step("covariances", "windows", "covariances", learns=False)
def covariances(signature: Signature, *, estimator: CovarianceEstimator = "oas") -> Any:
    """Covariance of the channels of each window."""
    pyriemann("estimation")
    return MatrixOfWindows(estimator)


@step("erp_covariances", "windows", "covariances", objectives=CLASSES)
def response_covariances(
    signature: Signature,
    *,
    estimator: CovarianceEstimator = "oas",
    components: Count | None = None,
) -> Any:
    """Covariance of the window stacked under the mean responses of the classes [barachant2014]."""
    return transforms.stacked_covariances(
        "ERPCovariances", estimator=estimator, svd=components
    )


@step("xdawn_covariances", "windows", "covariances", objectives=CLASSES)
def xdawn_covariances(
    signature: Signature,
    *,
    filters: Count = 4,
    estimator: CovarianceEstimator = "scm",
    xdawn_estimator: CovarianceEstimator = "scm",
    classes: Literal["all", "rarest"] = "all",
) -> Any:
    """Covariance of the Xdawn-filtered window stacked under the filtered mean responses [barachant2014]."""
    estimators = {"estimator": estimator, "xdawn_estimator": xdawn_estimator}
    if classes == "rarest":
        return transforms.RarestXdawn(filters, estimators)
    return transforms.stacked_covariances(
        "XdawnCovariances", nfilter=filters, **estimators
    )


# Steps that take covariances


@step("shrink", "covariances", "covariances", learns=False)
def shrink(
    signature: Signature, *, share: Annotated[float, Field(gt=0, lt=1)] = 0.1
) -> Any:
    """Each covariance mixed with the identity of the same trace."""
    return pyriemann("estimation").Shrinkage(share)


@step("recentre", "covariances", "covariances")
def recentre(signature: Signature) -> Any:
    """Covariances whitened by the Riemannian mean of their subject [zanini2018].

    The mean of a subject of the training part is that of its training windows. The mean of a tested subject is that of its
    windows for `calibration`; without any, the mean of all training subjects is used.
    """
    pyriemann("tangentspace")
    return transforms.Recentre()


@step("csp", "covariances", "features", objectives=CLASSES)
def csp(
    signature: Signature,
    *,
    filters: Count = 6,
    metric: Literal["euclid", "riemann", "logeuclid"] = "euclid",
) -> Any:
    """Log-variances after common spatial patterns [blankertz2008]; for more than two classes, by joint diagonalisation."""
    return pyriemann("spatialfilters").CSP(filters, metric=metric)


@step("tikhonov_csp", "covariances", "features", objectives=CLASSES)
def tikhonov_csp(
    signature: Signature,
    *,
    filters: Count = 6,
    alpha: Annotated[float, Field(ge=0)] = 1.0,
) -> Any:
    """Common spatial patterns of two classes, the other class's covariance plus `alpha` times the identity [lotte2011]."""
    return transforms.TikhonovCsp(filters, alpha)


@step("tangent_space", "covariances", "features")
def tangent_space(signature: Signature, *, metric: Mean = "riemann") -> Any:
    """Tangent vectors at the mean of the training part: upper triangles of matrix logarithms [barachant2012].

    If the Riemannian mean does not converge, the log-Euclidean mean is used, or else the arithmetic mean; the score's notes
    state it.
    """
    pyriemann("tangentspace")
    return transforms.tangent(metric)


# Steps that take and give features


@step("standardise", "features", "features")
def standardise(signature: Signature) -> Any:
    """Features standardised by mean and standard deviation of the training part."""
    from sklearn.preprocessing import StandardScaler

    return StandardScaler()


@step("select", "features", "features", objectives=CLASSES)
def select(
    signature: Signature,
    *,
    features: Count = 10,
    by: Literal["mutual_information", "f"] = "mutual_information",
) -> Any:
    """The features with the most information about the class: mutual information (seed 0), or the F statistic."""
    from sklearn.feature_selection import SelectKBest, f_classif

    return SelectKBest(
        transforms.mutual_information if by == "mutual_information" else f_classif,
        k=features,
    )


@step("pca", "features", "features")
def principal_components(signature: Signature, *, components: Count) -> Any:
    """The first principal components of the features."""
    from sklearn.decomposition import PCA

    return PCA(components, random_state=0)


# Steps that predict


@step("mdm", "covariances", "answers", objectives=CLASSES)
def mdm(signature: Signature, *, metric: Mean = "riemann") -> Any:
    """Minimum distance to mean: the class with the nearest mean covariance [barachant2012]."""
    return pyriemann("classification").MDM(by_newton(metric))


@step("fgmdm", "covariances", "answers", objectives=CLASSES)
def fg_mdm(signature: Signature, *, metric: Mean = "riemann") -> Any:
    """Minimum distance to mean after geodesic filtering [barachant2010]."""
    return pyriemann("classification").FgMDM(by_newton(metric))


@step("lda", "features", "answers", objectives=LABELS)
def lda(
    signature: Signature,
    *,
    solver: Literal["svd", "lsqr", "eigen"] = "svd",
    shrinkage: Literal["auto"] | Annotated[float, Field(ge=0, le=1)] | None = None,
) -> Any:
    """Linear discriminant analysis; `shrinkage: auto` is that of Ledoit and Wolf [blankertz2011]."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    return for_objective(
        LinearDiscriminantAnalysis(solver=solver, shrinkage=shrinkage), signature, "lda"
    )


@step("svm", "features", "answers")
def svm(
    signature: Signature,
    *,
    kernel: Literal["linear", "rbf", "poly", "sigmoid"] = "rbf",
    c: Positive = 1.0,
    gamma: Literal["scale", "auto"] | Positive = "scale",
    balanced: bool = False,
) -> Any:
    """Support vector machine for classes, or support vector regression for numbers."""
    from sklearn.svm import SVC, SVR

    if signature.objective in NUMBERS:
        machine = SVR(kernel=kernel, C=c, gamma=gamma)
    else:
        machine = SVC(
            kernel=kernel,
            C=c,
            gamma=gamma,
            class_weight="balanced" if balanced else None,
        )
    return for_objective(machine, signature, "svm")


@step("logistic", "features", "answers", objectives=LABELS, is_head=True)
def logistic(
    signature: Signature,
    *,
    c: Positive = 0.01,
    balanced: bool = True,
    iterations: int = 1000,
    l1: Annotated[float, Field(ge=0, le=1)] | None = None,
) -> Any:
    """Logistic regression, with inverse-frequency weights unless `balanced` is false; `l1` above 0 is an elastic net."""
    from sklearn.linear_model import LogisticRegression

    weight = "balanced" if balanced else None
    net: dict[str, Any] = (
        {} if l1 is None else {"l1_ratio": l1, "solver": "saga", "random_state": 0}
    )
    estimator = LogisticRegression(C=c, class_weight=weight, max_iter=iterations, **net)
    if signature.objective == "multilabel":
        return one_vs_rest(estimator)
    return estimator


@step("logistic_search", "features", "answers", objectives=LABELS, is_head=True)
def logistic_search(
    signature: Signature,
    *,
    strengths: tuple[Positive, ...] = STRENGTHS,
    folds: int = 5,
    iterations: int = 1000,
) -> Any:
    """Logistic regression whose strength is chosen by cross-validation within the training part."""
    from sklearn.linear_model import LogisticRegressionCV

    from neuroledger.families.decoding.pipelines.coded_labels import CodedLabels

    estimator = LogisticRegressionCV(
        Cs=list(strengths),
        cv=folds,
        class_weight="balanced",
        max_iter=iterations,
        scoring="accuracy",
    )
    if signature.objective == "multilabel":
        return one_vs_rest(estimator, least=2)
    return CodedLabels(estimator)


@step("ridge_search", "features", "answers", objectives=NUMBERS, is_head=True)
def ridge_search(
    signature: Signature, *, penalties: tuple[Positive, ...] = STRENGTHS
) -> Any:
    """Ridge regression whose penalty is chosen by leave-one-out within the training part."""
    from sklearn.linear_model import RidgeCV

    return RidgeCV(alphas=list(penalties))


@step("ridge", "features", "answers")
def ridge(signature: Signature, *, penalty: Positive = 1.0) -> Any:
    """Ridge regression of numbers, or of classes coded as plus and minus one."""
    from sklearn.linear_model import Ridge, RidgeClassifier

    regression = Ridge if signature.objective in NUMBERS else RidgeClassifier
    return for_objective(regression(alpha=penalty), signature, "ridge")


@step("estimator", "features", "answers")
def estimator(
    signature: Signature, *, path: EstimatorPath, parameters: Arguments | None = None
) -> Any:
    """A scikit-learn classifier or regressor of features by its import path."""
    try:
        made = trusted(path, SKLEARN, "estimator")(**(parameters or {}))
    except TypeError as error:
        raise ModelError(
            f"step estimator: {path} does not take these parameters: {error}"
        ) from error
    return for_objective(made, signature, path)


# Classifiers of responses to flicker


def _flicker(
    name: str, signature: Signature, frequencies: Frequencies, **parameters: Any
) -> Any:
    from neuroledger.families.decoding.pipelines.flicker import CLASSIFIERS

    return CLASSIFIERS[name](
        rate=signature.sampling_rate, frequencies=dict(frequencies or {}), **parameters
    )


@step("cca", "windows", "answers", objectives=CLASSES)
def cca(
    signature: Signature, *, frequencies: Frequencies = None, harmonics: Count = 3
) -> Any:
    """Canonical correlation with sines and cosines of each frequency and its harmonics [lin2007]."""
    return _flicker("cca", signature, frequencies, harmonics=harmonics)


@step("template_cca", "windows", "answers", objectives=CLASSES)
def template_cca(signature: Signature, *, frequencies: Frequencies = None) -> Any:
    """Canonical correlation with the mean training window of each class (itCCA, [bin2011])."""
    return _flicker("template_cca", signature, frequencies)


@step("extended_cca", "windows", "answers", objectives=CLASSES)
def extended_cca(
    signature: Signature, *, frequencies: Frequencies = None, harmonics: Count = 3
) -> Any:
    """Four correlations with references and mean windows, squared with their signs and added [chen2015]."""
    return _flicker("extended_cca", signature, frequencies, harmonics=harmonics)


@step("multiset_cca", "windows", "answers", objectives=CLASSES)
def multiset_cca(
    signature: Signature, *, frequencies: Frequencies = None, filters: Count = 1
) -> Any:
    """Canonical correlation with the common component of the training windows of each class [zhang2014]."""
    return _flicker("multiset_cca", signature, frequencies, filters=filters)


@step("trca", "windows", "answers", objectives=CLASSES)
def trca(
    signature: Signature,
    *,
    frequencies: Frequencies = None,
    bands: Count = 5,
    ensemble: bool = True,
    harmonics: Count | None = None,
    unit_variance: bool = False,
) -> Any:
    """Task-related components in sub-bands, correlated with the mean window of each class [nakanishi2018].

    With `harmonics`, the filters are fitted to the residuals of a regression on references with that many harmonics, as in
    MOABB's TRCA-R; with `unit_variance`, to channels of unit norm in each window (SSCOR).
    """
    options = {
        "bands": bands,
        "ensemble": ensemble,
        "harmonics": harmonics,
        "unit_variance": unit_variance,
    }
    return _flicker("trca", signature, frequencies, **options)


@step("tdca", "windows", "answers", objectives=CLASSES)
def tdca(
    signature: Signature,
    *,
    frequencies: Frequencies = None,
    bands: Count = 5,
    components: Count = 1,
    delays: Count = 6,
) -> Any:
    """Discriminant components, in sub-bands, of windows stacked with delayed copies of themselves [liu2021]."""
    return _flicker(
        "tdca",
        signature,
        frequencies,
        bands=bands,
        components=components,
        delays=delays,
    )


# A step that repeats other steps


@step("filter_bank", "windows", "features")
def filter_bank(
    signature: Signature,
    *,
    bands: tuple[Band, ...] | Annotated[int, Field(ge=2)] | Literal["recorded"],
    steps: Annotated[tuple[InnerStep, ...], Field(min_length=1)],
    order: Count = 4,
) -> Any:
    """The same `steps` for each band, with concatenated features (filter-bank CSP, [ang2008]).

    `bands` in Hz: windows are band-passed individually, without delay. `recorded`: the bands in which the whole recording
    was filtered (`bands` in the preprocessing of the data set), as in published filter banks. Or the number of equal groups
    of channels, for signals prepared elsewhere that contain each channel once per band.
    """
    from sklearn.pipeline import make_pipeline

    inner = make_pipeline(*(step.make(signature) for step in steps))
    found = groups_of(signature.channel_ids) if bands == "recorded" else bands
    if found is None:
        raise ModelError(
            "filter_bank: the recording was not filtered in bands; its channels are "
            f"{some_of(signature.channel_ids, 6)}. Add "
            "`bands: [[8, 12], …]` to the preprocessing of the data set, or give the step bands in Hz"
        )
    return transforms.FilterBank(inner, found, order, signature.sampling_rate)
