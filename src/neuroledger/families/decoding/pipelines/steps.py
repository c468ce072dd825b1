"""The steps of declared decoders: each defines its input, its output, and the estimator behind it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field

from neuroledger.errors import ModelError
from neuroledger.families.decoding.pipelines import transforms
from neuroledger.families.decoding.pipelines.covariances import (
    CovarianceEstimator,
    MatrixOfWindows,
    pyriemann,
)
from neuroledger.families.decoding.pipelines.riemannian_mean import by_newton
from neuroledger.families.decoding.protocols.decoder import Objective, Signature
from neuroledger.families.decoding.training.linear_heads import for_objective, one_vs_rest
from neuroledger.families.signals.bands import groups_of
from neuroledger.spec.base import Frozen
from neuroledger.spec.trusted import SKLEARN, Arguments, EstimatorPath, trusted

__all__ = ["LOGISTIC", "LOGISTIC_SEARCH", "Head", "Step", "Steps", "objectives_of"]

Kind = Literal["windows", "covariances", "features", "answers"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Band = tuple[Positive, Positive]
CLASSES: tuple[Objective, ...] = ("classification",)
LABELS: tuple[Objective, ...] = ("classification", "multilabel")
NUMBERS: tuple[Objective, ...] = ("regression", "retrieval")
ANY: tuple[Objective, ...] = (*LABELS, *NUMBERS)


class _Step(Frozen):
    """A step of a pipeline.

    Attributes
    ----------
    takes, gives
        The kind of input and output: windows (window, channel, sample), covariances (window, channel, channel), features
        (window, feature), or answers, which are predictions.
    learns
        Whether it is fitted to the training part; the output of unfitted steps is computed once for all folds, controls
        and pipelines.
    objectives
        The objectives of a pipeline with this step.
    """

    takes: ClassVar[Kind]
    gives: ClassVar[Kind]
    learns: ClassVar[bool] = True
    objectives: ClassVar[tuple[Objective, ...]] = ANY

    @abstractmethod
    def make(self, signature: Signature) -> Any:
        """An untrained estimator with the API of scikit-learn."""


class LogVariance(_Step):
    """Logarithm of the variance of each channel."""

    name: Literal["log_variance"]
    takes, gives, learns = "windows", "features", False

    def make(self, signature: Signature) -> Any:
        return transforms.Stateless(transforms.log_variance)


class EveryNth(_Step):
    """Amplitudes of every `step`-th sample, ordered by channel."""

    name: Literal["amplitudes"]
    step: Count = 1
    takes, gives, learns = "windows", "features", False

    def make(self, signature: Signature) -> Any:
        return transforms.Stateless(transforms.every_nth, step=self.step)


class CoSpectra(_Step):
    """Co-spectra between channels: upper triangles, with log powers."""

    name: Literal["cospectra"]
    window: Count = 128
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.75
    low: float = 2.0
    high: float = 40.0
    takes, gives, learns = "windows", "features", False

    def make(self, signature: Signature) -> Any:
        top = min(self.high, signature.sampling_rate / 2)
        longest = 1 << (signature.samples.bit_length() - 1)
        spectra = pyriemann("estimation").CoSpectra(
            window=min(self.window, longest),
            overlap=self.overlap,
            fmin=self.low,
            fmax=top,
            fs=signature.sampling_rate,
        )
        return transforms.Stateless(transforms.upper_log, of=spectra)


class Augment(_Step):
    """The window stacked with `order` - 1 copies of itself, each `lag` samples later [carrara2023]."""

    name: Literal["augment"]
    order: Count = 1
    lag: Count = 1
    takes, gives, learns = "windows", "windows", False

    def make(self, signature: Signature) -> Any:
        return transforms.Stateless(transforms.delayed, order=self.order, lag=self.lag)


class Bands(_Step):
    """Band-passed copies of the window, one for each band, without delay, ordered by band.

    `bands` in Hz; with `classes`, bands of `width` around the frequency that is the name of each class. Windows are filtered
    individually, so that their ends are filtered less well than by a filter of the whole recording.
    """

    name: Literal["bands"]
    bands: tuple[Band, ...] | Literal["classes"]
    width: Positive = 1.0
    order: Count = 4
    takes, gives = "windows", "windows"

    def make(self, signature: Signature) -> Any:
        bands = None if self.bands == "classes" else self.bands
        return transforms.BandStack(bands, self.width, self.order, signature.sampling_rate)


class Xdawn(_Step):
    """Windows filtered by spatial filters that enhance the mean response of each class [rivet2009]."""

    name: Literal["xdawn"]
    filters: Count = 4
    estimator: CovarianceEstimator = "scm"
    takes, gives = "windows", "windows"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        return pyriemann("spatialfilters").Xdawn(self.filters, estimator=self.estimator)


class Covariances(_Step):
    """Covariance of the channels of each window."""

    name: Literal["covariances"]
    estimator: CovarianceEstimator = "oas"
    takes, gives, learns = "windows", "covariances", False

    def make(self, signature: Signature) -> Any:
        pyriemann("estimation")
        return MatrixOfWindows(self.estimator)


class ResponseCovariances(_Step):
    """Covariance of the window stacked under the mean responses of the classes [barachant2014]."""

    name: Literal["erp_covariances"]
    estimator: CovarianceEstimator = "oas"
    components: Count | None = None
    takes, gives = "windows", "covariances"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        return transforms.stacked_covariances("ERPCovariances", estimator=self.estimator, svd=self.components)


class XdawnCovariances(_Step):
    """Covariance of the Xdawn-filtered window stacked under the filtered mean responses [barachant2014]."""

    name: Literal["xdawn_covariances"]
    filters: Count = 4
    estimator: CovarianceEstimator = "scm"
    xdawn_estimator: CovarianceEstimator = "scm"
    classes: Literal["all", "rarest"] = "all"
    takes, gives = "windows", "covariances"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        estimators = {"estimator": self.estimator, "xdawn_estimator": self.xdawn_estimator}
        if self.classes == "rarest":
            return transforms.RarestXdawn(self.filters, estimators)
        return transforms.stacked_covariances("XdawnCovariances", nfilter=self.filters, **estimators)


class Shrink(_Step):
    """Each covariance mixed with the identity of the same trace."""

    name: Literal["shrink"]
    share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    takes, gives, learns = "covariances", "covariances", False

    def make(self, signature: Signature) -> Any:
        return pyriemann("estimation").Shrinkage(self.share)


class Csp(_Step):
    """Log-variances after common spatial patterns [blankertz2008]; for more than two classes, by joint diagonalisation."""

    name: Literal["csp"]
    filters: Count = 6
    metric: Literal["euclid", "riemann", "logeuclid"] = "euclid"
    takes, gives = "covariances", "features"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        return pyriemann("spatialfilters").CSP(self.filters, metric=self.metric)


class TikhonovCsp(_Step):
    """Common spatial patterns of two classes, the other class's covariance plus `alpha` times the identity [lotte2011]."""

    name: Literal["tikhonov_csp"]
    filters: Count = 6
    alpha: Annotated[float, Field(ge=0)] = 1.0
    takes, gives = "covariances", "features"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        return transforms.TikhonovCsp(self.filters, self.alpha)


class Recentre(_Step):
    """Covariances whitened by the Riemannian mean of their subject [zanini2018].

    The mean of a subject of the training part is that of its training windows. The mean of a tested subject is that of its
    windows for `calibration`; without any, the mean of all training subjects is used.
    """

    name: Literal["recentre"]
    takes, gives = "covariances", "covariances"

    def make(self, signature: Signature) -> Any:
        pyriemann("tangentspace")
        return transforms.Recentre()


class TangentSpace(_Step):
    """Tangent vectors at the mean of the training part: upper triangles of matrix logarithms [barachant2012].

    If the Riemannian mean does not converge, the log-Euclidean mean is used, or else the arithmetic mean; the score's notes
    state it.
    """

    name: Literal["tangent_space"]
    metric: Literal["riemann", "logeuclid", "euclid"] = "riemann"
    takes, gives = "covariances", "features"

    def make(self, signature: Signature) -> Any:
        pyriemann("tangentspace")
        return transforms.tangent(self.metric)


class Standardise(_Step):
    """Features standardised by mean and standard deviation of the training part."""

    name: Literal["standardise"]
    takes, gives = "features", "features"

    def make(self, signature: Signature) -> Any:
        from sklearn.preprocessing import StandardScaler

        return StandardScaler()


class Select(_Step):
    """The features with the most information about the class: mutual information (seed 0), or the F statistic."""

    name: Literal["select"]
    features: Count = 10
    by: Literal["mutual_information", "f"] = "mutual_information"
    takes, gives = "features", "features"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        from sklearn.feature_selection import SelectKBest, f_classif

        score = transforms.mutual_information if self.by == "mutual_information" else f_classif
        return SelectKBest(score, k=self.features)


class PrincipalComponents(_Step):
    """The first principal components of the features."""

    name: Literal["pca"]
    components: Count
    takes, gives = "features", "features"

    def make(self, signature: Signature) -> Any:
        from sklearn.decomposition import PCA

        return PCA(self.components, random_state=0)


class Mdm(_Step):
    """Minimum distance to mean: the class with the nearest mean covariance [barachant2012]."""

    name: Literal["mdm"]
    metric: Literal["riemann", "logeuclid", "euclid"] = "riemann"
    takes, gives = "covariances", "answers"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        return pyriemann("classification").MDM(by_newton(self.metric))


class FgMdm(_Step):
    """Minimum distance to mean after geodesic filtering [barachant2010]."""

    name: Literal["fgmdm"]
    metric: Literal["riemann", "logeuclid", "euclid"] = "riemann"
    takes, gives = "covariances", "answers"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        return pyriemann("classification").FgMDM(by_newton(self.metric))


class Lda(_Step):
    """Linear discriminant analysis; `shrinkage: auto` is that of Ledoit and Wolf [blankertz2011]."""

    name: Literal["lda"]
    solver: Literal["svd", "lsqr", "eigen"] = "svd"
    shrinkage: Literal["auto"] | Annotated[float, Field(ge=0, le=1)] | None = None
    takes, gives = "features", "answers"
    objectives = LABELS

    def make(self, signature: Signature) -> Any:
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        lda = LinearDiscriminantAnalysis(solver=self.solver, shrinkage=self.shrinkage)
        return for_objective(lda, signature, "lda")


class Svm(_Step):
    """Support vector machine for classes, or support vector regression for numbers."""

    name: Literal["svm"]
    kernel: Literal["linear", "rbf", "poly", "sigmoid"] = "rbf"
    c: Positive = 1.0
    gamma: Literal["scale", "auto"] | Positive = "scale"
    balanced: bool = False
    takes, gives = "features", "answers"

    def make(self, signature: Signature) -> Any:
        from sklearn.svm import SVC, SVR

        parameters: dict[str, Any] = {"kernel": self.kernel, "C": self.c, "gamma": self.gamma}
        if signature.objective in NUMBERS:
            return for_objective(SVR(**parameters), signature, "svm")
        return for_objective(
            SVC(**parameters, class_weight="balanced" if self.balanced else None), signature, "svm"
        )


class Logistic(_Step):
    """Logistic regression, with inverse-frequency weights unless `balanced` is false; `l1` above 0 is an elastic net."""

    name: Literal["logistic"] = "logistic"
    c: Positive = 0.01
    balanced: bool = True
    iterations: int = 1000
    l1: Annotated[float, Field(ge=0, le=1)] | None = None
    takes, gives = "features", "answers"
    objectives = LABELS

    def make(self, signature: Signature) -> Any:
        from sklearn.linear_model import LogisticRegression

        weight = "balanced" if self.balanced else None
        net: dict[str, Any] = (
            {} if self.l1 is None else {"l1_ratio": self.l1, "solver": "saga", "random_state": 0}
        )
        estimator = LogisticRegression(C=self.c, class_weight=weight, max_iter=self.iterations, **net)
        return one_vs_rest(estimator) if signature.objective == "multilabel" else estimator


class LogisticSearch(_Step):
    """Logistic regression whose strength is chosen by cross-validation within the training part."""

    name: Literal["logistic_search"] = "logistic_search"
    strengths: tuple[Positive, ...] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
    folds: int = 5
    iterations: int = 1000
    takes, gives = "features", "answers"
    objectives = LABELS

    def make(self, signature: Signature) -> Any:
        from sklearn.linear_model import LogisticRegressionCV

        estimator = LogisticRegressionCV(
            Cs=list(self.strengths),
            cv=self.folds,
            class_weight="balanced",
            max_iter=self.iterations,
            scoring="accuracy",
        )
        return one_vs_rest(estimator, least=2) if signature.objective == "multilabel" else estimator


class Ridge(_Step):
    """Ridge regression of numbers, or of classes coded as plus and minus one."""

    name: Literal["ridge"]
    penalty: Positive = 1.0
    takes, gives = "features", "answers"

    def make(self, signature: Signature) -> Any:
        from sklearn.linear_model import Ridge as Numbers
        from sklearn.linear_model import RidgeClassifier

        estimator = (Numbers if signature.objective in NUMBERS else RidgeClassifier)(alpha=self.penalty)
        return for_objective(estimator, signature, "ridge")


class RidgeSearch(_Step):
    """Ridge regression whose penalty is chosen by leave-one-out within the training part."""

    name: Literal["ridge_search"] = "ridge_search"
    penalties: tuple[Positive, ...] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
    takes, gives = "features", "answers"
    objectives = NUMBERS

    def make(self, signature: Signature) -> Any:
        from sklearn.linear_model import RidgeCV

        return RidgeCV(alphas=list(self.penalties))


class Estimator(_Step):
    """Any scikit-learn classifier or regressor of features by its import path."""

    name: Literal["estimator"]
    path: EstimatorPath
    parameters: Arguments | None = None
    takes, gives = "features", "answers"

    def make(self, signature: Signature) -> Any:
        try:
            estimator = trusted(self.path, SKLEARN, self.name)(**(self.parameters or {}))
        except TypeError as error:
            raise ModelError(
                f"step estimator: {self.path} does not take these parameters: {error}"
            ) from error
        return for_objective(estimator, signature, self.path)


class _Frequencies(_Step):
    """A classifier of responses to flicker; the frequency of a class in Hz is its name, or given by `frequencies`."""

    frequencies: Mapping[str, Positive] | None = None
    takes, gives = "windows", "answers"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        from neuroledger.families.decoding.pipelines.flicker import CLASSIFIERS

        fields = self.model_dump(exclude={"name", "frequencies"})
        return CLASSIFIERS[self.model_dump()["name"]](
            rate=signature.sampling_rate, frequencies=dict(self.frequencies or {}), **fields
        )


class Cca(_Frequencies):
    """Canonical correlation with sines and cosines of each frequency and its harmonics [lin2007]."""

    name: Literal["cca"]
    harmonics: Count = 3


class TemplateCca(_Frequencies):
    """Canonical correlation with the mean training window of each class (itCCA, [bin2011])."""

    name: Literal["template_cca"]


class ExtendedCca(_Frequencies):
    """Four correlations with references and mean windows, squared with their signs and added [chen2015]."""

    name: Literal["extended_cca"]
    harmonics: Count = 3


class MultisetCca(_Frequencies):
    """Canonical correlation with the common component of the training windows of each class [zhang2014]."""

    name: Literal["multiset_cca"]
    filters: Count = 1


class Trca(_Frequencies):
    """Task-related components in sub-bands, correlated with the mean window of each class [nakanishi2018].

    With `harmonics`, the filters are fitted to the residuals of a regression on references with that many harmonics, as in
    MOABB's TRCA-R; with `unit_variance`, to channels of unit norm in each window (SSCOR).
    """

    name: Literal["trca"]
    bands: Count = 5
    ensemble: bool = True
    harmonics: Count | None = None
    unit_variance: bool = False


class Tdca(_Frequencies):
    """Discriminant components, in sub-bands, of windows stacked with delayed copies of themselves [liu2021]."""

    name: Literal["tdca"]
    bands: Count = 5
    components: Count = 1
    delays: Count = 6


class FilterBank(_Step):
    """The same `steps` for each band, with concatenated features (filter-bank CSP, [ang2008]).

    `bands` in Hz: windows are band-passed individually, without delay. `recorded`: the bands in which the whole recording
    was filtered (`bands` in the preprocessing of the data set), as in published filter banks. Or the number of equal groups
    of channels, for signals prepared elsewhere that contain each channel once per band.
    """

    name: Literal["filter_bank"]
    bands: tuple[Band, ...] | Annotated[int, Field(ge=2)] | Literal["recorded"]
    steps: Annotated[tuple[FilterBankStep, ...], Field(min_length=1)]
    order: Count = 4
    takes, gives = "windows", "features"

    def make(self, signature: Signature) -> Any:
        from sklearn.pipeline import make_pipeline

        inner = make_pipeline(*(step.make(signature) for step in self.steps))
        bands = groups_of(signature.channel_ids) if self.bands == "recorded" else self.bands
        if bands is None:
            raise ModelError(
                "filter_bank: the recording was not filtered in bands; its channels are "
                f"{', '.join(signature.channel_ids[:6])}{', …' if signature.channel_ids[6:] else ''}. Add "
                "`bands: [[8, 12], …]` to the preprocessing of the data set, or give the step bands in Hz"
            )
        return transforms.FilterBank(inner, bands, self.order, signature.sampling_rate)


_Windowed = LogVariance | EveryNth | CoSpectra | Augment | Bands | Xdawn
_Matrices = (
    Covariances
    | ResponseCovariances
    | XdawnCovariances
    | Shrink
    | Recentre
    | Csp
    | TikhonovCsp
    | TangentSpace
)
_Featured = Standardise | Select | PrincipalComponents
_Heads = Logistic | LogisticSearch | RidgeSearch
_Answers = Mdm | FgMdm | Lda | Svm | _Heads | Ridge | Estimator
_Flicker = Cca | TemplateCca | ExtendedCca | MultisetCca | Trca | Tdca
FilterBankStep = Annotated[_Windowed | _Matrices | _Featured, Field(discriminator="name")]
FilterBank.model_rebuild()
Step = Annotated[
    _Windowed | _Matrices | _Featured | _Answers | _Flicker | FilterBank, Field(discriminator="name")
]
Head = Annotated[_Heads, Field(discriminator="name")]
LOGISTIC, LOGISTIC_SEARCH = Logistic(), LogisticSearch()


def _require_chained(steps: tuple[Any, ...]) -> tuple[Any, ...]:
    """The steps, checked to form a chain from windows to answers.

    Raises
    ------
    ValueError
        A step does not accept the output of the one before it; the message suggests steps that do.
    """
    _check_chain(steps, "answers")
    for step in steps:
        if isinstance(step, FilterBank):
            _check_chain(step.steps, "features", "filter_bank: ")
    return steps


def _check_chain(steps: Sequence[Any], end: Kind, prefix: str = "") -> None:
    available: Kind = "windows"
    for number, step in enumerate(steps, start=1):
        if step.takes != available:
            bridge = _step_names(available, step.takes)
            remedy = (
                f"put {' or '.join(bridge)} before it"
                if bridge
                else f"use one of {', '.join(_step_names(available))}"
            )
            raise ValueError(
                f"{prefix}step {number}, {step.name}, takes {step.takes}, and there are {available} before it: {remedy}"
            )
        available = step.gives
    if available != end:
        raise ValueError(
            f"{prefix}the last step, {steps[-1].name}, gives {available}, and {end} are needed: "
            f"add one of {', '.join(_step_names(available, end) or _step_names(available))}"
        )


def _step_names(takes: Kind, gives: Kind | None = None) -> list[str]:
    """Names of the steps with this input, and this output if given."""
    kinds = get_args(get_args(Step)[0])
    return [
        get_args(kind.model_fields["name"].annotation)[0]
        for kind in kinds
        if kind.takes == takes and (gives is None or kind.gives == gives)
    ]


Steps = Annotated[tuple[Step, ...], Field(min_length=1), AfterValidator(_require_chained)]


def objectives_of(steps: Sequence[Any]) -> tuple[Objective, ...]:
    """The objectives that all steps of a pipeline support."""
    inner_steps = [one for step in steps for one in getattr(step, "steps", ())]
    return tuple(one for one in ANY if all(one in step.objectives for step in [*steps, *inner_steps]))
