"""Stimuli to present to a model: a table, from a CSV file, a folder or a data set's reader, and the paths of the files."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import pandas as pd
from pydantic import ValidationError

from neuroledger.data.integrity import folder_of, verify_file
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
    """Contents of files by name, read on access."""

    paths: Mapping[str, Path]

    def __getitem__(self, name: str) -> bytes:
        try:
            return self.paths[name].read_bytes()
        except OSError as error:
            raise DataError(
                f"{self.paths[name]} cannot be read ({error.strerror})"
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True)
class Source:
    """A table of stimuli, all of whose values are strings, and the files of the stimuli.

    Attributes
    ----------
    name
        Name of the table in error messages.
    table
        `stimulus_id` and further columns, one row per stimulus.
    files
        Paths by `filename`.
    folder
        Folder of the files that are not in `files`.
    """

    name: str
    table: pd.DataFrame = field(repr=False)
    files: Mapping[str, Path] = field(default_factory=dict, repr=False)
    folder: Path | None = None

    @property
    def content_sha256(self) -> str:
        """Hash of the table."""
        return hashlib.sha256(
            self.table.to_csv(index=False, lineterminator="\n").encode()
        ).hexdigest()

    def images(self) -> StimulusSet:
        """The stimuli as images, for models with layers."""
        names = [str(stimulus.path) for stimulus in self.shown("images")]
        table = self.table.drop(columns="filename").assign(filename=names)
        return StimulusSet(
            id=self.name,
            table=table,
            contents=_Files({name: Path(name) for name in names}),
        )

    def shown(self, takes: Sense) -> list[Shown]:
        """The stimuli as a model that takes `takes` needs them.

        Raises
        ------
        RequestError
            A column or a file is missing, a stimulus is empty or listed twice, or a time is not a number.
        """
        missing = [
            column
            for column in ("stimulus_id", *COLUMNS[takes])
            if column not in self.table.columns
        ]
        if missing:
            raise RequestError(
                f"{self.name} has no column {', '.join(map(repr, missing))}, which a model that takes {takes} needs; it has "
                f"{', '.join(map(str, self.table.columns)) or 'none'}"
            )
        if not len(self.table):
            raise RequestError(f"{self.name} lists no stimulus: add a row for each")
        rows = self.table.to_dict("records")
        repeated = _repeated([str(row["stimulus_id"]) for row in rows])
        if repeated:
            raise RequestError(
                f"{self.name} lists {len(repeated)} stimuli twice, first {repeated[0]!r}: keep one row for each"
            )
        stimuli = []
        for row in rows:
            texts = {str(key): str(value) for key, value in row.items()}
            stimuli.append(self._stimulus(texts, takes))
        self._require_files(stimuli)
        return stimuli

    def _require_files(self, stimuli: Sequence[Shown]) -> None:
        paths = dict.fromkeys(stimulus.path for stimulus in stimuli)
        absent = [str(path) for path in paths if path and not path.is_file()]
        if absent:
            where = self.folder or "the data set"
            raise RequestError(
                f"{self.name} names {len(absent)} files that {where} lacks, first {_relative(absent[0], self.folder)}"
            )

    def _stimulus(self, row: Mapping[str, str], takes: Sense) -> Shown:
        where = f"{self.name}, stimulus {row['stimulus_id']!r}"
        if not row["stimulus_id"].strip():
            raise RequestError(
                f"{self.name} has a row without a `stimulus_id`: fill it in"
            )
        if takes == "text":
            if not row["text"].strip():
                raise RequestError(f"{where}: its text is empty")
            return Shown(
                row["stimulus_id"], text=row["text"], context=row.get("context") or None
            )
        start, duration = _times(row, takes, where)
        return Shown(
            row["stimulus_id"],
            path=self._path(row["filename"], where),
            start=start,
            duration=duration,
        )

    def _path(self, name: str, where: str) -> Path:
        if name in self.files:
            return self.files[name]
        inside = PurePosixPath(name)
        if not name.strip() or inside.is_absolute() or ".." in inside.parts:
            raise RequestError(
                f"{where}: its filename {name!r} is not a relative path below a folder"
            )
        if self.folder is None:
            raise RequestError(
                f"{where}: the data set has no file {name}: give its folder with --images, --sounds or --videos"
            )
        if len(inside.parts) == 1 and not (self.folder / name).is_file():
            return self._search(name, where)
        return self.folder / name

    def _search(self, name: str, where: str) -> Path:
        """Path of the file with this name in any subfolder."""
        if len(self._below.get(name, ())) > 1:
            examples = ", ".join(
                str(path.relative_to(self.folder or path))
                for path in self._below[name][:2]
            )
            raise RequestError(
                f"{where}: several files are named {name} ({examples}): give its path"
            )
        if name in self._below:
            return self._below[name][0]
        return (self.folder or Path()) / name

    @cached_property
    def _below(self) -> dict[str, list[Path]]:
        """Files below the folder, by name without folders."""
        paths: dict[str, list[Path]] = {}
        for path in sorted(self.folder.rglob("*") if self.folder is not None else ()):
            if path.is_file():
                paths.setdefault(path.name, []).append(path)
        return paths


def table_of(path: Path) -> pd.DataFrame:
    """Read a CSV table of stimuli; all cells are strings, also `null` and empty ones.

    Raises
    ------
    RequestError
        The file is not CSV in UTF-8, or two columns have the same name.
    """
    if path.exists() and not path.is_file():  # a pipe or a device, which may never end
        raise RequestError(f"{path} is not a file")
    try:
        table = pd.read_csv(
            path, dtype=str, keep_default_na=False, encoding="utf-8-sig", header=None
        )
    except (ValueError, OSError) as error:
        raise RequestError(f"{path} cannot be read as a CSV table ({error})") from error
    names = list(map(str, table.iloc[0]))
    repeated = _repeated(names)
    if repeated:
        raise RequestError(
            f"{path} has two columns named {repeated[0]!r}: rename or remove one"
        )
    return table.iloc[1:].set_axis(names, axis=1).reset_index(drop=True)


def images_in(folder: Path, *, by_name: bool = False) -> Source:
    """The images below a folder; their ids are their paths in it, or their names with ``by_name``.

    Raises
    ------
    RequestError
        The folder is missing or contains no images, or two images have the same name.
    """
    if not folder.is_dir():
        raise RequestError(
            f"{folder} is not a folder: give the folder that contains the images"
        )
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGES and path.is_file()
    )
    if not names:
        raise RequestError(f"{folder} contains no images ({', '.join(sorted(IMAGES))})")
    ids = [PurePosixPath(name).name if by_name else name for name in names]
    repeated = sorted(_repeated(ids))
    if repeated:
        raise RequestError(
            f"{folder} contains {len(repeated)} names of images twice, first {repeated[0]}: use paths as ids"
        )
    return Source(
        folder.name,
        pd.DataFrame({"stimulus_id": ids, "filename": names}),
        folder=folder,
    )


def listed(path: Path, folder: Path | None) -> Source:
    """The stimuli of a CSV table, with their files below a folder.

    Raises
    ------
    RequestError
        The table cannot be read, or the folder is missing.
    """
    if folder is not None and not folder.is_dir():
        raise RequestError(
            f"{folder} is not a folder: give the folder that contains the files of {path}"
        )
    return Source(str(path), table_of(path), folder=folder)


def source_of_dataset(
    catalog: Catalog, id: str, downloads: Path | None = None, folder: Path | None = None
) -> Source:
    """The stimuli that the reader of data set ``id`` lists; needs no embeddings.

    The files are taken from ``downloads``, under the names that pinning gives them, or from `data/<id>/`, where pinned
    files are verified. ``folder`` contains further files of stimuli.

    Raises
    ------
    RequestError
        The data set's reader does not list stimuli, or there are no files.
    DataError, IntegrityError
        The files do not match what the reader expects, or the pins.
    """
    spec = catalog.dataset(id)
    if spec.reader is None:
        raise RequestError(
            f"data set {id!r} has no reader to list its stimuli: give --table"
        )
    known = registry.names("stimuli")
    if spec.reader.name not in known:
        raise RequestError(
            f"data set {id!r}: its reader {spec.reader.name!r} does not list stimuli (readers that do: "
            f"{', '.join(known)}): give --table"
        )
    reader = registry.get("reader", spec.reader.name)
    lister = registry.get("stimuli", spec.reader.name)
    try:
        bound = reader.bind(spec.reader.parameters)
    except ValidationError as error:
        document = catalog.entry("datasets", id).document
        raise SpecError(
            explain(error, document, reader.parameters, ("reader",))
        ) from None
    files = _files(catalog, id, downloads)
    parameters = {name: bound[name] for name in lister.parameters.model_fields}
    table: pd.DataFrame = lister.function(files, **parameters)
    return Source(f"data set {id}", table.fillna("").astype(str), files, folder)


def _files(catalog: Catalog, id: str, downloads: Path | None) -> dict[str, Path]:
    if downloads is not None:
        return {place_of(name): downloads / name for name in files_below(downloads)}
    local = folder_of(catalog.root, "datasets", id)
    if not local.is_dir():
        raise RequestError(
            f"{local} does not exist: give the folder with the downloads of {id} by --from"
        )
    files = {name: local / name for name in files_below(local)}
    for name, pin in catalog.dataset(id).files.items():
        if name in files:
            verify_file(
                files[name],
                pin,
                memory=catalog.root / ".cache",
                fix=f"fetch it with `neuroledger fetch {id}`",
            )
    return files


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _times(
    row: Mapping[str, str], takes: Sense, where: str
) -> tuple[float | None, float | None]:
    """The start and duration of a stimulus in seconds; a sound needs both."""
    start, duration = (_number(row.get(name, ""), name, where) for name in SECONDS)
    if takes == "sound" and (start is None or duration is None):
        raise RequestError(
            f"{where}: its {'start' if start is None else 'duration'} is empty"
        )
    if duration is not None and duration <= 0:
        raise RequestError(f"{where}: its duration is {duration:g} s")
    return start, duration


def _number(text: str, name: str, where: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RequestError(f"{where}: its {name} is {text!r}, not a number of seconds")
    return value


def _relative(name: str, folder: Path | None) -> str:
    if folder is None:
        return name
    return Path(name).relative_to(folder).as_posix()
