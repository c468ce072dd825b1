"""What was shown and typed, from the logs that the presentation program wrote beside the recordings."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from neuroledger.data.parsing import matlab
from neuroledger.errors import DataError

__all__ = ["Logged", "read_log"]

VARIABLE: Final = "pr_trials"
SPACE: Final = " "


class Logged(NamedTuple):
    """Events of a log in order of time: words that were shown and keys that were pressed.

    Attributes
    ----------
    times
        Seconds on the clock of the program, (event,).
    codes
        The code that was sent to the recorder: of a word the declared one, of a key its number, (event,).
    trials
        Number of the trial from 0, (event,).
    pressed
        Whether it is a key, (event,).
    sentences
        By trial: its words in small letters without accents.
    """

    times: npt.NDArray[np.float64]
    codes: npt.NDArray[np.int64]
    trials: npt.NDArray[np.int64]
    pressed: npt.NDArray[np.bool_]
    sentences: dict[int, str]


def read_log(path: Path, name: str, *, word: int) -> Logged:
    """A MATLAB file with the struct `pr_trials`: cells `key` and `rsvp`, one for each trial, of structs.

    Of a key: `Keycode`, `Pressed` (0 where it was let go) and `Time`; of a word: `t` and `stim`. Trials without keys or
    words are empty cells.

    Raises
    ------
    DataError
        It is no such file.
    """
    held = matlab(path, VARIABLE, structs="squeezed")
    struct = held[VARIABLE]
    fields = struct.dtype.names or ()
    for field in ("key", "rsvp"):
        if field not in fields:
            raise DataError(
                f"{name}: {VARIABLE} has no field {field!r}; it has {', '.join(fields) or 'none'}"
            )
    events: list[tuple[float, int, int, bool]] = []
    words: dict[int, list[tuple[float, str]]] = {}
    for trial, row in _trials(struct, "rsvp", ("t", "stim"), name):
        at = _number(row["t"], f"{name}, trial {trial}: t")
        events.append((at, word, trial, False))
        words.setdefault(trial, []).append((at, _plain(row["stim"])))
    for trial, row in _trials(struct, "key", ("Keycode", "Pressed", "Time"), name):
        if _number(row["Pressed"], f"{name}, trial {trial}: Pressed"):
            code = _number(row["Keycode"], f"{name}, trial {trial}: Keycode")
            events.append((_number(row["Time"], f"{name}, trial {trial}: Time"), int(code), trial, True))
    if not any(pressed for *_, pressed in events):
        raise DataError(f"{name}: no key was pressed in any trial")
    events.sort(key=lambda event: event[0])
    times, codes, trials, pressed = (np.array(column) for column in zip(*events, strict=True))
    sentences = {
        trial: SPACE.join(text for _, text in sorted(shown) if text) for trial, shown in words.items()
    }
    return Logged(
        times.astype(float), codes.astype(np.int64), trials.astype(np.int64), pressed.astype(bool), sentences
    )


def _trials(
    struct: Any, field: str, wanted: tuple[str, ...], name: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The structs of each trial that has some."""
    cells = np.atleast_1d(struct[field].item() if struct[field].ndim == 0 else struct[field])
    for trial, cell in enumerate(cells):
        found = np.atleast_1d(np.asarray(cell))
        names = found.dtype.names
        if names is None:
            if found.size and found.dtype != object:
                raise DataError(f"{name}, trial {trial}: {field} is no struct")
            continue
        lost = [one for one in wanted if one not in names]
        if lost:
            raise DataError(
                f"{name}, trial {trial}: {field} has no field {lost[0]!r}; it has {', '.join(names)}"
            )
        for row in found.ravel():
            yield trial, {one: row[one] for one in wanted}


def _number(value: Any, where: str) -> float:
    array = np.asarray(value)
    try:
        number = float(array.reshape(()).item()) if array.size == 1 else float("nan")
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise DataError(f"{where} is {value!r}, no number")
    return number


def _plain(text: Any) -> str:
    """Small letters without accents and marks of byte order."""
    said = unicodedata.normalize("NFKD", str(text) if np.size(text) else "")
    return said.encode("ascii", "ignore").decode("ascii").strip().lower()
