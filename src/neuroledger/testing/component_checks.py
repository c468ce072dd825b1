"""Checks of what components declare: version, docstring, parameters, arguments, channels; of readers and builders."""

from __future__ import annotations

import inspect
import json
import pickle
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal

from pydantic import ValidationError

from neuroledger.data.load import DeclaredFiles
from neuroledger.engine.check import CHOOSES, chosen_in
from neuroledger.engine.overrides import resolve
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Request, Session
from neuroledger.errors import ContractError, NeuroLedgerError, RequestError, SpecError
from neuroledger.spec import registry
from neuroledger.spec.base import Override
from neuroledger.spec.catalog import Catalog, Entry
from neuroledger.spec.components import Builder, Paradigm
from neuroledger.spec.document import parse
from neuroledger.spec.kinds import ModelSpec
from neuroledger.spec.load import explain
from neuroledger.testing.case import Declared

__all__ = ["COMPONENT_CHECKS", "declared_components"]

ComponentCheck = Callable[[Declared], None]
# Number of positional arguments of each kind of component.
POSITIONAL: Final[Mapping[str, int]] = MappingProxyType(
    {
        "metric": 2,
        "ceiling": 1,
        "paradigm": 2,
        "builder": 0,
        "reader": 1,
        "stimuli": 1,
        "signature": 1,
    }
)
# A field that no component has.
FOREIGN: Final = "no_such_parameter"


def declared_components(kind: str, catalog: Catalog) -> dict[str, Declared]:
    """Return every registered component of a kind by name, with the valid specs of the catalogue that name it."""
    chosen = "reader" if kind == "stimuli" else kind
    plural, field = next(
        (plural, choice.field)
        for plural, choices in CHOOSES.items()
        for choice in choices
        if choice.kind == chosen
    )
    entries: dict[str, list[Entry]] = defaultdict(list)
    for id in catalog.ids(plural):
        try:
            entry = catalog.entry(plural, id)
        except SpecError:
            continue  # reported by `neuroledger check`
        for name in {named.name for _, named in chosen_in(entry.spec, field)}:
            entries[name].append(entry)
    return {
        name: Declared(registry.get(kind, name), catalog, field, entries[name])
        for name in registry.names(kind)
    }


def _valid(declared: Declared) -> list[dict[str, object]]:
    """Return the valid parameters of each spec that names the component, and its defaults if they suffice."""
    given = [
        named.parameters
        for entry in declared.entries
        for _, named in chosen_in(entry.spec, declared.field)
        if named.name == declared.component.name
    ]
    valid = []
    for values in [{}, *given]:
        try:
            declared.component.bind(values)
        except ValidationError:
            continue
        valid.append(values)
    return valid


def _version(declared: Declared) -> None:
    component = declared.component
    version = component.version
    if type(version) is not int or version < 1:
        raise ContractError(f"version {version!r} is not an integer of at least 1")
    for values in _valid(declared):
        plain = component.canonical(values)
        read = json.loads(json.dumps(plain, allow_nan=False))
        if component.canonical(read) != plain or read != plain:
            raise ContractError(f"the parameters {plain} are others after JSON: {read}")


def _docstring(declared: Declared) -> None:
    component = declared.component
    first = (inspect.getdoc(component.function) or "").split("\n\n")[0].strip()
    if not first:
        raise ContractError("the function has no docstring")
    if first[-1] not in ".:`]":
        raise ContractError(f"the docstring does not begin with a sentence: {first!r}")


def _parameters(declared: Declared) -> None:
    """Reject a parameter that the component lacks, and suggest the one that was meant."""
    component = declared.component
    known = sorted(component.parameters.model_fields)
    name = f"{known[0]}_" if known else FOREIGN
    try:
        component.bind({name: None})
    except ValidationError as error:
        refused = {item["loc"][-1] for item in error.errors() if item["loc"]}
        if name not in refused:
            raise ContractError(
                f"the unknown parameter {name!r} is not refused"
            ) from error
        _suggests(declared, name, error)
    else:
        raise ContractError(f"the unknown parameter {name!r} is accepted")


def _suggests(declared: Declared, name: str, error: ValidationError) -> None:
    component = declared.component
    if name == FOREIGN or not declared.entries:
        return
    entry = declared.entries[0]
    text = f"{declared.field}: {{name: {component.name}, {name}: null}}\n"
    document = parse(text, str(entry.path))
    findings = explain(error, document, component.parameters, (declared.field,))
    wanted = repr(name[:-1])
    if not any(wanted in finding.fix for finding in findings):
        raise ContractError(f"nothing suggests {wanted} for {name!r}: {findings}")
    if component.kind in ("metric", "ceiling"):
        _suggests_override(declared, entry.spec.id, name)


def _suggests_override(declared: Declared, id: str, name: str) -> None:
    plural: Literal["metrics", "ceilings"] = (
        "metrics" if declared.component.kind == "metric" else "ceilings"
    )
    override = Override.model_validate({"name": id, name: None})
    try:
        resolve(plural, override, declared.catalog, {})
    except RequestError as error:
        if name[:-1] not in str(error):
            raise ContractError(f"nothing suggests {name[:-1]!r}: {error}") from error
    else:
        raise ContractError(f"the override {name!r} is accepted")


def _signature(declared: Declared) -> None:
    component = declared.component
    parameters = inspect.signature(component.function).parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    positional = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) + kinds.count(
        inspect.Parameter.POSITIONAL_ONLY
    )
    is_trace = getattr(component, "input", "") == "trace"
    expected = 1 if is_trace else POSITIONAL[component.kind]
    if positional != expected:
        raise ContractError(
            f"the function takes {positional} positional arguments, and a {component.kind} {expected}; parameters of a "
            "spec are keyword-only"
        )


def _channels(declared: Declared) -> None:
    component = declared.component
    if not isinstance(component, Paradigm | Builder):
        return
    sides = (None, "source", "target")
    if isinstance(component, Paradigm) and component.permuted not in sides:
        raise ContractError(
            f"`permuted` is {component.permuted!r}; declare source, target or None"
        )
    for entry in declared.entries:
        spec = entry.spec
        values = {}
        if isinstance(spec, ModelSpec):
            names = ("regions", "layers", "readout", "commit")
            values = {name: getattr(spec, name) for name in names}
        chosen = getattr(spec, declared.field).parameters
        try:
            bound = component.bind(chosen)
        except ValidationError:
            continue  # reported by `neuroledger check`
        try:
            component.interface(values | bound)
        except RequestError as error:
            raise ContractError(f"{spec.id}: {error}") from error


def _pickle(declared: Declared) -> None:
    component = declared.component
    try:
        read = pickle.loads(pickle.dumps(component))
    except Exception as error:
        raise ContractError(
            f"it cannot be pickled ({type(error).__name__}: {error}): define the function at the top of its module"
        ) from error
    if read.function is not component.function:
        raise ContractError("after pickling, it is another function")


def _files(declared: Declared) -> None:
    """Without its files, a reader raises an error that names them."""
    component = declared.component
    for values in _valid(declared)[:3]:
        try:
            component.function(DeclaredFiles({}), **component.bind(values))
        except NeuroLedgerError:
            continue
        except Exception as error:
            raise ContractError(
                f"without files it raises {type(error).__name__}: {error}; name the file that is missing"
            ) from error


def _model(declared: Declared) -> None:
    """A model without weights has the id of its spec, and can be sent to another process."""
    entries = [
        entry
        for entry in declared.entries
        if isinstance(entry.spec, ModelSpec)
        and not entry.spec.weights
        and entry.spec.unavailable is None
    ]
    for entry in entries[:1]:
        model = model_of(Session(declared.catalog, Request()), entry.spec.id)
        if model.id != entry.spec.id:
            raise ContractError(
                f"the model of {entry.spec.id!r} has the id {model.id!r}"
            )


_OF_ALL: Final[Mapping[str, ComponentCheck]] = MappingProxyType(
    {
        "contract.version": _version,
        "contract.docstring": _docstring,
        "contract.parameters": _parameters,
        "contract.signature": _signature,
        "contract.pickle": _pickle,
    }
)
_CHANNELS: Final[Mapping[str, ComponentCheck]] = {"contract.channels": _channels}
COMPONENT_CHECKS: Final[Mapping[str, Mapping[str, ComponentCheck]]] = MappingProxyType(
    {
        "metric": _OF_ALL,
        "ceiling": _OF_ALL,
        "paradigm": {**_OF_ALL, **_CHANNELS},
        "builder": {**_OF_ALL, **_CHANNELS, "contract.model": _model},
        "reader": {**_OF_ALL, "contract.files": _files},
        "stimuli": {**_OF_ALL, "contract.files": _files},
        "signature": _OF_ALL,
    }
)
