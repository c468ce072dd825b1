"""Static pages of everything that was scored: they open from disk, ask no network for anything, and escape all text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import BaseModel

from neuroledger.display import visible
from neuroledger.engine.record import Record, read_all
from neuroledger.errors import RequestError
from neuroledger.report.board import FORMATS, Leaderboard, describe, number
from neuroledger.report.pages import Page, Picture, World, pages, world
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import replacing, sweep, write_json, write_text

__all__ = ["build_site", "render_alone", "rendered"]

ASSETS: Final = ("style.css", "site.js")
MANIFEST: Final = "pages.json"
UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def build_site(
    catalog: Catalog, suite: str, out: Path, *, records: Sequence[Record] | None = None
) -> list[Path]:
    """Write the site of a suite into ``out`` and return the paths of its pages.

    The same records and specs give the same bytes. Every file is written atomically; pages that an
    earlier build wrote and that are no longer part of the site are removed, and nothing else is.

    Raises
    ------
    RequestError
        ``out`` is a file, or a folder with other things in it.
    DataError
        A record cannot be read, or the disk is full or read-only.
    """
    known = _known(out)
    found = list(read_all(catalog.root / "results" / "records")) if records is None else records
    of = world(catalog, suite, found)
    written = dict(_contents(of))
    # First, so that a build that is killed is known to be one.
    write_json(out / MANIFEST, sorted(known | set(written)))
    for name, content in written.items():
        if isinstance(content, str):
            write_text(out / name, content)
        else:
            with replacing(out / name) as temporary:
                temporary.write_bytes(content)
    for name in known - set(written):
        (out / name).unlink(missing_ok=True)
    write_json(out / MANIFEST, sorted(written))
    return [out / name for name in sorted(written)]


def _contents(of: World) -> Iterator[tuple[str, str | bytes]]:
    for page in pages(of):
        yield page if isinstance(page, Picture) else (page.path, rendered(page, of.main))
    for name in ASSETS:
        yield name, _template(name)
    for suffix, kind in (("csv", "csv"), ("json", "json"), ("tex", "latex"), ("md", "markdown")):
        for board in of.boards:
            yield f"{board.suite}.{suffix}", FORMATS[kind](board)


def rendered(page: Page, main: Leaderboard) -> str:
    """The HTML of a page of the site whose suite is that of the board ``main``."""
    up = "../" * page.path.count("/")
    return _environment().get_template(page.template).render(main=main, up=up, **page.context)


def render_alone(template: str, **context: Any) -> str:
    """A page of its own, outside a site: its style is part of it."""
    return _environment().get_template(template).render(style=Markup(_template("style.css")), **context)


def _known(out: Path) -> set[str]:
    """The files of an earlier build."""
    if out.exists() and not out.is_dir():
        raise RequestError(f"{out} is a file; name a folder for the site")
    sweep(out)
    manifest = out / MANIFEST
    if manifest.is_file():
        names = json.loads(manifest.read_text(encoding="utf-8"))
        return {
            str(name)
            for name in names
            if ".." not in Path(str(name)).parts and not Path(str(name)).is_absolute()
        }
    if out.is_dir() and any(out.iterdir()):
        raise RequestError(f"{out} holds other things than a site; name a folder that is empty or new")
    return set()


def _template(name: str) -> str:
    return (files("neuroledger.report") / "site" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        finalize=lambda said: visible(said) if type(said) is str else said,  # markup is of the templates
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "number": number,
        "tick": lambda value: f"{value:,.10g}",
        "json": _json,
        "describe": describe,
        "plain": _plain,
        "bytes": _bytes,
        "host": lambda url: urlsplit(str(url)).netloc,
        "metrics": lambda record: list(record.scores.items()),
        "counts": lambda n: ", ".join(_counted(name, count) for name, count in n.items()),
        "record_text": _record_text,
        "command": _command,
        "prose": _prose,
    }
    environment.filters.update(filters)
    return environment


def _prose(text: str) -> Markup:
    """Words of a spec, what stands between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _counted(name: str, count: float) -> str:
    if count != int(count):
        return f"{name} {count:.3g}"
    plural = name if count == 1 or name.endswith(("s", "i")) else f"{name}s"
    return f"{count:,g} {plural}"


def _plain(value: Any) -> str:
    """A component or mapping in one line: its name, then its parameters."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", by_alias=True)
    if isinstance(value, dict):
        name = str(value.get("name", ""))
        rest = ", ".join(
            f"{key}: {_plain(held)}" for key, held in value.items() if key != "name" and held is not None
        )
        return f"{name} ({rest})" if name and rest else name or rest
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bytes(size: float) -> str:
    for unit in UNITS[:-1]:
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} {UNITS[-1]}"


def _json(value: Any) -> Markup:
    """Plain data inside a script element: no character of it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _command(record: Record) -> str:
    """The command that computes the score again."""
    seed = record.request.get("seed", 0)
    return f"neuroledger score {record.model} {record.benchmark} --seed {seed}"


def _record_text(record: Record) -> str:
    """What determined a score."""
    held = {
        "record": record.id,
        "status": record.status,
        "error": record.error,
        "request": record.request,
        "inputs": record.inputs,
        "environment": record.environment,
    }
    return json.dumps(held, indent=2, sort_keys=True, ensure_ascii=False)
