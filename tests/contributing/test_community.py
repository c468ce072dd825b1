"""Tests of community files: hooks run as declared, forms are valid on GitHub, and tools can read the citation."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contributing.repository import remote
from tests.engine.lab import Lab
from tests.hostile.proposals.corpus import RIDGE, git, write

# Hooks, as pre-commit runs those of `repo: local`

HOOK_KEYS = {"id", "name", "entry", "language", "types_or", "files", "pass_filenames"}


def hooks(repository: Path) -> list[dict[str, Any]]:
    plain = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text())
    assert set(plain) == {"repos"} and [entry["repo"] for entry in plain["repos"]] == ["local"], (
        "no hook is downloaded"
    )
    return list(plain["repos"][0]["hooks"])


def failing(root: Path, repository: Path, files: list[str]) -> Iterator[str]:
    """The ids of the hooks that refuse a commit of these files."""
    for hook in hooks(repository):
        assert set(hook) <= HOOK_KEYS, hook
        kinds = {"python": ".py", "pyi": ".pyi"}
        endings = tuple(kinds[kind] for kind in hook.get("types_or", ()))
        matched = [
            name
            for name in files
            if re.search(hook.get("files", ""), name) and (not endings or name.endswith(endings))
        ]
        if not matched:
            continue
        if hook["language"] == "fail":
            yield hook["id"]
            continue
        assert hook["language"] == "system"
        words = shlex.split(hook["entry"]) + (matched if hook.get("pass_filenames", True) else [])
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False, timeout=120)
        assert "Traceback" not in done.stderr
        if done.returncode:
            yield hook["id"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Lab:
    place = tmp_path_factory.mktemp("hooks")
    (place / "base").mkdir()
    return remote(place, repository).clone(place / "clone")


@pytest.mark.slow
def test_a_good_commit_passes_every_hook(clone: Lab, repository: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=clone.root, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.split() if not name.startswith(".ci/")]
    assert any(name.startswith("specs/") for name in files)
    assert not list(failing(clone.root, repository, files))


@pytest.mark.parametrize(
    ("path", "text", "hook"),
    [
        ("tests/unused.py", "import os\n", "ruff-check"),
        ("tests/ugly.py", "X=( 1 )\n", "ruff-format"),
        (f"specs/benchmarks/{RIDGE}.yaml", "id: other\n", "neuroledger-check"),
        ("src/helper.py", "", "imports"),
        ("data/lab/responses.nc", None, "no-bytes-outside-dvc"),
        ("data/models/a/weights.safetensors", None, "no-bytes-outside-dvc"),
    ],
)
@pytest.mark.slow
def test_each_hook_refuses_its_case(
    clone: Lab, repository: Path, path: str, text: str | None, hook: str
) -> None:
    if text is not None:
        write(clone, path, text)
    if hook == "imports":
        write(
            clone, "tests/helper.py", "from tests.test_small import test_small\n\n__all__ = ['test_small']\n"
        )
    try:
        assert list(failing(clone.root, repository, [path])) == [hook]
    finally:
        git(clone.root, "checkout", "--quiet", "--", "tests", "specs")
        git(clone.root, "clean", "--quiet", "-f", "-d", "tests", "src")


def test_every_hook_is_tested(repository: Path) -> None:
    tested = {"ruff-check", "ruff-format", "neuroledger-check", "imports", "no-bytes-outside-dvc"}
    assert {hook["id"] for hook in hooks(repository)} == tested
    for hook in hooks(repository):
        if hook["language"] == "system":
            program = shlex.split(hook["entry"])[0]
            assert Path(sys.executable).with_name(Path(program).name).exists(), (
                f"{program} is not in the environment"
            )


def test_changes_of_hooks_and_workflows_need_a_security_review(repository: Path) -> None:
    """The last rule that matches a path determines its owners."""
    lines = [
        line.split() for line in (repository / ".github" / "CODEOWNERS").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]  # fmt: skip
    for path in (
        "/.pre-commit-config.yaml",
        "/.ci/recompute",
        "/.github/workflows/summary.yml",
        "/SECURITY.md",
    ):
        owners = [words[1:] for words in lines if words[0] == "*" or path.startswith(words[0])]
        assert owners[-1] == ["@neuroledger/security"], path


# Forms

FIELDS = {"input": {"placeholder"}, "textarea": {"render", "placeholder", "value"}, "dropdown": {"options"}}
FORMS = sorted((Path(__file__).parents[2] / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize(
    "path", [path for path in FORMS if path.name != "config.yml"], ids=lambda path: path.stem
)
def test_every_form_is_valid(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form) <= {"name", "description", "body", "labels", "title"}
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[\w-]+", id) for id in ids)
    labels = [field["attributes"]["label"] for field in form["body"]]
    assert len(set(labels)) == len(labels)
    for field in form["body"]:
        assert set(field) <= {"type", "id", "attributes", "validations"}
        assert set(field["attributes"]) <= {"label", "description"} | FIELDS[field["type"]]
        assert field["type"] != "dropdown" or len(set(field["attributes"]["options"])) > 1
        assert set(field.get("validations", {})) <= {"required"}


def test_commands_in_the_templates_exist(repository: Path) -> None:
    from neuroledger.cli import _parser

    texts = [path.read_text() for path in (*FORMS, repository / ".github" / "PULL_REQUEST_TEMPLATE.md")]
    commands = re.findall(r"`neuroledger ([^`]+)`", "\n".join(texts))
    assert len(commands) >= 2
    for words in commands:
        _parser().parse_args(words.split())


# Citation and changelog

# The keys of https://github.com/citation-file-format/citation-file-format/blob/1.2.0/schema-guide.md.
TOP = {
    "abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords",
    "license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact",
    "repository-code", "title", "type", "url", "version",
}  # fmt: skip
ENTITY = {
    "address", "alias", "city", "country", "date-end", "date-start", "email", "fax", "location", "name", "orcid",
    "post-code", "region", "tel", "website",
}  # fmt: skip
PERSON = {
    "address", "affiliation", "alias", "city", "country", "email", "family-names", "fax", "given-names", "name-particle",
    "name-suffix", "orcid", "post-code", "region", "tel", "website",
}  # fmt: skip


def problems(cff: dict[str, Any]) -> list[str]:
    found = [f"no {key}" for key in ("authors", "cff-version", "message", "title") if not cff.get(key)]
    found += [f"unknown {key}" for key in cff if key not in TOP]
    found += [f"{key} is not text" for key in TOP - {"authors", "contact", "identifiers", "keywords", "license",
              "preferred-citation", "references"} if key in cff and not isinstance(cff[key], str)]  # fmt: skip
    if cff.get("cff-version") != "1.2.0":
        found.append("not version 1.2.0")
    if cff.get("type", "software") not in ("software", "dataset"):
        found.append("type")
    for author in cff.get("authors", []):
        if not (set(author) <= PERSON or ("name" in author and set(author) <= ENTITY)):
            found.append(f"author {author}")
    keywords = cff.get("keywords", [])
    if len(set(keywords)) != len(keywords) or not all(isinstance(word, str) for word in keywords):
        found.append("keywords")
    return found


def test_the_citation_is_valid(repository: Path) -> None:
    cff = yaml.safe_load((repository / "CITATION.cff").read_text())
    assert problems(cff) == []
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert (cff["version"], cff["license"]) == (project["version"], project["license"])
    for change in (
        {"authors": []},
        {"titel": "x"},
        {"cff-version": 1.2},
        {"type": "book"},
        {"authors": [{"who": "x"}]},
    ):
        assert problems(cff | change), change


def test_the_changelog_has_the_current_version_and_existing_commands(repository: Path) -> None:
    from neuroledger.cli import _parser

    text = (repository / "CHANGELOG.md").read_text()
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[0] == "Unreleased" and project["version"] in headings
    for words in re.findall(r"`neuroledger ([a-z]+ [^`]*)`", text):
        _parser().parse_args(words.replace("[", "").replace("]", "").split())
