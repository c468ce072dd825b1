"""Words shown and keys typed, from the logs that the presentation program wrote for each recording."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from neuroledger.data.arrays import Array, Booleans, Floats, Integers
from neuroledger.data.parsing import matlab
from neuroledger.errors import DataError

__all__ = ["Logged", "read_log"]

VARIABLE: Final = "pr_trials"
SPACE: Final = " "


class Logged(NamedTuple):
    """Events of a log in order of time: words shown and keys pressed.

    Attributes
    ----------
    times
        Seconds on the clock of the program, (event,).
    codes
        Codes sent to the recorder, (event,): the declared code for words, the key's number for keys.
    trials
        Number of the trial from 0, (event,).
    pressed
        Whether the event is a key, (event,).
    sentences
        By trial: its words in lower case without accents.
    """

    times: Floats
    codes: Integers
    trials: Integers
    pressed: Booleans
    sentences: dict[int, str]


def read_log(path: Path, name: str, *, word: int) -> Logged:
    """Read a MATLAB file with the struct `pr_trials`: `key` and `rsvp` are cell arrays of structs, one cell per trial.

    A key has `Keycode`, `Pressed` (0 for a release) and `Time`; a word has `t` and `stim`. Trials without keys or words
    have empty cells.

    Raises
    ------
    DataError
        The file has another structure, or contains no pressed key.
    """
    struct = matlab(path, VARIABLE, structs="squeezed")[VARIABLE]
    _require_fields(struct, name)
    events: list[tuple[float, int, int, bool]] = []
    words: dict[int, list[tuple[float, str]]] = {}
    for trial, row in _trials(struct, "rsvp", ("t", "stim"), name):
        at = _number(row["t"], f"{name}, trial {trial}: t")
        events.append((at, word, trial, False))
        words.setdefault(trial, []).append((at, _plain(row["stim"])))
    for trial, row in _trials(struct, "key", ("Keycode", "Pressed", "Time"), name):
        if _number(row["Pressed"], f"{name}, trial {trial}: Pressed"):
            code = _number(row["Keycode"], f"{name}, trial {trial}: Keycode")
            events.append(
                (
                    _number(row["Time"], f"{name}, trial {trial}: Time"),
                    int(code),
                    trial,
                    True,
                )
            )
    if not any(pressed for *_, pressed in events):
        raise DataError(f"{name}: no key was pressed in any trial")
    events.sort(key=lambda event: event[0])
    times, codes, trials, pressed = (
        np.array(column) for column in zip(*events, strict=True)
    )
    sentences = {trial: _sentence(screens) for trial, screens in words.items()}
    return Logged(
        times.astype(float),
        codes.astype(np.int64),
        trials.astype(np.int64),
        pressed.astype(bool),
        sentences,
    )


def _require_fields(struct: Array, name: str) -> None:
    fields = struct.dtype.names or ()
    for field in ("key", "rsvp"):
        if field not in fields:
            raise DataError(
                f"{name}: {VARIABLE} has no field {field!r}; it has {', '.join(fields) or 'none'}"
            )


def _sentence(screens: Sequence[tuple[float, str]]) -> str:
    """The words that were shown, in the order of their times."""
    return SPACE.join(text for _, text in sorted(screens) if text)


def _trials(
    struct: Array, field: str, fields: tuple[str, ...], name: str
) -> Iterator[tuple[int, Mapping[str, Array]]]:
    """Yield the structs of each trial with its number, as mappings of the wanted fields."""
    cells = np.atleast_1d(
        struct[field].item() if struct[field].ndim == 0 else struct[field]
    )
    for trial, cell in enumerate(cells):
        structs = np.atleast_1d(np.asarray(cell))
        names = structs.dtype.names
        if names is None:
            if structs.size and structs.dtype != object:
                raise DataError(f"{name}, trial {trial}: {field} is not a struct")
            continue
        missing = [key for key in fields if key not in names]
        if missing:
            raise DataError(
                f"{name}, trial {trial}: {field} has no field {missing[0]!r}; it has {', '.join(names)}"
            )
        for row in structs.ravel():
            yield trial, {key: row[key] for key in fields}


def _number(value: object, where: str) -> float:
    array = np.asarray(value)
    try:
        if array.size == 1:
            number = float(array.reshape(()).item())
        else:
            number = float("nan")
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise DataError(f"{where} is {value!r}, not a number")
    return number


def _plain(text: npt.ArrayLike) -> str:
    """The text in lower case, without accents and byte order marks."""
    decomposed = unicodedata.normalize("NFKD", str(text) if np.size(text) else "")
    return decomposed.encode("ascii", "ignore").decode("ascii").strip().lower()
