"""Options and arguments that several verbs share, and the answers that are asked for where an option is not given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroledger.errors import RequestError

__all__ = [
    "Answers",
    "BenchmarkId",
    "Benchmarks",
    "Degrees",
    "Device",
    "Json",
    "License",
    "Limit",
    "ModelId",
    "Published",
    "Records",
    "Root",
    "Seed",
    "Suite",
    "argument",
    "flag",
    "ids_of",
    "option",
    "pairs_of",
]


def ids_of(*kinds: str) -> Callable[[typer.Context, str], list[str]]:
    """Return the function that completes an id of these kinds in a shell; it never fails."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from neuroledger.errors import NeuroLedgerError
        from neuroledger.spec.catalog import open_definitions

        try:
            catalog = open_definitions(context.params.get("root"))
        except (NeuroLedgerError, OSError):
            return []
        ids = [id for kind in kinds for id in catalog.ids(kind)]
        return [id for id in ids if id.startswith(incomplete)]

    return complete


def option(
    name: str,
    metavar: str | None,
    help: str,
    *,
    ids: tuple[str, ...] = (),
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """Return an option with a value; ``ids`` are the kinds of spec whose ids complete it in a shell.

    Without a ``metavar``, its choices are shown. A metavar in brackets permits to leave the value out.
    """
    completion = ids_of(*ids) if ids else complete
    return typer.Option(name, metavar=metavar, help=help, autocompletion=completion)


def flag(name: str, help: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=help)


def argument(
    metavar: str,
    help: str,
    *,
    ids: tuple[str, ...] = (),
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """Return an argument; ``ids`` are the kinds of spec whose ids complete it in a shell."""
    completion = ids_of(*ids) if ids else complete
    return typer.Argument(metavar=metavar, help=help, autocompletion=completion)


def pairs_of(texts: list[str] | None, flag: str, form: str) -> dict[str, str]:
    """Return the pairs of a repeated option ``NAME=VALUE``, split at the last equals sign.

    Raises
    ------
    RequestError
        A text has no equals sign or no name; the message shows ``form``, a correct use.
    """
    pairs = dict(text.rpartition("=")[::2] for text in texts or ())
    if "" in pairs:
        raise RequestError(f"{flag} must be {form}")
    return pairs


Root = Annotated[
    Path | None,
    option(
        "--root",
        "FOLDER",
        "repository folder (default: the one that contains the working directory)",
    ),
]
Json = Annotated[bool, flag("--json", "print JSON")]
Suite = Annotated[
    str | None,
    option(
        "--suite",
        "SUITE",
        "id of a suite (default: the suite in params.yaml)",
        ids=("suites",),
    ),
]
ModelId = Annotated[
    str,
    argument("MODEL", "id of a model", ids=("models",)),
]
BenchmarkId = Annotated[
    str,
    argument("BENCHMARK", "id of a benchmark", ids=("benchmarks",)),
]
Benchmarks = Annotated[
    list[str] | None,
    option(
        "--benchmark",
        "B",
        "only on this benchmark; may be repeated",
        ids=("benchmarks",),
    ),
]
Records = Annotated[
    list[Path] | None,
    argument("RECORD", "record files (default: all records)"),
]
Published = Annotated[
    bool,
    flag("--published", "use published figures instead of records"),
]
Seed = Annotated[
    int | None,
    option("--seed", "N", "random seed (default: params.yaml)"),
]
Limit = Annotated[
    int | None,
    option(
        "--limit",
        "N",
        "use the first N stimuli only; such a score is partial and never ranked",
    ),
]
Device = Annotated[
    str | None,
    option("--device", "DEVICE", "cpu, cuda, cuda:1, mps (default: params.yaml)"),
]
Mixed = Annotated[
    bool,
    flag("--mixed-precision", "train networks in bfloat16 on a graphics card"),
]
Workers = Annotated[
    int,
    option("--workers", "N", "threads that read the next windows of a training"),
]
License = Annotated[
    str | None,
    option(
        "--license",
        "SPDX",
        "SPDX licence of the data, such as CC-BY-4.0; LicenseRef-unstated if none is stated",
    ),
]
Degrees = Annotated[
    float | None,
    option("--degrees", "D", "size of the images in degrees of visual angle"),
]

MOST_TRIES = 5  # wrong answers to one question


@dataclass
class Answers:
    """Answers to questions that the files leave open.

    Attributes
    ----------
    given
        Answers by the name of their argument; those that were asked for are added.
    ask
        Called with each question; without it, nothing is asked.
    suggested
        Whether the answer that is suggested with a question is taken without asking.
    missing
        What could not be asked, as the flags that answer it.
    """

    given: dict[str, str]
    ask: Callable[[str], str] | None
    suggested: bool = False
    missing: list[str] = field(default_factory=list)

    def get(
        self,
        name: str,
        question: str,
        options: Sequence[str] = (),
        *,
        suggestion: str = "",
        read: Callable[[str], str] = str,
    ) -> str:
        """Return an answer; if it cannot be asked for, return an empty text, which `require` reports.

        A wrong answer is asked for again. ``read`` turns an answer into the form that is used, and raises RequestError if
        it cannot.

        Raises
        ------
        RequestError
            The answer that was given in advance is wrong.
        """
        flag = f"--{name.replace('_', '-')}"
        value = self.given.get(name, "")
        if value:
            value = self._checked(flag, value, options, read)
        elif self.suggested and suggestion:
            value = suggestion
        elif self.ask is not None:
            value = self._asked(self.ask, flag, question, options, suggestion, read)
        if value:
            self.given[name] = value
        else:
            if options:
                choices = f" ({' | '.join(options)})"
            else:
                choices = ""
            self.missing.append(f"{flag}: {question}{choices}")
        return value

    def _asked(
        self,
        ask: Callable[[str], str],
        flag: str,
        question: str,
        options: Sequence[str],
        suggestion: str,
        read: Callable[[str], str],
    ) -> str:
        """Ask until an answer is right; an empty answer means the suggestion.

        Raises
        ------
        RequestError
            Too many answers are wrong.
        """
        menu = "".join(f"\n  {n}  {text}" for n, text in enumerate(options, start=1))
        if suggestion:
            hint = f" [{suggestion}]"
        else:
            hint = ""
        problem = ""
        for _ in range(MOST_TRIES):
            value = ask(f"{problem}{question}{menu}{hint}: ").strip() or suggestion
            try:
                if value:
                    return self._checked(flag, _chosen(value, options), options, read)
                problem = "an answer is needed\n"
            except RequestError as error:
                problem = f"{error}\n"
        raise RequestError(f"{problem}stopped; nothing was written")

    @staticmethod
    def _checked(
        flag: str, value: str, options: Sequence[str], read: Callable[[str], str]
    ) -> str:
        """Return an answer in the form that is used.

        Raises
        ------
        RequestError
            It is none of the options, or cannot be read.
        """
        try:
            value = read(value)
        except RequestError as error:
            raise RequestError(f"{flag} {value}: {error}") from error
        if options and value not in options:
            raise RequestError(f"{flag} {value!r} is not one of {', '.join(options)}")
        return value

    def require(self, notes: Sequence[str]) -> None:
        """Raise an error that lists the notes and the missing answers, if answers are missing."""
        if self.missing:
            missing = "\n".join(f"  {line}" for line in dict.fromkeys(self.missing))
            known = "\n".join(f"  {line}" for line in notes)
            raise RequestError(
                f"found:\n{known}\nmissing, and not stated by any file:\n{missing}\nnothing was written"
            )

    def agree(self) -> None:
        """Ask for consent to write, if questions are asked; raise an error if it is refused."""
        if self.ask is None or self.suggested:
            return
        answer = self.ask("write and score (y/n): ").strip().lower()
        if answer not in ("y", "yes"):
            raise RequestError("stopped; nothing was written")


def _chosen(value: str, options: Sequence[str]) -> str:
    """Return the option that an answer means: its number in the menu, or the only one that begins with it."""
    if value in options:
        return value
    if value.isdecimal() and 1 <= int(value) <= len(options):
        return options[int(value) - 1]
    beginning = [option for option in options if option.startswith(value)]
    if len(beginning) == 1:
        return beginning[0]
    return value
