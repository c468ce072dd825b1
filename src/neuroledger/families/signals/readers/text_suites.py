"""Texts as tests of language models: SyntaxGym suites, and running text for the prediction of each next word."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

__all__ = ["next_words", "syntax_suite"]


def _read_only_file(files: Mapping[str, Path], kind: str) -> tuple[str, str]:
    if len(files) != 1:
        raise DataError(
            f"{kind} must be one file; the spec's `files` are {', '.join(sorted(files)) or 'none'}"
        )
    ((name, path),) = files.items()
    try:
        return name, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{name} is not UTF-8 text ({error}): it is damaged or incomplete"
        ) from error


@reader("syntax_suite", version=1)
def syntax_suite(files: Mapping[str, Path]) -> Dataset:
    """A SyntaxGym suite (JSON): one text per item, condition and region, in reading order.

    Columns: ``stimulus_id`` (``item|condition|region``), ``text``, ``item``, ``condition``, ``region``, ``sentence`` (the
    item and condition), and ``criterion``: the suite's formulas, which must all be true [gauthier2020].

    Raises
    ------
    DataError
        The file is not a suite.
    """
    name, text = _read_only_file(files, "a suite")
    try:
        suite: Any = json.loads(text)
        criteria = [prediction["formula"] for prediction in suite["predictions"]]
        rows = [
            (
                item["item_number"],
                condition["condition_name"],
                region["region_number"],
                region["content"],
            )
            for item in suite["items"]
            for condition in item["conditions"]
            for region in condition["regions"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{name} is not a SyntaxGym suite ({type(error).__name__}: {error}): it needs `predictions` and `items`"
        ) from error
    if not rows or not criteria:
        raise DataError(
            f"{name}: the suite has no {'items' if criteria else 'predictions'}"
        )
    table = pd.DataFrame(rows, columns=["item", "condition", "region", "text"]).astype(
        str
    )
    table.insert(
        0,
        "stimulus_id",
        table["item"] + "|" + table["condition"] + "|" + table["region"],
    )
    table["sentence"] = table["item"] + "|" + table["condition"]
    table["criterion"] = " & ".join(f"({formula})" for formula in criteria)
    if not table["stimulus_id"].is_unique:
        repeated = table.loc[table["stimulus_id"].duplicated(), "stimulus_id"].iloc[0]
        raise DataError(f"{name}: the region {repeated} occurs twice")
    return Dataset(StimulusSet(Path(name).stem, table), None)


@reader("next_words", version=1)
def next_words(files: Mapping[str, Path], *, most: int | None = None) -> Dataset:
    """Running text (UTF-8), one paragraph per line: each prefix of a line up to a space, with the word that follows.

    Columns: ``stimulus_id`` (line and word, from 1), ``text`` (the prefix), ``truth`` (the next word).

    Parameters
    ----------
    most
        Largest number of words, from the beginning of the file; None: all.

    Raises
    ------
    DataError
        The file is not text, or no line has two words.
    """
    name, text = _read_only_file(files, "running text")
    rows: list[tuple[str, str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        spaces = [match.start() for match in re.finditer(r"\s", line.strip())]
        ends = spaces[1:]
        rows += [
            (
                f"{number}.{at + 1}",
                line.strip()[:start],
                line.strip()[start:end].strip(),
            )
            for at, (start, end) in enumerate(zip(spaces, ends, strict=False))
        ]
        if most is not None and len(rows) >= most:
            break
    if not rows:
        raise DataError(f"{name}: no line has a word that follows others")
    table = pd.DataFrame(rows[:most], columns=["stimulus_id", "text", "truth"])
    return Dataset(StimulusSet(Path(name).stem, table), None)
