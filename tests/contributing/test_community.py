"""Tests of community files: hooks exist, forms are valid on GitHub, and tools can read the citation."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.words import refusal_of

# Hooks


def test_hooks_are_commands_of_the_environment_and_none_is_downloaded(
    repository: Path,
) -> None:
    config = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text())
    assert [entry["repo"] for entry in config["repos"]] == ["local"]
    hooks = {hook["id"]: hook for hook in config["repos"][0]["hooks"]}
    for hook in hooks.values():
        assert hook["language"] in ("system", "fail")
        if hook["language"] == "system":
            program, *words = shlex.split(hook["entry"])
            assert Path(sys.executable).with_name(Path(program).name).exists(), (
                f"{program} is not installed"
            )
            assert (
                subprocess.run(
                    [
                        Path(sys.executable).with_name(Path(program).name),
                        *words,
                        "--help",
                    ],
                    capture_output=True,
                    check=False,
                    timeout=60,
                ).returncode
                == 0
            ), hook["entry"]
    data = re.compile(hooks["no-bytes-outside-dvc"]["files"])
    assert data.search("data/lab/responses.nc") and data.search(
        "data/models/a/weights.safetensors"
    )
    assert not data.search("data/lab/responses.nc.dvc") and not data.search(
        "docs/figure.png"
    )
    assert re.search(hooks["neuroledger-check"]["files"], "specs/benchmarks/a.yaml")
    assert re.search(hooks["imports"]["files"], "src/neuroledger/plot.py")


def test_changes_of_hooks_and_workflows_need_a_security_review(
    repository: Path,
) -> None:
    """The last rule that matches a path determines its owners."""
    lines = [
        line.split()
        for line in (repository / ".github" / "CODEOWNERS").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    for path in (
        "/.pre-commit-config.yaml",
        "/.ci/recompute",
        "/.github/workflows/summary.yml",
        "/SECURITY.md",
    ):
        owners = [
            words[1:] for words in lines if words[0] == "*" or path.startswith(words[0])
        ]
        assert owners[-1] == ["@neuroledger/security"], path


# Forms

FIELDS = {
    "input": {"placeholder"},
    "textarea": {"render", "placeholder", "value"},
    "dropdown": {"options"},
}
FORMS = sorted((Path(__file__).parents[2] / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize(
    "path",
    [path for path in FORMS if path.name != "config.yml"],
    ids=lambda path: path.stem,
)
def test_every_form_is_valid(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert (
        {"name", "description", "body"}
        <= set(form)
        <= {"name", "description", "body", "labels", "title"}
    )
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[\w-]+", id) for id in ids)
    labels = [field["attributes"]["label"] for field in form["body"]]
    assert len(set(labels)) == len(labels)
    for field in form["body"]:
        assert set(field) <= {"type", "id", "attributes", "validations"}
        assert (
            set(field["attributes"]) <= {"label", "description"} | FIELDS[field["type"]]
        )
        assert (
            field["type"] != "dropdown" or len(set(field["attributes"]["options"])) > 1
        )
        assert set(field.get("validations", {})) <= {"required"}


def test_commands_in_the_templates_exist(repository: Path) -> None:
    texts = [
        path.read_text()
        for path in (*FORMS, repository / ".github" / "PULL_REQUEST_TEMPLATE.md")
    ]
    commands = re.findall(r"`neuroledger ([^`]+)`", "\n".join(texts))
    assert len(commands) >= 2
    assert [refusal_of(words.split()) for words in commands] == [""] * len(commands)


# Citation and changelog

# The keys of https://github.com/citation-file-format/citation-file-format/blob/1.2.0/schema-guide.md.
TOP = {
    "abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords",
    "license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact",
    "repository-code", "title", "type", "url", "version",
}  # fmt: skip
ENTITY = {
    "address",
    "alias",
    "city",
    "country",
    "date-end",
    "date-start",
    "email",
    "fax",
    "location",
    "name",
    "orcid",
    "post-code",
    "region",
    "tel",
    "website",
}
PERSON = {
    "address",
    "affiliation",
    "alias",
    "city",
    "country",
    "email",
    "family-names",
    "fax",
    "given-names",
    "name-particle",
    "name-suffix",
    "orcid",
    "post-code",
    "region",
    "tel",
    "website",
}


def problems(cff: dict[str, Any]) -> list[str]:
    found = [
        f"no {key}"
        for key in ("authors", "cff-version", "message", "title")
        if not cff.get(key)
    ]
    found += [f"unknown {key}" for key in cff if key not in TOP]
    found += [
        f"{key} is not text"
        for key in TOP
        - {
            "authors",
            "contact",
            "identifiers",
            "keywords",
            "license",
            "preferred-citation",
            "references",
        }
        if key in cff and not isinstance(cff[key], str)
    ]
    if cff.get("cff-version") != "1.2.0":
        found.append("not version 1.2.0")
    if cff.get("type", "software") not in ("software", "dataset"):
        found.append("type")
    for author in cff.get("authors", []):
        if not (set(author) <= PERSON or ("name" in author and set(author) <= ENTITY)):
            found.append(f"author {author}")
    keywords = cff.get("keywords", [])
    if len(set(keywords)) != len(keywords) or not all(
        isinstance(word, str) for word in keywords
    ):
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


def test_the_changelog_has_the_current_version_and_existing_commands(
    repository: Path,
) -> None:
    text = (repository / "CHANGELOG.md").read_text()
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[0] == "Unreleased" and project["version"] in headings
    for words in re.findall(r"`neuroledger ([a-z]+ [^`]*)`", text):
        assert refusal_of(words.replace("[", "").replace("]", "").split()) == "", words
