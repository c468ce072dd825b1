"""Components: a class for each kind of registered function, with what its kind declares, and how the engine calls it."""

from __future__ import annotations

import inspect
import re
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, create_model, model_validator

from neuroledger.errors import RequestError
from neuroledger.spec.channels import INPUTS, OUTPUTS, Declared, Interface, channels

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "CONTEXT_FIELDS",
    "Builder",
    "Ceiling",
    "Example",
    "Foreseen",
    "Metric",
    "Paradigm",
    "Place",
    "Reader",
    "ReaderContext",
    "Registered",
    "Side",
    "Signature",
    "Stimuli",
    "context_of",
    "parameter_model",
    "text_of",
]

# From the names of a folder's files and the reader's parameters to the names of the files that the reader reads.
Reads = Callable[[Sequence[str], Mapping[str, Any]], list[str]]
# From a catalogue, a spec, its text and `neuroledger.data.pin.downloads.Downloads` to `…downloads.Recorded`.
Pins = Callable[..., Any]
# From the parameters of a reader and what a model needs to the parameters that it changes, by name.
Composes = Callable[[Mapping[str, Any], Any], dict[str, Any]]
Simulates = Callable[..., Callable[..., Any]]
Together = Callable[[Any], None]
Side = Literal["source", "target"]

Place = tuple[str | int, ...]
"""The place of a field within the parameters of a component."""


class Foreseen(NamedTuple):
    """What a reader's parameters and the names of its pinned files state, without the files.

    Attributes
    ----------
    coordinates
        Coordinates and further assemblies that its data will have.
    recordings
        The coordinates of each recording, its `file`, and under `sha256` the hash of its samples.
    problems
        What it cannot read: the place of the field, what is wrong, and how to fix it.
    """

    coordinates: frozenset[str]
    recordings: tuple[Mapping[str, str], ...]
    problems: tuple[tuple[Place, str, str], ...]


Foresees = Callable[[Mapping[str, Any], Mapping[str, Any]], Foreseen]
Needs = Callable[[Mapping[str, Any]], dict[Place, str]]
Divides = Callable[
    [Mapping[str, Any], Sequence[Mapping[str, str]]], list[tuple[list[int], list[int]]]
]

_GENERATOR: Final = "numpy.random._generator.Generator"
_WORKSPACE: Final = "neuroledger.stats.workspace.Workspace"
_SPLITS: Final = "collections.abc.Sequence[neuroledger.stats.splits.Split]"
_STORE: Final = "neuroledger.models.activations.Store"
_CONTEXT: Final = "neuroledger.engine.context."
_OF_SCORES: Final = {
    "context": f"{_CONTEXT}MetricContext",
    "rng": _GENERATOR,
    "splits": _SPLITS,
    "workspace": _WORKSPACE,
}
# What the engine gives to the components of each kind that ask for it by a keyword-only parameter, and its type. All other
# keyword-only parameters are fields of specs. The classes of contexts are in `neuroledger.engine.context`.
CONTEXT_FIELDS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "metric": _OF_SCORES,
        "ceiling": _OF_SCORES,
        "paradigm": {
            "context": f"{_CONTEXT}ParadigmContext",
            "rng": _GENERATOR,
            "workspace": _WORKSPACE,
            "store": _STORE,
            "pretraining": "collections.abc.Sequence[str | neuroledger.spec.kinds.Pretraining]",
            "metrics": "collections.abc.Sequence[str | neuroledger.spec.base.Override]",
            "catalog": "neuroledger.spec.catalog.Catalog",
        },
        "builder": {
            "context": f"{_CONTEXT}BuilderContext",
            "id": "builtins.str",
            "weights": "collections.abc.Mapping[str, pathlib.Path]",
            "regions": "collections.abc.Mapping[str, str | tuple[str, ...]]",
            "layers": "tuple[str, ...]",
            "readout": "builtins.str",
            "logits": "builtins.str",
            "visual_degrees": "builtins.float",
            "device": "builtins.str",
            "training": "neuroledger.models.devices.Training",
            "store": _STORE,
            "rng": _GENERATOR,
        },
        "reader": {"context": "neuroledger.spec.components.ReaderContext"},
        "stimuli": {},
        "signature": {},
    }
)
# Types of contexts that no field of a spec can have: a parameter of this type with another name is misspelt.
_NEVER_A_FIELD: Final = frozenset({_GENERATOR, _WORKSPACE, _SPLITS, _STORE})
# Containers that may stand for each other in annotations.
_ALIKE: Final[Mapping[str, str]] = MappingProxyType(
    {"dict": "collections.abc.Mapping", "list": "collections.abc.Sequence"}
)


class Example(NamedTuple):
    """Small inputs on which a metric or ceiling is defined, for the contract checks of `neuroledger.testing`.

    Attributes
    ----------
    inputs
        The positional arguments: source and target of a metric, the assembly of a ceiling, the trace of a cost.
    parameters
        Values of parameters that the spec leaves to benchmarks.
    """

    inputs: tuple[Any, ...]
    parameters: Mapping[str, Any] = MappingProxyType({})


# From random numbers and the parameters of a spec to inputs of its metric or ceiling.
Draws = Callable[["np.random.Generator", Mapping[str, Any]], Example]


@dataclass(frozen=True)
class Registered:
    """A component: its function, the model of its parameters, and the integer version of its numbers.

    Attributes
    ----------
    asks_for
        The fields of the context that the function takes.
    """

    kind: ClassVar[str]
    name: str
    version: int
    function: Callable[..., Any]
    asks_for: frozenset[str]

    def takes(self, field: str) -> bool:
        """Whether the function takes a field of its context, by its name or with the whole context."""
        return field in self.asks_for or "context" in self.asks_for

    @property
    def parameters(self) -> type[BaseModel]:
        """Pydantic model of the YAML fields, made from the function's keyword-only parameters."""
        return parameter_model(
            self.kind, self.function, getattr(self, "together", None)
        )

    def bind(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Validated parameters with defaults (raises pydantic's ``ValidationError``)."""
        model = self.parameters.model_validate(dict(values))
        return {name: getattr(model, name) for name in type(model).model_fields}

    def canonical(self, values: Mapping[str, object]) -> dict[str, Any]:
        """The validated parameters as plain data, for identities."""
        return self.parameters.model_validate(dict(values)).model_dump(
            mode="json", by_alias=True
        )

    def call(
        self,
        context: object,
        inputs: Sequence[object],
        parameters: Mapping[str, object],
    ) -> Any:
        """Call the function with its inputs, what it asks of the context, and its parameters."""
        given = {
            name: context if name == "context" else getattr(context, name)
            for name in self.asks_for
        }
        return self.function(*inputs, **given, **parameters)


@dataclass(frozen=True)
class Ceiling(Registered):
    """A ceiling: ``(assembly, *, …) -> Samples``.

    Attributes
    ----------
    input
        What it is computed from: `assemblies` of responses, or `behaviour`.
    together
        Function that raises ValueError on parameters that are valid separately but not together.
    example
        Function that draws inputs for its contract checks, if those of its `input` do not fit.
    """

    kind: ClassVar[str] = "ceiling"
    input: str = "assemblies"
    together: Together | None = None
    example: Draws | None = None


@dataclass(frozen=True)
class Metric(Registered):
    """A metric: ``(source, target, *, …) -> Samples``, or ``(trace, *, …)`` for costs.

    Attributes
    ----------
    input
        What it is computed from: `assemblies`, `behaviour`, `predictions` or `trace`.
    timed
        Whether it needs the dimension of time bins even for a single bin.
    trials
        Whether it compares with single trials: the target keeps its repetitions, the source has one row each.
    together, example
        See `Ceiling`.
    """

    kind: ClassVar[str] = "metric"
    input: str = "assemblies"
    timed: bool = False
    trials: bool = False
    together: Together | None = None
    example: Draws | None = None


@dataclass(frozen=True)
class _WithChannels(Registered):
    """A component with input and output channels."""

    inputs: Declared = ()
    outputs: Declared = ()

    def interface(self, values: Mapping[str, object]) -> Interface:
        """The channels with these parameters.

        Raises
        ------
        RequestError
            The component's function of the parameters returns a channel that is not in the vocabulary.
        """
        owner = f"{self.kind} {self.name!r}"
        inputs, outputs = (
            declared(values) if callable(declared) else declared
            for declared in (self.inputs, self.outputs)
        )
        return Interface(
            channels(inputs, INPUTS, owner), channels(outputs, OUTPUTS, owner)
        )


@dataclass(frozen=True)
class Paradigm(_WithChannels):
    """A paradigm: ``(model, dataset, *, …) -> Measurement``; its channels are those that it requires of a model.

    Attributes
    ----------
    itself
        Whether the data can be scored in place of a model; they must then predict themselves.
    permuted
        Side of the measurement that is permuted for the negative control.
    simulates
        Function that draws simulated experiments with known truth, similar to a measurement.
    needs
        Function of the parameters: the coordinates that it needs of the data, by the fields that name them.
    divides
        Function of the parameters and of recordings: the numbers of those that each fold trains on and tests.
    together
        See `Ceiling`.
    """

    kind: ClassVar[str] = "paradigm"
    itself: bool = False
    permuted: Side | None = None
    simulates: Simulates | None = None
    needs: Needs | None = None
    divides: Divides | None = None
    together: Together | None = None


@dataclass(frozen=True)
class Builder(_WithChannels):
    """A model builder: ``(*, id, …) -> Model``; its channels are those of its models.

    Attributes
    ----------
    together
        See `Ceiling`.
    """

    kind: ClassVar[str] = "builder"
    together: Together | None = None


@dataclass(frozen=True)
class Reader(Registered):
    """A reader: ``(files, *, …) -> Dataset``.

    Attributes
    ----------
    joins
        Whether it is given the members of its data set, by id, in place of files.
    reads
        Function that selects its files from a folder.
    pins
        Function that converts a folder of downloads to the files and fields of its data set.
    prepares
        Whether it computes its result from the files, so that the result is hashed and recorded.
    composes
        Function that changes the parameters to what a model needs.
    foresees
        Function of the pinned files and the parameters: what its data will be.
    """

    kind: ClassVar[str] = "reader"
    joins: bool = False
    reads: Reads | None = None
    pins: Pins | None = None
    prepares: bool = False
    composes: Composes | None = None
    foresees: Foresees | None = None


@dataclass(frozen=True)
class Stimuli(Registered):
    """The table of a reader's stimuli: ``(files, *, …) -> pd.DataFrame``."""

    kind: ClassVar[str] = "stimuli"


@dataclass(frozen=True)
class Signature(Registered):
    """What data are known by: ``(assembly, *, …) -> xr.Dataset``, for the page of a data set.

    Attributes
    ----------
    title
        What it is.
    quantity, unit
        What its values are; an empty unit is that of the data.
    place
        What its values are at, with its unit.
    """

    kind: ClassVar[str] = "signature"
    title: str = ""
    quantity: str = ""
    unit: str = ""
    place: str = ""


@dataclass(frozen=True)
class ReaderContext:
    """What a reader may ask for: itself, its files and all of its parameters, which together determine its result."""

    reader: Reader
    files: Mapping[str, Path]
    parameters: Mapping[str, Any]


def context_of(kind: str, name: str, function: Callable[..., object]) -> frozenset[str]:
    """Return the fields of the context that a function takes, whose names and types are checked.

    Raises
    ------
    RequestError
        A parameter has the name of a field and another type, or the type of a field and another name.
    """
    fields = CONTEXT_FIELDS[kind]
    keyword_only = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    try:
        hints = typing.get_type_hints(function)
    except NameError:  # a type that its module defines later
        hints = {}
    for parameter in keyword_only:
        if parameter in hints:
            _require_right_type(
                f"{kind} {name!r}", parameter, text_of(hints[parameter]), fields
            )
    return frozenset(fields) & frozenset(keyword_only)


def _require_right_type(
    owner: str, parameter: str, found: str, fields: Mapping[str, str]
) -> None:
    expected = fields.get(parameter)
    if expected is not None and found not in ("typing.Any", expected):
        if _container(found) and _container(found) == _container(expected):
            return
        raise RequestError(
            f"{owner}: the engine gives `{parameter}` as {expected}, and it is annotated as {found}: correct the "
            "annotation, or rename a parameter that is a field of specs"
        )
    if expected is None and found in _NEVER_A_FIELD:
        meant = [name for name, of_type in fields.items() if of_type == found]
        if meant:
            hint = f"did you mean `{meant[0]}`?"
        else:
            hint = "the engine gives none to this kind of component"
        raise RequestError(
            f"{owner}: no field of a spec can be a {found}, as the parameter `{parameter}` is annotated; {hint}"
        )


def text_of(hint: object) -> str:
    """Return the qualified name of a type, without ``None``."""
    arguments = [each for each in typing.get_args(hint) if each is not type(None)]
    if type(None) in typing.get_args(hint) and len(arguments) == 1:
        hint = arguments[0]
    if isinstance(hint, type) and not typing.get_args(hint):
        return f"{hint.__module__}.{hint.__qualname__}"
    return str(hint)


def _container(text: str) -> str:
    """Return the kind of container of a generic type; empty for other types."""
    head, bracket, _ = text.partition("[")
    return _ALIKE.get(head, head) if bracket else ""


# Unlimited: there are more components than a limited cache holds, and `check` asks for each of them in turn.
@cache
def parameter_model(
    kind: str, function: Callable[..., object], together: Together | None = None
) -> type[BaseModel]:
    """Return the pydantic model of a component's parameters."""
    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if (
            parameter.kind is not inspect.Parameter.KEYWORD_ONLY
            or parameter.name in CONTEXT_FIELDS[kind]
        ):
            continue
        if parameter.default is inspect.Parameter.empty:
            default = ...
        else:
            default = parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    title = (
        "".join(part.title() for part in re.split(r"\W|_", function.__name__))
        + "Parameters"
    )
    config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=False,
        validate_default=False,
    )
    with warnings.catch_warnings():
        # A parameter may be called `copy` or `validate`: the methods of these names are not used on parameters.
        warnings.filterwarnings(
            "ignore", "Field name .* shadows an attribute", UserWarning
        )
        return create_model(
            title,
            __config__=config,
            __doc__=inspect.getdoc(function),
            __validators__=_validators(together),
            **fields,
        )


def _validators(together: Together | None) -> dict[str, Any]:
    if together is None:
        return {}

    def validate(self: BaseModel) -> BaseModel:
        together(self)
        return self

    return {"together": model_validator(mode="after")(validate)}
