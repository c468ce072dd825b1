"""Import of a Brain-Score model plugin as a spec: layers, regions and preprocessing are read without running it."""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from neuroledger.data.pin.yaml_edit import spec_text
from neuroledger.errors import RequestError
from neuroledger.families.alignment.python_constants import (
    assigned_constants,
    call_constants,
    call_name,
    constant,
    keyword,
    parse_source,
)
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import write_text

__all__ = ["Plugin", "import_plugin", "read_plugin"]

REGIONS: Final = ("V1", "V2", "V4", "IT")
# Brain-Score decides labels from the output of the network's last module, such as a classifier.
LOGITS: Final = "output"
# Modules whose functions are architectures, and the builder that makes them by the same name.
HUBS: Final[Mapping[str, str]] = {
    "torchvision.models": "torchvision",
    "models": "torchvision",
    "torchvision": "torchvision",
    "timm": "timm",
}


@dataclass
class Plugin:
    """Facts that a plugin's source states in constants; ``unread`` lists the missing ones."""

    identifier: str
    layers: tuple[str, ...] = ()
    regions: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    readout: str | None = None
    visual_degrees: float | None = None
    preprocessing: dict[str, object] = field(default_factory=dict)
    hub: str | None = None
    architecture: str | None = None
    downloads: dict[str, dict[str, object]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def read_plugin(path: Path, key: str | None = None) -> Plugin:
    """Read a plugin in a folder (``__init__.py``, ``model.py``, ``region_layer_map/*.json``), or in one file.

    ``key`` selects one of the models that the plugin registers. Only constants are read; computed facts are listed in
    ``unread``.

    Raises
    ------
    RequestError
        The source is missing, is not Python, or does not register a model ``key``.
    """
    if path.is_dir():
        sources = sorted(path.glob("*.py"))
    else:
        sources = [path]
    sources = [source for source in sources if source.name != "test.py"]
    if not sources or not all(source.is_file() for source in sources):
        raise RequestError(
            f"{path} contains no plugin: name a folder with __init__.py and model.py, or one Python file"
        )
    trees = list(map(parse_source, sources))
    calls = [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)
    ]
    names = _registered_keys(trees) or [*_constants(calls, "identifier")]
    if key is not None and names and key not in names:
        raise RequestError(f"{path} registers {', '.join(names)}, no model {key!r}")
    identifier = key or (names[0] if names else path.stem)
    plugin = Plugin(identifier)
    variables = assigned_constants(trees)
    plugin.layers = _find_layers(trees, calls, variables)
    _read_commitment(plugin, calls, variables)
    _read_preprocessing(plugin, calls)
    _read_architecture(plugin, calls)
    _read_weights(plugin, calls, variables)
    plugin.regions = _read_region_map(path, identifier) or plugin.regions
    plugin.unread = [
        name
        for name in ("layers", "regions", "architecture")
        if not getattr(plugin, name)
    ]
    return plugin


def _registered_keys(trees: list[ast.Module]) -> list[str]:
    """Keys in assignments ``model_registry[...] = …``."""
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


def _distinct_texts(value: object) -> tuple[str, ...]:
    """Distinct items of a list or tuple of strings; empty for any other value."""
    if not isinstance(value, (list, tuple)):
        return ()
    is_texts = all(isinstance(item, str) for item in value)
    if is_texts:
        return tuple(dict.fromkeys(value))
    return ()


def _find_layers(
    trees: list[ast.Module], calls: list[ast.Call], variables: Mapping[str, object]
) -> tuple[str, ...]:
    """Layers from an argument ``layers``, a function ``get_layers``, or a list with ``layers`` in its name."""
    for call in calls:
        if layers := _distinct_texts(constant(keyword(call, "layers"), variables)):
            return layers
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "get_layers":
                scope = dict(variables) | assigned_constants(
                    [ast.Module(body=node.body, type_ignores=[])]
                )
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and (
                        layers := _distinct_texts(constant(inner.value, scope))
                    ):
                        return layers
    lists = (
        _distinct_texts(value)
        for name, value in variables.items()
        if "layers" in name.lower()
    )
    return next(filter(None, lists), ())


def _read_commitment(
    plugin: Plugin, calls: list[ast.Call], variables: Mapping[str, object]
) -> None:
    """Readout, visual degrees and regions from calls of ``ModelCommitment``."""
    for call in calls:
        if not call_name(call).endswith("ModelCommitment"):
            continue
        arguments = call_constants(call, variables)
        readout = arguments.get("behavioral_readout_layer")
        degrees = arguments.get("visual_degrees")
        if isinstance(readout, str):
            plugin.readout = readout
        if isinstance(degrees, (int, float)):
            plugin.visual_degrees = float(degrees)
        plugin.regions = (
            _select_regions(arguments.get("region_layer_map")) or plugin.regions
        )
    if plugin.visual_degrees is None:
        plugin.visual_degrees = 8.0


def _select_regions(region_map: object) -> dict[str, str | tuple[str, ...]]:
    if not isinstance(region_map, dict):
        return {}
    return {
        str(region): layers if isinstance(layers, str) else tuple(map(str, layers))
        for region, layers in region_map.items()
        if region in REGIONS and (isinstance(layers, str) or _distinct_texts(layers))
    }


def _read_region_map(path: Path, identifier: str) -> dict[str, str | tuple[str, ...]]:
    """Regions from ``region_layer_map/<identifier>.json``; empty if there is no such file."""
    folder = (path if path.is_dir() else path.parent) / "region_layer_map"
    file = folder / f"{identifier}.json"
    if not file.is_file():
        return {}
    try:
        region_map = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise RequestError(
            f"{file.name} is not a map of regions to layers ({error})"
        ) from None
    return dict(sorted(_select_regions(region_map).items()))


def _read_preprocessing(plugin: Plugin, calls: list[ast.Call]) -> None:
    """Size and normalisation from calls of ``load_preprocess_images``, which stretches images to a square."""
    for call in calls:
        names = [call_name(call), *(_last_name(argument) for argument in call.args[:1])]
        if not any(name.endswith("load_preprocess_images") for name in names):
            continue
        arguments = call_constants(call, {})
        size = arguments.get("image_size")
        if isinstance(size, int):
            plugin.preprocessing["resize"] = size
        for argument, name in (("normalize_mean", "mean"), ("normalize_std", "std")):
            values = arguments.get(argument)
            if isinstance(values, (list, tuple)) and all(
                isinstance(value, (int, float)) for value in values
            ):
                plugin.preprocessing[name] = list(map(float, values))


def _last_name(node: ast.expr) -> str:
    """Last part of a dotted name; empty for other expressions."""
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )


def _read_architecture(plugin: Plugin, calls: list[ast.Call]) -> None:
    for call in calls:
        module, _, name = call_name(call).rpartition(".")
        if module == "timm" and name == "create_model" and call.args:
            architecture = constant(call.args[0], {})
            if isinstance(architecture, str):
                plugin.hub = "timm"
                plugin.architecture = architecture.partition(".")[0]
        elif (
            HUBS.get(module) == "torchvision"
            and name
            and name.islower()
            and name not in {"load", "eval"}
        ):
            plugin.hub, plugin.architecture = "torchvision", name


def _read_weights(
    plugin: Plugin, calls: list[ast.Call], variables: Mapping[str, object]
) -> None:
    """Weight files from calls of ``load_weight_file``, with their SHA-1 if stated."""
    for call in calls:
        if not call_name(call).endswith("load_weight_file"):
            continue
        arguments = call_constants(call, variables)
        bucket = arguments.get("bucket")
        relative = arguments.get("relative_path")
        if not isinstance(bucket, str) or not isinstance(relative, str):
            continue
        folder = str(arguments.get("folder_name") or "").strip("/")
        parts = [part for part in (bucket.partition("/")[2], folder, relative) if part]
        download: dict[str, object] = {
            "url": f"https://{bucket.partition('/')[0]}.s3.amazonaws.com/{'/'.join(parts)}"
        }
        if isinstance(arguments.get("sha1"), str):
            download["sha1"] = arguments["sha1"]
        if (
            isinstance(arguments.get("version_id"), str)
            and arguments["version_id"] != "null"
        ):
            download["version_id"] = arguments["version_id"]
        plugin.downloads[relative.rsplit("/", 1)[-1]] = download


def _find_plugin_folder(path: Path, key: str) -> Path:
    """Folder of the plugin that registers ``key`` in a folder of plugins or a clone; otherwise ``path`` itself."""
    folders = [path, path / "models", path / "brainscore_vision" / "models"]
    plugins = [
        source for folder in folders for source in sorted(folder.glob("*/__init__.py"))
    ]
    if not plugins:
        return path
    registration = re.compile(rf"""model_registry\[\s*["']{re.escape(key)}["']\s*\]""")

    def registers_key(source: Path) -> bool:
        return (
            registration.search(source.read_text(encoding="utf-8", errors="replace"))
            is not None
        )

    if any(map(registers_key, path.glob("*.py"))):
        return path
    matches = [source.parent for source in plugins if registers_key(source)]
    if not matches:
        near = difflib.get_close_matches(
            key, [source.parent.name for source in plugins], 3
        )
        if near:
            hint = f"; folders with a similar name are {', '.join(near)}"
        else:
            hint = ""
        raise RequestError(
            f"none of the {len(plugins)} plugins in {path} registers a model {key!r}{hint}"
        )
    return next((folder for folder in matches if folder.name == key), matches[0])


def import_plugin(catalog: Catalog, key: str, path: Path) -> tuple[Path, Plugin]:
    """Write ``specs/models/<key>.yaml`` from a plugin's source; returns the file and the plugin.

    ``path`` is the plugin's folder or file, a folder of plugins, or a clone of Brain-Score's repository. The weights are
    not imported: `neuroledger package model KEY CHECKPOINT` converts and pins them.

    Raises
    ------
    RequestError
        A model of this id exists, or the source states neither layers nor a map of regions in constants.
    """
    if catalog.has("models", key):
        raise RequestError(
            f"there is a model {key!r} already; see `neuroledger show {key}`"
        )
    path = _find_plugin_folder(path, key)
    plugin = read_plugin(path, key)
    if not plugin.layers and not plugin.regions:
        raise RequestError(
            f"{path} states neither layers nor a map of regions in constants: write the spec by hand "
            f"(`neuroledger new model {key}`)"
        )
    regions = {
        region: list(layers) if isinstance(layers, tuple) else layers
        for region, layers in plugin.regions.items()
    }
    committed = [
        layer
        for layers in plugin.regions.values()
        for layer in ((layers,) if isinstance(layers, str) else layers)
    ]
    readout = plugin.readout or (plugin.layers or committed)[-1]
    layers = list(dict.fromkeys([*plugin.layers, *committed, readout, LOGITS]))
    fields: dict[str, object] = {
        "id": key,
        "version": 1,
        "title": f"{key}, as its plugin for Brain-Score describes it",
        "builder": None,
        "layers": layers,
        "regions": regions,
        "readout": readout,
        "logits": LOGITS,
        "visual_degrees": plugin.visual_degrees,
        "downloads": plugin.downloads,
    }
    if plugin.architecture is not None:
        builder = {"name": plugin.hub, "architecture": plugin.architecture}
        fields["builder"] = builder | (
            {"preprocessing": plugin.preprocessing} if plugin.preprocessing else {}
        )
    no_builder = (
        "no builder of this package makes its architecture; name one under `builder`, then "
        if plugin.architecture is None
        else ""
    )
    fields["unavailable"] = (
        f"Its weights are not here: {no_builder}`neuroledger package model {key} CHECKPOINT` pins them."
    )
    fields["notes"] = [
        "Layers, regions, readout, preprocessing and visual degrees are those of the plugin's source."
    ]
    fields["license"] = "LicenseRef-unknown"
    stated = {
        name: value for name, value in fields.items() if value not in (None, {}, [])
    }
    target = catalog.root / "specs" / "models" / f"{key}.yaml"
    write_text(target, spec_text("model", stated))
    return target, plugin
