"""What the documents take from the code: the tree, the arrows between packages, the components of each family.

`python -m tests.docs.generated` writes these blocks anew; a test compares them with the code.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

from neuroledger.cli.doctor import OPTIONAL
from neuroledger.engine.records.calibrations import calibration_in
from neuroledger.spec import registry
from tests.docs import gallery

PACKAGE = "neuroledger"
LAYERS = (
    "cli",
    "families",
    "testing",
    "report",
    "engine",
    "models",
    "stats",
    "data",
    "store",
    "spec",
    "display",
    "errors",
)
FAMILIES = ("decoding", "alignment", "behavior", "efficiency", "signals")
FIRST = "score_a_network"
"""The script of the gallery that the front page shows."""
OTHER_EXTRAS = {
    "dev": "tests, checks and this documentation",
    "hub": "networks of torchvision, timm, transformers and spaCy",
    "perf": "speed compared with other packages",
    "weights": "the trained networks of the suite `real`",
}
"""What the extras are for of which `neuroledger doctor` names no package, or several alike."""


def sentence(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0].rstrip(".").replace("`", "")


def tree(root: Path) -> str:
    """The packages and the families of the source tree, each with its sentence."""
    lines = [f"{PACKAGE}/"]

    def row(folder: Path, name: str, depth: int) -> tuple[str, str]:
        return f"{'  ' * depth}{name}/", sentence(folder / name / "__init__.py")

    package = root / "src" / PACKAGE
    rows = []
    for name in LAYERS:
        if (package / name / "__init__.py").is_file():
            rows.append(row(package, name, 1))
        if name == "families":
            rows += [row(package / name, family, 2) for family in FAMILIES]
    width = max(len(name) for name, _ in rows) + 2
    lines += [f"{name:<{width}}{words}" for name, words in rows]
    return "\n".join(lines)


def matrix(nodes: Iterable[str], imports: Mapping[str, set[str]]) -> str:
    """One row for each package, with a dot under each package that it imports."""
    names = list(nodes)
    width = max(map(len, names)) + 2
    head = " " * width + "  ".join(names)
    rows = [
        f"{name:<{width}}"
        + "  ".join(
            ("•" if other in imports[name] else " ").center(len(other))
            for other in names
        )
        for name in names
    ]
    return "\n".join(line.rstrip() for line in [head, *rows])


def imports_between(prefix: str, nodes: Iterable[str]) -> dict[str, set[str]]:
    """Which of the packages below ``prefix`` import which, imports inside functions included."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    return {
        name: {
            other
            for other in nodes
            if other != name
            and _imports(graph, f"{prefix}.{name}", f"{prefix}.{other}")
        }
        for name in nodes
    }


def _imports(graph: grimp.ImportGraph, importer: str, imported: str) -> bool:
    inside = {importer, *graph.find_descendants(importer)}
    wanted = {imported, *graph.find_descendants(imported)}
    return any(
        graph.find_modules_directly_imported_by(module) & wanted for module in inside
    )


def components(family: str) -> str:
    """The components of a family by kind, as rows of a table."""
    rows = ["| kind | registered names |", "|---|---|"]
    place = f"{PACKAGE}.families.{family}."
    for kind in registry.FOLDERS:
        names = [
            f"`{name}`"
            for name in registry.names(kind, plugins=False)
            if registry.get(kind, name).function.__module__.startswith(place)
        ]
        if names and kind != "stimuli":
            rows.append(f"| {kind} | {', '.join(names)} |")
    return "\n".join(rows)


def calibrations(root: Path) -> str:
    """What the recorded calibrations found, a row for each metric of a benchmark, the headline first."""
    rows = [
        "| benchmark | metric | runs | coverage | length | interval score | equal models differ | false ranks "
        "| ceiling covered | noiseless responses | interval |",
        "|---|---|--:|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted((root / "results" / "calibration").glob("*.json")):
        kept = calibration_in(path.read_bytes())
        if kept.reason:
            rows.append(
                f"| {kept.benchmark} | {kept.headline} |{' |' * 8} not calibrated: {kept.reason} |"
            )
        for name in sorted(
            kept.metrics, key=lambda name: (name != kept.headline, name)
        ):
            one = kept.metrics[name]
            start = f"| {kept.benchmark} | {name} | {kept.runs} |"
            if isinstance(one, str):
                rows.append(f"{start}{' |' * 7} not calibrated: {one} |")
                continue
            keys = (
                *(
                    one.coverage,
                    one.length,
                    one.interval_score,
                    one.false_positives,
                    one.false_ranks,
                ),
                *(one.ceiling, one.recovered),
            )
            cells = [
                f"{each.value:.3f} [{each.low:.3f}, {each.high:.3f}]" if each else ""
                for each in keys
            ]
            failed = (
                "**withheld**" if name == kept.headline else "**not to be relied on**"
            )
            rows.append(
                f"{start} {' | '.join(cells)} | {'shown' if one.passed else failed} |"
            )
    return "\n".join(rows)


def extras(root: Path) -> str:
    """The optional dependencies, a row for each extra: what needs it."""
    wanted: dict[str, list[str]] = {}
    for extra, purpose in OPTIONAL.values():
        known = wanted.setdefault(extra, [])
        known += [purpose] if purpose not in known else []
    words = {extra: "; ".join(purposes) for extra, purposes in wanted.items()}
    words |= OTHER_EXTRAS
    rows = ["| extra | for |", "|---|---|"]
    for extra in sorted(_optional_dependencies(root)):
        rows.append(f"| `{extra}` | {words[extra]} |")
    return "\n".join(rows)


def torch_first(root: Path) -> str:
    """The commands that install torch in the version of this project before the extra that needs it."""
    wanted = next(
        package
        for package in _optional_dependencies(root)["torch"]
        if package.startswith("torch")
    )
    lines = [
        f'pip install "{wanted}"     # or the command that pytorch.org gives for your CUDA',
        'pip install ".[torch]"',
    ]
    text = "\n".join(lines)
    return f"```bash\n{text}\n```"


def first_script() -> str:
    """The code of the script that the front page shows, and what it printed."""
    code, printed = gallery.example(FIRST).code, gallery.made()[FIRST].text
    return f"```python\n{code}\n```\n\n{fenced(printed)}"


def _optional_dependencies(root: Path) -> dict[str, list[str]]:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    found: dict[str, list[str]] = tomllib.loads(text)["project"][
        "optional-dependencies"
    ]
    return found


def fenced(text: str) -> str:
    """A block of plain text."""
    return f"```text\n{text}\n```"


def blocks(root: Path) -> dict[Path, dict[str, str]]:
    """Document → name of the block → what belongs between its two marks."""
    found = {
        root / "docs" / "architecture.md": {
            "tree": fenced(tree(root)),
            "arrows": fenced(matrix(LAYERS, imports_between(PACKAGE, LAYERS))),
            "families": fenced(
                matrix(FAMILIES, imports_between(f"{PACKAGE}.families", FAMILIES))
            ),
        },
        root / "docs" / "calibration.md": {"calibrations": calibrations(root)},
        root / "docs" / "index.md": {"first": first_script()},
        root / "docs" / "installation.md": {
            "extras": extras(root),
            "torch": torch_first(root),
        },
    }
    for family in FAMILIES:
        path = root / "src" / PACKAGE / "families" / family / "README.md"
        found[path] = {"components": components(family)}
    return found


def filled(text: str, wanted: Mapping[str, str]) -> str:
    """A document with its blocks between the marks `<!-- name -->` and `<!-- /name -->`."""
    for name, block in wanted.items():
        pattern = re.compile(rf"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
        assert pattern.search(text), f"no block {name}"
        text = pattern.sub(
            lambda _, name=name, block=block: (
                f"<!-- {name} -->\n{block}\n<!-- /{name} -->"
            ),
            text,
        )
    return text


if __name__ == "__main__":
    for document, wanted in blocks(Path(__file__).resolve().parents[2]).items():
        document.write_text(
            filled(document.read_text(encoding="utf-8"), wanted), encoding="utf-8"
        )
