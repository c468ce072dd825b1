"""How far two texts are apart, in edits: what error rates of words and characters count."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["edit_distance"]


def edit_distance(true: Sequence[str], said: Sequence[str]) -> int:
    """Levenshtein distance between two sequences: fewest substitutions, insertions and deletions.

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(said) + 1))
    for i, left in enumerate(true, 1):
        previous, row[0] = row[0], i
        for j, right in enumerate(said, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (left != right))
    return row[-1]
