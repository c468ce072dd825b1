"""Write the path of each file that a proposal changes, and of each setting of DVC that it removes, ended by a zero byte.

Usage: ``touched.py BASE-COMMIT PROPOSAL``. The commits and the working tree are read as the review reads them: what the
proposal configures for git, and its replacements and grafts of objects, do not decide what has changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from neuroledger.errors import NeuroLedgerError
from neuroledger.store.git_trees import committed, fork_point, working


def main(arguments: list[str]) -> int:
    """Exit code 0 if all changes are known."""
    since, folder = arguments
    root = Path(folder).resolve()
    try:
        base, head = committed(root, fork_point(root, since)), committed(root, "HEAD")
    except NeuroLedgerError as error:
        sys.stderr.write(f"what the proposal changes is not known: {error}\n")
        return 1
    touched = set[str]()
    for tree in (head, working(head)):
        for path in {*base.entries, *tree.entries}:
            stays = path in tree.entries or path.startswith(".dvc/")
            if stays and base.entries.get(path) != tree.entries.get(path):
                touched.add(path)
    sys.stdout.buffer.writelines(
        f"{path}\0".encode(errors="surrogateescape") for path in sorted(touched)
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
