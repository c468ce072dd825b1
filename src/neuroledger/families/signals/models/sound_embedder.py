"""Embeddings of sections of sound: hidden states of a whole recording, averaged over the section."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from neuroledger.data.arrays import Floats, Reals, Singles
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


@builder("sound_embedder", version=1, takes={"sound"}, gives={"embeddings"})
def sound_embedder(
    *,
    id: str,
    architecture: str,
    states: States,
    config: Arguments | None = None,
    sampling_rate: Annotated[int, Field(gt=0, le=1_000_000)] = 16_000,
    frames_per_second: Positive,
    groups: PositiveInt = 1,
    beyond: Beyond = "refuse",
    unused: tuple[str, ...] = (),
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Embedder:
    """An audio network of transformers with pinned weights.

    A recording is averaged over its channels, resampled, and standardised to mean 0 and variance 1. The network
    processes it as a whole. Its output frames are mapped to a raster of ``frames_per_second``: each point takes the last
    frame at or before it.

    Parameters
    ----------
    states
        Hidden states that are averaged: 0 is the input of the first block, k the output of block k.
    groups
        Number of equal parts that a stimulus is divided into; their means are concatenated.
    beyond
        Treatment of a stimulus that begins before the recording or ends after it: refused, or filled with zeros.
    unused
        Prefixes of the names of tensors in the files that the network does not use.
    """
    require_tensors_only(weights or {}, id)
    network = pretrained(
        id,
        architecture,
        config or {},
        weights or {},
        states=states,
        unused=unused,
        device=device,
    )

    def embed(
        stimuli: Sequence[Shown], requested: tuple[int, ...] | None, tell: Tell
    ) -> Embedded:
        used = network.checked(requested or states)
        rows: dict[int, Floats] = {}
        filled = 0
        for path, indices in _indices_by_file(stimuli).items():
            frames = _hidden_frames(
                network, path, used, sampling_rate, frames_per_second
            )
            for index in indices:
                window, complete = stretch(
                    frames, stimuli[index], frames_per_second, beyond
                )
                filled += not complete
                rows[index] = grouped_mean(window, groups)
            tell(len(rows))
        notes = (
            (f"{filled} stimuli go beyond their recording: zeros stand there",)
            if filled
            else ()
        )
        return Embedded(
            np.stack([rows[index] for index in range(len(stimuli))]).astype(np.float32),
            notes,
        )

    settings = {
        "states": list(states),
        "sampling_rate": sampling_rate,
        "frames_per_second": frames_per_second,
    }
    settings |= {"groups": groups, "beyond": beyond}
    description = described(
        architecture,
        config or {},
        weights or {},
        device,
        ("soundfile", "scipy"),
        **settings,
    )
    return Embedder(id=id, shown="sound", embed=embed, described=description)


def stretch(
    frames: Reals, sound: Shown, rate: float, beyond: Beyond
) -> tuple[Reals, bool]:
    """The frames (frame, feature) of a stimulus on the raster, and whether the recording contains all of them.

    Raises
    ------
    DataError
        The stimulus extends beyond the recording although ``beyond`` is ``refuse``, or is outside it.
    """
    start = sound.start or 0.0
    duration = sound.duration or len(frames) / rate
    first = round(start * rate)
    count = max(1, round(duration * rate))
    index = np.arange(first, first + count)
    inside = (index >= 0) & (index < len(frames))
    if inside.all():
        return frames[index], True
    seconds = len(frames) / rate
    if beyond == "refuse" or not inside.any():
        raise DataError(
            f"stimulus {sound.stimulus_id!r} is {start:g} to {start + duration:g} s of {sound.where}, which lasts "
            f"{seconds:g} s: correct its start and duration"
        )
    window = np.zeros((count, frames.shape[1]))
    window[inside] = frames[index[inside]]
    return window, False


def waveform(path: Path, rate: int) -> Singles:
    """A recording as one channel at ``rate`` samples per second, with values between -1 and 1.

    Raises
    ------
    DataError
        The file is not sound, or is empty.
    UnavailableError
        soundfile is not installed.
    """
    require("soundfile", "sound")
    return confined(lambda: _decoded(path, rate), limits_for([path]), path.name)


def _decoded(path: Path, rate: int) -> Singles:
    import soundfile
    from scipy.signal import resample_poly

    try:
        sound, own = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} cannot be decoded as sound ({error})") from error
    if not len(sound):
        raise DataError(f"{path} contains no samples of sound")
    mono = sound.mean(axis=1)
    if own != rate:
        common = math.gcd(int(own), rate)
        mono = resample_poly(mono, rate // common, int(own) // common)
    return np.asarray(mono, dtype=np.float32)


def _hidden_frames(
    network: Pretrained, path: Path, states: Sequence[int], rate: int, raster: float
) -> Reals:
    import torch

    sound = waveform(path, rate).astype(np.float64)
    # The constant is that of the networks' own preparation; with it, silence stays silence.
    spread = math.sqrt(float(sound.var()) + 1e-7)
    standardised = ((sound - sound.mean()) / spread).astype(np.float32)
    hidden = (
        network.hidden(states, input_values=torch.from_numpy(standardised)[None])[0]
        .cpu()
        .numpy()
    )
    count = max(1, round(len(sound) / rate * raster))
    nearest: Reals = hidden[(np.arange(count) * len(hidden)) // count]
    return nearest


def _indices_by_file(stimuli: Sequence[Shown]) -> dict[Path, list[int]]:
    indices: dict[Path, list[int]] = {}
    for index, sound in enumerate(stimuli):
        indices.setdefault(sound.file, []).append(index)
    return indices
