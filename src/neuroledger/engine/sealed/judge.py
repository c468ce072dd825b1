"""Sealing of answers, scoring of proposed predictions by their owner, and the check of all looks once the seal is opened."""

from __future__ import annotations

import csv
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from neuroledger.engine.records.evidence import signature_path
from neuroledger.engine.records.signatures import signature_of
from neuroledger.engine.sealed.state import (
    NAMESPACE_OF_SEALED,
    Returned,
    SealedState,
    predictions_path,
    read_state,
    returned,
    signer_of_state,
    state_path,
    text_of,
)
from neuroledger.errors import DataError, Finding, RequestError
from neuroledger.spec.base import canonical
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import SealedAnswers
from neuroledger.store.files import write_text

__all__ = ["Judged", "judge", "seal", "unseal"]

COLUMNS: Final = ("stimulus_id", "answer")


class Judged(NamedTuple):
    """What the owner's command did: the looks it added, and files of predictions that it could not read."""

    state: SealedState
    added: tuple[Returned, ...]
    unread: tuple[str, ...]


def seal(table: Path, out: Path, *, steps: int, looks: int) -> SealedAnswers:
    """Write the sealed answers of a table and return the field ``answers`` of the benchmark.

    The file has a random number besides the answers, so that nobody can find the answers by trying their hashes.

    Raises
    ------
    RequestError
        The table is invalid, or ``out`` exists.
    """
    if out.exists():
        raise RequestError(f"{out} exists; sealed answers are never replaced")
    try:
        answers = _table(table)
    except DataError as error:
        raise RequestError(str(error)) from error
    content = canonical({"answers": answers, "salt": secrets.token_hex(32)}) + "\n"
    write_text(out, content)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return SealedAnswers(
        sealed=f"sha256:{digest}", items=len(answers), steps=steps, looks=looks
    )


def judge(catalog: Catalog, benchmark: str, answers: Path, key: Path) -> Judged:
    """Look at all predictions that were not looked at, in the order of their names, and sign the looks.

    Raises
    ------
    RequestError
        The benchmark has no sealed answers, no look is left, or the key cannot sign.
    DataError
        The answers do not have the hash of the seal, or the file of looks is invalid.
    """
    field = _sealed(catalog, benchmark)
    known = _opened(answers, field)
    state = read_state(catalog.root, benchmark, field)
    looked = {look.model for look in state.looks}
    folder = state_path(catalog.root, benchmark).with_suffix("")
    added: list[Returned] = []
    unread: list[str] = []
    for path in sorted(folder.glob("*.csv")):
        if path.stem in looked:
            continue
        try:
            right = _right(path, known)
        except DataError as error:
            unread.append(str(error))
            continue
        if len(state.looks) >= field.looks:
            raise RequestError(
                f"{benchmark} allows {field.looks} looks, and all were taken; open the seal, or seal new answers"
            )
        look = returned(state, path.stem, _sha256(path), right)
        state = state.model_copy(update={"looks": (*state.looks, look)})
        added.append(look)
    if added:
        _write_signed(catalog.root, state, key)
    return Judged(state, tuple(added), tuple(unread))


def unseal(catalog: Catalog, benchmark: str, answers: Path) -> Iterator[Finding]:
    """Yield a finding on each look of a benchmark, recomputed from the answers and the predictions, and on the signature.

    Raises
    ------
    RequestError, DataError
        As :func:`judge`.
    """
    field = _sealed(catalog, benchmark)
    known = _opened(answers, field)
    state = read_state(catalog.root, benchmark, field)
    again = state.model_copy(update={"looks": ()})
    for look in state.looks:
        path = predictions_path(catalog.root, benchmark, look.model)
        place = f"results/sealed/{benchmark}.json look {look.number}"
        if not path.is_file() or _sha256(path) != look.predictions:
            words = f"the predictions of {look.model} are missing or were changed"
            fix = f"restore {path.name} from git"
            yield Finding("sealed.false", "error", place, words, fix)
            # Later looks are compared as if this one were true.
            again = again.model_copy(update={"looks": (*again.looks, look)})
            continue
        right = returned(again, look.model, look.predictions, _right(path, known))
        if right != look:
            words = f"it states {_said(look)}, but answers and predictions give {_said(right)}"
            yield Finding("sealed.false", "error", place, words)
        else:
            yield Finding("sealed.reproduced", "note", place, _said(look))
        again = again.model_copy(update={"looks": (*again.looks, right)})
    yield _signed(catalog.root, benchmark)


def _signed(root: Path, benchmark: str) -> Finding:
    path = state_path(root, benchmark)
    signer = None
    if path.is_file():
        signer = signer_of_state(root, path)
    place = f"results/sealed/{benchmark}.json"
    if signer is None:
        words = "the looks have no signature of an allowed signer"
        return Finding("sealed.unsigned", "warning", place, words)
    return Finding("sealed.signed", "note", place, f"signed by {signer}")


def _said(look: Returned) -> str:
    is_new = "a new best" if look.new_best else "no new best"
    return f"{is_new}, best {look.best:.4g} [{look.low:.4g}, {look.high:.4g}] by {look.model}"


def _sealed(catalog: Catalog, benchmark: str) -> SealedAnswers:
    field = catalog.benchmark(benchmark).answers
    if field is None:
        raise RequestError(
            f"{benchmark} has no sealed answers: its spec has no field `answers`"
        )
    return field


def _opened(path: Path, field: SealedAnswers) -> Mapping[str, str]:
    """Return the answers of a sealed file whose hash is that of the seal."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(content).hexdigest()
    if field.sealed != f"sha256:{digest}":
        raise DataError(
            f"{path} has the hash sha256:{digest}, but the seal is {field.sealed}; these are other answers"
        )
    answers: Mapping[str, str] = json.loads(content)["answers"]
    if len(answers) != field.items:
        raise DataError(
            f"{path} has {len(answers)} answers, but the spec states {field.items}"
        )
    return answers


def _table(path: Path) -> dict[str, str]:
    """Return the answers of a table by stimulus.

    Raises
    ------
    DataError
        The file cannot be read, has other columns, no row, or a stimulus twice.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a table: {error}") from error
    if not rows or tuple(rows[0]) != COLUMNS:
        raise DataError(f"{path} needs the columns {', '.join(COLUMNS)}")
    if len(rows) == 1 or any(len(row) != len(COLUMNS) for row in rows):
        raise DataError(f"{path} needs a stimulus and an answer in every row")
    answers = {row[0]: row[1] for row in rows[1:]}
    if len(answers) < len(rows) - 1:
        raise DataError(f"{path} contains a stimulus twice")
    return answers


def _right(path: Path, known: Mapping[str, str]) -> int:
    """Return how many predictions are right."""
    predictions = _table(path)
    if predictions.keys() != known.keys():
        different = sorted(predictions.keys() ^ known.keys())
        raise DataError(
            f"{path} needs one row for each of {len(known)} stimuli; missing or unknown: {', '.join(different[:3])}"
        )
    return sum(predictions[id] == answer for id, answer in known.items())


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write_signed(root: Path, state: SealedState, key: Path) -> None:
    text = text_of(state)
    path = state_path(root, state.benchmark)
    signature = signature_of(text, key, NAMESPACE_OF_SEALED)
    write_text(path, text)
    write_text(signature_path(path), signature)
