"""Embeddings of stretches of sound: a whole recording is heard, and hidden states are averaged over the stretch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError
from neuroledger.families.signals.embeddings.pretrained import (
    Pretrained,
    States,
    described,
    pretrained,
    require_tensors_only,
)
from neuroledger.models.embedder import Embedded, Embedder, Shown, Tell, grouped_mean
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import Arguments

Positive = Annotated[float, Field(gt=0, le=1_000_000)]
Beyond = Literal["refuse", "zeros"]
Floats = NDArray[np.floating[Any]]


@builder("sound_embedder", version=1, takes={"sound"}, gives={"embeddings"})
def sound_embedder(
    *,
    id: str,
    architecture: str,
    states: States,
    config: Arguments | None = None,
    sampling_rate: Annotated[int, Field(gt=0, le=1_000_000)] = 16_000,
    frames_per_second: Positive,
    groups: Annotated[int, Field(gt=0)] = 1,
    beyond: Beyond = "refuse",
    unused: tuple[str, ...] = (),
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Embedder:
    """A network of transformers that hears sound, with pinned weights.

    A recording becomes one channel (the mean), the sampling rate, mean 0 and variance 1; it is heard as a whole, and the
    frames that come out are put on a raster of ``frames_per_second``, each the nearest before it.

    Parameters
    ----------
    states
        Hidden states that are averaged: 0 is what the first block receives, k what the k-th gives.
    groups
        Equal stretches of time that a stimulus is divided into; their means lie side by side.
    beyond
        Where a stimulus begins before the recording or ends after it: refused, or filled with zeros.
    unused
        Beginnings of names of tensors that the files hold and the network lacks.
    """
    require_tensors_only(weights or {}, id)
    network = pretrained(
        id, architecture, config or {}, weights or {}, states=states, unused=unused, device=device
    )

    def embed(shown: Sequence[Shown], asked: tuple[int, ...] | None, tell: Tell) -> Embedded:
        wanted = network.checked(asked or states)
        found: dict[int, NDArray[np.float64]] = {}
        filled = 0
        for path, places in _by_file(shown).items():
            frames = _heard(network, path, wanted, sampling_rate, frames_per_second)
            for place in places:
                window, whole = stretch(frames, shown[place], frames_per_second, beyond)
                filled += not whole
                found[place] = grouped_mean(window, groups)
            tell(len(found))
        notes = (f"{filled} stimuli go beyond their recording: zeros stand there",) if filled else ()
        return Embedded(np.stack([found[place] for place in range(len(shown))]).astype(np.float32), notes)

    how = {"states": list(states), "sampling_rate": sampling_rate, "frames_per_second": frames_per_second}
    how |= {"groups": groups, "beyond": beyond}
    told = described(architecture, config or {}, weights or {}, device, ("soundfile", "scipy"), **how)
    return Embedder(id=id, shown="sound", embed=embed, described=told)


def stretch(frames: Floats, one: Shown, rate: float, beyond: Beyond) -> tuple[Floats, bool]:
    """The frames (frame, feature) of a stimulus on the raster, and whether all of them were there.

    Raises
    ------
    DataError
        It goes beyond the recording and must not, or no part of it is in the recording.
    """
    start, duration = one.start or 0.0, one.duration or len(frames) / rate
    first, count = round(start * rate), max(1, round(duration * rate))
    place = np.arange(first, first + count)
    there = (place >= 0) & (place < len(frames))
    if there.all():
        return frames[place], True
    seconds = len(frames) / rate
    if beyond == "refuse" or not there.any():
        raise DataError(
            f"stimulus {one.stimulus_id!r} is {start:g} to {start + duration:g} s of {one.where}, which lasts "
            f"{seconds:g} s: correct its start and duration"
        )
    window = np.zeros((count, frames.shape[1]))
    window[there] = frames[place[there]]
    return window, False


def waveform(path: Path, rate: int) -> NDArray[np.float32]:
    """A recording as one channel at ``rate`` samples per second, its numbers between -1 and 1.

    Raises
    ------
    DataError
        It is no sound, or empty.
    UnavailableError
        soundfile is not installed.
    """
    require("soundfile", "sound")
    return confined(lambda: _decoded(path, rate), limits_for([path]), path.name)


def _decoded(path: Path, rate: int) -> NDArray[np.float32]:
    import soundfile
    from scipy.signal import resample_poly

    try:
        sound, own = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} cannot be decoded as sound ({error})") from error
    if not len(sound):
        raise DataError(f"{path} holds no sound")
    mono = sound.mean(axis=1)
    if own != rate:
        common = math.gcd(int(own), rate)
        mono = resample_poly(mono, rate // common, int(own) // common)
    return np.asarray(mono, dtype=np.float32)


def _heard(network: Pretrained, path: Path, states: Sequence[int], rate: int, raster: float) -> Floats:
    import torch

    sound = waveform(path, rate).astype(np.float64)
    spread = math.sqrt(
        float(sound.var()) + 1e-7
    )  # as the network's own preparation has it; silence stays silence
    heard = ((sound - sound.mean()) / spread).astype(np.float32)
    hidden = network.hidden(states, input_values=torch.from_numpy(heard)[None])[0].cpu().numpy()
    count = max(1, round(len(sound) / rate * raster))
    nearest: Floats = hidden[(np.arange(count) * len(hidden)) // count]
    return nearest


def _by_file(shown: Sequence[Shown]) -> dict[Path, list[int]]:
    found: dict[Path, list[int]] = {}
    for place, one in enumerate(shown):
        found.setdefault(one.file, []).append(place)
    return found
