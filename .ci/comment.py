"""Write a summary as a comment on the open pull requests whose head is a commit; a comment of an earlier run is replaced.

Usage: ``comment.py FILE COMMIT``, with ``GITHUB_REPOSITORY`` and what ``gh`` needs in the environment. The file is data.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "<!-- neuroledger summary -->"
OURS = "github-actions[bot]"
MOST = 65_536  # characters of a comment on GitHub


def main(arguments: list[str]) -> int:
    """Exit code 0 if a comment was written, or if no open pull request has this head any more."""
    if len(arguments) != 2 or not re.fullmatch(r"[0-9a-f]{40}", arguments[1]):
        sys.stderr.write(
            "usage: comment.py FILE COMMIT, where the commit has 40 hexadecimal digits\n"
        )
        return 2
    file, commit = Path(arguments[0]), arguments[1]
    body = f"{MARK}\n{file.read_text(encoding='utf-8')}\nOf commit {commit}.\n"
    if len(body) > MOST:
        sys.stderr.write(
            f"{file} has {len(body):,} characters; a comment has at most {MOST:,}\n"
        )
        return 1
    repository = os.environ["GITHUB_REPOSITORY"]
    # Which pull request it is comes from GitHub: the proposal has no say in it.
    for pull in listed(f"repos/{repository}/pulls?state=open&per_page=100"):
        if pull["head"]["sha"] == commit:
            write(repository, int(pull["number"]), body)
    return 0


def write(repository: str, number: int, body: str) -> None:
    """One comment on a pull request, whichever number of runs there were."""
    for comment in listed(f"repos/{repository}/issues/{number}/comments?per_page=100"):
        if comment["user"]["login"] == OURS and comment["body"].startswith(MARK):
            place, method = (
                f"repos/{repository}/issues/comments/{int(comment['id'])}",
                "PATCH",
            )
            break
    else:
        place, method = f"repos/{repository}/issues/{number}/comments", "POST"
    gh(
        "--silent",
        "--method",
        method,
        "--input",
        "-",
        place,
        given=json.dumps({"body": body}),
    )
    sys.stdout.write(f"{method} comment on pull request {number}\n")


def listed(place: str) -> Iterator[Any]:
    """The entries of all pages, which ``gh`` writes one after the other."""
    text, decoder = gh("--paginate", place).strip(), json.JSONDecoder()
    while text:
        page, end = decoder.raw_decode(text)
        yield from page
        text = text[end:].lstrip()


def gh(*words: str, given: str = "") -> str:
    """What GitHub's API answers."""
    done = subprocess.run(
        ["gh", "api", *words],
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
