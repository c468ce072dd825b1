"""Channels of a file at different rates: those that are picked must have one, unless resampling is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.timelines import noted_at

if TYPE_CHECKING:
    from mne.io import BaseRaw

__all__ = ["at_one_rate", "note_rates", "note_remark"]

KEY: Final = "rates"
REMARK: Final = "remark"
SHOWN: Final = 6


def note_rates(raw: BaseRaw, rates: Mapping[str, float]) -> None:
    """Note at MNE's `Raw` at which rate (Hz) the file has each channel; MNE interpolates slower ones."""
    raw.info["temp"] = {**noted_at(raw), KEY: dict(rates)}


def note_remark(raw: BaseRaw, channels: Sequence[str], remark: str) -> None:
    """Note at MNE's `Raw` what was done to bring some of its channels to the rate of the recording."""
    raw.info["temp"] = {**noted_at(raw), REMARK: (frozenset(channels), remark)}


def at_one_rate(
    raw: BaseRaw, names: Mapping[str, str], resample: float | None, file: str
) -> tuple[BaseRaw, list[str]]:
    """The recording with all its channels as recorded, at their one rate, and remarks on channels that are resampled.

    Parameters
    ----------
    raw
        MNE's `Raw` of the picked channels.
    names
        Names of channels by their names in the file.
    resample
        The declared rate of all channels in Hz, at which channels of several rates are accepted.

    Raises
    ------
    DataError
        Channels have several rates, and no common rate is declared.
    """
    stated: Mapping[str, float] = noted_at(raw).get(KEY, {})
    in_file = {short: name for name, short in names.items()}
    rates = {
        name: stated[in_file.get(name, name)]
        for name in raw.ch_names
        if in_file.get(name, name) in stated
    }
    if len(rates) < len(raw.ch_names) or set(rates.values()) == {
        float(raw.info["sfreq"])
    }:
        return raw, _remarks(raw, in_file)
    by_rate: dict[float, list[str]] = {}
    for name, rate in rates.items():
        by_rate.setdefault(rate, []).append(name)
    if len(by_rate) == 1:
        return _as_recorded(raw, in_file, next(iter(by_rate))), []
    listed = ", ".join(
        f"{_names(by_rate[rate])} {'has' if len(by_rate[rate]) == 1 else 'have'} {rate:g} Hz"
        for rate in sorted(by_rate)
    )
    if resample is None:
        raise DataError(
            f"{file} has channels of several rates: {listed}. Keep channels of one rate by `channels`, `pick` or `drop` in "
            "`preprocessing`, or declare the common rate, `resample: RATE`"
        )
    slow = [name for rate in sorted(by_rate)[:-1] for name in by_rate[rate]]
    return raw, [
        f"channels of several rates ({listed}) are resampled to {resample:g} Hz: {_names(slow)} "
        f"{'is' if len(slow) == 1 else 'are'} interpolated, by Fourier's method"
    ]


def _remarks(raw: BaseRaw, in_file: Mapping[str, str]) -> list[str]:
    """The remark that was noted when the recording was opened, if it is about a picked channel."""
    channels, remark = noted_at(raw).get(REMARK, (frozenset(), ""))
    picked = {in_file.get(name, name) for name in raw.ch_names}
    if channels & picked:
        return [remark]
    return []


def _names(names: Sequence[str]) -> str:
    if len(names) > SHOWN:
        rest = f" and {len(names) - SHOWN} more"
    else:
        rest = ""
    return f"{', '.join(names[:SHOWN])}{rest}"


def _as_recorded(raw: BaseRaw, in_file: Mapping[str, str], rate: float) -> BaseRaw:
    """The channels opened once more without the faster ones, so that MNE does not interpolate them."""
    import mne

    original = [in_file.get(name, name) for name in raw.ch_names]
    begin = float(raw.first_time)
    seconds = raw.n_times / float(raw.info["sfreq"])
    opened = mne.io.read_raw(
        raw.filenames[0], include=original, preload=False, verbose="ERROR"
    )
    opened.reorder_channels(original)
    opened.rename_channels(dict(zip(original, raw.ch_names, strict=True)))
    opened.set_channel_types(
        dict(zip(raw.ch_names, raw.get_channel_types(), strict=True))
    )
    for new, old in zip(opened.info["chs"], raw.info["chs"], strict=True):
        new["loc"] = old["loc"]
    last = min(begin + seconds - 1.0 / rate, float(opened.times[-1]))
    if begin > 0 or last < opened.times[-1]:
        opened.crop(begin, last)
    opened.info["temp"] = noted_at(raw)
    return opened
