"""The order of images of the Natural Scenes Dataset: what each person was to see in each run, by its design file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from neuroledger.data.parsing import matlab, parsing
from neuroledger.errors import DataError

__all__ = ["check_order"]

VARIABLES: Final = ("masterordering", "subjectim", "stimpattern")


def check_order(path: Path, name: str, subject: str, session: str, run: str, images: Sequence[int]) -> None:
    """Return if these are the images of one of the person's runs of this session, in their order.

    `masterordering` (trial) numbers the images of all people alike, `subjectim` (person, number) says which of the 73,000
    each is, and `stimpattern` (session, run, trial) how many trials of a run show one. Runs are compared with all of
    their session, because sessions with runs of rest count them too.

    Parameters
    ----------
    path, name
        `nsd_expdesign.mat`, and how it is called here.
    images
        Numbers from 1 of 73,000.

    Raises
    ------
    DataError
        They are not, there is no such person or session, or the file is none of this kind.
    """
    order, pictures, pattern = _design(path, name)
    if not (subject.isdigit() and session.isdigit()):
        raise DataError(
            f"{run}: {name} numbers people and sessions, and these are {subject!r} and {session!r}"
        )
    person, number = int(subject) - 1, int(session) - 1
    if not (0 <= person < len(pictures) and 0 <= number < len(pattern)):
        raise DataError(f"{run}: {name} has no session {session} of person {subject}")
    shown = pattern.reshape(len(pattern), pattern.shape[1], -1).sum(axis=2)
    ends = shown[:number].sum() + np.cumsum(shown[number])
    meant = [
        pictures[person, order[end - count : end] - 1].tolist()
        for end, count in zip(ends, shown[number], strict=True)
    ]
    if list(images) not in meant:
        raise DataError(
            f"{run} shows {len(images)} images, first {images[0]}, which is no run of session {session} of person {subject} "
            f"by {name}: it is another person's or session's file, or a damaged one"
        )


@lru_cache(maxsize=4)
def _design(
    path: Path, name: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    with parsing(path, "a design of the Natural Scenes Dataset"):
        content = matlab(path, *VARIABLES)
        order, pictures, pattern = (np.asarray(content[key]).astype(np.int64) for key in VARIABLES)
    if pattern.ndim != 3 or pictures.ndim != 2:
        raise DataError(f"{name} is no design of the Natural Scenes Dataset: stimpattern is {pattern.shape}")
    if pattern.sum() > order.size or order.min(initial=1) < 1 or order.max(initial=0) > pictures.shape[1]:
        raise DataError(f"{name} contradicts itself: {pattern.sum()} trials, {order.size} in order")
    return order.ravel(), pictures, pattern
