"""Import of a Brain-Score data plugin as a spec: files, checksums and stimulus sets are read without running it."""

from __future__ import annotations

import ast
import difflib
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

__all__ = ["Registration", "import_data_plugin", "read_data_plugin"]

REGISTRIES: Final[Mapping[str, str]] = {
    "data_registry": "assembly",
    "stimulus_set_registry": "stimuli",
}
LOADERS: Final = ("load_assembly_from_s3", "load_stimulus_set_from_s3")


@dataclass(frozen=True)
class Registration:
    """An assembly or a stimulus set that a plugin registers: URL and checksums of its files, and its stimulus set."""

    key: str
    kind: str
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stimuli: str | None = None
    merge: bool = True


def read_data_plugin(path: Path) -> dict[tuple[str, str], Registration]:
    """Registrations in ``__init__.py`` of a data plugin, by kind (``assembly``, ``stimuli``) and key.

    The files are known only if the loader is a call of one of :data:`LOADERS` with constant arguments.

    Raises
    ------
    RequestError
        The file is missing, is not Python, or registers no data.
    """
    source = path / "__init__.py" if path.is_dir() else path
    if not source.is_file():
        raise RequestError(
            f"{path} contains no data plugin: name a folder with an __init__.py, or the Python file"
        )
    tree = parse_source(source)
    registrations = {
        (registration.kind, registration.key): registration
        for registration in _registrations(tree, assigned_constants([tree]))
    }
    if not registrations:
        raise RequestError(
            f"{source} registers no data: it has no `data_registry['KEY'] = …` or `stimulus_set_registry['KEY'] = …`"
        )
    return registrations


def _registrations(
    tree: ast.Module, variables: Mapping[str, object]
) -> Iterator[Registration]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                kind = REGISTRIES.get(target.value.id)
                key = constant(target.slice, variables)
                if kind is not None and isinstance(key, str):
                    yield _registration(kind, key, node.value, variables)


def _registration(
    kind: str, key: str, value: ast.expr, variables: Mapping[str, object]
) -> Registration:
    body = value.body if isinstance(value, ast.Lambda) else value
    if (
        not isinstance(body, ast.Call)
        or call_name(body).rpartition(".")[2] not in LOADERS
    ):
        return Registration(key, kind)
    arguments = call_constants(body, variables)
    identifier = arguments.get("identifier")
    bucket = arguments.get("bucket")
    if not isinstance(identifier, str) or not isinstance(bucket, str):
        return Registration(key, kind)
    host, _, folder = bucket.partition("/")
    prefix = arguments.get("filename_prefix") or (
        "assy_" if kind == "assembly" else "stimulus_"
    )
    files: dict[str, dict[str, str]] = {}
    for suffix, argument_prefix in (
        (("nc", ""),) if kind == "assembly" else (("csv", "csv_"), ("zip", "zip_"))
    ):
        name = f"{prefix}{identifier.replace('.', '_')}.{suffix}"
        files[name] = {
            "url": f"https://{host}.s3.amazonaws.com/{f'{folder}/' if folder else ''}{name}"
        }
        for field_name in ("sha1", "version_id"):
            text = arguments.get(argument_prefix + field_name)
            if isinstance(text, str) and text not in {"", "null"}:
                files[name][field_name] = text
    loader = keyword(body, "stimulus_set_loader")
    inner = None
    if isinstance(loader, ast.Lambda):
        inner = loader.body
    stimuli = (
        constant(inner.args[0], variables)
        if isinstance(inner, ast.Call) and inner.args
        else None
    )
    return Registration(
        key,
        kind,
        files,
        stimuli if isinstance(stimuli, str) else None,
        arguments.get("merge_stimulus_set_meta") is not False,
    )


def import_data_plugin(catalog: Catalog, key: str, path: Path) -> Path:
    """Write ``specs/datasets/<key>.yaml`` from a data plugin's source; the next import fetches and pins its files.

    Raises
    ------
    RequestError
        A data set of this id exists, the plugin does not register the key, or it does not name its files in constants.
    """
    if catalog.has("datasets", key):
        raise RequestError(
            f"there is a dataset {key!r} already: `neuroledger import brainscore {key}` fetches it"
        )
    registrations = read_data_plugin(path)
    registration = registrations.get(("assembly", key)) or registrations.get(
        ("stimuli", key)
    )
    if registration is None:
        names = sorted({name for _, name in registrations})
        near = difflib.get_close_matches(key, names, 3, 0.4) or names[:5]
        raise RequestError(
            f"{path} registers no {key!r}; of {len(names)} keys: {', '.join(near)}"
        )
    stimuli = (
        registrations.get(("stimuli", registration.stimuli))
        if registration.stimuli
        else None
    )
    if registration.stimuli and stimuli is None:
        raise RequestError(
            f"{path} uses the stimuli {registration.stimuli!r} of another plugin for {key!r}: register both in one plugin"
        )
    files = {**registration.files, **(stimuli.files if stimuli else {})}
    if not registration.files or (stimuli is not None and not stimuli.files):
        raise RequestError(
            f"{path} does not name the files of {key!r} in constants, and nothing is executed here; "
            f"import them by name, `neuroledger import brainscore {key} assy_….nc stimulus_….csv stimulus_….zip`"
        )
    roles = {".nc": "assembly", ".csv": "stimuli", ".zip": "archive"}
    reader: dict[str, object] = {"name": "brainio"}
    reader |= {roles[Path(name).suffix]: name for name in files}
    if (
        registration.kind == "assembly"
        and stimuli is not None
        and not registration.merge
    ):
        reader["merge"] = False
    fields: dict[str, object] = {
        "id": key,
        "version": 1,
        "title": f"{key}, as its plugin for Brain-Score registers it",
        "license": "LicenseRef-unknown",
        "license_note": "The plugin states none: ask the authors.",
        "downloads": files,
        "reader": reader,
        "unavailable": f"Not fetched yet: `neuroledger import brainscore {key}` fetches its files and pins them.",
    }
    target = catalog.root / "specs" / "datasets" / f"{key}.yaml"
    write_text(target, spec_text("dataset", fields))
    return target
