"""The gallery: short scripts, each stored with the text and the picture that it made when it was last executed.

``python -m tests.docs.gallery [NAME …]`` executes the scripts (all, or the named ones) and stores what they made in
``docs/gallery``. A script without a figure has a picture of its text.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import io
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parents[2]
FOLDER = HERE / "docs" / "gallery"
MADE = FOLDER / "made.json"
INDEX = FOLDER / "README.md"
WIDE = 560
COLOURS = (32, 16, 8, 4)
LARGEST = 20_000
SHOWN_LINES, SHOWN_COLUMNS = 9, 34
GROUPS = {
    "Scores": ("score_", "stored_", "replace_", "why_", "own_", "evaluate_"),
    "Models and layers": ("layer_", "compare_", "leaderboard_", "ranks_", "controls_"),
    "Responses and ceilings": ("ceiling_", "rdm_", "noise_", "time_", "metrics_"),
    "Behaviour": ("error_", "threshold_", "choice_"),
    "Decoding": ("decode_", "confusion_", "learning_", "patterns_", "windows_"),
    "Costs": ("cost_", "pareto_", "same_"),
    "Data and records": ("find_", "load_", "start_", "check_", "record_", "export_"),
}
"""Heading of the index → how the names of its scripts begin."""


class Example(NamedTuple):
    """A script: its name, the title and text of its docstring, and its code."""

    name: str
    title: str
    words: str
    code: str

    @property
    def sha256(self) -> str:
        """The SHA-256 of the whole source."""
        return hashlib.sha256(source_of(self.name).read_bytes()).hexdigest()


class Made(NamedTuple):
    """What a script made: of which source, the text that it printed, and whether it drew a figure."""

    sha256: str
    text: str
    figure: bool


def source_of(name: str) -> Path:
    """The file of a script."""
    return FOLDER / f"{name}.py"


def examples() -> list[Example]:
    """Every script of the gallery, by name."""
    return [example(path.stem) for path in sorted(FOLDER.glob("*.py"))]


def example(name: str) -> Example:
    """Read one script."""
    text = source_of(name).read_text(encoding="utf-8")
    tree = ast.parse(text)
    title, _, words = (ast.get_docstring(tree) or "").partition("\n")
    code = "\n".join(text.splitlines()[tree.body[0].end_lineno :])
    return Example(name, title.rstrip("."), words.strip(), code.strip())


def made(path: Path = MADE) -> dict[str, Made]:
    """What each script made when it was last executed."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: Made(**fields) for name, fields in held.items()}


def executed(one: Example) -> tuple[Made, bytes]:
    """Execute a script in a namespace of its own: what it makes, and its picture as PNG.

    The figure is that of pyplot, or of the axes that the last line of the script returns, as in a notebook.
    """
    import matplotlib.pyplot as plt

    tree = ast.parse(source_of(one.name).read_text(encoding="utf-8"))
    *_, last = tree.body
    names: dict[str, Any] = {"__name__": f"gallery.{one.name}"}
    shown: Any = None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            tree.body.pop()
            exec(compile(tree, one.name, "exec"), names)
            shown = eval(compile(ast.Expression(last.value), one.name, "eval"), names)
        else:
            exec(compile(tree, one.name, "exec"), names)
    text = printed.getvalue().rstrip()
    figure = _figure_of(shown)
    drawn = figure is not None
    picture = _png(figure) if figure else _png(_text_figure(text), bounds=None)
    plt.close("all")
    return Made(one.sha256, text, drawn), picture


def _figure_of(shown: Any) -> Figure | None:
    """The figure of axes or of panels, or the open figure of pyplot."""
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes

    first = shown[0] if isinstance(shown, Sequence) and shown else shown
    if isinstance(first, Axes):
        return first.get_figure(root=True)
    return plt.gcf() if plt.get_fignums() else None


def _text_figure(text: str) -> Figure:
    """A figure of the first lines of a text."""
    from matplotlib.figure import Figure

    lines = [line[:SHOWN_COLUMNS] for line in text.splitlines()[:SHOWN_LINES]]
    figure = Figure(figsize=(6.4, 4.2))
    figure.text(0.03, 0.95, "\n".join(lines), family="monospace", fontsize=19, va="top")
    return figure


def _png(figure: Figure, bounds: str | None = "tight") -> bytes:
    """A figure, ``WIDE`` pixels wide, in as many colours as ``LARGEST`` allows."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100, bbox_inches=bounds, facecolor="white")
    image = Image.open(drawn).convert("RGB")
    height = round(image.height * WIDE / image.width)
    small = image.resize((WIDE, height), Image.Resampling.LANCZOS)
    for colours in COLOURS:
        written = io.BytesIO()
        reduced = small.quantize(colours, dither=Image.Dither.NONE)
        reduced.save(written, "PNG", optimize=True)
        if written.tell() < LARGEST:
            break
    return written.getvalue()


def index() -> str:
    """The page of thumbnails, by group."""
    parts = [
        "# Gallery",
        "Each script shows one thing, runs without a network on the data of the repository, and was executed for its page.",
    ]
    for heading, starts in GROUPS.items():
        found = [one for one in examples() if one.name.startswith(starts)]
        parts.append(f"## {heading}")
        parts.append(
            "\n".join(
                f"- [![]({one.name}.png) {one.title}]({one.name}.py)" for one in found
            )
        )
    return "\n\n".join(parts) + "\n"


def write(names: Sequence[str], folder: Path) -> None:
    """Execute scripts (all if none is named) and write what they make into a folder."""
    known = made(folder / MADE.name)
    kept = {name: each for name, each in known.items() if source_of(name).is_file()}
    for one in examples():
        if names and one.name not in names:
            continue
        start = time.process_time()
        kept[one.name], picture = executed(one)
        (folder / f"{one.name}.png").write_bytes(picture)
        spent = time.process_time() - start
        sys.stdout.write(f"{one.name}: {spent:.1f} s, {len(picture):,} bytes\n")
    plain = {name: each._asdict() for name, each in sorted(kept.items())}
    text = json.dumps(plain, indent=1, ensure_ascii=False)
    (folder / MADE.name).write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    """Read the command line; without ``--into``, the index is written too."""
    import matplotlib

    matplotlib.use("Agg")
    parser = argparse.ArgumentParser(prog="python -m tests.docs.gallery")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    asked = parser.parse_args()
    write(asked.names, asked.into)
    if asked.into == FOLDER:
        INDEX.write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main()
