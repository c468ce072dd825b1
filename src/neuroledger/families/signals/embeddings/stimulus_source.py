"""What a model is to be shown: a table of stimuli, by hand or as a data set's reader lists it, and where their files lie."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import pandas as pd
from pydantic import ValidationError

from neuroledger.data.fetch import folder_of
from neuroledger.data.integrity import verify_file
from neuroledger.data.pin.downloads import files_below, place_of
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, RequestError, SpecError
from neuroledger.models.embedder import COLUMNS, Shown
from neuroledger.spec import registry
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.channels import Sense
from neuroledger.spec.load import explain

__all__ = ["Source", "images_in", "listed", "source_of_dataset", "table_of"]

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"})
SECONDS = ("start", "duration")


@dataclass(frozen=True)
class _Files(Mapping[str, bytes]):
    """Contents of files by name, read when they are asked for."""

    paths: Mapping[str, Path]

    def __getitem__(self, name: str) -> bytes:
        try:
            return self.paths[name].read_bytes()
        except OSError as error:
            raise DataError(f"{self.paths[name]} cannot be read ({error.strerror})") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True)
class Source:
    """A table of stimuli, every value a text as it was written, and their files.

    Attributes
    ----------
    name
        What errors call the table.
    table
        `stimulus_id` and whatever is known of each stimulus.
    files
        Paths by `filename`.
    folder
        Where files lie that `files` does not name.
    """

    name: str
    table: pd.DataFrame = field(repr=False)
    files: Mapping[str, Path] = field(default_factory=dict, repr=False)
    folder: Path | None = None

    @property
    def content_sha256(self) -> str:
        """Hash of the table."""
        return hashlib.sha256(self.table.to_csv(index=False, lineterminator="\n").encode()).hexdigest()

    def images(self) -> StimulusSet:
        """The stimuli as images, for models with layers."""
        shown = self.shown("images")
        names = [str(one.path) for one in shown]
        table = self.table.drop(columns="filename").assign(filename=names)
        return StimulusSet(id=self.name, table=table, contents=_Files({name: Path(name) for name in names}))

    def shown(self, takes: Sense) -> list[Shown]:
        """The stimuli, for a model that takes such.

        Raises
        ------
        RequestError
            A column is missing, a stimulus is empty or named twice, a number is none, a file is not there.
        """
        lost = [column for column in ("stimulus_id", *COLUMNS[takes]) if column not in self.table.columns]
        if lost:
            raise RequestError(
                f"{self.name} has no column {', '.join(map(repr, lost))}, which a model that takes {takes} needs; it has "
                f"{', '.join(map(str, self.table.columns)) or 'none'}"
            )
        if not len(self.table):
            raise RequestError(f"{self.name} names no stimulus")
        rows = self.table.to_dict("records")
        ids = [str(row["stimulus_id"]) for row in rows]
        twice = [id for id, count in Counter(ids).items() if count > 1]
        if twice:
            raise RequestError(
                f"{self.name} names {len(twice)} stimuli twice, first {twice[0]!r}: one row for each"
            )
        found = [self._one({str(key): str(value) for key, value in row.items()}, takes) for row in rows]
        absent = list(
            dict.fromkeys(str(one.path) for one in found if one.path is not None and not one.path.is_file())
        )
        if absent:
            where = self.folder or "the data set"
            raise RequestError(
                f"{self.name} names {len(absent)} files that {where} lacks, first {_relative(absent[0], self.folder)}"
            )
        return found

    def _one(self, row: Mapping[str, str], takes: Sense) -> Shown:
        said = f"{self.name}, stimulus {row['stimulus_id']!r}"
        if not row["stimulus_id"].strip():
            raise RequestError(f"{self.name} has a stimulus without a name (`stimulus_id`)")
        if takes == "text":
            if not row["text"].strip():
                raise RequestError(f"{said}: its text is empty")
            return Shown(row["stimulus_id"], text=row["text"], context=row.get("context") or None)
        start, duration = (_number(row.get(name, ""), name, said) for name in SECONDS)
        if takes == "sound" and (start is None or duration is None):
            raise RequestError(f"{said}: its {'start' if start is None else 'duration'} is empty")
        if duration is not None and duration <= 0:
            raise RequestError(f"{said}: its duration is {duration:g} s")
        return Shown(
            row["stimulus_id"], path=self._path(row["filename"], said), start=start, duration=duration
        )

    def _path(self, name: str, said: str) -> Path:
        if name in self.files:
            return self.files[name]
        inside = PurePosixPath(name)
        if not name.strip() or inside.is_absolute() or ".." in inside.parts:
            raise RequestError(f"{said}: its filename {name!r} is no path below a folder")
        if self.folder is None:
            raise RequestError(
                f"{said}: the file {name} is not among the data set's: say where it lies with --images, --sounds or --videos"
            )
        if len(inside.parts) == 1 and not (self.folder / name).is_file():
            return self._anywhere(name, said)
        return self.folder / name

    def _anywhere(self, name: str, said: str) -> Path:
        """A file that is called by its name alone, wherever below the folder it lies."""
        if len(self._below.get(name, ())) > 1:
            shown = ", ".join(str(path.relative_to(self.folder or path)) for path in self._below[name][:2])
            raise RequestError(f"{said}: several files are called {name}: {shown}: give its path")
        return self._below[name][0] if name in self._below else (self.folder or Path()) / name

    @cached_property
    def _below(self) -> dict[str, list[Path]]:
        """Files below the folder by their names."""
        found: dict[str, list[Path]] = {}
        for path in sorted(self.folder.rglob("*") if self.folder is not None else ()):
            if path.is_file():
                found.setdefault(path.name, []).append(path)
        return found


def table_of(path: Path) -> pd.DataFrame:
    """A CSV of stimuli, every cell a text as it stands there: words may be called null.

    Raises
    ------
    RequestError
        It is no CSV in UTF-8, or two columns have one name.
    """
    if path.exists() and not path.is_file():  # a pipe or a device, which may never end
        raise RequestError(f"{path} is not a file")
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig", header=None)
    except (ValueError, OSError) as error:
        raise RequestError(f"{path} cannot be read as a CSV table ({error})") from error
    names = [str(name) for name in table.iloc[0]]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise RequestError(f"{path} has two columns {twice[0]!r}")
    return table.iloc[1:].set_axis(names, axis=1).reset_index(drop=True)


def images_in(folder: Path, *, by_name: bool = False) -> Source:
    """The images below a folder, called by their path in it, or by their names alone.

    Raises
    ------
    RequestError
        There are none, or two have one name.
    """
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder: name the one that holds the images")
    there = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGES and path.is_file()
    )
    if not there:
        raise RequestError(f"{folder} holds no images ({', '.join(sorted(IMAGES))})")
    ids = [PurePosixPath(name).name if by_name else name for name in there]
    twice = sorted(name for name, count in Counter(ids).items() if count > 1)
    if twice:
        raise RequestError(f"{folder} holds {len(twice)} names of images twice, first {twice[0]}: use paths")
    return Source(folder.name, pd.DataFrame({"stimulus_id": ids, "filename": there}), folder=folder)


def listed(path: Path, folder: Path | None) -> Source:
    """The stimuli of a CSV table, their files below a folder.

    Raises
    ------
    RequestError
        The table cannot be read, or there is no such folder.
    """
    if folder is not None and not folder.is_dir():
        raise RequestError(f"{folder} is not a folder: name the one that holds the files of {path}")
    return Source(str(path), table_of(path), folder=folder)


def source_of_dataset(
    catalog: Catalog, id: str, downloads: Path | None = None, folder: Path | None = None
) -> Source:
    """The stimuli that the reader of data set ``id`` lists, before any embedding of them is there.

    Its files are those in ``downloads``, under the names that pinning gives them, or those below `data/<id>/`, of which
    the pinned ones are verified. Other files of stimuli lie in ``folder``.

    Raises
    ------
    RequestError
        The data set's reader lists no stimuli, or there are no files.
    DataError, IntegrityError
        The files are not what the reader, or the pins, say.
    """
    spec = catalog.dataset(id)
    if spec.reader is None:
        raise RequestError(f"data set {id!r} has no reader that could list its stimuli: give --table")
    known = registry.names("stimuli")
    if spec.reader.name not in known:
        raise RequestError(
            f"data set {id!r}: its reader {spec.reader.name!r} does not list stimuli (those that do: "
            f"{', '.join(known)}): give --table"
        )
    reader, lists = registry.get("reader", spec.reader.name), registry.get("stimuli", spec.reader.name)
    try:
        bound = reader.bind(spec.reader.parameters)
    except ValidationError as error:
        document = catalog.entry("datasets", id).document
        raise SpecError(explain(error, document, reader.parameters, ("reader",))) from None
    files = _files(catalog, id, downloads)
    given = {name: bound[name] for name in lists.parameters.model_fields}
    table: pd.DataFrame = lists.function(files, **given)
    return Source(f"data set {id}", table.fillna("").astype(str), files, folder)


def _files(catalog: Catalog, id: str, downloads: Path | None) -> dict[str, Path]:
    if downloads is not None:
        return {place_of(name): downloads / name for name in files_below(downloads)}
    held = folder_of(catalog.root, "datasets", id)
    if not held.is_dir():
        raise RequestError(f"{held} is not there: say with --from where the downloads of {id} lie")
    files = {name: held / name for name in files_below(held)}
    for name, pin in catalog.dataset(id).files.items():
        if name in files:
            verify_file(
                files[name],
                pin,
                memory=catalog.root / ".cache",
                fix=f"bring it with `neuroledger fetch {id}`",
            )
    return files


def _number(text: str, name: str, said: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RequestError(f"{said}: its {name} is {text!r}, not seconds")
    return value


def _relative(name: str, folder: Path | None) -> str:
    return name if folder is None else Path(name).relative_to(folder).as_posix()
