"""Plausible amplitudes by type of channel, which reveal a wrong unit before decoding."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from neuroledger.errors import DataError, ImplausibleError

__all__ = ["PLAUSIBLE", "require_plausible", "to_microvolts"]

# Lowest and highest plausible standard deviation within a window, and its unit. The ranges are wide, because they only
# have to reveal a wrong unit (a factor of 1,000). EEG: an isoelectric record is below 2 µV peak to peak, an epileptic
# seizure above 1 mV.
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
# Factors to microvolts, or to femtotesla for magnetic channels.
ELECTRIC: Final = {"V": 1e6, "mV": 1e3, "uV": 1.0}
MAGNETIC: Final = {"T": 1e15, "fT": 1.0}
OPTICAL: Final = frozenset({"hbo", "hbr", "fnirs_od", "fnirs_cw_amplitude"})
"""Types of channels of near-infrared spectroscopy: concentrations, optical density and light."""


def to_microvolts(unit: str, kind: str) -> float | None:
    """Factor from `unit` to µV (fT for magnetic channels); None for an unknown unit."""
    return (MAGNETIC if kind in ("mag", "grad") else ELECTRIC).get(unit)


ADVICE: Final = (
    "Declare the unit of the values in the reader, `preprocessing: {stated: uV}` (or V, mV), or `{units: arbitrary}` if "
    "they have none"
)


def require_plausible(
    deviations: Mapping[str, float], unit: str, file: str, *, advice: str = ADVICE
) -> None:
    """Return if the standard deviations (by type of channel, in `unit`) are plausible.

    Raises
    ------
    ImplausibleError
        A standard deviation is implausible.
    DataError
        The unit is wrong for this type of channel.
    """
    for kind, value in deviations.items():
        if kind in OPTICAL and unit in (*ELECTRIC, *MAGNETIC):
            raise DataError(
                f"{file}: {kind} channels have no amplitude in {unit}: state `units: arbitrary` in `preprocessing`"
            )
        factor = to_microvolts(unit, kind)
        if factor is None and kind in PLAUSIBLE and unit in (*ELECTRIC, *MAGNETIC):
            units = "fT or T" if kind in ("mag", "grad") else "uV, mV or V"
            raise DataError(
                f"{file}: {kind} channels have no amplitude in {unit}: state `units` ({units}) in `preprocessing`, or "
                "`units: arbitrary` for types of channels without a common unit"
            )
        if factor is None or kind not in PLAUSIBLE or value == 0:
            continue
        low, high, base = PLAUSIBLE[kind]
        if not low <= value * factor <= high:
            raise ImplausibleError(
                f"{file}: {kind} channels vary by {value * factor:.3g} {base} (median standard deviation); {low:g} to "
                f"{high:g} {base} are plausible. {advice}"
            )
