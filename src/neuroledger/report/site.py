"""Static pages of all scores or of one suite: they open from disk, need no network, and escape all text."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import BaseModel
from pydantic_core import to_json

from neuroledger.display import visible
from neuroledger.engine.control import in_words
from neuroledger.engine.record import Record
from neuroledger.engine.records.summary import known_records
from neuroledger.errors import RequestError
from neuroledger.report.board import (
    FORMATS,
    Leaderboard,
    amount,
    as_json,
    describe,
    number,
    write_tracked,
)
from neuroledger.report.kept import (
    MANIFEST,
    Several,
    Wanted,
    names_of,
    one_file_of,
    uncollected,
    write_all,
)
from neuroledger.report.pages import (
    Page,
    Pages,
    Picture,
    World,
    gather,
    pages,
    parts,
)
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.score import counts_to_show
from neuroledger.store.derived import derived_at, installed_sha256, key_of
from neuroledger.store.files import sweep, write_json

__all__ = [
    "MOST_BYTES",
    "Section",
    "build_site",
    "command_of",
    "counted",
    "fitting",
    "gathered",
    "hash_of_script",
    "in_bytes",
    "in_one_line",
    "json_of",
    "prose",
    "record_text",
    "render_alone",
    "rendered",
]

ASSETS: Final = ("style.css", "site.js")
MOST_BYTES: Final = 2_000_000
"""Size that mail programs and forms accept."""
AROUND: Final = 400  # bytes around a section, with a margin
LINK: Final = re.compile(r' (href|src)="([^"]*)"')
# The kinds of page in one file, by what a reader looks for first.
KINDS: Final = ("index", "benchmark", "dataset", "model", "record", "references")
SHELL: Final = 10_000  # bytes around the pages in one file, with a margin
UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def build_site(
    catalog: Catalog,
    suite: str,
    out: Path,
    *,
    records: Sequence[Record] | None = None,
    alone: bool = False,
    tracked: bool = False,
) -> list[str]:
    """Write the site of a suite into ``out`` and return the names of its files.

    The site opens on the suite and has pages of everything in the repository. If the suite is ``alone``, it has only what
    belongs to it, also as one file (:func:`one_file_of`), and git ignores the folder. The files that DVC shows as metrics
    are ``tracked`` beside it (:func:`write_tracked`).

    The same records and specs give the same bytes. Every file is written atomically. Files of an earlier build that are no
    longer part of the site are removed; nothing else is.

    Raises
    ------
    RequestError
        ``out`` is a file, or a folder with files that are not part of a site.
    DataError
        A record cannot be read, or the disk is full or read-only.
    """
    previous = _previous_files(out)
    is_stored = records is None
    derived = derived_at(catalog.root) if is_stored else None
    memory = catalog.root / ".cache" if is_stored else None
    with uncollected():
        given = known_records(catalog.root) if records is None else records
        world = gather(catalog, suite, given, alone=alone)
        texts = [as_json(board) for board in world.boards]
        contents = _contents(world, texts)
        wanted = {name: _wanted(content, world.main) for name, content in contents}
    if alone:
        wanted[one_file_of(suite)] = Wanted("", partial(_in_one_file, world))
        wanted[".gitignore"] = Wanted("", lambda: "*\n")
    # The manifest is written first, so that the next build recognises the files of one that was killed.
    names = names_of(wanted)
    former = _files_inside(out, previous - names)
    write_json(out / MANIFEST, sorted(former | names))
    write_all(out, wanted, derived, memory)
    for name in former:
        (out / name).unlink(missing_ok=True)
    write_json(out / MANIFEST, sorted(names))
    if tracked:
        write_tracked(catalog.root, world.own, texts[: len(world.own)])
    return sorted(names)


def _wanted(content: Page | Pages | str | bytes, main: Leaderboard) -> Wanted | Several:
    """Return how a file, or the files of a folder, are made, and what they follow from."""
    if isinstance(content, Page):
        return _wanted_page(content, main)
    if isinstance(content, Pages):
        return _wanted_pages(content, main)
    return Wanted("", lambda: content)


def _wanted_page(page: Page, main: Leaderboard) -> Wanted:
    return Wanted(_key_of_page(page, main), partial(rendered, page, main))


def _wanted_pages(several: Pages, main: Leaderboard) -> Several:
    def each() -> dict[str, Wanted]:
        return {page.path: _wanted_page(page, main) for page in several.make()}

    return Several(_key_of("pages", several.key, main), several.paths, each)


def _key_of(kind: str, known: str, main: Leaderboard) -> str:
    """Return the key of pages, which cite the suite and depend on packages; empty if ``known`` is."""
    cited = f"{main.suite} {main.version}"
    return key_of(kind, known, cited, installed_sha256()) if known else ""


def _key_of_page(page: Page, main: Leaderboard) -> str:
    """Return the key of a page, of which nothing but its context is known before it is rendered."""
    late = "none" if page.late is None else page.late.key
    if not late:
        return ""
    return _key_of("page", repr((page.path, page.template, page.known, late)), main)


def _contents(
    world: World, texts: Sequence[str]
) -> Iterator[tuple[str, Page | Pages | str | bytes]]:
    """Yield the name and content of each file, or of several in a folder; ``texts`` has the boards as JSON."""
    for part in parts(world):
        if isinstance(part, Picture):
            yield part
        else:
            yield part.folder if isinstance(part, Pages) else part.path, part
    for name in ASSETS:
        yield name, _template(name)
    for board, text in zip(world.boards, texts, strict=True):
        yield f"{board.suite}.json", text
        for suffix, kind in (("csv", "csv"), ("tex", "latex"), ("md", "markdown")):
            yield f"{board.suite}.{suffix}", FORMATS[kind](board)


def _in_one_file(world: World) -> str:
    """Return the pages of a suite as one HTML file of at most ``MOST_BYTES``, whose first pages are kept if not all fit."""
    built = list(pages(world))
    pictures = {part.path: part.content for part in built if isinstance(part, Picture)}
    parts = [
        Section(part.path, _label(part), rendered(part, world.main, "section.html.j2"))
        for kind in KINDS
        for part in built
        if isinstance(part, Page) and part.template == f"{kind}.html.j2"
    ]
    script = _template("site.js")
    shell: dict[str, object] = {"main": world.main, "hash": hash_of_script(script)}
    shell["script"] = Markup(script)
    kept = gathered(parts, pictures)
    room = MOST_BYTES - len(script) - len(_template("style.css")) - SHELL
    while (fits := fitting(kept, room)) != kept:
        # What links to a page that is left out changes.
        parts = parts[: len(fits)]
        kept = gathered(parts, pictures)
    left_out = sum(isinstance(part, Page) for part in built) - len(kept)
    return render_alone("one_file.html.j2", sections=kept, left_out=left_out, **shell)


def _label(page: Page) -> str:
    """Return what a page is called where it is part of a file: its kind and the ids in its path."""
    kind, *ids = page.path.removesuffix(".html").split("/")
    if ids:
        return f"{kind.removesuffix('s')} {' · '.join(ids)}"
    return kind


def rendered(page: Page, main: Leaderboard, layout: str = "base.html.j2") -> str:
    """Return the HTML of a page of the site with the main leaderboard ``main``, inside the template ``layout``."""
    up = "../" * page.path.count("/")
    return (
        _environment()
        .get_template(page.template)
        .render(main=main, up=up, layout=layout, **page.context)
    )


def render_alone(template: str, **context: object) -> str:
    """Return a self-contained page, which includes the style sheet."""
    return (
        _environment()
        .get_template(template)
        .render(style=Markup(_template("style.css")), **context)
    )


def _previous_files(out: Path) -> set[str]:
    """Return the names of the files of an earlier build; remove temporary files of a killed one."""
    if out.exists() and not out.is_dir():
        raise RequestError(f"{out} is a file; give a folder for the site")
    sweep(out)
    try:
        names = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        names = None
    if isinstance(names, list):
        return set(map(str, names))
    if out.is_dir() and any(out.iterdir()):
        raise RequestError(
            f"{out} contains files that are not part of a site; give an empty or new folder"
        )
    return set()


def _files_inside(out: Path, names: Iterable[str]) -> set[str]:
    """Return the names that are files below a folder."""
    inside = out.resolve()
    paths = {name: (out / name).resolve() for name in names}
    return {
        name
        for name, path in paths.items()
        if inside in path.parents and not path.is_dir()
    }


def _template(name: str) -> str:
    return (files("neuroledger.report") / "site" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        finalize=lambda value: (
            visible(value) if type(value) is str else value
        ),  # not markup of the templates
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., object]] = {
        "number": number,
        "amount": amount,
        "said": in_words,
        "tick": lambda value: f"{value:,.10g}",
        "json": json_of,
        "describe": describe,
        "plain": in_one_line,
        "bytes": in_bytes,
        "host": lambda url: urlsplit(str(url)).netloc,
        "metrics": lambda record: list(record.scores.items()),
        "counts": lambda n: ", ".join(
            counted(name, count) for name, count in counts_to_show(n).items()
        ),
        "record_text": record_text,
        "command": command_of,
        "prose": prose,
    }
    environment.filters.update(filters)
    return environment


def prose(text: str) -> Markup:
    """Return the text of a spec with parts in backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def counted(name: str, count: float) -> str:
    """Return a count with its noun, such as ``1 split`` or ``30 neuroids``."""
    if count != int(count):
        return f"{name} {count:.3g}"
    if count == 1 or name.endswith(("s", "i")):
        plural = name
    else:
        plural = f"{name}s"
    return f"{count:,g} {plural}"


def in_one_line(value: object) -> str:
    """Return a component or mapping in one line: its name, then its parameters."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", by_alias=True)
    if isinstance(value, dict):
        name = str(value.get("name", ""))
        rest = ", ".join(
            f"{key}: {in_one_line(item)}"
            for key, item in value.items()
            if key != "name" and item is not None
        )
        if name and rest:
            return f"{name} ({rest})"
        return name or rest
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(in_one_line, value)) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def in_bytes(size: float) -> str:
    """Return a size in words, such as ``1.2 MB``."""
    for unit in UNITS[:-1]:
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} {UNITS[-1]}"


def json_of(value: object) -> Markup:
    """Return plain data as JSON for a script element; no character can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(
        text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    )


def command_of(record: Record) -> str:
    """Return the command that recomputes the score."""
    seed = record.request.seed
    return f"neuroledger score {record.model} {record.benchmark} --seed {seed}"


def record_text(record: Record) -> str:
    """Return as JSON what determined a score."""
    parts = {"status", "error", "request", "inputs", "environment"}
    fields = {"record": record.id, **record.model_dump(mode="json", include=parts)}
    return to_json(_in_order(fields), indent=2).decode()


def _in_order(value: object) -> object:
    """Return plain data with sorted keys."""
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_in_order(item) for item in value]
    return value


class Section(NamedTuple):
    """A page as a part of the file: its path in the folder of pages, what it is called, and its content."""

    path: str
    label: str
    content: str


def fitting(sections: Sequence[Section], budget: int) -> list[Section]:
    """Return the first sections that together have at most ``budget`` bytes."""
    kept: list[Section] = []
    for section in sections:
        budget -= len(section.content.encode()) + AROUND
        if budget < 0:
            break
        kept.append(section)
    return kept


def gathered(
    sections: Sequence[Section], pictures: Mapping[str, bytes]
) -> list[Section]:
    """Return the sections with links among each other, and with their pictures inside.

    A link to a page that is not among the sections loses its address, and so is plain text.
    """
    places = {section.path for section in sections}
    return [
        section._replace(content=Markup(_relinked(section, places, pictures)))
        for section in sections
    ]


def _relinked(section: Section, places: set[str], pictures: Mapping[str, bytes]) -> str:
    """Return the content of a section with addresses inside the file."""

    def inside(found: re.Match[str]) -> str:
        name, address = found.groups()
        path, _, fragment = address.partition("#")
        if not path:
            return found[0]
        path = normpath(join(dirname(section.path), path))
        if path in pictures:
            return (
                f' {name}="data:image/png;base64,{b64encode(pictures[path]).decode()}"'
            )
        if path not in places:
            return ""
        return f' {name}="#{fragment or path}"'

    return LINK.sub(inside, section.content)


def hash_of_script(script: str) -> str:
    """Return the hash of a script, by which the security policy of the page permits this script and no other."""
    return b64encode(sha256(script.encode()).digest()).decode()
