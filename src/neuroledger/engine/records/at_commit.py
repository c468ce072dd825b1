"""The catalogue and the records of a commit, as this version reads them."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.shipped import is_checkout, marker_of
from neuroledger.store.git import git

__all__ = ["catalog_at"]


@contextmanager
def catalog_at(catalog: Catalog, commit: str, *paths: str) -> Iterator[Catalog]:
    """Open the catalogue of a commit in a temporary folder, which also has the files below ``paths``.

    Raises
    ------
    RequestError
        There is no such commit, or it lacks one of the paths.
    SpecError
        Two specs of the commit have the same id.
    """
    names = ("specs", "dvc.yaml", *paths)
    content = git(catalog.root, "archive", "--format=tar", commit, *names)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
        if is_checkout(catalog.root):  # then its specs are the shipped ones themselves
            marker = marker_of(Path(folder))
            marker.parent.mkdir(parents=True)
            marker.touch()
        yield open_catalog(Path(folder))
