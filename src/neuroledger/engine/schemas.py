"""JSON Schemas of the spec kinds, the parameters of every registered component included."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from neuroledger.spec import registry
from neuroledger.spec.kinds import KINDS
from neuroledger.spec.shipped import is_checkout
from neuroledger.store.files import write_text

__all__ = ["schema_texts", "write_schemas"]

# Field of a kind → kind of component that its `name` chooses.
CHOOSES = {
    "datasets": ("reader", "reader"),
    "metrics": ("compare", "metric"),
    "ceilings": ("compare", "ceiling"),
    "benchmarks": ("paradigm", "paradigm"),
    "models": ("builder", "builder"),
}


def schema_texts(*, plugins: bool) -> dict[str, str]:
    """File name → text of each kind's JSON Schema, with or without the components of installed plugins."""
    return {
        f"{kind[:-1]}.json": json.dumps(_schema(kind, plugins), indent=1, sort_keys=True) + "\n"
        for kind in KINDS
    }


def write_schemas(root: Path) -> list[Path]:
    """Write the schemas to specs/schema/ and return those that changed."""
    folder = root / "specs" / "schema"
    texts = schema_texts(plugins=not is_checkout(root))
    return [folder / name for name, text in texts.items() if write_text(folder / name, text)]


def _schema(kind: str, plugins: bool) -> dict[str, Any]:
    schema = KINDS[kind].model_json_schema(by_alias=True)
    schema |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"NeuroLedger {kind[:-1]}"}
    if kind in CHOOSES:
        field, component_kind = CHOOSES[kind]
        definitions = schema.setdefault("$defs", {})
        options = []
        for name in registry.names(component_kind, plugins=plugins):
            registered = registry.get(component_kind, name)
            option, parts = _component(
                component_kind, name, registered.parameters, registered.function.__doc__
            )
            options.append(option)
            definitions |= parts
        chosen: dict[str, Any] = {
            "oneOf": options,
            "description": f"A registered {component_kind} and its parameters",
        }
        if kind == "models":
            chosen = {"anyOf": [chosen, {"type": "null"}]}
        schema["properties"][field] = chosen
    return schema


@cache
def _component(
    kind: str, name: str, parameters: type[BaseModel], doc: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a component's parameters, and what it refers to."""
    prefix = f"{kind}.{name}."
    own = parameters.model_json_schema(by_alias=True, ref_template="#/$defs/" + prefix + "{model}")
    parts = {prefix + model: definition for model, definition in own.pop("$defs", {}).items()}
    described = (doc or "").strip().split("\n")[0]
    own["title"] = name
    own["description"] = described
    own["properties"] = {"name": {"const": name, "type": "string"}, **own.get("properties", {})}
    own["required"] = ["name", *own.get("required", [])]
    own["additionalProperties"] = False
    return own, parts
