"""What the documents show is what there is: YAML loads, code runs, verbs, links and ids exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from neuroledger.cli import VERBS
from neuroledger.engine.record import read_all
from neuroledger.errors import SpecError
from neuroledger.report.board import leaderboard_text
from neuroledger.report.front import front_picture
from neuroledger.report.table import boards_of
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.document import parse
from neuroledger.spec.load import read_params, spec_of
from tests.cli.words import options_of
from tests.docs import generated

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HERE = Path(__file__).resolve().parents[2]
PICTURE = "docs/front.svg"
DOCUMENTS = [
    str(path.relative_to(HERE))
    for path in (
        HERE / "README.md",
        HERE / "CONTRIBUTING.md",
        *sorted((HERE / "docs").rglob("*.md")),
        *sorted((HERE / "src").rglob("README.md")),
    )
]


def blocks(path: Path, language: str) -> list[str]:
    return [
        text for found, text in BLOCK.findall(path.read_text()) if found == language
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_spec_shown_is_valid(repository: Path, name: str) -> None:
    for text in blocks(repository / name, "yaml"):
        line = re.match(
            r"# yaml-language-server: \$schema=\.\./schema/(\w+)\.json", text
        )
        if line is None:
            continue
        try:
            spec_of(parse(text, name), f"{line.group(1)}s")
        except SpecError as error:
            pytest.fail(str(error))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_verb_and_option_shown_exists(repository: Path, name: str) -> None:
    for text in blocks(repository / name, "bash"):
        for line in text.splitlines():
            found = re.match(r"^(?:\S*/)?neuroledger (\w+)(.*?)(?:#.*)?$", line.strip())
            if found:
                verb = found.group(1)
                assert verb in VERBS, f"{name}: no verb {verb!r}"
                known = {name for one in options_of(verb) for name in one.opts}
                for option in re.findall(r"(--[\w-]+)", found.group(2)):
                    assert option in known, f"{name}: {verb} has no option {option}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_somewhere(repository: Path, name: str) -> None:
    folder = (repository / name).parent
    for target in re.findall(r"\]\(([^)#\s]+)", (repository / name).read_text()):
        # The pages of the reference exist in the site alone, whose links have a test of their own.
        if not target.startswith(("http", "reference/")):
            assert (folder / target).exists(), f"{name}: {target}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_python_example_compiles(repository: Path, name: str) -> None:
    for text in blocks(repository / name, "python"):
        compile(text, name, "exec")


@pytest.mark.parametrize(
    ("path", "wanted"),
    generated.blocks(HERE).items(),
    ids=lambda one: getattr(one, "stem", ""),
)
def test_what_comes_from_the_code_is_as_in_the_code(
    path: Path, wanted: dict[str, str]
) -> None:
    """Written anew by `python -m tests.docs.generated`."""
    text = path.read_text(encoding="utf-8")
    assert generated.filled(text, wanted) == text


def test_every_module_that_the_architecture_names_exists(repository: Path) -> None:
    text = (repository / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(
        re.findall(
            r"`((?:spec|store|data|stats|models|engine|report)\.[a-z_]+)[.`]", text
        )
    )
    assert len(named) >= 8
    for module in named:
        place = repository / "src" / "neuroledger" / module.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").is_file(), module


def test_every_family_and_page_is_linked(repository: Path) -> None:
    pages = {
        name: (repository / name).read_text(encoding="utf-8") for name in DOCUMENTS
    }
    linked = {
        str(((repository / name).parent / target).resolve().relative_to(repository))
        for name, text in pages.items()
        for target in re.findall(r"\]\(([^)#\s]+)", text)
        if not target.startswith("http")
    }
    missing = set(DOCUMENTS) - linked - {"README.md"}
    assert not missing


def test_ids_in_the_readme_exist(repository: Path) -> None:
    catalog = open_catalog(repository)
    text = (repository / "README.md").read_text()
    for id in re.findall(r"neuroledger (?:show|score \S+) (\S+)", text):
        assert catalog.find(id)


def test_the_readme_shows_the_leaderboard_of_the_records(repository: Path) -> None:
    """Written anew by `make readme`."""
    assert shown_board(repository) in (repository / "README.md").read_text()


def shown_board(repository: Path) -> str:
    """Return the first suite's leaderboard as the command prints it, without the models that have no rank."""
    catalog = open_catalog(repository)
    records = list(read_all(repository / "results" / "records"))
    [board, *_] = boards_of(catalog, read_params(repository).suite, records)
    left_out = {
        row.model for row in board.rows if row.role == "model" and row.rank is None
    }
    shown: list[str] = []
    for line in leaderboard_text(board, width=150).rstrip().splitlines():
        name = line.split(maxsplit=1)[0].rstrip(":") if line.strip() else ""
        if name not in left_out and line not in shown[-1:]:
            shown.append(line)
    text = "\n".join(shown)
    return f"```\n{text}\n```"


def test_the_readme_opens_with_the_sentence_and_the_picture_of_the_records(
    repository: Path,
) -> None:
    """Written anew by `make readme`."""
    block, picture = shown_front(repository)
    assert block in (repository / "README.md").read_text(encoding="utf-8")
    assert (repository / PICTURE).read_bytes() == picture.encode()


def shown_front(repository: Path) -> tuple[str, str]:
    """Return the block of the README above the leaderboard, and the picture that it shows."""
    catalog = open_catalog(repository)
    records = list(read_all(repository / "results" / "records"))
    sentence, picture = front_picture(catalog, read_params(repository).suite, records)
    # Titles come from specs: no character of them may be markup.
    plain = re.sub(r"([\\`*_<>\[\]#|])", r"\\\1", sentence)
    image = f"![Scores of the models of the first suite, with intervals]({PICTURE})"
    return f"**{plain}**\n\n{image}", picture


def write_front(repository: Path) -> None:
    """Write the sentence, the picture and the leaderboard of the README."""
    readme = repository / "README.md"
    text = readme.read_text(encoding="utf-8")
    block, picture = shown_front(repository)
    text = generated.filled(
        text, {"front": block, "leaderboard": shown_board(repository)}
    )
    readme.write_text(text, encoding="utf-8")
    (repository / PICTURE).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    write_front(HERE)
