"""Prose is plain technical English: phrases that make a reader stumble occur nowhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

# Each pattern with the plain wording that replaces it.
BANNED = {
    r"\b(is|are|was|were|be) had\b": "is obtained, is computed, download from",
    r"\b(is|are|was|were|be) told\b": "is reported, is given",
    r"\bforetell\w*|\bforetold\b": "predict",
    r"\bwhole or not at all\b": "atomically",
    r"\b(that|which) (is|are) none\b|\ba \w+ that is no\b": "is not a …",
    r"\bso many \w+ apart\b": "at the given stride",
    r"\bbe there some\b": "zero or more",
    r"\bsaid elsewhere\b": "reported elsewhere",
    r"\bmends?\b|\bmended\b": "fix",
    r"\bas good as random\b": "effectively random",
    r"\bnobody knows\b": "is unknown",
    r"\beach for itself\b": "independently",
    r"\bin earnest\b": "non-practice",
    r"\bthe how manyth\b": "index",
    r"\bgoes by that\b": "is attributed to",
    r"\bwithout looking\b": "without using the input",
    r"\bstands? on\b": "depends on, refers to",
    r"\bis no (learner|decoder|model|number|metric|reader)\b": "is not a …",
    r"'s manners\b": "API",
    r"\bfit_watching\b": "fit with a validation set",
    r"\banswers? to Python\b": "can be called from Python",
}
PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in BANNED), re.IGNORECASE)
LOOKED_AT = ("docs", "src", "README.md", "specs", "CONTRIBUTING.md", "SECURITY.md")
PUBLISHED = ("specs/references.bib",)


def test_no_phrase_makes_a_reader_stumble(repository: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", *LOOKED_AT],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    found = []
    for name in listed:
        path = repository / name
        if (
            name in PUBLISHED
            or path.suffix not in {".py", ".md", ".yaml", ".json", ".j2"}
            or not path.is_file()
        ):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = PATTERN.search(line)
            if match and not line.lstrip().startswith(("quote:", "bibtex")):
                found.append(f"{name}:{number}: {match.group(0)!r}")
    assert not found, "\n".join(found[:40])
