"""Stimulus sets: a table with one row per stimulus, and the files in one zip."""

from __future__ import annotations

import base64
import hashlib
import html
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath

import pandas as pd
from pydantic import BaseModel, ConfigDict

from neuroledger.data.images import thumbnail
from neuroledger.data.parsing import MAX_MEMBER_BYTES, require_even_rows, zip_member
from neuroledger.display import card
from neuroledger.errors import AssemblyError, DataError

__all__ = ["StimulusFiles", "StimulusSet", "further_sets", "read_table", "safe_members"]


Content = bytes
MAX_ARCHIVE_BYTES = 64 * 1024**3
SHOWN = 12  # thumbnails in a notebook


@dataclass(frozen=True)
class StimulusSet:
    """A table of stimuli with their files.

    Attributes
    ----------
    id
        Name of the set.
    table
        One row per stimulus, with a unique ``stimulus_id`` and, if there are files, ``filename`` (member of the zip).
    archive
        Zip of the files, or None if the table alone describes the stimuli; for a set joined from several, their zips by
        the first folder of ``filename``.
    degrees
        Size on the screen in degrees of visual angle, if known.
    as_is
        Whether every model is shown the unchanged files, regardless of visual angles.
    contents
        Contents of the files by ``filename``, if they do not come from a zip.
    digests
        SHA-256 of the files read so far, by ``filename``; selections share it, so that each file is hashed once.

    Examples
    --------
    >>> import neuroledger as nl
    >>> stimuli = nl.load("Kriegeskorte2008").stimuli
    >>> len(stimuli), stimuli.ids[:2]
    (92, ['object_01', 'object_02'])
    >>> stimuli.bytes("object_01")[:2]
    b'BM'
    >>> len(stimuli.select(stimuli.ids[:5]))
    5
    """

    id: str
    table: pd.DataFrame = field(repr=False)
    archive: Path | Mapping[str, Path] | None = field(default=None, repr=False)
    degrees: float | None = None
    as_is: bool = False
    contents: Mapping[str, bytes] | None = field(default=None, repr=False)
    digests: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_table(self.table, self.id)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def ids(self) -> list[str]:
        """Stimulus ids as text, in table order."""
        # Arrays of objects are iterated much faster than those of pandas.
        return list(map(str, self.table["stimulus_id"].to_numpy(dtype=object)))

    @cached_property
    def _filenames(self) -> dict[str, str]:
        if "filename" not in self.table.columns:
            raise AssemblyError(
                f"stimulus set {self.id!r} has no files (no column 'filename'): score stored responses instead"
            )
        return dict(zip(self.ids, self.table["filename"].astype(str), strict=True))

    def _repr_html_(self) -> str:
        thumbnails = ""
        if (
            "filename" in self.table.columns
            and (self.archive or self.contents) is not None
        ):
            for id, content in zip(
                self.ids[:SHOWN], self.read(self.ids[:SHOWN]), strict=True
            ):
                with suppress(DataError):
                    text = base64.b64encode(thumbnail(content, id, 64)).decode()
                    thumbnails += f'<img src="data:image/png;base64,{text}" title="{html.escape(id)}" width="64"> '
        rows = [
            ("stimuli", f"{len(self):,}"),
            ("columns", ", ".join(map(str, self.table.columns))),
        ]
        if self.degrees is not None:
            rows += [("size on the screen", f"{self.degrees:g}°")]
        return card(self.id, rows, thumbnails)

    def bytes(self, stimulus_id: str) -> bytes:
        """Content of one stimulus's file.

        Raises
        ------
        AssemblyError
            The set has no such stimulus, the stimulus has no file, or the file is damaged.
        """
        return next(self.read([stimulus_id]))

    def read(self, ids: Sequence[str] | None = None) -> Iterator[Content]:
        """Yield the contents of the files of ``ids``, by default of all stimuli in table order; errors as in `bytes`."""
        names = self._filenames
        if ids is None:
            ids = self.ids
        if self.contents is not None:
            yield from self._in_memory(self.contents, ids)
            return
        if self.archive is None:
            raise AssemblyError(f"stimulus set {self.id!r} has no archive of files")
        if isinstance(self.archive, Path):
            archive = self.archive
        else:
            archive = Path(self.id)
        try:
            for id in ids:
                if id not in names:
                    raise AssemblyError(
                        f"stimulus set {self.id!r} has no stimulus {id!r}"
                    )
                member = names[id]
                if not isinstance(self.archive, Path):
                    part, _, member = member.partition("/")
                    archive = self.archive[part]
                opened = _opened(archive, os.getpid(), _stamp(archive))
                try:
                    info = opened.getinfo(member)
                except KeyError:
                    raise AssemblyError(
                        f"{archive.name} has no file {member!r} (stimulus {id!r})"
                    ) from None
                yield zip_member(opened, info)
        except (
            zipfile.BadZipFile,
            zlib.error,
            OSError,
            EOFError,
            RuntimeError,
            ValueError,
        ) as error:
            raise AssemblyError(
                f"{archive.name} cannot be read ({error}): it is damaged or incomplete"
            ) from error

    def _in_memory(
        self, contents: Mapping[str, Content], ids: Sequence[str]
    ) -> Iterator[Content]:
        for id in ids:
            if id not in self._filenames:
                raise AssemblyError(f"stimulus set {self.id!r} has no stimulus {id!r}")
            if self._filenames[id] not in contents:
                raise AssemblyError(
                    f"stimulus set {self.id!r} has no file for stimulus {id!r}"
                )
            yield contents[self._filenames[id]]

    def select(self, ids: Sequence[str]) -> StimulusSet:
        """The stimulus set of ``ids``, in that order.

        Raises
        ------
        AssemblyError
            A stimulus is not in the set.
        """
        chosen = tuple(ids)
        if chosen not in self._selections:
            self._selections.clear()
            self._selections[chosen] = self._select(chosen)
        return self._selections[chosen]

    def _select(self, ids: Sequence[str]) -> StimulusSet:
        row_of = {id: i for i, id in enumerate(self.ids)}
        missing = [id for id in ids if id not in row_of]
        if missing:
            raise AssemblyError(
                f"stimulus set {self.id!r} lacks {len(missing)} stimuli, first {missing[0]!r}"
            )
        return replace(
            self,
            table=self.table.iloc[[row_of[id] for id in ids]].reset_index(drop=True),
        )

    @cached_property
    def _selections(self) -> dict[tuple[str, ...], StimulusSet]:
        """The latest selection: each layer of a model is shown the same one, whose content is hashed once."""
        return {}

    @cached_property
    def content_sha256(self) -> str:
        """SHA-256 of ids, degrees and file contents, or of the whole table if there are no files."""
        digest = hashlib.sha256(f"{self.degrees}".encode())
        if self.archive is None and self.contents is None:
            columns = sorted(map(str, self.table.columns))
            digest.update(
                self.table[columns].to_csv(index=False, lineterminator="\n").encode()
            )
            return digest.hexdigest()
        names = self._filenames
        new = [id for id in self.ids if names[id] not in self.digests]
        for id, content in zip(new, self.read(new) if new else (), strict=True):
            self.digests[names[id]] = hashlib.sha256(content).digest()
        for id in self.ids:
            digest.update(f"\x00{id}\x00".encode())
            digest.update(self.digests[names[id]])
        return digest.hexdigest()


@lru_cache(maxsize=4)
def _opened(path: Path, process: int, stamp: tuple[int, ...]) -> zipfile.ZipFile:
    """The open archive, cached by process and by state of the file, so that its directory is read once."""
    return zipfile.ZipFile(path)


def _stamp(path: Path) -> tuple[int, ...]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _check_table(table: pd.DataFrame, name: str) -> None:
    if "stimulus_id" not in table.columns:
        raise AssemblyError(
            f"stimulus set {name!r}: the table has no column 'stimulus_id'"
        )
    if len(table) == 0:
        raise AssemblyError(f"stimulus set {name!r}: the table is empty")
    ids = table["stimulus_id"]
    if ids.isna().any():
        raise AssemblyError(
            f"stimulus set {name!r}: stimulus_id is missing in row {int(ids.isna().to_numpy().argmax()) + 1}"
        )
    repeated = ids[ids.astype(str).duplicated()]
    if len(repeated):
        raise AssemblyError(
            f"stimulus set {name!r}: stimulus_id {str(repeated.iloc[0])!r} occurs more than once"
        )


def read_table(path: Path) -> pd.DataFrame:
    """Read a CSV table of stimuli, with ids and file names as text.

    Raises
    ------
    AssemblyError
        The file is not a CSV table in UTF-8.
    """
    require_even_rows(path)
    try:
        return pd.read_csv(
            path, dtype={"stimulus_id": str, "filename": str}, encoding="utf-8"
        )
    except (ValueError, OSError) as error:
        raise AssemblyError(
            f"{path.name} cannot be read as a CSV table ({error}): it is damaged or incomplete"
        ) from error


def safe_members(path: Path, *, repeated: bool = False) -> list[zipfile.ZipInfo]:
    """The members of a zip, checked for harmful names and sizes.

    With ``repeated``, a name may occur again with the same content.

    Raises
    ------
    AssemblyError
        The file is not a zip, a name is empty, repeated or leads out of the archive, a member is a link, or a size
        exceeds its limit.
    """
    try:
        with zipfile.ZipFile(path) as opened:
            infos = opened.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise AssemblyError(
            f"{path.name} is not a readable zip ({error}): it is damaged or incomplete"
        ) from error
    if not all(info.filename for info in infos):
        raise AssemblyError(f"{path.name}: a member has no name; pack it again")
    members = [info for info in infos if not info.is_dir()]
    contents: dict[str, tuple[int, int]] = {}
    for info in members:
        content = info.CRC, info.file_size
        known = contents.setdefault(info.filename, content)
        is_repeated = known is not content and not (repeated and known == content)
        problem = "occurs twice" if is_repeated else _problem_of_member(info)
        if problem:
            raise AssemblyError(f"{path.name}: member {info.filename!r} {problem}")
    _require_size(path, sum(info.file_size for info in members))
    return members


def _require_size(path: Path, size: int) -> None:
    if size > MAX_ARCHIVE_BYTES:
        raise AssemblyError(
            f"{path.name}: the files are larger than {MAX_ARCHIVE_BYTES >> 30} GiB in total"
        )


def _problem_of_member(info: zipfile.ZipInfo) -> str:
    name = PurePosixPath(info.filename)
    if name.is_absolute() or ".." in name.parts or "\\" in info.filename:
        return "points outside the archive"
    if (info.external_attr >> 16) & 0o170000 == 0o120000:
        return "is a link"
    if info.file_size > MAX_MEMBER_BYTES:
        return f"is larger than {MAX_MEMBER_BYTES >> 20} MiB"
    return ""


class StimulusFiles(BaseModel):
    """Names of a stimulus table (CSV) and of the zip with its files, both among the files of the spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stimuli: str
    archive: str | None = None


def further_sets(
    files: Mapping[str, Path], named: Mapping[str, StimulusFiles] | None
) -> dict[str, StimulusSet]:
    """Read the further stimulus sets of a data set, by the names that benchmarks use for them.

    Raises
    ------
    DataError
        A file is not declared under ``files``.
    """
    sets = {}
    for name, declared in (named or {}).items():
        for file in (declared.stimuli, declared.archive):
            if file is not None and file not in files:
                raise DataError(
                    f"the stimulus set {name!r} needs the file {file!r}; the spec's `files` are {', '.join(sorted(files))}"
                )
        archive = None
        if declared.archive is not None:
            archive = files[declared.archive]
        if archive is not None:
            safe_members(archive)
        sets[name] = StimulusSet(
            Path(declared.stimuli).stem, read_table(files[declared.stimuli]), archive
        )
    return sets
