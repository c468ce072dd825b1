"""A made-up subject that reads: what it gives for a text follows from the text alone, wherever it is asked."""

import zlib

import numpy as np

FEATURES = 20
WORDS = ["the", "of", "and", "in", "=", ","]


def drawn(context: str) -> np.random.Generator:
    """The generator that belongs to a text."""
    return np.random.default_rng(zlib.crc32(context.encode("utf-8")))


def features_of(context: str) -> np.ndarray:  # type: ignore[type-arg]
    """Responses to a text with all that was read before it."""
    return drawn(context).normal(size=FEATURES)


def time_of(context: str, at: int) -> float:
    """How long the last part took; the first of a passage has no time."""
    return float("nan") if at == 0 else float(drawn(context).uniform(1, 12))


def word_of(context: str) -> str:
    """The word that is expected next."""
    return WORDS[zlib.crc32(context.encode("utf-8")) % len(WORDS)]
