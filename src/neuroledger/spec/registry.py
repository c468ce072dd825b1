"""Components by name: a decorated function becomes a metric, ceiling, paradigm, builder or reader."""

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
    "Call", "Registered", "broken", "builder", "ceiling", "current_call", "get", "metric", "names",
    "paradigm", "reader", "stimuli",
]  # fmt: skip

# What the engine hands to a component; everything else that is keyword-only is a field of the YAML.
INJECTED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "metric": frozenset({"splits", "rng", "workspace"}),
        "ceiling": frozenset({"splits", "rng", "workspace"}),
        "paradigm": frozenset({"rng", "workspace", "store", "pretraining", "metrics", "catalog"}),
        "builder": frozenset(
            {"id", "weights", "regions", "layers", "readout", "logits", "visual_degrees", "device"}
            | {"store", "rng"}
        ),
        "reader": frozenset(),
        "stimuli": frozenset(),
    }
)
# Distributions, this one included, name their families under this entry-point group.
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
# Of a folder's files, by their names and the reader's parameters: those that the reader reads.
Reads = Callable[[Sequence[str], Mapping[str, Any]], list[str]]
# From a catalogue, a data set's spec, its text and what is said about a folder: `neuroledger.data.pin.downloads.Recorded`.
Pins = Callable[..., Any]
Simulates = Callable[..., Callable[..., Any]]
Side = Literal["source", "target"]


@dataclass(frozen=True)
class Registered:
    """A component: its function, the model of its parameters, and the integer version of its numbers.

    Attributes
    ----------
    input
        What a metric or ceiling is computed from: `assemblies`, `behaviour`, `predictions` or `trace`.
    resampled_by
        What a metric or ceiling that makes its own replicates draws anew: ``stimulus``, ``subject``, …
    timed
        Whether a metric needs the dimension of time bins even where there is one bin.
    trials
        Whether a metric compares with single trials: the target keeps its repetitions, the source has one row each.
    inputs, outputs
        Channels that a model takes and gives, or that a paradigm shows and asks back.
    itself
        Whether a paradigm's data can be put in the model's place: they must then predict themselves.
    permuted
        Which side of a paradigm's measurement is permuted for the control that must not score.
    simulates
        Draws experiments like a measurement of a paradigm, with known truth.
    reads
        Which of a folder's files a reader reads.
    pins
        How a folder of downloads becomes the files and fields of a data set that a reader reads.
    together
        Refuses, by a ValueError, parameters that are valid one by one and not together.
    prepares
        Whether what a reader returns is computed from its files, so that its content is hashed and recorded.
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
    resampled_by: tuple[str, ...] = ()
    itself: bool = False
    permuted: Side | None = None
    simulates: Simulates | None = None
    reads: Reads | None = None
    pins: Pins | None = None
    prepares: bool = False
    together: Callable[[Any], None] | None = None

    @property
    def parameters(self) -> type[BaseModel]:
        """Pydantic model of the YAML fields, made from the function's keyword-only parameters."""
        return _parameters(self.kind, self.function, self.together)

    def bind(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Validated parameters with defaults filled in (pydantic's ``ValidationError`` passes through)."""
        model = self.parameters.model_validate(dict(values))
        return {name: getattr(model, name) for name in type(model).model_fields}

    def canonical(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The validated parameters as plain data, for identities."""
        return self.parameters.model_validate(dict(values)).model_dump(mode="json", by_alias=True)

    def interface(self, values: Mapping[str, Any]) -> Interface:
        """The channels of a builder or paradigm with these parameters.

        Raises
        ------
        RequestError
            A declared function returns a channel that is not in the vocabulary.
        """
        owner = f"{self.kind} {self.name!r}"
        inputs, outputs = (
            declared(values) if callable(declared) else declared for declared in (self.inputs, self.outputs)
        )
        return Interface(channels(inputs, INPUTS, owner), channels(outputs, OUTPUTS, owner))


_REGISTRY: dict[tuple[str, str], Registered] = {}
_BROKEN: dict[str, str] = {}


def _register(kind: str, name: str, version: int, **declared: Any) -> Callable[[F], F]:
    if version < 1:
        raise RequestError(f"{kind} {name!r}: a version is an integer from 1")

    def decorate(function: F) -> F:
        known = _REGISTRY.get((kind, name))
        if known is not None and _place(known.function) != _place(function):
            where, other = _place(function), _place(known.function)
            raise RequestError(f"{kind} {name!r} is registered twice: by {other} and by {where}; rename one")
        keyword_only = {
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        injected = INJECTED[kind] & keyword_only
        called = _as_call(name, function) if kind == "reader" else function
        _REGISTRY[kind, name] = Registered(kind, name, version, called, injected, **declared)
        return called

    return decorate


class Call(NamedTuple):
    """A call of a reader: its files and all of its parameters, which determine what it returns."""

    reader: Registered
    files: Mapping[str, Path]
    parameters: Mapping[str, Any]


_CALL: ContextVar[tuple[str, Mapping[str, Path], Mapping[str, Any]] | None] = ContextVar("call", default=None)


def current_call() -> Call:
    """The call of a reader in which this is asked.

    Raises
    ------
    RequestError
        No reader is being called.
    """
    call = _CALL.get()
    if call is None:
        raise RequestError("windows are stored by registered readers only: call one, or use `join`")
    return Call(get("reader", call[0]), call[1], call[2])


def _as_call(name: str, function: F) -> F:
    """The reader, during whose calls `current_call` knows its arguments."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        files, *_ = bound.args
        token = _CALL.set((name, files, bound.kwargs))
        try:
            return function(*given, **named)
        finally:
            _CALL.reset(token)

    return cast(F, called)


def metric(
    name: str,
    *,
    version: int,
    input: str = "assemblies",
    timed: bool = False,
    trials: bool = False,
    together: Callable[[Any], None] | None = None,
    resampled_by: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Register a metric: ``(source, target, *, …) -> xr.DataArray`` of labelled samples.

    ``input`` says what it is computed from: ``assemblies`` (the default), ``predictions``, or ``trace`` (the
    counts of one pass of a network). A metric that is ``timed`` needs time bins, even a single one; one that compares with
    ``trials`` gets the target before repetitions are averaged. ``together`` raises a ValueError on parameters that do not
    fit together. A metric that returns replicates of its own says what they draw anew (``resampled_by``); replicates of
    two models are paired draw by draw. ``version`` rises whenever its numbers can change.
    """
    return _register(
        "metric", name, version, input=input, timed=timed, trials=trials, together=together,
        resampled_by=resampled_by,
    )  # fmt: skip


def ceiling(
    name: str,
    *,
    version: int,
    input: str = "assemblies",
    resampled_by: tuple[str, ...] = (),
    together: Callable[[Any], None] | None = None,
) -> Callable[[F], F]:
    """Register a ceiling: ``(assembly, *, …) -> xr.DataArray`` of labelled samples.

    ``input`` is ``assemblies`` for ceilings of responses, ``behaviour`` for those of trials, thresholds and properties.
    ``together`` as for a metric.
    """
    return _register("ceiling", name, version, input=input, resampled_by=resampled_by, together=together)


def paradigm(
    name: str, *, version: int, shows: Declared, asks: Declared, itself: bool, permuted: Side | None,
    simulates: Simulates | None = None,
) -> Callable[[F], F]:  # fmt: skip
    """Register a paradigm: ``(model, dataset, *, …) -> Measurement``.

    Every paradigm declares what it shows to a model, what it asks back and which controls apply to it. None of these has a
    default, so that a pair of model and benchmark is compatible or not before anything is built, and no control is lost.

    Parameters
    ----------
    shows
        Input channels, ``stimuli`` standing for the channel that the data set names; or a function of the parameters.
    asks
        Output channels, or a function of the parameters: ``lambda values: {f"responses:{values['region']}"}``.
    itself
        Whether the data can be put in the model's place; scored so, they must reach the ceiling.
    permuted
        The side of the measurement that can be given to the wrong stimuli, `source` (what the model gave) or `target`;
        scored so, nothing must be left. None where neither can.
    simulates
        ``(measured, factors)`` to ``(rng, models)``, which draws a :class:`neuroledger.stats.calibration.Experiment` like
        the measurement, new in each factor; a MetricError where that is unknown. None: intervals cannot be calibrated.

    Raises
    ------
    RequestError
        A channel is not in the vocabulary (:mod:`neuroledger.spec.channels`).
    """
    _known(f"paradigm {name!r}", shows, asks)
    declared = {"itself": itself, "permuted": permuted, "simulates": simulates}
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
        Channels of its models: sets, or functions of the parameters together with the fields ``regions``, ``layers``,
        ``readout`` and ``commit`` of the spec.
    together
        As for a metric.

    Raises
    ------
    RequestError
        A channel is not in the vocabulary (:mod:`neuroledger.spec.channels`).
    """
    _known(f"builder {name!r}", takes, gives)
    return _register("builder", name, version, inputs=takes, outputs=gives, together=together)


def _known(owner: str, inputs: Declared, outputs: Declared) -> None:
    for declared, known in ((inputs, INPUTS), (outputs, OUTPUTS)):
        if not callable(declared):
            channels(declared, known, owner)


def reader(
    name: str, *, version: int, reads: Reads | None = None, pins: Pins | None = None, prepares: bool = False
) -> Callable[[F], F]:
    """Register a reader: ``(files, *, …) -> Dataset``.

    A reader that ``prepares`` computes what it returns (filters, windows), so that its content is hashed and recorded.
    ``pins(catalog, spec, text, downloads)`` turns a folder of downloads into files and fields of the spec, where
    the reader's fields say whose each file is.

    ``reads(names, parameters)`` chooses, among the names of a folder's files, those that the reader reads, so that just
    these are pinned; it raises where one is missing.
    """
    return _register("reader", name, version, reads=reads, pins=pins, prepares=prepares)


def stimuli(name: str) -> Callable[[F], F]:
    """Register what a reader's stimuli are, under the reader's name: ``(files, *, …) -> pd.DataFrame``, one row each.

    It needs no recording and no embedding, so that embeddings can be made before windows are read. Keyword-only
    parameters are some of the reader's, by the same names. Columns: ``stimulus_id``, and ``text`` (and ``context``), or
    ``filename`` (and ``start``, ``duration`` in seconds); see docs/signals.md.
    """
    return _register("stimuli", name, 1)


def get(kind: str, name: str) -> Registered:
    """The component ``name`` of ``kind``.

    Raises
    ------
    RequestError
        There is none; near misses are named.
    """
    discover(kind)
    if (kind, name) not in _REGISTRY:
        known = names(kind)
        near = difflib.get_close_matches(name, known, 3, 0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(known)}"
        reasons = "".join(f"; {words}" for words in _BROKEN.values())
        raise UnknownError(f"no {kind} is registered as {name!r}; {hint}{reasons}")
    return _REGISTRY[kind, name]


def names(kind: str, *, plugins: bool = True) -> list[str]:
    """Sorted names of the components of ``kind``, those of other distributions too unless ``plugins`` is false."""
    discover(kind)
    return sorted(
        name
        for (of, name), one in _REGISTRY.items()
        if of == kind and (plugins or one.function.__module__.split(".")[0] == DISTRIBUTION)
    )


class Family(NamedTuple):
    """An installed package of components: the module that its entry point names, and its distribution."""

    distribution: str
    module: str


@lru_cache
def families() -> tuple[Family, ...]:
    """Every installed family, those of this package first."""
    found = {
        Family(entry.dist.name if entry.dist else entry.module.split(".")[0], entry.module)
        for entry in entry_points(group=GROUP)
    }
    return tuple(sorted(found, key=lambda family: (family.distribution != DISTRIBUTION, family)))


@lru_cache
def plugin_specs() -> tuple[tuple[str, Path], ...]:
    """Of each family from elsewhere that holds a folder ``specs``: its distribution and that folder; nothing is run."""
    found = []
    for family in families():
        if family.distribution != DISTRIBUTION:
            try:
                spec = importlib.util.find_spec(family.module)
            except Exception as error:
                _note_broken(family, error)
                continue
            for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
                if (Path(folder) / "specs").is_dir():
                    found.append((family.distribution, Path(folder).resolve() / "specs"))
    return tuple(found)


def broken() -> dict[str, str]:
    """What is wrong with each distribution whose components cannot be imported, after all were tried."""
    for kind in FOLDERS:
        discover(kind)
    return dict(_BROKEN)


@lru_cache
def discover(kind: str) -> None:
    """Import what every installed family offers for ``kind``: its package, and all modules of the kind's folder in it.

    A distribution from elsewhere that cannot be imported is reported once, by its name; the others are used.

    Raises
    ------
    RequestError
        No family is installed, not even the shipped ones.
    """
    if not families():
        raise RequestError(
            "no component is registered: the package neuroledger is not installed; `pip install --editable .`"
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
        of_kind = importlib.import_module(folder)
        for module in pkgutil.walk_packages(getattr(of_kind, "__path__", ()), f"{folder}."):
            importlib.import_module(module.name)


def _note_broken(family: Family, error: Exception) -> None:
    """Report once that a distribution cannot be used, and why."""
    if family.distribution not in _BROKEN:
        _BROKEN[family.distribution] = (
            f"the installed package {family.distribution} cannot be used: importing {family.module} raised "
            f"{type(error).__name__}: {error}; fix it, or `pip uninstall {family.distribution}`"
        )
        logging.getLogger("neuroledger").warning(_BROKEN[family.distribution])


def _place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@lru_cache
def _parameters(
    kind: str, function: Callable[..., Any], together: Callable[[Any], None] | None = None
) -> type[BaseModel]:
    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or parameter.name in INJECTED[kind]:
            continue
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    title = "".join(part.title() for part in re.split(r"\W|_", function.__name__)) + "Parameters"
    config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=False, validate_default=False)
    with warnings.catch_warnings():
        # A parameter may well be called `copy` or `validate`: nobody calls the methods of that name on parameters.
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute", UserWarning)
        return create_model(
            title,
            __config__=config,
            __doc__=inspect.getdoc(function),
            __validators__=_whole(together),
            **fields,
        )


def _whole(together: Callable[[Any], None] | None) -> dict[str, Any]:
    """The validator of a whole set of parameters, where there is one."""
    if together is None:
        return {}

    def fits(self: BaseModel) -> BaseModel:
        together(self)
        return self

    return {"together": model_validator(mode="after")(fits)}
