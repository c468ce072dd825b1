"""The table of positions that a network of braindecode downloads, written from what is known of the channels instead."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from neuroledger.data.threads import with_variables
from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.channel_adapters import standard_positions
from neuroledger.families.decoding.protocols.decoder import Signature

__all__ = ["channel_positions", "table_of_positions"]

FOLDER: Final = "REVE_POSITIONS_PATH"
"""The variable of the environment that names the folder where braindecode looks for the table before it downloads it."""
FILE: Final = "reve_positions.json"
MONTAGE: Final = "standard_1005"


def channel_positions(signature: Signature, id: str) -> dict[str, list[float]]:
    """The position of each channel in metres, in head coordinates: of the data, else of MNE's montage of this name.

    Raises
    ------
    ModelError
        The position of a channel is not known.
    """
    known: dict[str, list[float]] = {}
    for name, place in zip(
        signature.channel_ids, signature.positions or (), strict=False
    ):
        if np.isfinite(place).all():
            known[name] = [float(axis) for axis in place]
    if len(known) < len(signature.channel_ids):
        montage = standard_positions(MONTAGE, id)
        for name in signature.channel_ids:
            if name not in known and name.lower() in montage:
                known[name] = montage[name.lower()]
    unplaced = [name for name in signature.channel_ids if name not in known]
    if unplaced:
        raise ModelError(
            f"model {id!r}: no position is known of {', '.join(unplaced)}: the data must state them"
        )
    return known


@contextmanager
def table_of_positions(signature: Signature, id: str) -> Iterator[None]:
    """Let a network that is built within the context find the positions of these channels in place of its own table."""
    with tempfile.TemporaryDirectory() as folder:
        table = json.dumps(channel_positions(signature, id))
        (Path(folder) / FILE).write_text(table, encoding="utf-8")
        with with_variables({FOLDER: folder}):
            yield
