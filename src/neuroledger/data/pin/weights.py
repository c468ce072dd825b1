"""Weights that somebody downloaded become those of a model: compared with what is stated of them, placed and pinned."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from neuroledger.data.fetch import folder_of
from neuroledger.data.integrity import compare, sha256_of_file
from neuroledger.data.pin.downloads import Downloads
from neuroledger.data.pin.install_files import put, stop_on_others
from neuroledger.data.pin.pin import Pinned
from neuroledger.data.pin.yaml_edit import with_entries, without
from neuroledger.errors import RequestError, SpecError
from neuroledger.spec import registry
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import parse
from neuroledger.spec.kinds import ModelSpec
from neuroledger.spec.load import explain, spec_of
from neuroledger.store.files import write_text

__all__ = ["pin_weights"]


def pin_weights(catalog: Catalog, id: str, downloads: Downloads, *, dry_run: bool = False) -> Pinned:
    """Pin the files that the spec of model `id` names below `downloads`, from a folder; `unavailable` goes.

    Raises
    ------
    RequestError
        The spec names no downloads, one is not in the folder, or something was said that only recordings need.
    IntegrityError
        A file is not what is stated of it, or another one lies where it is to go.
    SpecError
        The spec would not be valid.
    """
    spec, path = catalog.model(id), catalog.entry("models", id).path
    if given := downloads.about_recordings:
        raise RequestError(f"{given[0]} is about recordings; {id} is a model")
    if not spec.downloads:
        raise RequestError(
            f"model {id!r} names no `downloads`: its weights are {'pinned already' if spec.weights else 'none'}"
        )
    pins: dict[str, dict[str, Any]] = {}
    for name, stated in spec.downloads.items():
        source = downloads.folder / name
        if not source.is_file():
            raise RequestError(f"{downloads.folder} lacks {name}; download it from {stated.url}")
        compare(source, stated)
        where = (
            {"url": stated.url}
            if downloads.url_prefix is None
            else {"url": f"{downloads.url_prefix.rstrip('/')}/{name}"}
        )
        pins[name] = {**where, "size": source.stat().st_size, "sha256": sha256_of_file(source)}
    before = path.read_text(encoding="utf-8")
    text = without(with_entries(before, ("weights",), pins, before="downloads"), "unavailable")
    document = parse(text, catalog.shown(path))
    new = spec_of(document, "models", stem=path.stem)
    if not isinstance(new, ModelSpec) or new.builder is None:
        raise RequestError(f"{catalog.shown(path)} names no builder")
    component = registry.get("builder", new.builder.name)
    try:
        component.bind(new.builder.parameters)
    except ValidationError as error:
        raise SpecError(explain(error, document, component.parameters, ("builder",))) from None
    folder = folder_of(catalog.root, "models", id)
    stop_on_others(folder, {name: downloads.folder / name for name in pins}, pins)
    placed = 0
    if not dry_run:
        placed = sum(put(downloads.folder / name, folder / name) for name in pins)
        write_text(path, text)
    return Pinned(path, before, text, len(pins), placed, 0, ())
