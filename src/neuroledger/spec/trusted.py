"""Import paths in specs: the closed lists of what a spec may name, and the decorator of functions that it may call."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, SimpleNamespace
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    JsonValue,
    StringConstraints,
    ValidationError,
    create_model,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from neuroledger.errors import EXTRAS, UnavailableError, UntrustedError, package_missing
from neuroledger.spec import registry
from neuroledger.spec.base import worded

__all__ = [
    "SKLEARN",
    "TORCH",
    "UNTRUSTED",
    "VARIABLE",
    "Arguments",
    "EstimatorPath",
    "ModulePath",
    "factory",
    "owner_trusts",
    "require_typed",
    "trusted",
]

# Pydantic's error type for everything that this module refuses.
UNTRUSTED: Final = "untrusted"
VARIABLE: Final = "NEUROLEDGER_TRUSTED"
SETTING: Final = (
    f"the owner of a machine trusts further packages with {VARIABLE} (docs/models.md)"
)
# Folders of a family whose modules may have functions that specs name; nothing happens when they are imported.
FOLDERS: Final = ("models", "networks")
# Arguments that make classes of packages read or write files, unpickle them, or download code and weights.
REACHING: Final = frozenset(
    {
        "memory",
        "cachedir",
        "cache_dir",
        "checkpoint",
        "checkpoint_path",
        "pretrained",
        "hf_hub",
        "name_or_path",
        "auto_map",
        "pretrained_model_name_or_path",
        "trust_remote_code",
        "attn_implementation",
        "experts_implementation",
        "backbone",
    }
)
LAYERS: Final = (
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose2d",
    "Dropout",
    "ELU",
    "Flatten",
    "GELU",
    "GRU",
    "GroupNorm",
    "Identity",
    "LSTM",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MaxPool1d",
    "MaxPool2d",
    "RNN",
    "ReLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
)
# Estimators that learn from the arrays they are given. Those that read files by name, keep a cache or contain other
# estimators are left out.
ESTIMATORS: Final[Mapping[str, tuple[str, ...]]] = {
    "cross_decomposition": ("CCA", "PLSCanonical", "PLSRegression"),
    "discriminant_analysis": (
        "LinearDiscriminantAnalysis",
        "QuadraticDiscriminantAnalysis",
    ),
    "dummy": ("DummyClassifier", "DummyRegressor"),
    "ensemble": (
        "ExtraTreesClassifier",
        "ExtraTreesRegressor",
        "GradientBoostingClassifier",
        "GradientBoostingRegressor",
        "HistGradientBoostingClassifier",
        "HistGradientBoostingRegressor",
        "RandomForestClassifier",
        "RandomForestRegressor",
    ),
    "gaussian_process": ("GaussianProcessClassifier", "GaussianProcessRegressor"),
    "kernel_ridge": ("KernelRidge",),
    "linear_model": (
        "ARDRegression",
        "BayesianRidge",
        "ElasticNet",
        "ElasticNetCV",
        "HuberRegressor",
        "Lars",
        "Lasso",
        "LassoCV",
        "LinearRegression",
        "LogisticRegression",
        "LogisticRegressionCV",
        "MultiTaskElasticNet",
        "MultiTaskLasso",
        "OrthogonalMatchingPursuit",
        "PassiveAggressiveClassifier",
        "Perceptron",
        "PoissonRegressor",
        "Ridge",
        "RidgeCV",
        "RidgeClassifier",
        "RidgeClassifierCV",
        "SGDClassifier",
        "SGDRegressor",
        "TheilSenRegressor",
    ),
    "naive_bayes": ("BernoulliNB", "GaussianNB", "MultinomialNB"),
    "neighbors": ("KNeighborsClassifier", "KNeighborsRegressor", "NearestCentroid"),
    "neural_network": ("MLPClassifier", "MLPRegressor"),
    "svm": ("LinearSVC", "LinearSVR", "NuSVC", "NuSVR", "SVC", "SVR"),
    "tree": (
        "DecisionTreeClassifier",
        "DecisionTreeRegressor",
        "ExtraTreeClassifier",
        "ExtraTreeRegressor",
    ),
}
F = TypeVar("F", bound=Callable[..., object])
# The functions that specs may call, by import path, with the model of their parameters.
_FACTORIES: dict[str, type[BaseModel]] = {}


def factory(function: F) -> F:
    """Let specs call a function that builds a torch module, by its import path.

    Its parameters are numbers, truth values, choices from a list, and tuples of these, so that no argument can be the name
    of a file, an address or code. All are optional in a spec, because the engine passes some of them.

    Raises
    ------
    TypeError
        A parameter has another type, or none.
    """
    annotations = {
        name: hint
        for name, hint in function.__annotations__.items()
        if name != "return"
    }
    # What it returns may be known to type checkers only.
    alone = SimpleNamespace(__annotations__=annotations)
    hints = typing.get_type_hints(alone, function.__globals__, include_extras=True)
    for name in inspect.signature(function).parameters:
        if name not in hints or not _is_plain(hints[name]):
            raise TypeError(
                f"{function.__qualname__}: the parameter {name!r} must be a number, a choice or a tuple of these"
            )
    fields: dict[str, Any] = {name: (hint, None) for name, hint in hints.items()}
    model = create_model(
        function.__name__, __config__=ConfigDict(extra="forbid"), **fields
    )
    _FACTORIES[f"{function.__module__}.{function.__qualname__}"] = model
    return function


def _is_plain(hint: object) -> bool:
    """Whether a type has only values that cannot name a file, an address or code."""
    if (
        hint in (int, float, bool, NoneType, Ellipsis)
        or typing.get_origin(hint) is Literal
    ):
        return True
    parts = typing.get_args(hint)[: 1 if typing.get_origin(hint) is Annotated else None]
    return bool(parts) and all(map(_is_plain, parts))


@dataclass(frozen=True)
class ImportPath:
    """Annotation of a parameter that is an import path, ``package.module.Class`` or ``package.module:Class``.

    Attributes
    ----------
    kind
        The required kind of class, in words.
    base
        The required base class, by module and name.
    classes
        The classes that every spec may name, in addition to those of packages that the owner of the machine trusts.
    factories
        Whether functions that `factory` decorates are named too.
    """

    kind: Literal["torch module", "scikit-learn estimator"]
    base: tuple[str, str]
    classes: frozenset[str]
    factories: bool

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            self._validated, handler(source)
        )

    def _validated(self, path: str) -> str:
        reason = self.refusal(path)
        if reason is not None:
            raise PydanticCustomError(UNTRUSTED, "{reason}", {"reason": reason})
        return path

    def refusal(self, path: str) -> str | None:
        """Why the path is refused, or None; nothing but modules of installed families is imported."""
        module, name = _divided(path)
        if (
            not all(part.isidentifier() for part in [*module.split("."), name])
            or not module
        ):
            return f"{path!r} is not an import path: write package.module.Class"
        if f"{module}.{name}" in self.classes or _within(module, owner_trusts()):
            return None
        if self.factories and _factory_of(path) is not None:
            return None
        return f"{path!r} is not on the list of {self.kind}s that specs may name; {SETTING}"

    def resolve(self, path: str) -> object:
        """Import the class or function at the path, after checking that it is trusted.

        Raises
        ------
        UntrustedError
            The path is refused, or leads to something else than a class of this kind.
        UnavailableError
            The package is not installed.
        """
        reason = self.refusal(path)
        if reason is not None:
            raise UntrustedError(reason)
        module, name = _divided(path)
        package = module.partition(".")[0]
        needed = self.base[0].partition(".")[0]
        for name_of_package in (package, needed):
            if importlib.util.find_spec(name_of_package) is not None:
                continue
            if name_of_package in EXTRAS:
                raise package_missing(name_of_package)
            raise UnavailableError(
                f"{path!r} needs the package {name_of_package!r}, which is not installed"
            )
        try:
            base = getattr(importlib.import_module(self.base[0]), self.base[1])
            value = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, RuntimeError, OSError) as error:
            raise UnavailableError(f"{path!r} cannot be imported: {error}") from error
        is_class = isinstance(value, type) and issubclass(value, base)
        if not is_class and not (self.factories and _factory_of(path) is not None):
            raise UntrustedError(f"{path!r} is not a {self.kind}")
        return value


TORCH: Final = ImportPath(
    "torch module",
    ("torch.nn", "Module"),
    frozenset(f"torch.nn.{name}" for name in LAYERS),
    True,
)
SKLEARN: Final = ImportPath(
    "scikit-learn estimator",
    ("sklearn.base", "BaseEstimator"),
    frozenset(
        f"sklearn.{module}.{name}"
        for module, names in ESTIMATORS.items()
        for name in names
    ),
    False,
)
_Path = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")]
ModulePath = Annotated[_Path, TORCH]
EstimatorPath = Annotated[_Path, SKLEARN]


def trusted(path: str, kind: ImportPath, model: str) -> Any:
    """Import the class at a spec's import path; errors name ``model``; see :meth:`ImportPath.resolve`."""
    try:
        return kind.resolve(path)
    except (UntrustedError, UnavailableError) as error:
        raise type(error)(f"model {model!r}: {error.message}", error.command) from error


def require_typed(path: str, arguments: Mapping[str, object] | None) -> None:
    """Require that arguments of a function that `factory` decorates are of its types; those of classes are not typed.

    Raises
    ------
    ValueError
        An argument is unknown or of another type.
    """
    parameters = _factory_of(path)
    if parameters is None:
        return
    try:
        parameters.model_validate(dict(arguments or {}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"{path} does not take these arguments: {name}: {worded(first)}"
        ) from None


def _factory_of(path: str) -> type[BaseModel] | None:
    """Return the parameters of the decorated function at a path; its module is imported if a family is to have it."""
    module, name = _divided(path)
    folders = {
        f"{family.module}.{folder}"
        for family in registry.families()
        for folder in FOLDERS
    }
    if f"{module}.{name}" not in _FACTORIES and module.rpartition(".")[0] in folders:
        try:
            importlib.import_module(module)
        except ImportError:
            return None
    return _FACTORIES.get(f"{module}.{name}")


def _refuse_reaching(arguments: object) -> object:
    """Refuse arguments that make a class of a package read files, unpickle or download."""
    pending = [arguments]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                # Nested parameters are written `step__memory`; names with a leading underscore are private.
                if inner and (
                    name.startswith("_") or name.rpartition("__")[2] in REACHING
                ):
                    words = f"the argument {name!r} can read files or downloads that are not pinned: remove it"
                    raise PydanticCustomError(UNTRUSTED, "{reason}", {"reason": words})
                pending.append(inner)
        elif isinstance(value, list):
            pending += value
    return arguments


Arguments = Annotated[dict[str, JsonValue], AfterValidator(_refuse_reaching)]


def owner_trusts() -> tuple[str, ...]:
    """Packages that the owner of this machine trusts, from the environment variable; a spec cannot add to them."""
    return tuple(
        name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()
    )


def _divided(path: str) -> tuple[str, str]:
    module, _, name = path.replace(":", ".", 1).rpartition(".")
    return module, name


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(
        module == package or module.startswith(f"{package}.") for package in packages
    )
