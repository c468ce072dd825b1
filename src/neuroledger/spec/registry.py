"""The registry of components: decorators that register a function as a metric, ceiling, paradigm, builder or reader."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import logging
import pkgutil
import re
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ConfigDict, create_model, model_validator

from neuroledger.errors import RequestError, UnknownError
from neuroledger.spec.channels import INPUTS, OUTPUTS, Declared, Interface, channels
from neuroledger.spec.shipped import DISTRIBUTION

__all__ = [
    "Call",
    "Foreseen",
    "Place",
    "Registered",
    "broken",
    "builder",
    "ceiling",
    "current_call",
    "get",
    "metric",
    "names",
    "paradigm",
    "reader",
    "stimuli",
]

# Arguments that the engine passes to a component; all other keyword-only parameters are YAML fields.
INJECTED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "metric": frozenset({"splits", "rng", "workspace"}),
        "ceiling": frozenset({"splits", "rng", "workspace"}),
        "paradigm": frozenset(
            {"rng", "workspace", "store", "pretraining", "metrics", "catalog"}
        ),
        "builder": frozenset(
            {
                "id",
                "weights",
                "regions",
                "layers",
                "readout",
                "logits",
                "visual_degrees",
                "device",
            }
            | {"store", "rng"}
        ),
        "reader": frozenset(),
        "stimuli": frozenset(),
    }
)
# The entry-point group under which distributions, including this one, name their families.
GROUP = "neuroledger.families"
FOLDERS: Mapping[str, str] = MappingProxyType(
    {
        "metric": "metrics",
        "ceiling": "ceilings",
        "paradigm": "paradigms",
        "builder": "models",
        "reader": "readers",
        "stimuli": "readers",
    }
)

F = TypeVar("F", bound=Callable[..., Any])
# From the names of a folder's files and the reader's parameters to the names of the files that the reader reads.
Reads = Callable[[Sequence[str], Mapping[str, Any]], list[str]]
# From a catalogue, a spec, its text and `neuroledger.data.pin.downloads.Downloads` to `…downloads.Recorded`.
Pins = Callable[..., Any]
Simulates = Callable[..., Callable[..., Any]]
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


@dataclass(frozen=True)
class Registered:
    """A component: its function, the model of its parameters, and the integer version of its numbers.

    Attributes
    ----------
    input
        Input of a metric or ceiling: `assemblies`, `behaviour`, `predictions` or `trace`.
    timed
        Whether a metric needs the dimension of time bins even for a single bin.
    trials
        Whether a metric compares with single trials: the target keeps its repetitions, the source has one row each.
    inputs, outputs
        Input and output channels of a builder's models, or those that a paradigm requires of a model.
    itself
        Whether a paradigm can score the data in place of a model; they must then predict themselves.
    permuted
        Side of a paradigm's measurement that is permuted for the negative control.
    simulates
        Function that draws simulated experiments with known truth, similar to a measurement of the paradigm.
    reads
        Function that selects a reader's files from a folder.
    pins
        Function that converts a folder of downloads to the files and fields of a reader's data set.
    together
        Function that raises ValueError on parameters that are valid separately but not together.
    prepares
        Whether a reader computes its result from the files, so that the result is hashed and recorded.
    foresees
        Function of the pinned files and a reader's parameters: what its data will be.
    needs
        Function of a paradigm's parameters: the coordinates that it needs of the data, by the fields that name them.
    divides
        Function of a paradigm's parameters and of recordings: the numbers of those that each fold trains on and tests.
    """

    kind: str
    name: str
    version: int
    function: Callable[..., Any]
    injected: frozenset[str]
    input: str = "assemblies"
    timed: bool = False
    trials: bool = False
    inputs: Declared = ()
    outputs: Declared = ()
    itself: bool = False
    permuted: Side | None = None
    simulates: Simulates | None = None
    reads: Reads | None = None
    pins: Pins | None = None
    prepares: bool = False
    together: Callable[[Any], None] | None = None
    foresees: Foresees | None = None
    needs: Needs | None = None
    divides: Divides | None = None

    @property
    def parameters(self) -> type[BaseModel]:
        """Pydantic model of the YAML fields, made from the function's keyword-only parameters."""
        return _parameters(self.kind, self.function, self.together)

    def bind(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Validated parameters with defaults (raises pydantic's ``ValidationError``)."""
        model = self.parameters.model_validate(dict(values))
        return {name: getattr(model, name) for name in type(model).model_fields}

    def canonical(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The validated parameters as plain data, for identities."""
        return self.parameters.model_validate(dict(values)).model_dump(
            mode="json", by_alias=True
        )

    def interface(self, values: Mapping[str, Any]) -> Interface:
        """The channels of a builder or paradigm with these parameters.

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


_REGISTRY: dict[tuple[str, str], Registered] = {}
_BROKEN: dict[str, str] = {}


def _register(kind: str, name: str, version: int, **declared: Any) -> Callable[[F], F]:
    if version < 1:
        raise RequestError(
            f"{kind} {name!r}: version {version} is invalid: give an integer of at least 1"
        )

    def decorate(function: F) -> F:
        known = _REGISTRY.get((kind, name))
        if known is not None and (first := _path(known.function)) != (
            second := _path(function)
        ):
            raise RequestError(
                f"{kind} {name!r} is registered twice: by {first} and by {second}; rename one"
            )
        keyword_only = {
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        injected = INJECTED[kind] & keyword_only
        registered = (
            _with_current_call(name, function) if kind == "reader" else function
        )
        _REGISTRY[kind, name] = Registered(
            kind, name, version, registered, injected, **declared
        )
        return registered

    return decorate


class Call(NamedTuple):
    """A call of a reader: its files and all of its parameters, which determine its result."""

    reader: Registered
    files: Mapping[str, Path]
    parameters: Mapping[str, Any]


_CALL: ContextVar[tuple[str, Mapping[str, Path], Mapping[str, Any]] | None] = (
    ContextVar("call", default=None)
)


def current_call() -> Call:
    """The reader call that is running now.

    Raises
    ------
    RequestError
        No reader is running.
    """
    call = _CALL.get()
    if call is None:
        raise RequestError(
            "only registered readers can store windows: call one, or use `join`"
        )
    return Call(get("reader", call[0]), call[1], call[2])


def _with_current_call(name: str, function: F) -> F:
    """Wrap a reader so that `current_call` returns its arguments while it runs."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        files, *_ = bound.args
        token = _CALL.set((name, files, bound.kwargs))
        try:
            return function(*args, **kwargs)
        finally:
            _CALL.reset(token)

    return cast(F, wrapper)


def metric(
    name: str,
    *,
    version: int,
    input: str = "assemblies",
    timed: bool = False,
    trials: bool = False,
    together: Callable[[Any], None] | None = None,
) -> Callable[[F], F]:
    """Register a metric: ``(source, target, *, …) -> xr.DataArray`` of labelled samples.

    ``input`` is ``assemblies`` (the default), ``predictions``, or ``trace`` (the counts of one pass of a network). A
    ``timed`` metric needs time bins, even a single one. A metric of ``trials`` gets the target before repetitions are
    averaged. ``together`` raises a ValueError on parameters that do not fit together. Raise ``version`` whenever the
    metric's numbers can change.
    """
    return _register(
        "metric",
        name,
        version,
        input=input,
        timed=timed,
        trials=trials,
        together=together,
    )


def ceiling(
    name: str,
    *,
    version: int,
    input: str = "assemblies",
    together: Callable[[Any], None] | None = None,
) -> Callable[[F], F]:
    """Register a ceiling: ``(assembly, *, …) -> xr.DataArray`` of labelled samples.

    ``input`` is ``assemblies`` for ceilings of responses, ``behaviour`` for those of trials, thresholds and properties.
    For ``together`` see `metric`.
    """
    return _register("ceiling", name, version, input=input, together=together)


def paradigm(
    name: str,
    *,
    version: int,
    shows: Declared,
    asks: Declared,
    itself: bool,
    permuted: Side | None,
    simulates: Simulates | None = None,
    needs: Needs | None = None,
    divides: Divides | None = None,
) -> Callable[[F], F]:
    """Register a paradigm: ``(model, dataset, *, …) -> Measurement``.

    Every paradigm declares its channels and its controls. None of these has a default, so that the compatibility of a
    model and a benchmark is known before anything is built, and no control is forgotten.

    Parameters
    ----------
    shows
        Input channels, or a function of the parameters; ``stimuli`` stands for the channel that the data set states.
    asks
        Output channels, or a function of the parameters: ``lambda values: {f"responses:{values['region']}"}``.
    itself
        Whether the data can be scored in place of a model; they must then reach the ceiling.
    permuted
        Side of the measurement that can be assigned to wrong stimuli, `source` (the model's output) or `target`; the
        score must then vanish. None if neither side can.
    simulates
        Maps ``(measured, factors)`` to a function of ``(rng, models)`` that draws a
        :class:`neuroledger.stats.calibration.Experiment` similar to the measurement, with new draws of each factor; it
        raises MetricError if that is impossible. Without it, intervals cannot be calibrated.
    needs, divides
        What `check` knows before the data are there; see `Registered`.

    Raises
    ------
    RequestError
        A channel is not in the vocabulary (:mod:`neuroledger.spec.channels`).
    """
    _require_known_channels(f"paradigm {name!r}", shows, asks)
    declared: dict[str, Any] = {"itself": itself, "permuted": permuted}
    declared |= {"simulates": simulates} | {"needs": needs, "divides": divides}
    return _register("paradigm", name, version, inputs=shows, outputs=asks, **declared)


def builder(
    name: str,
    *,
    version: int,
    takes: Declared,
    gives: Declared,
    together: Callable[[Any], None] | None = None,
) -> Callable[[F], F]:
    """Register a model builder: ``(*, id, …) -> Model``.

    Parameters
    ----------
    takes, gives
        Input and output channels of its models: sets, or functions of the parameters together with the fields
        ``regions``, ``layers``, ``readout`` and ``commit`` of the spec.
    together
        See `metric`.

    Raises
    ------
    RequestError
        A channel is not in the vocabulary (:mod:`neuroledger.spec.channels`).
    """
    _require_known_channels(f"builder {name!r}", takes, gives)
    return _register(
        "builder", name, version, inputs=takes, outputs=gives, together=together
    )


def _require_known_channels(owner: str, inputs: Declared, outputs: Declared) -> None:
    for declared, known in ((inputs, INPUTS), (outputs, OUTPUTS)):
        if not callable(declared):
            channels(declared, known, owner)


def reader(
    name: str,
    *,
    version: int,
    reads: Reads | None = None,
    pins: Pins | None = None,
    prepares: bool = False,
    foresees: Foresees | None = None,
) -> Callable[[F], F]:
    """Register a reader: ``(files, *, …) -> Dataset``.

    A reader that ``prepares`` computes its result from the files (filters, windows); the result is hashed and recorded.
    ``reads(names, parameters)`` selects the reader's files from the names in a folder, so that only these are pinned; it
    raises an error if one is missing. ``pins(catalog, spec, text, downloads)`` converts a folder of downloads to files
    and fields of the spec, for readers whose fields state the subject of each file. ``foresees(files, parameters)`` states
    what the data will be, from the pinned files (name to pin) alone.
    """
    declared: dict[str, Any] = {"reads": reads, "pins": pins, "prepares": prepares}
    return _register("reader", name, version, **declared, foresees=foresees)


def stimuli(name: str) -> Callable[[F], F]:
    """Register the table of a reader's stimuli, under the reader's name: ``(files, *, …) -> pd.DataFrame``.

    The function reads neither recordings nor embeddings, so that embeddings can be computed before windows are read. Its
    keyword-only parameters are a subset of the reader's. Columns: ``stimulus_id``, and ``text`` (and ``context``), or
    ``filename`` (and ``start``, ``duration`` in seconds); see docs/signals.md.
    """
    return _register("stimuli", name, 1)


def get(kind: str, name: str) -> Registered:
    """The component ``name`` of ``kind``.

    Raises
    ------
    RequestError
        There is none; the message suggests similar names.
    """
    discover(kind)
    if (kind, name) not in _REGISTRY:
        known = names(kind)
        near = difflib.get_close_matches(name, known, 3, 0.5)
        hint = (
            f"did you mean {' or '.join(map(repr, near))}?"
            if near
            else f"known: {', '.join(known)}"
        )
        reasons = "".join(f"; {reason}" for reason in _BROKEN.values())
        raise UnknownError(f"no {kind} is registered as {name!r}; {hint}{reasons}")
    return _REGISTRY[kind, name]


def names(kind: str, *, plugins: bool = True) -> list[str]:
    """Sorted names of the components of ``kind``, including those of other distributions unless ``plugins`` is false."""
    discover(kind)
    return sorted(
        component.name
        for component in _REGISTRY.values()
        if component.kind == kind
        and (plugins or component.function.__module__.split(".")[0] == DISTRIBUTION)
    )


class Family(NamedTuple):
    """An installed package of components: the module that its entry point names, and its distribution."""

    distribution: str
    module: str


@lru_cache
def families() -> tuple[Family, ...]:
    """All installed families, those of this package first."""
    installed = {
        Family(
            entry.dist.name if entry.dist else entry.module.split(".")[0], entry.module
        )
        for entry in entry_points(group=GROUP)
    }
    return tuple(
        sorted(
            installed, key=lambda family: (family.distribution != DISTRIBUTION, family)
        )
    )


@lru_cache
def plugin_specs() -> tuple[tuple[str, Path], ...]:
    """Distribution and folder ``specs`` of every plugin that has such a folder; the plugin is not imported."""
    folders = []
    for family in families():
        if family.distribution != DISTRIBUTION:
            try:
                spec = importlib.util.find_spec(family.module)
            except Exception as error:
                _note_broken(family, error)
                continue
            for folder in (
                (spec.submodule_search_locations or ()) if spec is not None else ()
            ):
                if (Path(folder) / "specs").is_dir():
                    folders.append(
                        (family.distribution, Path(folder).resolve() / "specs")
                    )
    return tuple(folders)


def broken() -> dict[str, str]:
    """Error messages of all distributions whose components cannot be imported, by distribution."""
    for kind in FOLDERS:
        discover(kind)
    return dict(_BROKEN)


@lru_cache
def discover(kind: str) -> None:
    """Import every installed family's package and all modules in its folder for ``kind``.

    A plugin that cannot be imported is reported once, and ignored.

    Raises
    ------
    RequestError
        No family is installed, not even the shipped ones.
    """
    if not families():
        raise RequestError(
            "no component is registered, because the package neuroledger is not installed: run "
            "`pip install --editable .`"
        )
    for family in families():
        try:
            _import_family(family, kind)
        except Exception as error:
            if family.distribution == DISTRIBUTION:
                raise
            _note_broken(family, error)


def _import_family(family: Family, kind: str) -> None:
    package = importlib.import_module(family.module)
    folder = f"{family.module}.{FOLDERS[kind]}"
    if hasattr(package, "__path__") and importlib.util.find_spec(folder) is not None:
        subpackage = importlib.import_module(folder)
        for module in pkgutil.walk_packages(
            getattr(subpackage, "__path__", ()), f"{folder}."
        ):
            importlib.import_module(module.name)


def _note_broken(family: Family, error: Exception) -> None:
    """Log once that a distribution cannot be used, and why."""
    if family.distribution not in _BROKEN:
        _BROKEN[family.distribution] = (
            f"the installed package {family.distribution} cannot be used: importing {family.module} raised "
            f"{type(error).__name__}: {error}; fix it, or run `pip uninstall {family.distribution}`"
        )
        logging.getLogger("neuroledger").warning(_BROKEN[family.distribution])


def _path(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@lru_cache
def _parameters(
    kind: str,
    function: Callable[..., Any],
    together: Callable[[Any], None] | None = None,
) -> type[BaseModel]:
    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if (
            parameter.kind is not inspect.Parameter.KEYWORD_ONLY
            or parameter.name in INJECTED[kind]
        ):
            continue
        default = (
            ... if parameter.default is inspect.Parameter.empty else parameter.default
        )
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


def _validators(together: Callable[[Any], None] | None) -> dict[str, Any]:
    if together is None:
        return {}

    def validate(self: BaseModel) -> BaseModel:
        together(self)
        return self

    return {"together": model_validator(mode="after")(validate)}
