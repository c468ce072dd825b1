"""The steps of which decoders are declared: each says what it takes, what it gives, and how it is made."""

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
        Windows (window, channel, sample), covariances (window, channel, channel), features (window, feature), or answers.
    learns
        Whether it learns from the training part; what a step that does not makes of a window is computed once for all folds,
        controls and pipelines.
    objectives
        What a pipeline with this step can be asked.
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
    """Amplitudes of every `step`-th sample, channels one after the other."""

    name: Literal["amplitudes"]
    step: Count = 1
    takes, gives, learns = "windows", "features", False

    def make(self, signature: Signature) -> Any:
        return transforms.Stateless(transforms.every_nth, step=self.step)


class CoSpectra(_Step):
    """Co-spectra between channels: upper triangles, logarithm of the powers."""

    name: Literal["cospectra"]
    window: Count = 128
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.75
    low: float = 2.0
    high: float = 40.0
    takes, gives, learns = "windows", "features", False

    def make(self, signature: Signature) -> Any:
        top = min(self.high, signature.sampling_rate / 2)
        whole = 1 << (signature.samples.bit_length() - 1)
        spectra = pyriemann("estimation").CoSpectra(
            window=min(self.window, whole),
            overlap=self.overlap,
            fmin=self.low,
            fmax=top,
            fs=signature.sampling_rate,
        )
        return transforms.Stateless(transforms.upper_log, of=spectra)


class Augment(_Step):
    """The window above copies of itself that are `lag` samples later each, `order` in all [carrara2023]."""

    name: Literal["augment"]
    order: Count = 1
    lag: Count = 1
    takes, gives, learns = "windows", "windows", False

    def make(self, signature: Signature) -> Any:
        return transforms.Stateless(transforms.delayed, order=self.order, lag=self.lag)


class Bands(_Step):
    """The window once for each band, channels of the first band first, band-passed without delay.

    `bands` in Hz; of `classes`, as wide as `width` around the frequency that each class names. Windows are filtered one by
    one, so their ends are less well filtered than by a filter of the recording.
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
    """Windows through the spatial filters that enhance the mean response of each class [rivet2009]."""

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
        given = {"estimator": self.estimator, "xdawn_estimator": self.xdawn_estimator}
        if self.classes == "rarest":
            return transforms.RarestXdawn(self.filters, given)
        return transforms.stacked_covariances("XdawnCovariances", nfilter=self.filters, **given)


class Shrink(_Step):
    """Each covariance mixed with the identity of the same trace."""

    name: Literal["shrink"]
    share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    takes, gives, learns = "covariances", "covariances", False

    def make(self, signature: Signature) -> Any:
        return pyriemann("estimation").Shrinkage(self.share)


class Csp(_Step):
    """Log-variances after common spatial patterns [blankertz2008]; of more than two classes, by joint diagonalisation."""

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
    """Each person's covariances at the identity: whitened by their Riemannian mean [zanini2018].

    People of the training part by their training windows; a tested person by the windows set apart for `calibration`, or,
    without any, by the mean of all people, which is the same for everybody.
    """

    name: Literal["recentre"]
    takes, gives = "covariances", "covariances"

    def make(self, signature: Signature) -> Any:
        pyriemann("tangentspace")
        return transforms.Recentre()


class TangentSpace(_Step):
    """Logarithm at the mean of the training part, the upper triangle as features [barachant2012].

    A Riemannian mean that cannot be found is replaced by the log-Euclidean one, and that by the arithmetic one; the score's
    notes say so.
    """

    name: Literal["tangent_space"]
    metric: Literal["riemann", "logeuclid", "euclid"] = "riemann"
    takes, gives = "covariances", "features"

    def make(self, signature: Signature) -> Any:
        pyriemann("tangentspace")
        return transforms.tangent(self.metric)


class Standardise(_Step):
    """Features less their mean in the training part, divided by their deviation there."""

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
    """The class whose mean covariance is nearest [barachant2012]."""

    name: Literal["mdm"]
    metric: Literal["riemann", "logeuclid", "euclid"] = "riemann"
    takes, gives = "covariances", "answers"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        return pyriemann("classification").MDM(by_newton(self.metric))


class FgMdm(_Step):
    """The class whose mean is nearest after a filter along geodesics [barachant2010]."""

    name: Literal["fgmdm"]
    metric: Literal["riemann", "logeuclid", "euclid"] = "riemann"
    takes, gives = "covariances", "answers"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        return pyriemann("classification").FgMDM(by_newton(self.metric))


class Lda(_Step):
    """Linear discriminant; `shrinkage: auto` takes Ledoit and Wolf's [blankertz2011]."""

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
    """Support vectors: of classes, or of numbers where numbers are asked for."""

    name: Literal["svm"]
    kernel: Literal["linear", "rbf", "poly", "sigmoid"] = "rbf"
    c: Positive = 1.0
    gamma: Literal["scale", "auto"] | Positive = "scale"
    balanced: bool = False
    takes, gives = "features", "answers"

    def make(self, signature: Signature) -> Any:
        from sklearn.svm import SVC, SVR

        given: dict[str, Any] = {"kernel": self.kernel, "C": self.c, "gamma": self.gamma}
        if signature.objective in NUMBERS:
            return for_objective(SVR(**given), signature, "svm")
        return for_objective(
            SVC(**given, class_weight="balanced" if self.balanced else None), signature, "svm"
        )


class Logistic(_Step):
    """Logistic regression, classes weighted by their rarity unless `balanced` is false; `l1` above 0 is an elastic net."""

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
        one = LogisticRegression(C=self.c, class_weight=weight, max_iter=self.iterations, **net)
        return one_vs_rest(one) if signature.objective == "multilabel" else one


class LogisticSearch(_Step):
    """Logistic regression whose strength is chosen by cross-validation inside the training part."""

    name: Literal["logistic_search"] = "logistic_search"
    strengths: tuple[Positive, ...] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
    folds: int = 5
    iterations: int = 1000
    takes, gives = "features", "answers"
    objectives = LABELS

    def make(self, signature: Signature) -> Any:
        from sklearn.linear_model import LogisticRegressionCV

        one = LogisticRegressionCV(
            Cs=list(self.strengths),
            cv=self.folds,
            class_weight="balanced",
            max_iter=self.iterations,
            scoring="accuracy",
        )
        return one_vs_rest(one, least=2) if signature.objective == "multilabel" else one


class Ridge(_Step):
    """Ridge regression of numbers; of classes, of plus and minus one."""

    name: Literal["ridge"]
    penalty: Positive = 1.0
    takes, gives = "features", "answers"

    def make(self, signature: Signature) -> Any:
        from sklearn.linear_model import Ridge as Numbers
        from sklearn.linear_model import RidgeClassifier

        one = (Numbers if signature.objective in NUMBERS else RidgeClassifier)(alpha=self.penalty)
        return for_objective(one, signature, "ridge")


class RidgeSearch(_Step):
    """Ridge regression whose penalty is chosen by leave-one-out inside the training part."""

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
            made = trusted(self.path, SKLEARN, self.name)(**(self.parameters or {}))
        except TypeError as error:
            raise ModelError(
                f"step estimator: {self.path} does not take these parameters: {error}"
            ) from error
        return for_objective(made, signature, self.path)


class _Frequencies(_Step):
    """A classifier of responses to flicker; each class is a frequency, in Hz, by its name or by `frequencies`."""

    frequencies: Mapping[str, Positive] | None = None
    takes, gives = "windows", "answers"
    objectives = CLASSES

    def make(self, signature: Signature) -> Any:
        from neuroledger.families.decoding.pipelines.flicker import CLASSIFIERS

        given = self.model_dump(exclude={"name", "frequencies"})
        return CLASSIFIERS[self.model_dump()["name"]](
            rate=signature.sampling_rate, frequencies=dict(self.frequencies or {}), **given
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
    """Canonical correlation with what the training windows of a class have in common [zhang2014]."""

    name: Literal["multiset_cca"]
    filters: Count = 1


class Trca(_Frequencies):
    """Task-related components in sub-bands, correlated with the mean window of each class [nakanishi2018].

    With `harmonics`, the filters are learnt from what references of that many harmonics explain no part of, as MOABB's
    TRCA-R does; with `unit_variance`, from channels of unit norm in each window (SSCOR).
    """

    name: Literal["trca"]
    bands: Count = 5
    ensemble: bool = True
    harmonics: Count | None = None
    unit_variance: bool = False


class Tdca(_Frequencies):
    """Discriminant components of windows above delayed copies of themselves, in sub-bands [liu2021]."""

    name: Literal["tdca"]
    bands: Count = 5
    components: Count = 1
    delays: Count = 6


class FilterBank(_Step):
    """The same `steps` for each band, their features side by side (filter-bank CSP, [ang2008]).

    `bands` in Hz: windows are band-passed one by one, without delay. `recorded`: the bands in which the whole recording was
    filtered (`bands` in the preprocessing of the data set), as published filter banks do. Or the number of equal groups of
    channels, where signals that were prepared elsewhere hold each channel once for each band.
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
                f"{', '.join(signature.channel_ids[:6])}{', …' if signature.channel_ids[6:] else ''}. Give the "
                "preprocessing of the data set `bands: [[8, 12], …]`, or the step bands in Hz"
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


def _fitting(steps: tuple[Any, ...]) -> tuple[Any, ...]:
    """The steps, if each takes what the one before it gives, from windows to answers.

    Raises
    ------
    ValueError
        Naming the first step that does not fit, and steps that would.
    """
    _chain(steps, "answers")
    for step in steps:
        if isinstance(step, FilterBank):
            _chain(step.steps, "features", "filter_bank: ")
    return steps


def _chain(steps: Sequence[Any], end: Kind, where: str = "") -> None:
    have: Kind = "windows"
    for number, step in enumerate(steps, start=1):
        if step.takes != have:
            bridge = _names(have, step.takes)
            remedy = (
                f"put {' or '.join(bridge)} before it" if bridge else f"take one of {', '.join(_names(have))}"
            )
            raise ValueError(
                f"{where}step {number}, {step.name}, takes {step.takes}, and there are {have} before it: {remedy}"
            )
        have = step.gives
    if have != end:
        raise ValueError(
            f"{where}the last step, {steps[-1].name}, gives {have}, and {end} are needed: "
            f"add one of {', '.join(_names(have, end) or _names(have))}"
        )


def _names(takes: Kind, gives: Kind | None = None) -> list[str]:
    """Names of the steps that take one kind, and give the other."""
    kinds = get_args(get_args(Step)[0])
    return [
        get_args(kind.model_fields["name"].annotation)[0]
        for kind in kinds
        if kind.takes == takes and (gives is None or kind.gives == gives)
    ]


Steps = Annotated[tuple[Step, ...], Field(min_length=1), AfterValidator(_fitting)]


def objectives_of(steps: Sequence[Any]) -> tuple[Objective, ...]:
    """What a pipeline of these steps can be asked."""
    inner = [one for step in steps for one in getattr(step, "steps", ())]
    return tuple(one for one in ANY if all(one in step.objectives for step in [*steps, *inner]))
