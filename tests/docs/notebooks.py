"""The tutorials: notebooks that are executed, and kept with what they displayed.

`python -m tests.docs.notebooks` executes them again and keeps their outputs; a test executes them and keeps nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parents[2]
TUTORIALS = HERE / "docs" / "tutorials"
# Of outputs: what differs from run to run and teaches nothing.
PASSING = re.compile(r"/tmp/[\w./-]+/|[0-9a-f]{40}")


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook after its execution in the repository's folder; a cell that raises is an error."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(HERE)}},
    )
    # Progress is no part of the stored outputs: it goes to the standard error stream, which is left out.
    client.execute(env={**os.environ, "NEUROLEDGER_DISPLAY": "plain"})
    return notebook


def written(path: Path) -> None:
    """Execute the notebook and keep its outputs, without times, counts and places of this machine."""
    notebook = executed(path)
    notebook.metadata = {
        "kernelspec": {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
    }
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for one in cell.outputs:
                one.pop("execution_count", None)
                if one.output_type == "execute_result":
                    one.execution_count = None
                if "text" in one:
                    one.text = PASSING.sub("…", one.text)
    path.write_text(nbformat.writes(notebook, version=4) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for each in sorted(TUTORIALS.glob("*.ipynb")):
        written(each)
