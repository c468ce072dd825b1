"""Every optional package that the code imports has an extra, so that its absence is reported with one exact command."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from neuroledger.errors import EXTRAS, package_missing

# The dependencies by the name of their import, and packages that come with one of them or with an extra.
CORE = {"PIL", "bibtexparser", "filelock", "jinja2", "markupsafe", "netCDF4", "numpy", "packaging", "pandas", "pydantic",
        "pydantic_core", "rich", "ruamel", "scipy", "sklearn", "threadpoolctl", "tokenizers", "tqdm", "quantities",
        "typer", "urllib3", "xarray", "yaml"}  # fmt: skip


# NVIDIA's counter of energy, which belongs to the driver of a card: its absence is a reason of the score.
OF_A_DEVICE = {"pynvml"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (item.name.partition(".")[0] for item in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_every_optional_import_has_an_extra(repository: Path) -> None:
    known = CORE | set(sys.stdlib_module_names) | {"neuroledger"} | set(EXTRAS)
    known |= OF_A_DEVICE
    strange: dict[str, str] = {}
    for path in sorted((repository / "src").rglob("*.py")):
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if name not in known:
                strange[name] = str(path.relative_to(repository))
    assert strange == {}


def test_the_command_installs_an_extra_that_has_the_package(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for package, extra in EXTRAS.items():
        listed = " ".join(extras[extra]).lower().replace("-", "_")
        assert package.lower() in listed, f"{package} is not in the extra {extra}"
        assert f"pip install 'neuroledger[{extra}]'" in str(package_missing(package))
