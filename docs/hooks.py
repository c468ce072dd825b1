"""What the site of the documents is made of beside them: the reference from the code, notebooks, formulas, safe links."""

from __future__ import annotations

import ast
import csv
import html
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.formatters import HtmlFormatter

import neuroledger
from neuroledger.cli import VERBS, command_of
from neuroledger.engine.check import schema_texts
from neuroledger.spec import registry

TITLES = {
    "metric": "Metrics", "ceiling": "Ceilings", "paradigm": "Paradigms", "builder": "Model builders",
    "reader": "Readers", "stimuli": "Stimulus readers", "signature": "Signatures",
}  # fmt: skip
FENCE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
FORMULA = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"\$([^$\n]+)\$")
COMMENT = re.compile(r"^<!--[^\n]*?-->\n", re.MULTILINE)
TABLE = re.compile(r"^\[[^\]]+\]\((tables/\w+\.csv)\)$", re.MULTILINE)
EXAMPLES = re.compile(r"\nExamples\n-+\n(.*?)(?=\n\w[^\n]*\n-{3,}\n|\Z)", re.DOTALL)
HELD = re.compile("(<p>)?\ue000(\\d+)\ue001(</p>)?")
made: list[str] = []
"""The HTML that formulas and notebooks became, by the number of its place in the text; pages are converted without HTML."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated: the reference, each notebook, each script of the gallery, and the style sheet."""
    docs = Path(config.docs_dir)
    texts = {f"reference/{name}.md": text for name, text in reference()}
    texts |= {
        f"tutorials/{path.stem}.md": notebook(path)
        for path in sorted((docs / "tutorials").glob("*.ipynb"))
    }
    texts |= {
        f"gallery/{path.stem}.md": gallery_page(path)
        for path in sorted((docs / "gallery").glob("*.py"))
    }
    for name in ("site.css", "place.js"):
        texts[f"assets/{name}"] = (docs / name).read_text(encoding="utf-8")
    texts["assets/site.css"] += highlighting()
    for name, text in texts.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """The search opens from disk: its index becomes a script, and the script that would fetch it is replaced."""
    folder = Path(config.site_dir, "search")
    index = folder / "search_index.json"
    held = index.read_text(encoding="utf-8").replace("</", "<\\/")
    (folder / "index.js").write_text(
        f"window.searchIndex = {held};\n", encoding="utf-8"
    )
    (folder / "main.js").write_bytes(Path(config.docs_dir, "search.js").read_bytes())
    for unused in (index, folder / "worker.js"):
        unused.unlink()


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Formulas become MathML, marks of generated parts go, and a link out of the documents becomes a file's name."""
    page.meta.clear()  # a page has no settings of its own
    held: list[str] = []

    def keep(found: re.Match[str]) -> str:
        held.append(found.group())
        return f"\x00{len(held) - 1}\x00"

    folder = Path(config.docs_dir, page.file.src_uri).parent
    whole = TABLE.sub(lambda found: table(folder / found[1]) or found[0], markdown)
    text = COMMENT.sub("", FENCE.sub(keep, whole))
    documents = Path(config.docs_dir).resolve()
    here = Path(documents, page.file.src_uri).parent

    def linked(found: re.Match[str]) -> str:
        words, target = found.groups()
        path = target.split("#")[0]
        leads_to = (here / path).resolve()
        if re.match(r"\w+:|#", target) or leads_to.is_relative_to(documents):
            return found.group().replace(".ipynb)", ".md)")
        if not leads_to.is_relative_to(documents.parent):
            return words
        return f"{words} (`{leads_to.relative_to(documents.parent)}`)"

    text = LINK.sub(linked, text)
    if page.file.src_uri == "gallery/README.md":
        text = text.replace(".py)", ".md)")
    if FORMULA.search(text) or INLINE.search(text):
        text = FORMULA.sub(
            lambda found: _place(convert(found.group(1).strip(), display="block")), text
        )
        text = INLINE.sub(lambda found: _place(convert(found.group(1))), text)
    return re.sub("\x00(\\d+)\x00", lambda found: held[int(found.group(1))], text)


def _place(text: str) -> str:
    """What stands for HTML in a page until it has been converted."""
    made.append(text)
    return f"\ue000{len(made) - 1}\ue001"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """What formulas and notebooks became takes its place; `safe.py` reads it as it reads the rest."""

    def filled(found: re.Match[str]) -> str:
        before, number, after = found.groups(default="")
        content = made[int(number)] if int(number) < len(made) else ""
        return content if before and after else f"{before}{content}{after}"

    return HELD.sub(filled, html)


def notebook(path: Path) -> str:
    """A notebook as Markdown: its texts, its code, and what it displayed when it was last executed."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                alone = "".join(data["image/png"]).replace("\n", "")
                figure = f'<img alt="figure of the code above" src="data:image/png;base64,{alone}">'
                parts.append(_place(f"<p>{figure}</p>"))
            elif "text/html" in data:
                parts.append(
                    _place(f'<div class="output">{"".join(data["text/html"])}</div>')
                )
            else:
                text = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(
                    _place(f'<pre class="output">{html.escape(text.rstrip())}</pre>')
                )
    words = f"*This page is the notebook `docs/tutorials/{path.name}`, executed.*"
    return "\n\n".join([parts[0], words, *parts[1:]]) + "\n"


def table(path: Path) -> str:
    """A CSV file as a table in Markdown; empty if there is none."""
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", newline="") as lines:
        head, *rows = [[_cell(cell) for cell in row] for row in csv.reader(lines)]
    marks = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, marks, *rows])


def highlighting() -> str:
    """The colours of code, for light and dark pages."""
    light, dark = HtmlFormatter(style="friendly"), HtmlFormatter(style="github-dark")
    return "\n".join(
        [
            light.get_style_defs(".codehilite"),
            dark.get_style_defs("[data-bs-theme=dark] .codehilite"),
        ]
    )


def gallery_page(path: Path) -> str:
    """A script of the gallery as Markdown: its title and text, its code, what it printed and its picture."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, _, words = (ast.get_docstring(tree) or "").partition("\n")
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno :]).strip()
    made = json.loads((path.parent / "made.json").read_text(encoding="utf-8"))
    parts = [f"# {title.rstrip('.')}", words.strip(), f"```python\n{code}\n```"]
    if printed := made[path.stem]["text"]:
        parts.append(_place(f'<pre class="output">{html.escape(printed)}</pre>'))
    if made[path.stem]["figure"]:
        parts.append(f"![What the script draws]({path.stem}.png)")
    download = f"[`{path.name}`]({path.name}) is this script. "
    parts.append(f"{download}[Back to the gallery](README.md)")
    return "\n\n".join(parts) + "\n"


def reference() -> Iterator[tuple[str, str]]:
    """Name and text of each page of the reference."""
    yield "python", "\n".join(_python())
    yield "cli", "\n".join(_cli())
    yield "specs", "\n".join(_specs())
    for kind in registry.FOLDERS:
        yield page_of(kind), "\n".join(_components(kind))


def page_of(kind: str) -> str:
    """The name of the page that lists the components of a kind."""
    return kind if kind == "stimuli" else f"{kind}s"


def _components(kind: str) -> Iterator[str]:
    yield f"# {TITLES[kind]}\n"
    yield f"The registered components of kind `{kind}`: what `name:` may be in a spec, with every field.\n"
    for name in registry.names(kind, plugins=False):
        found = registry.get(kind, name)
        yield f"## `{name}` {{#{name}}}\n"
        yield f"{_summary(found.function)}\n"
        yield f"Version {found.version}, `{found.function.__module__}`.\n"
        fields = {
            field: one
            for field, one in inspect.signature(found.function).parameters.items()
            if one.kind is one.KEYWORD_ONLY and field not in found.asks_for
        }
        if fields:
            yield "| field | type | default | |\n|---|---|---|---|"
            words = _parameters(found.function)
            for field, one in fields.items():
                default = (
                    "required" if one.default is one.empty else f"`{one.default!r}`"
                )
                type_, meaning = _type_in_words(one.annotation), words.get(field, "")
                yield f"| `{field}` | `{type_}` | {_cell(default)} | {_cell(meaning)} |"
            yield ""


def _summary(function: Any) -> str:
    """The first paragraphs of a docstring, up to its first section."""
    text = inspect.getdoc(function) or ""
    return _plain(re.split(r"\n\w[^\n]*\n-{3,}\n", text)[0].strip())


def _parameters(function: Any) -> dict[str, str]:
    """Parameter → its words in the docstring."""
    text = inspect.getdoc(function) or ""
    section = re.search(
        r"(?:^|\n)Parameters\n-+\n(.*?)(?=\n\w[^\n]*\n-{3,}\n|\Z)", text, re.DOTALL
    )
    found: dict[str, str] = {}
    for names, words in re.findall(
        r"^(\S[^\n]*)\n((?:[ \t]+[^\n]*\n?|\n)+)",
        section[1] + "\n" if section else "",
        re.M,
    ):
        for name in re.split(r",\s*", names.split(":")[0]):
            found[name.strip()] = _plain(" ".join(words.split()))
    return found


def _plain(text: str) -> str:
    """Markdown of a docstring: roles of Sphinx and double backticks become code."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _type_in_words(annotation: Any) -> str:
    """The type of a field without what validates it; a `|` inside code needs no mark in a table."""
    return re.sub(r"Annotated\[([^,\[\]]+), [^\[\]]*\]", r"\1", str(annotation))


def _specs() -> Iterator[str]:
    yield "# Specs\n"
    yield "The fields of each kind of file under `specs/`, from the JSON Schemas that editors use.\n"
    for name, text in schema_texts(plugins=False).items():
        schema = json.loads(text)
        yield f"## {name.removesuffix('.json').capitalize()} {{#{name.removesuffix('.json')}}}\n"
        yield from _table(schema)
        for part, inner in sorted(schema.get("$defs", {}).items()):
            if "properties" in inner and not re.match(
                r"(metric|ceiling|paradigm|builder|reader)[_.]", part
            ):
                yield f"### {part} {{#{name.removesuffix('.json')}-{part}}}\n"
                if inner.get("description"):
                    yield _plain(inner["description"].split("\n\n")[0]) + "\n"
                yield from _table(inner)


def _table(schema: dict[str, Any]) -> Iterator[str]:
    yield "| field | type | default | |\n|---|---|---|---|"
    for field, one in schema.get("properties", {}).items():
        needed = field in schema.get("required", ())
        default = (
            "required"
            if needed
            else f"`{json.dumps(one['default'])}`"
            if "default" in one
            else ""
        )
        yield f"| `{field}` | {_cell(_type(one))} | {_cell(default)} | {_cell(_plain(one.get('description', '')))} |"
    yield ""


def _type(one: dict[str, Any]) -> str:
    """The type of a field of a JSON Schema in words."""
    if "$ref" in one:
        return f"`{one['$ref'].rsplit('/', 1)[-1]}`"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in one:
            types = dict.fromkeys(_type(each) for each in one[several])
            return (
                " or ".join(types)
                if len(types) < 8
                else "one of the registered components"
            )
    if "enum" in one or "const" in one:
        return ", ".join(f"`{each}`" for each in one.get("enum", [one.get("const")]))
    if one.get("type") == "array":
        return f"list of {_type(one['items'])}" if one.get("items") else "list"
    return str(one.get("type", "any"))


def _cli() -> Iterator[str]:
    yield "# Command line\n"
    for verb in VERBS:
        command = command_of(verb)
        summary, _, _ = (command.help or "").partition("\n")
        context = command.make_context(
            f"neuroledger {verb}", [], resilient_parsing=True, terminal_width=100
        )
        yield f"## `neuroledger {verb}` {{#{verb}}}\n"
        yield f"{summary}\n"
        yield f"```text\n{context.get_help().strip()}\n```\n"


def _python() -> Iterator[str]:
    yield "# Python\n"
    yield "`import neuroledger as nl` gives these names; each is loaded when it is first used.\n"
    for name in neuroledger.__all__:
        found = getattr(neuroledger, name)
        yield f"## `nl.{name}` {{#{name}}}\n"
        if inspect.ismodule(found):
            yield f"{_summary(found)}\n"
            for inner in getattr(
                importlib.import_module(found.__name__), "__all__", ()
            ):
                yield from _callable(
                    f"nl.{name}.{inner}", getattr(found, inner), level="###"
                )
        else:
            yield from _callable(f"nl.{name}", found, level="")


def _callable(name: str, found: Any, *, level: str) -> Iterator[str]:
    if level:
        yield f"{level} `{name}`\n"
    if callable(found) and not (
        inspect.isclass(found) and issubclass(found, BaseException)
    ):
        yield f"```text\n{name}{_signature(found)}\n```\n"
    yield f"{_summary(found)}\n"
    words = _parameters(found)
    if words:
        yield "\n".join(f"- `{field}`: {text}" for field, text in words.items()) + "\n"
    examples = EXAMPLES.search(inspect.getdoc(found) or "")
    if examples:
        yield f"```pycon\n{examples[1].strip()}\n```\n"


def _signature(found: Any) -> str:
    text = str(inspect.signature(found))
    return (
        re.sub(r"'([^']*)'", r"\1", re.sub(r"neuroledger\.[\w.]+\.(\w+)", r"\1", text))
        if len(text) < 900
        else "(…)"
    )
