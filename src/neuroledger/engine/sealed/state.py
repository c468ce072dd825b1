"""What looks at sealed answers returned, in a signed file that only grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from neuroledger.engine.record import first_problem
from neuroledger.engine.records.evidence import ALLOWED, signature_path, signer_of_text
from neuroledger.errors import DataError, Finding
from neuroledger.spec.base import Id, Sha256, canonical
from neuroledger.spec.document import json_object
from neuroledger.spec.kinds import SealedAnswers
from neuroledger.stats.ladder import Ladder, Rung
from neuroledger.stats.stored import Stored
from neuroledger.store.git_trees import Tree

__all__ = [
    "NAMESPACE_OF_SEALED",
    "Returned",
    "SealedState",
    "examined",
    "predictions_path",
    "read_state",
    "returned",
    "state_path",
    "text_of",
]

FOLDER: Final = "results/sealed"
NAMESPACE_OF_SEALED: Final = "neuroledger-sealed"
Share = Annotated[float, Field(strict=True, ge=0, le=1)]


class Returned(Stored):
    """What one look returned."""

    number: Annotated[int, Field(strict=True, ge=1)]
    """Number of the look."""
    model: Id
    """The model whose predictions were looked at."""
    predictions: Sha256
    """Hash of the file of predictions."""
    new_best: bool
    """Whether the score exceeded the former best by more than a step."""
    best: Share
    """The best score so far, rounded to the step."""
    low: Share
    """Lower end of the 95 % interval of the best score, for predictions that were not adapted to looks."""
    high: Share
    """Upper end of the interval."""


class SealedState(Stored):
    """All looks at the answers of a benchmark."""

    schema_version: Literal[1] = 1
    benchmark: Id
    sealed: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    """The seal: the hash of the sealed answers."""
    items: Annotated[int, Field(strict=True, ge=1)]
    """Number of answers."""
    steps: Annotated[int, Field(strict=True, ge=2)]
    """Number of steps of the scale from 0 to 1."""
    allowed_looks: Annotated[int, Field(strict=True, ge=1)]
    """Number of looks that are allowed."""
    overstated_by: Share
    """By how much any released score exceeds the true one at most, however proposals were adapted, at 95 %."""
    looks: tuple[Returned, ...] = ()

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        best = 0.0
        for number, look in enumerate(self.looks, 1):
            if look.number != number:
                raise ValueError(f"look {number} has the number {look.number}")
            if look.new_best != (look.best > best) or look.best < best:
                raise ValueError(f"look {number} does not follow from the former best")
            best = look.best
        return self

    @property
    def ladder(self) -> Ladder:
        """The ladder of the benchmark."""
        return Ladder(self.items, self.steps, self.allowed_looks)

    @property
    def level(self) -> int:
        """The best score so far, in steps."""
        if self.looks:
            return round(self.looks[-1].best * self.steps)
        return 0


def empty(benchmark: str, answers: SealedAnswers) -> SealedState:
    """Return the state of a benchmark before the first look."""
    ladder = Ladder(answers.items, answers.steps, answers.looks)
    return SealedState(
        benchmark=benchmark,
        sealed=answers.sealed,
        items=answers.items,
        steps=answers.steps,
        allowed_looks=answers.looks,
        overstated_by=min(1.0, ladder.overstated_by()),
    )


def returned(state: SealedState, model: str, predictions: str, right: int) -> Returned:
    """Return what the next look returns for a file of predictions with so many right answers."""
    ladder = state.ladder
    rung: Rung = ladder.look(state.level, right)
    low, high = ladder.interval(rung.level)
    return Returned(
        number=len(state.looks) + 1,
        model=model,
        predictions=predictions,
        new_best=rung.new_best,
        best=rung.level / ladder.steps,
        low=low,
        high=high,
    )


def state_path(root: Path, benchmark: str) -> Path:
    """Return the path of the looks at the answers of a benchmark."""
    return root / FOLDER / f"{benchmark}.json"


def predictions_path(root: Path, benchmark: str, model: str) -> Path:
    """Return the path of the predictions of a model."""
    return root / FOLDER / benchmark / f"{model}.csv"


def text_of(state: SealedState) -> str:
    """Return the text of the file of a state, which is signed."""
    return canonical(state.model_dump(mode="json")) + "\n"


def read_state(root: Path, benchmark: str, answers: SealedAnswers) -> SealedState:
    """Return the looks at the answers of a benchmark; there are none without a file.

    Raises
    ------
    DataError
        The file is invalid, or is of another seal, step or number of looks than the benchmark.
    """
    path = state_path(root, benchmark)
    fresh = empty(benchmark, answers)
    if not path.exists():
        return fresh
    try:
        state = SealedState.model_validate(json_object(path.read_bytes()))
    except (OSError, ValueError) as error:
        words = f"{path} is invalid ({first_problem(error)}); restore it from git"
        raise DataError(words) from error
    if state.model_copy(update={"looks": ()}) != fresh:
        words = f"{path} is of other answers, steps or looks than the benchmark; restore one of them from git"
        raise DataError(words)
    return state


def signer_of_state(root: Path, path: Path) -> str | None:
    """Return the allowed signer of a file of looks, or None."""
    signers = root / ALLOWED
    signature = signature_path(path)
    if not (signers.is_file() and signature.is_file()):
        return None
    return signer_of_text(
        path.read_bytes(),
        signature.read_bytes(),
        signers.read_bytes(),
        NAMESPACE_OF_SEALED,
    )


def examined(base: Tree, now: Tree, path: str, state: str) -> Finding:
    """Return the finding of a review on a changed file of a sealed benchmark.

    Predictions may be added. Looks may be added if an allowed signer of the base signed them; none may be lost.
    """
    name = path.removeprefix(f"{FOLDER}/")
    if name.endswith(".csv"):
        if state == "added":
            words = "added: predictions of sealed answers, which the owner scores"
            return Finding("sealed.predictions", "note", path, words)
        words = f"{state}: predictions, which a look refers to"
        fix = "restore them from the base branch, and propose new ones as another model"
        return Finding("sealed.rewritten", "error", path, words, fix)
    problem = _problem(base, now, path.removesuffix(".sig"), state)
    if problem:
        fix = "restore the file from the base branch; the owner adds looks"
        return Finding("sealed.rewritten", "error", path, problem, fix)
    words = f"{state}: looks at sealed answers, signed by an allowed signer"
    return Finding("sealed.looks", "note", path, words)


def _problem(base: Tree, now: Tree, path: str, state: str) -> str:
    """Return what is wrong with the changed looks of a benchmark, or nothing."""
    text = now.read(path)
    signature = now.read(f"{path}.sig")
    if state == "removed" or text is None:
        return "looks at sealed answers were removed"
    allowed = base.read(ALLOWED) or b""
    if not allowed or signature is None:
        return "looks at sealed answers are not signed"
    if signer_of_text(text, signature, allowed, NAMESPACE_OF_SEALED) is None:
        return "looks at sealed answers are not signed by an allowed signer"
    kept = _looks_in(base.read(path))
    new = _looks_in(text)
    if new is None:
        return "the looks at sealed answers are invalid"
    if kept is not None and tuple(new[: len(kept)]) != tuple(kept):
        return "earlier looks at sealed answers were changed or removed"
    return ""


def _looks_in(content: bytes | None) -> Sequence[Returned] | None:
    if content is None:
        return None
    try:
        return SealedState.model_validate(json_object(content)).looks
    except ValueError:
        return None
