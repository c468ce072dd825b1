"""The vocabulary of pipeline steps: ``step`` registers a function as one; ``Steps`` and ``Head`` are fields of specs."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema

from neuroledger.errors import RequestError
from neuroledger.families.decoding.protocols.decoder import Objective, Signature
from neuroledger.spec.base import Frozen

__all__ = [
    "ANY",
    "CLASSES",
    "Head",
    "InnerStep",
    "Kind",
    "LABELS",
    "NUMBERS",
    "Step",
    "Steps",
    "declared_step",
    "objectives_of",
    "step",
]

Kind = Literal["windows", "covariances", "features", "answers"]
CLASSES: tuple[Objective, ...] = ("classification",)
LABELS: tuple[Objective, ...] = ("classification", "multilabel")
NUMBERS: tuple[Objective, ...] = ("regression", "retrieval")
ANY: tuple[Objective, ...] = (*LABELS, *NUMBERS)

Make = TypeVar("Make", bound=Callable[..., Any])


class Step(Frozen):
    """A step of a pipeline with its parameters; there is a subclass for each registered function.

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
    is_head
        Whether it can be the `head` of a decoder of covariances or co-spectra.
    """

    takes: ClassVar[Kind]
    gives: ClassVar[Kind]
    learns: ClassVar[bool]
    objectives: ClassVar[tuple[Objective, ...]]
    is_head: ClassVar[bool]
    function: ClassVar[Callable[..., Any]]

    def make(self, signature: Signature) -> Any:
        """An untrained estimator with the API of scikit-learn."""
        parameters = {
            field: getattr(self, field)
            for field in type(self).model_fields
            if field != "name"
        }
        return type(self).function(signature, **parameters)


_STEPS: dict[str, type[Step]] = {}


def step(
    name: str,
    takes: Kind,
    gives: Kind,
    *,
    learns: bool = True,
    objectives: tuple[Objective, ...] = ANY,
    is_head: bool = False,
) -> Callable[[Make], Make]:
    """Register a pipeline step: ``(signature, *, …) -> estimator`` with the API of scikit-learn.

    Keyword-only parameters of the function are the fields of the step in YAML; their types are checked. Its docstring
    describes the step in the JSON schema. The arguments of this decorator are the attributes of :class:`Step`.

    Raises
    ------
    RequestError
        Another function is registered under this name.
    """

    def decorate(function: Make) -> Make:
        known = _STEPS.get(name)
        if known is not None and _path_of(known.function) != _path_of(function):
            raise RequestError(
                f"step {name!r} is registered twice: by {_path_of(known.function)} and by {_path_of(function)}; rename one"
            )
        kind = _model_of(name, function, is_head)
        kind.takes, kind.gives, kind.learns = takes, gives, learns
        kind.objectives, kind.is_head = objectives, is_head
        kind.function = staticmethod(function)
        _STEPS[name] = kind
        return function

    return decorate


def _path_of(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _model_of(name: str, function: Callable[..., Any], is_head: bool) -> type[Step]:
    """The pydantic model of a step: its name, and the keyword-only parameters of its function."""
    hints = typing.get_type_hints(function, include_extras=True)
    # A head may be written in Python without its name.
    fields: dict[str, Any] = {"name": (Literal[name], name if is_head else ...)}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            default = (
                ...
                if parameter.default is inspect.Parameter.empty
                else parameter.default
            )
            fields[parameter.name] = (hints[parameter.name], default)
    title = "".join(part.title() for part in re.split(r"\W|_", function.__name__))
    return create_model(
        title, __base__=Step, __doc__=inspect.getdoc(function), **fields
    )


def declared_step(name: str, **parameters: Any) -> Step:
    """The step of this name, with validated parameters.

    Raises
    ------
    ValidationError
        A parameter is unknown or invalid.
    """
    return _STEPS[name].model_validate({"name": name, **parameters})


class _OneOf:
    """Annotation of a field that accepts the registered steps that fulfil a condition.

    The steps are listed when a spec is first validated, so that those of plugins, imported before, are among them.
    """

    def __init__(self, condition: Callable[[type[Step]], bool]) -> None:
        self.condition = condition

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        kinds = tuple(kind for kind in _STEPS.values() if self.condition(kind))
        union: Any = Union.__getitem__(
            kinds
        )  # of kinds that are known at run time only
        return handler.generate_schema(Annotated[union, Field(discriminator="name")])


def _may_be_inside(kind: type[Step]) -> bool:
    """Whether a step can be repeated for each band: it predicts nothing, and has no steps of its own."""
    return kind.gives != "answers" and "steps" not in kind.model_fields


InnerStep = Annotated[Any, _OneOf(_may_be_inside)]
Head = Annotated[Any, _OneOf(lambda kind: kind.is_head)]


def _require_chained(steps: tuple[Any, ...]) -> tuple[Any, ...]:
    """The steps, checked to form a chain from windows to answers.

    Raises
    ------
    ValueError
        A step does not accept the output of the one before it; the message suggests steps that do.
    """
    _check_chain(steps, "answers")
    for outer in steps:
        if inner_steps := getattr(outer, "steps", ()):
            _check_chain(inner_steps, "features", f"{outer.name}: ")
    return steps


def _check_chain(steps: Sequence[Any], end: Kind, prefix: str = "") -> None:
    available: Kind = "windows"
    for number, one in enumerate(steps, start=1):
        if one.takes != available:
            bridge = _step_names(available, one.takes)
            remedy = (
                f"put {' or '.join(bridge)} before it"
                if bridge
                else f"use one of {', '.join(_step_names(available))}"
            )
            raise ValueError(
                f"{prefix}step {number}, {one.name}, takes {one.takes}, and there are {available} before it: {remedy}"
            )
        available = one.gives
    if available != end:
        raise ValueError(
            f"{prefix}the last step, {steps[-1].name}, gives {available}, and {end} are needed: "
            f"add one of {', '.join(_step_names(available, end) or _step_names(available))}"
        )


def _step_names(takes: Kind, gives: Kind | None = None) -> list[str]:
    """Names of the steps with this input, and this output if given."""
    return [
        name
        for name, kind in _STEPS.items()
        if kind.takes == takes and (gives is None or kind.gives == gives)
    ]


Steps = Annotated[
    tuple[Annotated[Any, _OneOf(lambda kind: True)], ...],
    Field(min_length=1),
    AfterValidator(_require_chained),
]


def objectives_of(steps: Sequence[Any]) -> tuple[Objective, ...]:
    """The objectives that all steps of a pipeline support."""
    inner_steps = [inner for outer in steps for inner in getattr(outer, "steps", ())]
    return tuple(
        one
        for one in ANY
        if all(one in each.objectives for each in [*steps, *inner_steps])
    )
