"""Answers about a folder: given in advance, suggested, asked for, or collected as missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from neuroledger.errors import RequestError

__all__ = ["Answers"]

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
            choices = f" ({' | '.join(options)})" if options else ""
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
        hint = f" [{suggestion}]" if suggestion else ""
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
    return beginning[0] if len(beginning) == 1 else value
