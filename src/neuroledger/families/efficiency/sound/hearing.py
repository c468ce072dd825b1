"""What a model is shown of a sound: the sound at another rate, its band energies, or the spikes of their changes."""

from __future__ import annotations

from math import gcd
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.errors import DataError, RequestError
from neuroledger.families.efficiency.sound.bands import band_energies
from neuroledger.families.efficiency.sound.changes import changes

__all__ = ["BandEnergies", "BandSpikes", "Hearing", "Waveform", "heard", "resampled"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Bands(_Options):
    """``bands`` from ``low`` to ``high`` Hz, of ``window`` samples, every ``hop`` ms."""

    bands: Annotated[int, Field(gt=0, le=512)] = 20
    low: Annotated[float, Field(ge=0)] = 20.0
    high: Annotated[float, Field(gt=0)] = 4000.0
    window: Annotated[int, Field(ge=16, le=16384)] = 512
    hop: Annotated[float, Field(gt=0)] = 5.0


class BandEnergies(_Bands):
    """Natural logarithms of band energies; see :func:`neuroledger.families.efficiency.sound.bands.band_energies`."""

    name: Literal["bands"]


class BandSpikes(_Bands):
    """-1, 0 and 1 where a band energy's logarithm has moved by ``step``; one frame fewer than energies have."""

    name: Literal["spikes"]
    step: Annotated[float, Field(gt=0)] = 1.0


class Waveform(_Options):
    """The sound itself, at ``rate`` samples per second."""

    name: Literal["waveform"]
    rate: Annotated[int, Field(gt=0)]


Hearing = Annotated[BandEnergies | BandSpikes | Waveform, Field(discriminator="name")]


def heard(hearing: BandEnergies | BandSpikes | Waveform, sound: Array, rate: float) -> Floats:
    """What a model is shown of sounds (presentation, 1, time_bin) of ``rate`` samples per second.

    Returns
    -------
    numpy.ndarray
        (presentation, band, frame), or (presentation, 1, time_bin) for a waveform.

    Raises
    ------
    DataError
        The sounds have several channels, or none of their frames has a length of a whole number of samples.
    RequestError
        The bands do not fit the rate.
    """
    if sound.ndim != 3 or sound.shape[1] != 1:
        raise DataError(f"sounds are (presentation, 1, time_bin), one channel each, not {sound.shape}")
    if isinstance(hearing, Waveform):
        return np.asarray(resampled(sound, rate, hearing.rate), dtype=np.float32)
    hop = hearing.hop * rate / 1000
    if round(hop) < 1 or abs(hop - round(hop)) > 1e-6:
        raise RequestError(
            f"a hop of {hearing.hop:g} ms is {hop:g} samples at {rate:g} per second: it must be whole"
        )
    energies = band_energies(
        sound[:, 0],
        rate,
        points=hearing.window,
        hop=round(hop),
        bands=hearing.bands,
        low=hearing.low,
        high=hearing.high,
    )
    if isinstance(hearing, BandSpikes):
        return changes(energies, hearing.step)
    return np.asarray(energies, dtype=np.float32)


def resampled(sound: Array, rate: float, to: float) -> Array:
    """Sounds (…, time) at ``to`` samples per second instead of ``rate``: a polyphase low-pass filter, both whole numbers.

    The result has ``ceil(time · to / rate)`` samples.
    """
    if round(rate) != rate or round(to) != to:
        raise RequestError(f"{rate:g} samples per second cannot become {to:g}: both must be whole numbers")
    if rate == to:
        return sound
    from scipy.signal import resample_poly

    shared = gcd(round(rate), round(to))
    return np.asarray(resample_poly(sound, round(to) // shared, round(rate) // shared, axis=-1))
