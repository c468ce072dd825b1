"""Identification of read sentences by the triggers of a reading experiment, one trigger for each word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
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
    ordered = sorted(markers)
    words = WORDS | also_words
    indices = [
        at
        for at, marker in enumerate(ordered)
        if marker.code in words or marker.code in QUESTIONS
    ]
    if not indices:
        return []
    onsets = np.array([ordered[at].onset for at in indices])
    ends = [
        at
        for at, gap in zip(indices, np.append(np.diff(onsets), np.inf), strict=True)
        if gap > PAUSE
    ]
    read = []
    for position, (start, stop) in enumerate(
        zip([0, *(end + 1 for end in ends)], ends, strict=False)
    ):
        part = ordered[start : stop + 1]
        if len(part) >= FEWEST and not {marker.code for marker in part} <= QUESTIONS:
            read.append(
                _identify(position, part, sentences, words, position < practice)
            )
    return read


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
    versions = {
        ("prediction", "expected"): bool(codes & EXPECTED),
        ("prediction", "unexpected"): bool(codes & UNEXPECTED),
        ("control", "correct"): CORRECT in codes,
        ("control", "incorrect"): INCORRECT in codes,
    }
    kinds = [key for key, present in versions.items() if present]
    if early and not codes & CLOZE:
        return ReadSentence(position, onsets, None, "practice")
    if not items:
        return ReadSentence(position, onsets, None, "no item marker")
    if len(kinds) != 1:
        return ReadSentence(
            position, onsets, None, "no word or several words tell its version"
        )
    (kind, version) = kinds[0]
    sentence = sentences.get((kind, items[0], version))
    if sentence is None:
        return ReadSentence(
            position,
            onsets,
            None,
            f"the list has no {kind} item {items[0]} ({version})",
        )
    if len(sentence.words) != len(onsets):
        why = f"{len(onsets)} words came, and item {items[0]} ({version}) has {len(sentence.words)}"
        return ReadSentence(position, onsets, None, why)
    return ReadSentence(position, onsets, sentence, "")
