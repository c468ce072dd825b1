"""Overrides of metrics and ceilings: changed fields of a spec and parameters of its function are merged and validated."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, overload

from pydantic import BaseModel, ValidationError

from neuroledger.errors import RequestError
from neuroledger.spec import registry
from neuroledger.spec.base import Override, id_of, worded
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.components import Ceiling, Metric
from neuroledger.spec.kinds import CeilingSpec, MetricSpec, SplitsSpec

__all__ = ["Comparison", "in_compat", "resolve"]

Comparison = MetricSpec | CeilingSpec
# Kind of spec → kind of component.
KIND_OF: Final[Mapping[str, Literal["metric", "ceiling"]]] = MappingProxyType(
    {"metrics": "metric", "ceilings": "ceiling"}
)


@overload
def resolve(
    kind: Literal["metrics"],
    id: str | Override,
    catalog: Catalog,
    overrides: Mapping[str, object],
) -> tuple[MetricSpec, Metric, dict[str, object]]: ...
@overload
def resolve(
    kind: Literal["ceilings"],
    id: str | Override,
    catalog: Catalog,
    overrides: Mapping[str, object],
) -> tuple[CeilingSpec, Ceiling, dict[str, object]]: ...
def resolve(
    kind: Literal["metrics", "ceilings"],
    id: str | Override,
    catalog: Catalog,
    overrides: Mapping[str, object],
) -> tuple[Comparison, Metric | Ceiling, dict[str, object]]:
    """Return the spec with merged overrides, its component, and the validated parameters of the component.

    Raises
    ------
    RequestError
        The id, a field, the compat or a parameter is unknown, or a value is invalid.
    """
    name = id_of(id)
    if not isinstance(name, str):
        raise RequestError(
            f"{name!r} is not the id of a {kind[:-1]}; see `neuroledger list {kind}`"
        )
    changes = {**(id.parameters if isinstance(id, Override) else {}), **overrides}
    model: type[Comparison] = MetricSpec if kind == "metrics" else CeilingSpec
    spec: Comparison = (
        catalog.metric(name) if kind == "metrics" else catalog.ceiling(name)
    )
    if changes:
        spec = _overridden(spec, model, changes, kind)
    component = registry.get(KIND_OF[kind], spec.compare.name)
    try:
        parameters = component.bind(spec.compare.parameters)
    except ValidationError as error:
        raise RequestError(
            f"{kind[:-1]} {name!r}, parameters of {component.name}: {_words(error)}"
        ) from None
    return spec, component, parameters


def in_compat(spec: Comparison, compat: str | None) -> dict[str, Any]:
    """Return the compat of a benchmark as an override if the metric or ceiling has that mode."""
    if compat is not None and compat in spec.compat:
        return {"compat": compat}
    return {}


def _overridden(
    spec: Comparison, model: type[Comparison], changes: dict[str, object], kind: str
) -> Comparison:
    plain = spec.model_dump(mode="python", by_alias=True)
    layers: list[Mapping[str, object]] = []
    compat = changes.pop("compat", None)
    if compat is not None:
        layers.append(_compat_layer(spec, compat, kind))
    fields = {field.alias or name for name, field in model.model_fields.items()}
    # `scale` is a field if it names a scale, but a parameter (of value_delta) if it is a number.
    if isinstance(changes.get("scale"), int | float):
        fields.discard("scale")
    direct = {key: value for key, value in changes.items() if key in fields}
    others = {key: value for key, value in changes.items() if key not in fields}
    if others:
        direct["compare"] = _compare_with(spec, direct, others, fields, kind)
    if not isinstance(direct.get("splits"), str | Mapping | SplitsSpec | None):
        raise RequestError(
            f"{kind[:-1]} {spec.id!r}: `splits` must be a rule, such as {{'name': 'kfold', 'folds': 5}}; pass pairs of row "
            f"numbers with the data: nl.{kind[:-1]}({spec.id!r})(…, splits=pairs)"
        )
    layers.append(direct)
    for layer in layers:
        plain = _merged(plain, _same_units(plain, layer))
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        raise RequestError(
            f"{kind[:-1]} {spec.id!r}, overridden: {_words(error)}"
        ) from None


def _compat_layer(spec: Comparison, compat: object, kind: str) -> Mapping[str, object]:
    """Return the fields that a compat mode changes."""
    if compat not in spec.compat:
        agreeing = "none: it already agrees with the peer, or the peer lacks it"
        known = ", ".join(spec.compat) or agreeing
        raise RequestError(
            f"{kind[:-1]} {spec.id!r} has no compat {compat!r}; known: {known}"
        )
    layer: Mapping[str, object] = spec.compat[str(compat)]
    return layer


def _compare_with(
    spec: Comparison,
    direct: Mapping[str, object],
    others: Mapping[str, object],
    fields: Collection[str],
    kind: str,
) -> Mapping[str, object]:
    """Return the field ``compare`` with the parameters ``others`` of its function, whose names are checked."""
    compare = direct.get("compare", {})
    component = spec.compare.name
    if isinstance(compare, Mapping):
        component = compare.get("name", component)
    parameters = sorted(registry.get(kind[:-1], component).parameters.model_fields)
    for key in others:
        if key in parameters:
            continue
        known = f"parameters of {component}: {', '.join(parameters) or 'none'}"
        hint = _hint(key, spec, [*sorted(fields), *parameters]) or known
        raise RequestError(f"{kind[:-1]} {spec.id!r} has no field {key!r}; {hint}")
    if isinstance(compare, Mapping):
        return _merged(others, compare)
    return others


def _same_units(
    plain: Mapping[str, object], layer: Mapping[str, object]
) -> Mapping[str, object]:
    """Let another splitting rule keep units, classes and seed of the old rule, unless the override sets them."""
    old = plain.get("splits")
    new = layer.get("splits")
    if isinstance(new, str):
        new = {"name": new}
    if (
        not isinstance(old, Mapping)
        or not isinstance(new, Mapping)
        or new.get("name", old["name"]) == old["name"]
    ):
        return layer
    inherited = {
        key: old[key] for key in ("by", "unique", "repeats", "stratify", "seed")
    }
    return {**layer, "splits": {**inherited, **new}}


def _merged(
    base: Mapping[str, object], change: Mapping[str, object]
) -> dict[str, object]:
    """Merge ``change`` into ``base``; a mapping that names another component replaces the old one."""
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        if isinstance(value, str) and isinstance(old, Mapping) and "name" in old:
            value = {"name": value}
        if (
            isinstance(value, Mapping)
            and isinstance(old, Mapping)
            and value.get("name", old.get("name")) == old.get("name")
        ):
            result[key] = _merged(old, value)
        else:
            result[key] = value
    return result


def _hint(key: str, spec: Comparison, known: list[str]) -> str:
    """Suggest where an unknown field belongs, or which field may have been meant."""
    if key in ("device", "dtype", "threads"):
        return f"pass workspace=Workspace({key}=…), from neuroledger.stats.workspace"
    for name, fields in _nested_fields(spec).items():
        near = difflib.get_close_matches(key, fields, 1, 0.7)
        if near:
            return f"did you mean {name}={{{near[0]!r}: …}}?"
    close = difflib.get_close_matches(key, known, 1, 0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return ""


def _nested_fields(spec: Comparison) -> dict[str, list[str]]:
    """Return the fields of the components nested in a comparison (its estimator and the like) and of its splits."""
    fields: dict[str, list[str]] = {}
    try:
        bound = registry.get(
            "metric" if isinstance(spec, MetricSpec) else "ceiling", spec.compare.name
        ).bind(spec.compare.parameters)
    except ValidationError:
        bound = {}
    for name, value in bound.items():
        if isinstance(value, BaseModel):
            fields[name] = sorted(type(value).model_fields)
    if spec.splits is not None:
        fields["splits"] = sorted(SplitsSpec.model_fields)
    return fields


def _words(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, item['loc']))}: {worded(item)}"
        if item["loc"]
        else worded(item)
        for item in error.errors(include_url=False)
    )
