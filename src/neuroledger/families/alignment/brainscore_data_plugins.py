"""A data plugin of Brain-Score as a spec: files, checksums and stimulus sets are read from its syntax, nothing runs."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neuroledger.data.pin.yaml_edit import inline
from neuroledger.errors import RequestError
from neuroledger.families.alignment.python_constants import called, constant, keyword, parsed, variables_of
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import write_text

__all__ = ["Registered", "import_data_plugin", "read_data_plugin"]

REGISTRIES: Final[Mapping[str, str]] = {"data_registry": "assembly", "stimulus_set_registry": "stimuli"}
LOADERS: Final = ("load_assembly_from_s3", "load_stimulus_set_from_s3")


@dataclass(frozen=True)
class Registered:
    """An assembly or a stimulus set as a plugin registers it: its files with what is stated of each, and its stimuli."""

    key: str
    kind: str
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stimuli: str | None = None
    merge: bool = True


def read_data_plugin(path: Path) -> dict[tuple[str, str], Registered]:
    """What ``__init__.py`` of a data plugin registers, by kind (``assembly``, ``stimuli``) and key.

    Of a loader that is not a call of the two that name files in constants, only the key is known.

    Raises
    ------
    RequestError
        There is no such file, it is no Python, or it registers nothing.
    """
    source = path / "__init__.py" if path.is_dir() else path
    if not source.is_file():
        raise RequestError(f"{path} holds no data plugin: a folder with an __init__.py, or that file")
    tree = parsed(source)
    variables = variables_of([tree])
    found = {(one.kind, one.key): one for one in _registered(tree, variables)}
    if not found:
        raise RequestError(
            f"{source} registers no data: it has no `data_registry['KEY'] = …` or `stimulus_set_registry['KEY'] = …`"
        )
    return found


def _registered(tree: ast.Module, variables: Mapping[str, Any]) -> Iterator[Registered]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                kind, key = REGISTRIES.get(target.value.id), constant(target.slice, variables)
                if kind is not None and isinstance(key, str):
                    yield _of(kind, key, node.value, variables)


def _of(kind: str, key: str, value: ast.expr, variables: Mapping[str, Any]) -> Registered:
    body = value.body if isinstance(value, ast.Lambda) else value
    if not isinstance(body, ast.Call) or called(body).rpartition(".")[2] not in LOADERS:
        return Registered(key, kind)
    given = {one.arg: constant(one.value, variables) for one in body.keywords if one.arg}
    identifier, bucket = given.get("identifier"), given.get("bucket")
    if not isinstance(identifier, str) or not isinstance(bucket, str):
        return Registered(key, kind)
    host, _, folder = bucket.partition("/")
    prefix = given.get("filename_prefix") or ("assy_" if kind == "assembly" else "stimulus_")
    files: dict[str, dict[str, str]] = {}
    for suffix, own in (("nc", ""),) if kind == "assembly" else (("csv", "csv_"), ("zip", "zip_")):
        name = f"{prefix}{identifier.replace('.', '_')}.{suffix}"
        files[name] = {"url": f"https://{host}.s3.amazonaws.com/{f'{folder}/' if folder else ''}{name}"}
        for stated, word in ((f"{own}sha1", "sha1"), (f"{own}version_id", "version_id")):
            said = given.get(stated)
            if isinstance(said, str) and said not in {"", "null"}:
                files[name][word] = said
    loader = keyword(body, "stimulus_set_loader")
    inner = loader.body if isinstance(loader, ast.Lambda) else None
    stimuli = constant(inner.args[0], variables) if isinstance(inner, ast.Call) and inner.args else None
    return Registered(
        key,
        kind,
        files,
        stimuli if isinstance(stimuli, str) else None,
        given.get("merge_stimulus_set_meta") is not False,
    )


def import_data_plugin(catalog: Catalog, key: str, path: Path) -> Path:
    """Write ``specs/datasets/<key>.yaml`` of a data plugin's source; its files are fetched and pinned by the next import.

    Raises
    ------
    RequestError
        There is a data set of that id, the plugin registers no such key, or does not name its files in constants.
    """
    if catalog.has("datasets", key):
        raise RequestError(
            f"there is a dataset {key!r} already: `neuroledger import brainscore {key}` fetches it"
        )
    held = read_data_plugin(path)
    own = held.get(("assembly", key)) or held.get(("stimuli", key))
    if own is None:
        names = sorted({name for _, name in held})
        near = difflib.get_close_matches(key, names, 3, 0.4) or names[:5]
        raise RequestError(f"{path} registers no {key!r}; of {len(names)} keys: {', '.join(near)}")
    shown = held.get(("stimuli", own.stimuli)) if own.stimuli else None
    if own.stimuli and shown is None:
        raise RequestError(
            f"{path} takes the stimuli {own.stimuli!r} of {key!r} from another plugin: register both in one"
        )
    files = {**own.files, **(shown.files if shown else {})}
    if not own.files or (shown is not None and not shown.files):
        raise RequestError(
            f"{path} computes how {key!r} is loaded: its files are named in no constants, and nothing is executed here; "
            f"import them by name, `neuroledger import brainscore {key} assy_….nc stimulus_….csv stimulus_….zip`"
        )
    words = {".nc": "assembly", ".csv": "stimuli", ".zip": "archive"}
    reader: dict[str, Any] = {"name": "brainio"} | {words[Path(name).suffix]: name for name in files}
    if own.kind == "assembly" and shown is not None and not own.merge:
        reader["merge"] = False
    fields: dict[str, Any] = {
        "id": key, "version": 1, "title": f"{key}, as its plugin for Brain-Score registers it",
        "license": "LicenseRef-unknown", "license_note": "The plugin states none: ask the authors.",
        "downloads": files, "reader": reader,
        "unavailable": f"Not here yet: `neuroledger import brainscore {key}` fetches its files and pins them.",
    }  # fmt: skip
    target = catalog.root / "specs" / "datasets" / f"{key}.yaml"
    lines = ["# yaml-language-server: $schema=../schema/dataset.json"]
    lines += [f"{name}: {inline(value)}" for name, value in fields.items()]
    write_text(target, "\n".join(lines) + "\n")
    return target
