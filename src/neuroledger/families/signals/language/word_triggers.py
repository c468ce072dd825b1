"""Triggers of a reading experiment, sent word by word, to sentences of its list: which was read, and when each word came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple

import numpy as np

__all__ = ["Marker", "Sentence", "ReadSentence", "cleaned", "read_in", "unknown_codes"]

# What the authors say of their codes.
CLOZE: Final = frozenset({*range(1, 101), 200})
ITEMS: Final = range(101, 181)
EXPECTED: Final = frozenset({201, 202, 205, 207})
UNEXPECTED: Final = frozenset({203, 204, 206, 208})
CORRECT, INCORRECT, OTHER_WORD = 210, 211, 255
QUESTIONS: Final = frozenset({250, 251})
WORDS: Final = EXPECTED | UNEXPECTED | {CORRECT, INCORRECT, OTHER_WORD}
KNOWN: Final = CLOZE | WORDS | QUESTIONS | frozenset(ITEMS) | {0}
# Seconds from a word to the next that end a sentence, and markers without which nothing was a sentence.
PAUSE: Final = 1.5
FEWEST: Final = 4


class Marker(NamedTuple):
    """A trigger: seconds from the start of the recording, and its code."""

    onset: float
    code: int


class Sentence(NamedTuple):
    """A sentence of the list: its part of the experiment, item, version, and words."""

    kind: str
    item: int
    version: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """All its words."""
        return " ".join(self.words)


class ReadSentence(NamedTuple):
    """What was read between two pauses: its place in the recording, when words came, and the sentence, or why none."""

    place: int
    onsets: tuple[float, ...]
    sentence: Sentence | None
    why: str


def cleaned(word: str) -> str:
    """A word as it is embedded: small letters, digits, hyphens and apostrophes."""
    return "".join(letter for letter in word if letter.isalnum() or letter in "-'").lower()


def unknown_codes(markers: Sequence[Marker], also_words: Set[int], ignored: Set[int]) -> Counter[int]:
    """Codes that have no meaning, and how often each comes."""
    return Counter(marker.code for marker in markers if marker.code not in KNOWN | also_words | ignored)


def read_in(
    markers: Sequence[Marker],
    sentences: Mapping[tuple[str, int, str], Sentence],
    *,
    also_words: Set[int] = frozenset(),
    practice: int = 0,
) -> list[ReadSentence]:
    """The sentences of a recording: markers up to a word that is followed by a pause belong together.

    Left out, with the reason: what has no item, two kinds of sentence, two versions, or another number of words than the
    list; and, among the first `practice`, what has no cloze marker. Questions alone are none.
    """
    ordered = sorted(markers)
    words = WORDS | also_words
    timed = [at for at, marker in enumerate(ordered) if marker.code in words or marker.code in QUESTIONS]
    if not timed:
        return []
    onsets = np.array([ordered[at].onset for at in timed])
    ends = [at for at, gap in zip(timed, np.append(np.diff(onsets), np.inf), strict=True) if gap > PAUSE]
    found = []
    for place, (start, stop) in enumerate(zip([0, *(end + 1 for end in ends)], ends, strict=False)):
        part = ordered[start : stop + 1]
        if len(part) >= FEWEST and not {marker.code for marker in part} <= QUESTIONS:
            found.append(_one(place, part, sentences, words, place < practice))
    return found


def _one(
    place: int,
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
    said = [key for key, there in versions.items() if there]
    if early and not codes & CLOZE:
        return ReadSentence(place, onsets, None, "practice")
    if not items:
        return ReadSentence(place, onsets, None, "no item marker")
    if len(said) != 1:
        return ReadSentence(place, onsets, None, "no word or several words tell its version")
    (kind, version) = said[0]
    sentence = sentences.get((kind, items[0], version))
    if sentence is None:
        return ReadSentence(place, onsets, None, f"the list has no {kind} item {items[0]} ({version})")
    if len(sentence.words) != len(onsets):
        why = f"{len(onsets)} words came, and item {items[0]} ({version}) has {len(sentence.words)}"
        return ReadSentence(place, onsets, None, why)
    return ReadSentence(place, onsets, sentence, "")
