"""Pages are text: raw HTML in them is shown as text, and a page of the site has only plain elements and attributes."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from typing import Any, Final, cast
from urllib.parse import urlsplit

from jinja2 import Environment
from markdown import Extension, Markdown
from markupsafe import Markup
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink

TEXT: Final = {
    "a", "abbr", "b", "blockquote", "br", "caption", "code", "dd", "del", "div", "dl", "dt", "em", "h1", "h2", "h3",
    "h4", "h5", "h6", "hr", "i", "img", "li", "ol", "p", "pre", "s", "small", "span", "strong", "sub", "sup", "table",
    "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
}  # fmt: skip
FORMULAS: Final = {
    "math", "menclose", "mfenced", "mfrac", "mi", "mn", "mo", "mover", "mpadded", "mphantom", "mroot", "mrow",
    "mspace", "msqrt", "mstyle", "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover",
}  # fmt: skip
VOID: Final = frozenset({"br", "hr", "img"})
UNREAD: Final = frozenset({"script", "style", "template", "textarea", "title"})
"""Elements whose content is no text of the page."""
ATTRIBUTES: Final = {
    "a": {"href", "title"}, "img": {"src", "alt", "title", "width", "height"}, "ol": {"start"},
    "td": {"colspan", "rowspan"}, "th": {"colspan", "rowspan", "scope"},
}  # fmt: skip
OF_FORMULAS: Final = {
    "accent", "columnalign", "columnspacing", "display", "displaystyle", "fence", "form", "height", "linethickness",
    "lspace", "mathvariant", "maxsize", "minsize", "notation", "rowspacing", "rspace", "scriptlevel", "separator",
    "stretchy", "symmetric", "width", "xmlns",
}  # fmt: skip
CLASS: Final = re.compile(
    r"(?:codehilite|dataframe|headerlink|number|output|language-[\w+-]+)(?: output)?|[a-z][a-z0-9]?",
    re.ASCII,
)
"""The classes of the pages; those of one or two letters are the tokens of highlighted code."""
ALIGNED: Final = re.compile(r"text-align: ?(?:left|right|center);?")
IMAGE_IN_PAGE: Final = "data:image/png;base64,"
LINKS: Final = frozenset({"", "http", "https", "mailto"})
POLICY: Final = (
    "default-src 'none'; img-src 'self' file: data:; font-src 'self' file:; style-src 'self' file: 'unsafe-inline'; "
    "script-src 'self' file:; base-uri 'none'; form-action 'none'"
)


class _Escaped(Extension):
    """Markdown without raw HTML: what looks like an element is text."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (the name is Markdown's)
        """Take the two steps away that pass raw HTML on."""
        md.preprocessors.deregister("html_block")
        md.inlinePatterns.deregister("html")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Every page is converted without raw HTML, and the theme's pages state what a browser may load."""
    cast("list[Any]", config.markdown_extensions).append(_Escaped())
    config.extra["policy"] = POLICY
    return config


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """Titles of pages are text in every template; MkDocs itself does not escape them."""
    env.autoescape = True
    return env


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's content, of plain elements alone; its titles are text, which the templates escape."""
    for item in page.toc:
        _as_text(item)
    page.title = _text_of(str(page.title))
    return Markup(plain(html))


def _as_text(item: AnchorLink) -> None:
    item.title = _text_of(item.title)
    for child in item.children:
        _as_text(child)


def _text_of(title: str) -> str:
    """A title, which Markdown gives as HTML, as text."""
    return html.unescape(re.sub(r"<[^<>]*>", "", title))


def plain(content: str) -> str:
    """HTML of the same text, written anew: plain elements and attributes only, each element closed, all text escaped."""
    writer = _Plain()
    writer.feed(content)
    writer.close()
    return writer.written()


class _Plain(HTMLParser):
    """Writes what it reads. Nothing of the source is copied as it is, so that no reading of it matters but this one."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.open: list[str] = []
        self.unread = 0

    def written(self) -> str:
        """Everything so far, with every open element closed."""
        return "".join([*self.parts, *(f"</{tag}>" for tag in reversed(self.open))])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Write an allowed element with its allowed attributes."""
        if tag in UNREAD:
            self.unread += 1
        if self.unread or tag not in TEXT | FORMULAS:
            return
        kept = {
            name: value or ""
            for name, value in attrs
            if _allowed(tag, name, value or "")
        }
        words = "".join(
            f' {name}="{html.escape(value)}"' for name, value in kept.items()
        )
        self.parts.append(f"<{tag}{words}>")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element that this content opened, and what is open in it."""
        if tag in UNREAD:
            self.unread = max(0, self.unread - 1)
        if self.unread or tag not in self.open:
            return
        while (last := self.open.pop()) != tag:
            self.parts.append(f"</{last}>")
        self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        """Write text."""
        if not self.unread:
            self.parts.append(html.escape(data, quote=False))


def _allowed(tag: str, name: str, value: str) -> bool:
    """Whether an attribute of an element is plain: no program, no foreign image, no part of the site's own design."""
    if name == "id":
        return True
    if name == "class":
        return CLASS.fullmatch(value) is not None
    if name == "style":
        return ALIGNED.fullmatch(value) is not None
    if name == "href":
        return tag == "a" and _scheme(value) in LINKS
    if name == "src":
        return tag == "img" and (value.startswith(IMAGE_IN_PAGE) or _inside(value))
    return name in (OF_FORMULAS if tag in FORMULAS else ATTRIBUTES.get(tag, ()))


def _scheme(address: str) -> str | None:
    """The scheme of an address as a browser reads it, without spaces and control characters; None if it has no form."""
    shown = "".join(character for character in address if character > " ")
    try:
        return urlsplit(shown).scheme.lower() if ":" in shown.split("/")[0] else ""
    except ValueError:
        return None


def _inside(address: str) -> bool:
    """Whether an address is a path below or beside the page."""
    shown = "".join(character for character in address if character > " ").replace(
        "\\", "/"
    )
    return _scheme(address) == "" and not shown.startswith("/")
