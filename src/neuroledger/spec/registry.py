"""The registry of components: decorators that register a function as one of a kind, such as a metric or a reader."""

from __future__ import annotations

import copyreg
import difflib
import functools
import importlib
import importlib.util
import inspect
import logging
import pkgutil
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar, cast, overload

from neuroledger.errors import RequestError, UnknownError
from neuroledger.spec.channels import INPUTS, OUTPUTS, Declared, channels
from neuroledger.spec.components import (
    Builder,
    Ceiling,
    Composes,
    Divides,
    Draws,
    Example,
    Foresees,
    Metric,
    Needs,
    Paradigm,
    Pins,
    Reader,
    ReaderContext,
    Reads,
    Registered,
    Side,
    Signature,
    Simulates,
    Stimuli,
    Together,
    context_of,
)
from neuroledger.spec.shipped import DISTRIBUTION

__all__ = [
    "broken",
    "builder",
    "ceiling",
    "Example",
    "get",
    "mentioning",
    "metric",
    "names",
    "note_broken",
    "only_shipped",
    "paradigm",
    "reader",
    "Registered",
    "signature",
    "stimuli",
]

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
        "signature": "signatures",
    }
)

F = TypeVar("F", bound=Callable[..., object])
_REGISTRY: dict[tuple[str, str], Registered] = {}
_BROKEN: dict[str, str] = {}


def _register(
    kind: type[Registered], name: str, version: int, **declared: Any
) -> Callable[[F], F]:
    """Return the decorator that registers a function as a component of a kind."""
    owner = f"{kind.kind} {name!r}"
    if version < 1:
        raise RequestError(
            f"{owner}: version {version} is invalid: give an integer of at least 1"
        )

    def decorate(function: F) -> F:
        known = _REGISTRY.get((kind.kind, name))
        if known is not None and (first := _path(known.function)) != (
            second := _path(function)
        ):
            raise RequestError(
                f"{owner} is registered twice: by {first} and by {second}; rename one"
            )
        asks_for = context_of(kind.kind, name, function)
        if issubclass(kind, Reader) and asks_for:
            function = _with_context(name, function)
        _REGISTRY[kind.kind, name] = kind(name, version, function, asks_for, **declared)
        return function

    return decorate


def _reference(
    component: Registered,
) -> tuple[Callable[[str, str], Registered], tuple[str, str]]:
    """Pickle a component as a reference: another process registers it itself."""
    return get, (component.kind, component.name)


for _kind in (Metric, Ceiling, Paradigm, Builder, Reader, Stimuli, Signature):
    copyreg.pickle(_kind, _reference)


def _with_context(name: str, function: F) -> F:
    """Wrap a reader that asks for its context, so that it gets it also where it is called as a function."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: object, **kwargs: object) -> object:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        parameters = {
            key: bound.kwargs[key] for key in bound.kwargs if key != "context"
        }
        context = ReaderContext(get("reader", name), bound.args[0], parameters)
        return function(*bound.args, context=context, **parameters)

    return cast(F, wrapper)


def metric(
    name: str,
    *,
    version: int,
    input: str = "assemblies",
    timed: bool = False,
    trials: bool = False,
    together: Together | None = None,
    example: Draws | None = None,
) -> Callable[[F], F]:
    """Register a metric: ``(source, target, *, …) -> xr.DataArray`` of labelled samples.

    ``input`` is ``assemblies`` (the default), ``predictions``, or ``trace`` (the counts of one pass of a network). A
    ``timed`` metric needs time bins, even a single one. A metric of ``trials`` gets the target before repetitions are
    averaged. ``together`` raises a ValueError on parameters that do not fit together. ``example`` draws small inputs for
    the contract checks (`neuroledger.testing`), if those of ``input`` do not fit. Raise ``version`` whenever the metric's
    numbers can change.
    """
    return _register(
        Metric,
        name,
        version,
        input=input,
        timed=timed,
        trials=trials,
        together=together,
        example=example,
    )


def ceiling(
    name: str,
    *,
    version: int,
    input: str = "assemblies",
    together: Together | None = None,
    example: Draws | None = None,
) -> Callable[[F], F]:
    """Register a ceiling: ``(assembly, *, …) -> xr.DataArray`` of labelled samples.

    ``input`` is ``assemblies`` for ceilings of responses, ``behaviour`` for those of trials, thresholds and properties.
    For ``together`` and ``example`` see `metric`.
    """
    return _register(
        Ceiling, name, version, input=input, together=together, example=example
    )


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
    together: Together | None = None,
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
        What `check` knows before the data are there; see `Paradigm`.
    together
        See `metric`.

    Raises
    ------
    RequestError
        A channel is not in the vocabulary (:mod:`neuroledger.spec.channels`).
    """
    _require_known_channels(f"paradigm {name!r}", shows, asks)
    declared: dict[str, Any] = {"itself": itself, "permuted": permuted}
    declared |= {"simulates": simulates, "needs": needs, "divides": divides}
    declared |= {"together": together}
    return _register(Paradigm, name, version, inputs=shows, outputs=asks, **declared)


def builder(
    name: str,
    *,
    version: int,
    takes: Declared,
    gives: Declared,
    together: Together | None = None,
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
        Builder, name, version, inputs=takes, outputs=gives, together=together
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
    composes: Composes | None = None,
    foresees: Foresees | None = None,
    joins: bool = False,
) -> Callable[[F], F]:
    """Register a reader: ``(files, *, …) -> Dataset``.

    A reader that ``prepares`` computes its result from the files (filters, windows); the result is hashed and recorded.
    ``reads(names, parameters)`` selects the reader's files from the names in a folder, so that only these are pinned; it
    raises an error if one is missing. ``pins(catalog, spec, text, downloads)`` converts a folder of downloads to files
    and fields of the spec, for readers whose fields state the subject of each file. ``composes(parameters, needs)`` returns
    the parameters that change if a model has ``needs`` (a field of its builder), and raises a RequestError if it cannot.
    ``foresees(files, parameters)`` states what the data will be, from the pinned files (name to pin) alone. A reader that
    ``joins`` is for data sets with members: its first argument are their data, as ``Mapping[str, Dataset]``.
    """
    declared: dict[str, Any] = {"reads": reads, "pins": pins, "prepares": prepares}
    declared |= {"composes": composes, "foresees": foresees, "joins": joins}
    return _register(Reader, name, version, **declared)


def stimuli(name: str) -> Callable[[F], F]:
    """Register the table of a reader's stimuli, under the reader's name: ``(files, *, …) -> pd.DataFrame``.

    The function reads neither recordings nor embeddings, so that embeddings can be computed before windows are read. Its
    keyword-only parameters are a subset of the reader's. Columns: ``stimulus_id``, and ``text`` (and ``context``), or
    ``filename`` (and ``start``, ``duration`` in seconds); see docs/signals.md.
    """
    return _register(Stimuli, name, 1)


def signature(
    name: str, *, version: int, title: str, quantity: str, place: str, unit: str = ""
) -> Callable[[F], F]:
    """Register what data are known by, which the page of a data set shows: ``(assembly, *, …) -> xr.Dataset``.

    The result has the variables ``mean``, ``low`` and ``high``, (class, channel, …), the last dimension of which has a
    coordinate, and ``people`` and ``over``, (class,): the number of people, and what the interval is over. ``title`` names
    it, ``quantity`` and ``unit`` say what its values are (default: the unit of the data), and ``place`` what they are at.
    """
    declared = {"title": title, "quantity": quantity, "unit": unit, "place": place}
    return _register(Signature, name, version, **declared)


@overload
def get(kind: Literal["metric"], name: str) -> Metric: ...
@overload
def get(kind: Literal["ceiling"], name: str) -> Ceiling: ...
@overload
def get(kind: Literal["paradigm"], name: str) -> Paradigm: ...
@overload
def get(kind: Literal["builder"], name: str) -> Builder: ...
@overload
def get(kind: Literal["reader"], name: str) -> Reader: ...
@overload
def get(kind: Literal["signature"], name: str) -> Signature: ...
@overload
def get(kind: Literal["metric", "ceiling"], name: str) -> Metric | Ceiling: ...
@overload
def get(kind: Literal["paradigm", "builder"], name: str) -> Paradigm | Builder: ...
@overload
def get(kind: str, name: str) -> Registered: ...
def get(kind: str, name: str) -> Registered:
    """The component ``name`` of ``kind``.

    Raises
    ------
    RequestError
        There is none; the message suggests similar names.
    """
    key = kind, name
    if key not in _REGISTRY:
        _import_one(kind, name)
    if key not in _REGISTRY:
        discover(kind)
    if key not in _REGISTRY:
        raise UnknownError(_unknown(kind, name))
    return _REGISTRY[key]


def _unknown(kind: str, name: str) -> str:
    """Say that no component has a name, and which have similar ones."""
    known = names(kind)
    near = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f"known: {', '.join(known)}"
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    reasons = "".join(f"; {reason}" for reason in _BROKEN.values())
    return f"no {kind} is registered as {name!r}; {hint}{reasons}"


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
                note_broken(family, error)
                continue
            for folder in (
                (spec.submodule_search_locations or ()) if spec is not None else ()
            ):
                if (Path(folder) / "specs").is_dir():
                    folders.append(
                        (family.distribution, Path(folder).resolve() / "specs")
                    )
    return tuple(folders)


def only_shipped() -> bool:
    """Whether every installed and every registered component is of this package, whose code then determines them all."""
    return all(family.distribution == DISTRIBUTION for family in families()) and all(
        component.function.__module__.startswith("neuroledger.")
        for component in _REGISTRY.values()
    )


def broken() -> dict[str, str]:
    """Error messages of all distributions whose components cannot be imported, by distribution."""
    if not only_shipped():
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
            note_broken(family, error)


def _import_one(kind: str, name: str) -> None:
    """Import the shipped modules that contain the name of a component, until it is registered.

    Other modules of its kind may take seconds to import. A component whose module is not found in this way, such as one
    of a plugin, is found by :func:`discover`.
    """
    for family in families():
        if family.distribution != DISTRIBUTION:
            continue
        for module in mentioning(family, kind, f'"{name}"'):
            importlib.import_module(module)
            if (kind, name) in _REGISTRY:
                return


def mentioning(family: Family, kind: str, text: str) -> list[str]:
    """Return the modules of a family, in its folder for a kind, whose source contains a text; those it names come first."""
    place = f"{family.module}.{FOLDERS[kind]}"
    modules = []
    for folder in _folders(place):
        for path in sorted(folder.rglob("*.py")):
            if text in path.read_text(encoding="utf-8"):
                parts = path.relative_to(folder).with_suffix("").parts
                modules.append(".".join([place, *parts]))
    if (alone := _file(place)) and text in alone.read_text(encoding="utf-8"):
        modules.append(place)
    named = text.strip('"')
    return sorted(modules, key=lambda module: not module.endswith(f".{named}"))


def _folders(module: str) -> list[Path]:
    """Return the folders of a package; none if it is a single file, or missing."""
    found = importlib.util.find_spec(module)
    return [
        Path(folder) for folder in (found and found.submodule_search_locations) or ()
    ]


def _file(module: str) -> Path | None:
    """Return the file of a module; None if it is a package or missing."""
    found = importlib.util.find_spec(module)
    if found is None or found.submodule_search_locations or found.origin is None:
        return None
    return Path(found.origin)


def _import_family(family: Family, kind: str) -> None:
    package = importlib.import_module(family.module)
    folder = f"{family.module}.{FOLDERS[kind]}"
    if hasattr(package, "__path__") and importlib.util.find_spec(folder) is not None:
        subpackage = importlib.import_module(folder)
        for module in pkgutil.walk_packages(
            getattr(subpackage, "__path__", ()), f"{folder}."
        ):
            importlib.import_module(module.name)


def note_broken(family: Family, error: Exception) -> None:
    """Log once that a distribution cannot be used, and why."""
    if family.distribution not in _BROKEN:
        _BROKEN[family.distribution] = (
            f"the installed package {family.distribution} cannot be used: importing {family.module} raised "
            f"{type(error).__name__}: {error}; fix it, or run `pip uninstall {family.distribution}`"
        )
        logging.getLogger("neuroledger").warning(_BROKEN[family.distribution])


def _path(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
