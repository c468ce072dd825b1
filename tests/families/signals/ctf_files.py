"""A simulated CTF recording, packed byte by byte: header, signals, head coils and markers in a folder."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

GRADIOMETER, REFERENCE, REFERENCE_GRADIOMETER, STIMULUS, CLOCK = 5, 0, 1, 11, 17
GAINS: Mapping[int, tuple[float, float]] = {
    GRADIOMETER: (-1.8e9, 1048576.0),
    REFERENCE: (2.5e8, 1048576.0),
    REFERENCE_GRADIOMETER: (1.2e9, 1048576.0),
    STIMULUS: (1.0, 1.0),
    CLOCK: (1.0, 1.0),
}
THIRD_ORDER = 1194541650
"""What CTF calls coefficients that take the references out up to the third gradient."""
KEPT_COILS, KEPT_SENSORS, NAME_BYTES = 8, 50, 31


class _Packed(bytearray):
    """Big-endian fields, one after the other."""

    def text(self, said: str, size: int) -> None:
        self += said.encode("ascii").ljust(size, b"\0")[:size]

    def put(self, kind: str, *values: float) -> None:
        self += struct.pack(f">{kind}", *values)

    def aligned(self, size: int) -> None:
        self += b"\0" * (-len(self) % size)


def ctf(
    path: Path,
    channels: Sequence[tuple[str, int]],
    counts: np.ndarray,
    *,
    rate: float,
    trials: int = 1,
    order: int = 0,
) -> None:
    """A folder `….ds` with (channel, sample) counts of the converter, in so many trials of one length.

    A count of a channel is 1 / (proper gain × q gain) tesla; `order` is the gradient up to which the references are taken
    out already.
    """
    path.mkdir(parents=True)
    length = counts.shape[1] // trials
    head = _header(channels, rate, length, trials, order)
    (path / f"{path.stem}.res4").write_bytes(head)
    blocks = [
        counts[:, number * length : (number + 1) * length].astype(">i4").tobytes()
        for number in range(trials)
    ]
    (path / f"{path.stem}.meg4").write_bytes(b"MEG41CP\0" + b"".join(blocks))
    lines = []
    for frame, down in (("dewar", 20.0), ("head", 0.0)):
        for coil, place in (
            ("nasion", (9.0, 0.0)),
            ("left ear", (0.0, 7.0)),
            ("right ear", (0.0, -7.0)),
        ):
            lines += [f"measured {coil} coil position relative to {frame} (cm):"]
            lines += [
                f"\t{axis} = {value:.4f}"
                for axis, value in zip("xyz", (*place, -down), strict=True)
            ]
    (path / f"{path.stem}.hc").write_text("\n".join(lines) + "\n", encoding="ascii")
    (path / "BadChannels").write_text("", encoding="ascii")
    (path / "ClassFile.cls").write_text("PATH OF DATASET:\n", encoding="ascii")
    (path / "MarkerFile.mrk").write_text(
        "PATH OF DATASET:\n\n\nNUMBER OF MARKERS:\n1\n\n\nNAME:\nphotodiode\nNUMBER OF SAMPLES:\n1\nLIST OF SAMPLES:\n"
        "TRIAL NUMBER\t\tTIME FROM SYNC POINT (in seconds)\n                  +0\t\t\t\t     +0.5\n",
        encoding="ascii",
    )


def _header(
    channels: Sequence[tuple[str, int]],
    rate: float,
    length: int,
    trials: int,
    order: int,
) -> bytes:
    packed = _Packed()
    packed.text("MEG41RS", 8)
    for said in ("Acq", "CTF", "things"):
        packed.text(said, 256)
    packed.put("h", 0)
    packed.text("10:30:00", 255)
    packed.text("05/04/2021", 255)
    packed.put("ih", length, len(channels))
    packed.aligned(8)
    packed.put("ddh", rate, length * trials / rate, trials)
    packed.aligned(4)
    packed.put("ihh", 0, trials, 0)
    packed.aligned(4)
    packed.put("i", 1)
    packed += bytes(1 + 8 + 1)
    packed.put("h", 0)
    packed.aligned(4)
    packed.put("ih", 0, 0)
    packed.aligned(4)
    packed.put("i", 0)
    packed.aligned(4)
    packed.put("ii", 0, 0)
    for said, size in (
        ("run", 32),
        ("things", 256),
        ("", 32),
        ("", 32),
        ("01", 32),
        ("", 32),
        ("", 60),
    ):
        packed.text(said, size)
    packed.aligned(4)
    packed.put("i", 4)
    packed += bytes(1844 - len(packed))
    packed.text("run", 4)
    packed.put("h", 1)
    packed.put("diihd", 300.0, 1, 1, 1, 0.0)
    for name, _ in channels:
        packed.text(name, 32)
    for number, (_, kind) in enumerate(channels):
        proper, q = GAINS[kind]
        packed.put("hhidddd", kind, 0, 0, proper, q, 1.0, 0.0)
        packed.put(
            "hhi",
            2 if kind in (GRADIOMETER, REFERENCE_GRADIOMETER) else 1,
            order if kind == GRADIOMETER else 0,
            0,
        )
        for _ in ("dewar", "head"):
            for coil in range(KEPT_COILS):
                seen = (
                    kind in (GRADIOMETER, REFERENCE, REFERENCE_GRADIOMETER) and coil < 2
                )
                at = (3.0 + number, 2.0, 12.0 + 5.0 * coil) if seen else (0.0, 0.0, 0.0)
                packed.put("dddd", *at, 0.0)
                packed.put("dddd", 0.0, 0.0, 1.0 if seen else 0.0, 0.0)
                packed.put("hihd", 1, 0, 0, 2.5 if seen else 0.0)
    references = [
        name for name, kind in channels if kind in (REFERENCE, REFERENCE_GRADIOMETER)
    ]
    own = [name for name, kind in channels if kind == GRADIOMETER]
    packed.put("h", len(own))
    for name in own:
        packed.text(name, 32)
        packed.put("iih", THIRD_ORDER, 0, len(references))
        for sensor in [*references, *[""] * (KEPT_SENSORS - len(references))]:
            packed.text(sensor, NAME_BYTES)
        packed.put(
            f"{KEPT_SENSORS}d",
            *[0.01] * len(references),
            *[0.0] * (KEPT_SENSORS - len(references)),
        )
    return bytes(packed)
