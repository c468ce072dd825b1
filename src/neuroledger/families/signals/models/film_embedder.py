"""Embeddings of films: clips of frames through a video network, tokens and clips averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Floats
from neuroledger.errors import DataError
from neuroledger.families.signals.embeddings.film_frames import clips, seconds_of
from neuroledger.families.signals.embeddings.pretrained import (
    States,
    described,
    pretrained,
    require_tensors_only,
)
from neuroledger.families.signals.models.image_embedder import Tokens, pooled
from neuroledger.models.embedder import Embedded, Embedder, Shown, Tell
from neuroledger.models.hub import PHOTOGRAPH
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import Arguments

Positive = Annotated[float, Field(gt=0, le=10_000)]


@builder("film_embedder", version=1, takes={"film"}, gives={"embeddings"})
def film_embedder(
    *,
    id: str,
    architecture: str,
    states: States,
    frames: Annotated[int, Field(gt=0, le=4096)],
    clips_per_second: Positive,
    clip_seconds: Positive | None = None,
    config: Arguments | None = None,
    tokens: Tokens = "mean",
    preprocessing: Preprocessing = PHOTOGRAPH,
    input: Annotated[str, Field(pattern=r"^[a-z_]+$")] = "pixel_values_videos",
    unused: tuple[str, ...] = (),
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Embedder:
    """A video network of transformers with pinned weights.

    Parameters
    ----------
    states
        Hidden states that are averaged: 0 is the input of the first block, k the output of block k.
    frames
        Number of frames of a clip, at equal steps, the last at the clip's end.
    clips_per_second, clip_seconds
        Clips end at equal steps, the last at the stimulus's end. A clip lasts ``clip_seconds``, by default
        1 / ``clips_per_second``.
    tokens
        Mean over all tokens of a clip, or its first or last token; then the mean over clips.
    input
        The network's argument for the frames, (stimulus, frame, channel, height, width).
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
    preprocessing.check(id)
    span = clip_seconds or 1 / clips_per_second

    def embed(
        stimuli: Sequence[Shown], requested: tuple[int, ...] | None, tell: Tell
    ) -> Embedded:
        import torch

        used = network.checked(requested or states)
        rows = []
        for film in stimuli:
            start = film.start or 0.0
            duration = film.duration or seconds_of(film.file) - start
            times = moments(start, duration, clips_per_second, span, frames, film)
            embedded = (
                pooled(
                    network.hidden(used, **{input: torch.from_numpy(clip)[None]}),
                    tokens,
                )[0]
                for clip in clips(film.file, times, preprocessing.one)
            )
            rows.append(np.mean([row.astype(np.float64) for row in embedded], axis=0))
            tell(len(rows))
        return Embedded(np.stack(rows).astype(np.float32))

    settings: dict[str, object] = {
        "states": list(states),
        "frames": frames,
        "clips_per_second": clips_per_second,
    }
    settings |= {
        "clip_seconds": span,
        "tokens": tokens,
        "preprocessing": preprocessing.model_dump(mode="json"),
    }
    description = described(
        architecture, config or {}, weights or {}, device, ("av", "pillow"), **settings
    )
    return Embedder(id=id, shown="film", embed=embed, described=description)


def moments(
    start: float,
    duration: float,
    clips_per_second: float,
    span: float,
    frames: int,
    film: Shown,
) -> Floats:
    """Times of the frames of each clip, (clip, frame), in seconds of the film.

    Clip c of n ends at start + duration (c + 1) / n; its frame f of F is span (F - 1 - f) / F before that, but not
    before the stimulus begins.

    Raises
    ------
    DataError
        The stimulus has no duration, or begins before the film.
    """
    if start < 0 or duration <= 0:
        raise DataError(
            f"stimulus {film.stimulus_id!r} is {start:g} to {start + duration:g} s of {film.where}: it must begin in "
            "the film and last"
        )
    count = max(1, round(clips_per_second * duration))
    ends = start + duration * np.arange(1, count + 1) / count
    offsets = span * np.arange(frames - 1, -1, -1) / frames
    times: Floats = np.maximum(ends[:, None] - offsets[None], start)
    return times
