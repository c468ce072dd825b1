"""Identification of read sentences by the triggers of a reading experiment, one trigger for each word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

import numpy as np

__all__ = ["Marker", "Sentence", "ReadSentence", "cleaned", "read_in", "unknown_codes"]

# The codes as their authors describe them.
CLOZE: Final = frozenset({*range(1, 101), 200})
ITEMS: Final = range(101, 181)
EXPECTED: Final = frozenset({201, 202, 205, 207})
UNEXPECTED: Final = frozenset({203, 204, 206, 208})
CORRECT, INCORRECT, OTHER_WORD = 210, 211, 255
QUESTIONS: Final = frozenset({250, 251})
WORDS: Final = EXPECTED | UNEXPECTED | {CORRECT, INCORRECT, OTHER_WORD}
KNOWN: Final = CLOZE | WORDS | QUESTIONS | frozenset(ITEMS) | {0}
# A pause of more seconds than this ends a sentence; a sentence has at least this number of markers.
PAUSE: Final = 1.5
FEWEST: Final = 4


class Marker(NamedTuple):
    """A trigger: its onset in seconds from the start of the recording, and its code."""

    onset: float
    code: int


class Sentence(NamedTuple):
    """A sentence of the list: its kind (part of the experiment), item, version, and words."""

    kind: str
    item: int
    version: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """All its words."""
        return " ".join(self.words)


class ReadSentence(NamedTuple):
    """Words read between two pauses: position in the recording, word onsets, and the sentence or a reason for none."""

    place: int
    onsets: tuple[float, ...]
    sentence: Sentence | None
    why: str


def cleaned(word: str) -> str:
    """The word as it is embedded: only lower-case letters, digits, hyphens and apostrophes."""
    return "".join(
        letter for letter in word if letter.isalnum() or letter in "-'"
    ).lower()


def unknown_codes(
    markers: Sequence[Marker], also_words: Set[int], ignored: Set[int]
) -> Counter[int]:
    """Number of occurrences of each unknown code."""
    return Counter(
        marker.code
        for marker in markers
        if marker.code not in KNOWN | also_words | ignored
    )


def read_in(
    markers: Sequence[Marker],
    sentences: Mapping[tuple[str, int, str], Sentence],
    *,
    also_words: Set[int] = frozenset(),
    practice: int = 0,
) -> list[ReadSentence]:
    """The sentences of a recording; a word that is followed by a pause ends a sentence.

    A sentence is None, with a reason, if it has no item, several kinds or versions, or a number of words that differs from
    the list; or if it is among the first `practice` and has no cloze marker. Groups of questions alone are skipped.
    """
    words = WORDS | also_words
    read = []
    for position, part in enumerate(_parts(sorted(markers), words | QUESTIONS)):
        if len(part) >= FEWEST and not {marker.code for marker in part} <= QUESTIONS:
            read.append(
                _identify(position, part, sentences, words, position < practice)
            )
    return read


def _parts(ordered: Sequence[Marker], shown: Set[int]) -> Iterator[Sequence[Marker]]:
    """Yield the markers between pauses, each part up to the last word or question before a pause."""
    indices = [at for at, marker in enumerate(ordered) if marker.code in shown]
    onsets = [ordered[at].onset for at in indices]
    gaps = np.diff(onsets, append=np.inf)
    start = 0
    for at, gap in zip(indices, gaps, strict=True):
        if gap > PAUSE:
            yield ordered[start : at + 1]
            start = at + 1


def _identify(
    position: int,
    part: Sequence[Marker],
    sentences: Mapping[tuple[str, int, str], Sentence],
    words: Set[int],
    early: bool,
) -> ReadSentence:
    codes = {marker.code for marker in part}
    onsets = tuple(marker.onset for marker in part if marker.code in words)
    items = [marker.code - 100 for marker in part if marker.code in ITEMS]
    if early and not codes & CLOZE:
        return ReadSentence(position, onsets, None, "practice")
    sentence, why = _listed(codes, items, sentences)
    if sentence is None:
        return ReadSentence(position, onsets, None, why)
    if len(sentence.words) != len(onsets):
        why = f"{len(onsets)} words came, and {why} has {len(sentence.words)}"
        return ReadSentence(position, onsets, None, why)
    return ReadSentence(position, onsets, sentence, "")


def _listed(
    codes: Set[int],
    items: Sequence[int],
    sentences: Mapping[tuple[str, int, str], Sentence],
) -> tuple[Sentence | None, str]:
    """The sentence of the first item in the version that its words tell, and its name; without one, the reason."""
    if not items:
        return None, "no item marker"
    item = items[0]
    versions = {
        ("prediction", "expected"): bool(codes & EXPECTED),
        ("prediction", "unexpected"): bool(codes & UNEXPECTED),
        ("control", "correct"): CORRECT in codes,
        ("control", "incorrect"): INCORRECT in codes,
    }
    kinds = [key for key, present in versions.items() if present]
    if len(kinds) != 1:
        return None, "no word or several words tell its version"
    (kind, version) = kinds[0]
    sentence = sentences.get((kind, item, version))
    if sentence is None:
        return None, f"the list has no {kind} item {item} ({version})"
    return sentence, f"item {item} ({version})"
