"""A model plugin of Brain-Score as a spec: layers, regions and preprocessing are read from its syntax, nothing runs."""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neuroledger.data.pin.yaml_edit import inline
from neuroledger.errors import RequestError
from neuroledger.families.alignment.python_constants import called, constant, keyword, parsed, variables_of
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import write_text

__all__ = ["Plugin", "import_plugin", "read_plugin"]

REGIONS: Final = ("V1", "V2", "V4", "IT")
# Labels are decided there from what the network's last part gives: what a classifier gives itself.
LOGITS: Final = "output"
# Modules whose functions are architectures that a builder here makes by the same name.
HUBS: Final[Mapping[str, str]] = {
    "torchvision.models": "torchvision", "models": "torchvision", "torchvision": "torchvision", "timm": "timm",
}  # fmt: skip


@dataclass
class Plugin:
    """What a plugin's source says, as far as it says it in constants."""

    identifier: str
    layers: tuple[str, ...] = ()
    regions: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    readout: str | None = None
    visual_degrees: float | None = None
    preprocessing: dict[str, Any] = field(default_factory=dict)
    hub: str | None = None
    architecture: str | None = None
    downloads: dict[str, dict[str, Any]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def read_plugin(path: Path, key: str | None = None) -> Plugin:
    """The plugin in a folder (``__init__.py``, ``model.py``, ``region_layer_map/*.json``), or in one file.

    ``key`` chooses among the models that a plugin registers. Only constants are taken; what is computed is listed as
    unread.

    Raises
    ------
    RequestError
        There is no such source, it is no Python, or it registers no model ``key``.
    """
    sources = sorted(path.glob("*.py")) if path.is_dir() else [path]
    sources = [one for one in sources if one.name != "test.py"]
    if not sources or not all(one.is_file() for one in sources):
        raise RequestError(
            f"{path} holds no plugin: a folder with __init__.py and model.py, or one Python file"
        )
    trees = [parsed(one) for one in sources]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = _registered(trees) or [*_constants(calls, "identifier")]
    if key is not None and names and key not in names:
        raise RequestError(f"{path} registers {', '.join(names)}, no model {key!r}")
    identifier = key or (names[0] if names else path.stem)
    found = Plugin(identifier)
    variables = variables_of(trees)
    found.layers = _layers(trees, calls, variables)
    _commitment(found, calls, variables)
    _preprocessing(found, calls)
    _architecture(found, calls)
    _weights(found, calls, variables)
    found.regions = _regions(path, identifier) or found.regions
    for name in ("layers", "regions", "architecture"):
        if not getattr(found, name):
            found.unread.append(name)
    return found


def _registered(trees: list[ast.Module]) -> list[str]:
    """Keys of ``model_registry[...] = …``."""
    return [
        str(target.slice.value)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Subscript)
        and isinstance(target.value, ast.Name)
        and target.value.id == "model_registry"
        and isinstance(target.slice, ast.Constant)
    ]


def _constants(calls: list[ast.Call], name: str) -> Iterator[str]:
    for call in calls:
        value = constant(keyword(call, name), {})
        if isinstance(value, str):
            yield value


def _texts(value: Any) -> tuple[str, ...]:
    several = isinstance(value, (list, tuple)) and value and all(isinstance(one, str) for one in value)
    return tuple(dict.fromkeys(value)) if several else ()


def _layers(trees: list[ast.Module], calls: list[ast.Call], variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Of the commitment, of a function ``get_layers``, or of a list that is called so."""
    for call in calls:
        if found := _texts(constant(keyword(call, "layers"), variables)):
            return found
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "get_layers":
                local = dict(variables) | variables_of([ast.Module(body=node.body, type_ignores=[])])
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and (found := _texts(constant(inner.value, local))):
                        return found
    return next(
        (found for name, value in variables.items() if "layers" in name.lower() and (found := _texts(value))),
        (),
    )


def _commitment(found: Plugin, calls: list[ast.Call], variables: Mapping[str, Any]) -> None:
    for call in calls:
        if not called(call).endswith("ModelCommitment"):
            continue
        readout = constant(keyword(call, "behavioral_readout_layer"), variables)
        degrees = constant(keyword(call, "visual_degrees"), variables)
        regions = constant(keyword(call, "region_layer_map"), variables)
        found.readout = readout if isinstance(readout, str) else found.readout
        found.visual_degrees = float(degrees) if isinstance(degrees, (int, float)) else found.visual_degrees
        found.regions = _plain_regions(regions) or found.regions
    if found.visual_degrees is None:
        found.visual_degrees = 8.0


def _plain_regions(held: Any) -> dict[str, str | tuple[str, ...]]:
    if not isinstance(held, dict):
        return {}
    return {
        str(region): layers if isinstance(layers, str) else tuple(map(str, layers))
        for region, layers in held.items()
        if region in REGIONS and (isinstance(layers, str) or _texts(layers))
    }


def _regions(path: Path, identifier: str) -> dict[str, str | tuple[str, ...]]:
    folder = (path if path.is_dir() else path.parent) / "region_layer_map"
    named = folder / f"{identifier}.json"
    if not named.is_file():
        return {}
    try:
        held = json.loads(named.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise RequestError(f"{named.name} is no map of regions to layers ({error})") from None
    return dict(sorted(_plain_regions(held).items()))


def _preprocessing(found: Plugin, calls: list[ast.Call]) -> None:
    """Size and normalisation of ``load_preprocess_images``, which stretches images to a square."""
    for call in calls:
        names = [called(call), *(_called_name(one) for one in call.args[:1])]
        if not any(name.endswith("load_preprocess_images") for name in names):
            continue
        size = constant(keyword(call, "image_size"), {})
        if isinstance(size, int):
            found.preprocessing["resize"] = size
        for word, name in (("normalize_mean", "mean"), ("normalize_std", "std")):
            value = constant(keyword(call, word), {})
            if isinstance(value, (list, tuple)) and all(isinstance(one, (int, float)) for one in value):
                found.preprocessing[name] = [float(one) for one in value]


def _called_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _architecture(found: Plugin, calls: list[ast.Call]) -> None:
    for call in calls:
        module, _, name = called(call).rpartition(".")
        if module == "timm" and name == "create_model" and call.args:
            value = constant(call.args[0], {})
            if isinstance(value, str):
                found.hub, found.architecture = "timm", value.partition(".")[0]
        elif HUBS.get(module) == "torchvision" and name and name.islower() and name not in {"load", "eval"}:
            found.hub, found.architecture = "torchvision", name


def _weights(found: Plugin, calls: list[ast.Call], variables: Mapping[str, Any]) -> None:
    """Files of weights that ``load_weight_file`` names, with the SHA-1 that it states."""
    for call in calls:
        if not called(call).endswith("load_weight_file"):
            continue
        given = {one.arg: constant(one.value, variables) for one in call.keywords if one.arg}
        bucket, relative = given.get("bucket"), given.get("relative_path")
        if not isinstance(bucket, str) or not isinstance(relative, str):
            continue
        folder = str(given.get("folder_name") or "").strip("/")
        parts = [part for part in (bucket.partition("/")[2], folder, relative) if part]
        stated: dict[str, Any] = {
            "url": f"https://{bucket.partition('/')[0]}.s3.amazonaws.com/{'/'.join(parts)}"
        }
        if isinstance(given.get("sha1"), str):
            stated["sha1"] = given["sha1"]
        if isinstance(given.get("version_id"), str) and given["version_id"] != "null":
            stated["version_id"] = given["version_id"]
        found.downloads[relative.rsplit("/", 1)[-1]] = stated


def _own_folder(path: Path, key: str) -> Path:
    """The plugin's folder: ``path``, or where it is a folder or a clone of many, the one that registers ``key``."""
    folders = [path, path / "models", path / "brainscore_vision" / "models"]
    plugins = [one for folder in folders for one in sorted(folder.glob("*/__init__.py"))]
    if not plugins:
        return path
    registers = re.compile(rf"""model_registry\[\s*["']{re.escape(key)}["']\s*\]""")
    if any(registers.search(one.read_text(encoding="utf-8", errors="replace")) for one in path.glob("*.py")):
        return path
    found = [
        one.parent for one in plugins if registers.search(one.read_text(encoding="utf-8", errors="replace"))
    ]
    if not found:
        near = difflib.get_close_matches(key, [one.parent.name for one in plugins], 3)
        hint = f"; its folders are like {', '.join(near)}" if near else ""
        raise RequestError(f"none of the {len(plugins)} plugins in {path} registers a model {key!r}{hint}")
    return next((one for one in found if one.name == key), found[0])


def import_plugin(catalog: Catalog, key: str, path: Path) -> tuple[Path, Plugin]:
    """Write ``specs/models/<key>.yaml`` of a plugin's source; returns the file, and what was read.

    ``path`` is the plugin's folder or file, a folder of plugins, or a clone of Brain-Score's repository. The weights are
    not part of it: `neuroledger package model KEY CHECKPOINT` converts and pins them.

    Raises
    ------
    RequestError
        There is a model of that id, or the source commits no layer to a region and names no layer to decide from.
    """
    if catalog.has("models", key):
        raise RequestError(f"there is a model {key!r} already; see `neuroledger show {key}`")
    path = _own_folder(path, key)
    plugin = read_plugin(path, key)
    if not plugin.layers and not plugin.regions:
        raise RequestError(
            f"{path} states neither layers nor a map of regions in constants: write the spec by hand "
            f"(`neuroledger new model {key}`)"
        )
    regions = {region: list(one) if isinstance(one, tuple) else one for region, one in plugin.regions.items()}
    committed = [
        layer for one in plugin.regions.values() for layer in ((one,) if isinstance(one, str) else one)
    ]
    decided = plugin.readout or (plugin.layers or committed)[-1]
    layers = list(dict.fromkeys([*plugin.layers, *committed, decided, LOGITS]))
    fields: dict[str, Any] = {
        "id": key, "version": 1, "title": f"{key}, as its plugin for Brain-Score describes it",
        "builder": None, "layers": layers, "regions": regions, "readout": decided, "logits": LOGITS,
        "visual_degrees": plugin.visual_degrees, "downloads": plugin.downloads,
    }  # fmt: skip
    if plugin.architecture is not None:
        builder = {"name": plugin.hub, "architecture": plugin.architecture}
        fields["builder"] = builder | (
            {"preprocessing": plugin.preprocessing} if plugin.preprocessing else {}
        )
    lacking = (
        "no architecture that a builder here makes; name one under `builder`, then "
        if plugin.architecture is None
        else ""
    )
    fields["unavailable"] = (
        f"Its weights are not here: {lacking}`neuroledger package model {key} CHECKPOINT` pins them."
    )
    fields["notes"] = [
        "Layers, regions, readout, preprocessing and visual degrees are those of the plugin's source."
    ]
    fields["license"] = "LicenseRef-unknown"
    lines = ["# yaml-language-server: $schema=../schema/model.json"]
    lines += [f"{name}: {inline(value)}" for name, value in fields.items() if value not in (None, {}, [])]
    target = catalog.root / "specs" / "models" / f"{key}.yaml"
    write_text(target, "\n".join(lines) + "\n")
    return target, plugin
