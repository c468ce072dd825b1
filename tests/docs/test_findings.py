"""docs/findings.md is the table of codes, and the program uses all of them; ``python -m tests.docs.test_findings``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from neuroledger.errors import CODES, Finding
from tools.long_tables import separated

ROOT = Path(__file__).parents[2]
HEAD = """# Findings

`check`, `validate`, `check --since`, `verify` and `doctor` report findings. Each finding has a code, a severity, a place,
what is wrong there, and how to fix it. With `--json` all of these are fields. A code never changes its meaning, so that
programs can rely on it.

| severity | meaning |
|---|---|
| `error` | refused: exit code 1, or 3 in a review |
| `warning` | a person must look at it: exit code 1 in a review |
| `note` | for information |
| `ok` | as it should be |

| code | meaning |
|---|---|
"""


def files() -> dict[str, str]:
    rows = (f"| `{code}` | {meaning} |\n" for code, meaning in sorted(CODES.items()))
    return separated("docs/findings.md", HEAD + "".join(rows))


def unused() -> set[str]:
    """The codes that are no text of the program; those of expectations are composed from the name of the expectation.

    Only modules that contain a code that was not found yet are parsed; a code in a comment or inside another text is
    not used.
    """
    missing = {code for code in CODES if not code.startswith("expectation.")}
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path.name == "errors.py" or not any(code in source for code in missing):
            continue
        constants = (
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant)
        )
        missing -= {node.value for node in constants if isinstance(node.value, str)}
    return missing


def test_the_page_lists_every_code() -> None:
    for name, text in files().items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, (
            "run `python -m tests.docs.test_findings`"
        )


def test_every_documented_code_is_used() -> None:
    assert not unused()


def test_a_finding_without_a_documented_code_cannot_be_made() -> None:
    with pytest.raises(KeyError):
        Finding("no.such-code", "error", "x", "y")


if __name__ == "__main__":
    for name, text in files().items():
        (ROOT / name).write_text(text, encoding="utf-8")
