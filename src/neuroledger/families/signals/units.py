"""Amplitudes that channels of a kind have, so that a wrong unit is found before anything is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from neuroledger.errors import DataError

__all__ = ["PLAUSIBLE", "require_plausible", "to_microvolts"]

# Standard deviation within a window, least and most, and its unit: wide, since only a wrong unit (a factor of 1,000) is to
# be found. EEG: an isoelectric record is below 2 µV peak to peak, an epileptic seizure above 1 mV.
PLAUSIBLE: Final[Mapping[str, tuple[float, float, str]]] = MappingProxyType(
    {
        "eeg": (0.05, 5_000.0, "µV"),
        "eog": (0.1, 20_000.0, "µV"),
        "ecg": (0.5, 50_000.0, "µV"),
        "emg": (0.05, 20_000.0, "µV"),
        "seeg": (0.1, 20_000.0, "µV"),
        "ecog": (0.1, 20_000.0, "µV"),
        "ieeg": (0.1, 20_000.0, "µV"),
        "mag": (1.0, 1_000_000.0, "fT"),
        "grad": (10.0, 100_000_000.0, "fT/m"),
    }
)
# What one of a unit is in microvolts, or in femtotesla for magnetic channels.
ELECTRIC: Final = {"V": 1e6, "mV": 1e3, "uV": 1.0}
MAGNETIC: Final = {"T": 1e15, "fT": 1.0}


def to_microvolts(unit: str, kind: str) -> float | None:
    """By what amplitudes in `unit` are multiplied to be in µV (fT for magnetic channels); None where nothing is known."""
    return (MAGNETIC if kind in ("mag", "grad") else ELECTRIC).get(unit)


SAY: Final = (
    "Say in the reader which unit its values have, `preprocessing: {stated: uV}` (or V, mV), or `{units: arbitrary}` where "
    "they have none"
)


def require_plausible(deviations: Mapping[str, float], unit: str, file: str, *, advice: str = SAY) -> None:
    """Return if the standard deviations (by kind of channel, in `unit`) are such as these channels have.

    Raises
    ------
    DataError
        One is not, or a kind of channel cannot have this unit; the message says what was seen.
    """
    for kind, value in deviations.items():
        factor = to_microvolts(unit, kind)
        if factor is None and kind in PLAUSIBLE and unit in (*ELECTRIC, *MAGNETIC):
            units = "fT or T" if kind in ("mag", "grad") else "uV, mV or V"
            raise DataError(
                f"{file}: {kind} channels have no amplitude in {unit}: state `units` ({units}) in `preprocessing`, or "
                "`units: arbitrary` for kinds that have none in common"
            )
        if factor is None or kind not in PLAUSIBLE or value == 0:
            continue
        low, high, shown = PLAUSIBLE[kind]
        if not low <= value * factor <= high:
            raise DataError(
                f"{file}: {kind} channels vary by {value * factor:.3g} {shown} (median standard deviation); {low:g} to "
                f"{high:g} {shown} are plausible. {advice}"
            )
