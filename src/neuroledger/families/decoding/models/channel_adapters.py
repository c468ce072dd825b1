"""Channel adapters: a matrix from the channels of a recording to those of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat

from neuroledger.data.arrays import Array, Floats
from neuroledger.errors import ModelError
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.fields import AtLeastOne
from neuroledger.families.signals.recordings.signal_preprocessing import quiet_mne
from neuroledger.spec.base import Frozen

__all__ = [
    "UNKNOWN",
    "Adapted",
    "Bipolar",
    "ByName",
    "ByPosition",
    "ChannelAdapter",
    "Learned",
    "adapt_channels",
    "standard_positions",
]

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Place = tuple[float, float, float]
Missing = Literal["refuse", "zero"]
UNKNOWN: Place = (np.nan, np.nan, np.nan)


class ByName(Frozen):
    """The `channels` by name, in this order and regardless of case; a missing one is refused, zero, or left out."""

    name: Literal["by_name"]
    channels: Names
    missing: Literal["refuse", "zero", "leave_out"] = "refuse"


class Bipolar(Frozen):
    """Differences of two channels, written `F7-T7`; one without a second name is the channel itself."""

    name: Literal["bipolar"]
    channels: Names
    missing: Missing = "refuse"


class ByPosition(Frozen):
    """The `channels`, those that the recording lacks by spherical splines, as MNE computes them.

    Attributes
    ----------
    positions
        Positions of the channels in metres in MNE's head coordinates, or the name of one of MNE's montages.
    origin
        Centre of the sphere in metres.
    """

    name: Literal["by_position"]
    channels: Names
    positions: str | dict[str, Place] = "standard_1005"
    origin: Place = (0.0, 0.0, 0.04)


class Learned(Frozen):
    """A convolution over channels only (1×1), trained with the network.

    Attributes
    ----------
    channels
        Their names, or their number.
    start
        `random`: torch's initialisation; `names`: each channel starts as the one of the same name, or zero; `pairs`: as
        `random`, plus the difference that the name states (`F7-T7`).
    largest_norm
        Largest Euclidean norm of the weights of a channel.
    """

    name: Literal["learned"]
    channels: AtLeastOne | Names
    start: Literal["random", "names", "pairs"] = "random"
    largest_norm: PositiveFloat | None = None


ChannelAdapter = Annotated[
    ByName | Bipolar | ByPosition | Learned, Field(discriminator="name")
]


class Adapted(NamedTuple):
    """The signature that an adapter gives, its matrix (channel of the network, channel), and the missing channels."""

    signature: Signature
    matrix: Floats
    missing: tuple[str, ...]


def adapt_channels(adapter: ChannelAdapter, signature: Signature, id: str) -> Adapted:
    """The matrix from the channels of the signature to those of the adapter.

    Raises
    ------
    ModelError
        A channel is missing, or its position is not known.
    """
    if isinstance(adapter, ByPosition):
        matrix, places = _interpolation(adapter, signature, id)
        return Adapted(_signature(signature, adapter.channels, places), matrix, ())
    if isinstance(adapter, Learned):
        names = _names_of(adapter)
        pairs = adapter.start == "pairs"
        refused = False
    else:
        names = adapter.channels
        refused = adapter.missing == "refuse"
        pairs = isinstance(adapter, Bipolar)
    matrix, missing = _selection(names, signature.channel_ids, pairs=pairs)
    if missing and refused:
        raise ModelError(
            f"model {id!r}: the windows have no channels {', '.join(missing)}; they have "
            f"{', '.join(signature.channel_ids)}: `missing: zero`, or another adapter (`by_position`, `learned`)"
        )
    if isinstance(adapter, ByName) and adapter.missing == "leave_out":
        names = tuple(name for name in names if name not in missing)
        matrix = matrix[matrix.any(axis=1)]
        missing = ()
    if not matrix.any() and not isinstance(adapter, Learned):
        raise ModelError(
            f"model {id!r}: none of the channels {', '.join(signature.channel_ids)} is one of its adapter's"
        )
    if pairs:
        places = [UNKNOWN] * len(names)
    else:
        places = _moved(matrix, signature)
    return Adapted(_signature(signature, names, places), matrix, missing)


def _names_of(adapter: Learned) -> tuple[str, ...]:
    """Names of the channels of a learned adapter; numbered if only their number is declared."""
    if isinstance(adapter.channels, int):
        return tuple(f"learned {number}" for number in range(adapter.channels))
    return adapter.channels


def _selection(
    names: Sequence[str], own: Sequence[str], *, pairs: bool
) -> tuple[Floats, tuple[str, ...]]:
    """(name, own channel) zeros, ones and minus ones, and the names of which a channel is missing, whose row is zero."""
    column = {name.lower(): number for number, name in enumerate(own)}
    matrix = np.zeros((len(names), len(own)))
    missing = []
    for row, name in enumerate(names):
        first, _, second = name.partition("-") if pairs else (name, "", "")
        parts = [part.lower() for part in (first, second) if part]
        if not all(part in column for part in parts):
            missing.append(name)
            continue
        for part, sign in zip(parts, (1.0, -1.0), strict=False):
            matrix[row, column[part]] = sign
    return matrix, tuple(missing)


def _moved(matrix: Floats, signature: Signature) -> list[Place]:
    """The positions of channels that were picked, NaN for the others."""
    known = signature.positions or [UNKNOWN] * signature.channels
    return [known[int(row.argmax())] if row.any() else UNKNOWN for row in matrix]


def _signature(
    signature: Signature, names: Sequence[str], places: Sequence[Place]
) -> Signature:
    """The signature with these channels."""
    known = bool(np.isfinite(np.array(places, dtype=float)).any())
    return signature._replace(
        channels=len(names),
        channel_ids=tuple(names),
        positions=tuple(places) if known else None,
    )


def _interpolation(
    adapter: ByPosition, signature: Signature, id: str
) -> tuple[Floats, list[Place]]:
    """The matrix of spherical splines and the positions of the channels; a channel that the recording has stays as it is.

    MNE interpolates unit vectors, so that the interpolated channels are the rows of its matrix.
    """
    places = _places(adapter, id)
    own = np.array(signature.positions or [UNKNOWN] * signature.channels, dtype=float)
    known: Array = np.isfinite(own).all(axis=1)
    matrix, missing = _selection(adapter.channels, signature.channel_ids, pairs=False)
    if not missing:
        return matrix, places
    if known.sum() < 4:
        raise ModelError(
            f"model {id!r}: {int(known.sum())} channels have a position, too few to interpolate {', '.join(missing)}"
        )
    sources = [f"own {number}" for number in np.flatnonzero(known)]
    named = dict(zip(sources, own[known], strict=True))
    named |= {
        name: np.array(place)
        for name, place in zip(adapter.channels, places, strict=True)
        if name in missing
    }
    with quiet_mne() as mne:
        info = mne.create_info(list(named), 1.0, "eeg")
        info.set_montage(mne.channels.make_dig_montage(named, coord_frame="head"))
        values = np.zeros((len(named), len(sources)))
        values[: len(sources)] = np.eye(len(sources))
        raw = mne.io.RawArray(values, info)
        raw.info["bads"] = list(missing)
        raw.interpolate_bads(origin=adapter.origin)
        rows = raw.get_data(picks=list(missing))
    for name, row in zip(missing, rows, strict=True):
        matrix[adapter.channels.index(name), known] = row
    return matrix, places


def _places(adapter: ByPosition, id: str) -> list[Place]:
    """The positions of the adapter's channels."""
    known: Mapping[str, Sequence[float]]
    if isinstance(adapter.positions, str):
        with quiet_mne() as mne:
            known = _montage(mne, adapter.positions, id)
    else:
        known = adapter.positions
    by_name = {name.lower(): place for name, place in known.items()}
    unplaced = [name for name in adapter.channels if name.lower() not in by_name]
    if unplaced:
        raise ModelError(
            f"model {id!r}: no position is known of {', '.join(unplaced)}: state it in `positions`"
        )
    found = (by_name[name.lower()] for name in adapter.channels)
    return [(float(x), float(y), float(z)) for x, y, z in found]


def standard_positions(montage: str, id: str) -> dict[str, list[float]]:
    """The positions of a montage of MNE in metres, in head coordinates, by name in small letters.

    Raises
    ------
    ModelError
        MNE has no such montage.
    """
    with quiet_mne() as mne:
        known = _montage(mne, montage, id)
    return {
        name.lower(): [float(axis) for axis in place] for name, place in known.items()
    }


def _montage(mne: ModuleType, name: str, id: str) -> Mapping[str, Sequence[float]]:
    """The positions of a montage of MNE in head coordinates."""
    try:
        montage = mne.channels.make_standard_montage(name)
    except ValueError as error:
        raise ModelError(f"model {id!r}: MNE has no montage {name!r}") from error
    info = mne.create_info(montage.ch_names, 1.0, "eeg").set_montage(montage)
    return {channel["ch_name"]: channel["loc"][:3] for channel in info["chs"]}
