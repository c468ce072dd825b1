"""A simulated reader, whose responses to a text depend only on the text."""

import zlib

import numpy as np

FEATURES = 20
WORDS = ["the", "of", "and", "in", "=", ","]


def drawn(context: str) -> np.random.Generator:
    """The random generator of a text."""
    return np.random.default_rng(zlib.crc32(context.encode("utf-8")))


def features_of(context: str) -> np.ndarray:  # type: ignore[type-arg]
    """Responses to a text with its context."""
    return drawn(context).normal(size=FEATURES)


def time_of(context: str, at: int) -> float:
    """The reading time of the last part; NaN for the first one of a passage."""
    return float("nan") if at == 0 else float(drawn(context).uniform(1, 12))


def word_of(context: str) -> str:
    """The predicted next word."""
    return WORDS[zlib.crc32(context.encode("utf-8")) % len(WORDS)]
