"""Build simulated motor imagery deterministically: ``python -m tools.generate.motor_imagery [FOLDER]``.

Six subjects imagine moving a hand, 40 times each in two sessions; 12 electrodes, 64 Hz, windows of 2 s. The potential of
every source is that of a current dipole in a homogeneous conducting sphere (Mosher, Leahy & Lewis 1999, IEEE Trans.
Biomed. Eng. 46:245), radius 9 cm, 0.33 S/m. Two rhythms near 10 Hz have sources under C3 and C4; imagining the left hand
reduces the right one to ``DESYNCHRONISED`` of its amplitude, and vice versa. Thirty background dipoles with 1/f
spectra and white sensor noise differ between subjects, as do the positions of the rhythms and their frequency.
In the control, both rhythms are independent of the imagined hand, so that nothing can be decoded. In the second laboratory,
four other subjects wear more electrodes in another order, an amplifier is stronger, rhythms are weakened less, and the hands
have other words. Values are rounded to 0.05 µV.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data import assembly
from neuroledger.families.signals.signals import signals
from tools.generate import write
from tools.generate.pins import build_and_print

Array = npt.NDArray[Any]

SEED = 20061
TRIALS, RATE, SECONDS, PAUSE = 40, 64.0, 2.0, 4.0
DESYNCHRONISED = 0.4
RADIUS, CONDUCTIVITY = 0.09, 0.33
RHYTHM, BACKGROUND, SENSOR, STEP = 32e-9, 8e-9, 1.0, 0.05  # A m, A m, µV, µV
# Azimuth from the right ear towards the nose, and elevation from the plane of the ears, in degrees.
ELECTRODES = {
    "F3": (129, 45), "Fz": (90, 45), "F4": (51, 45), "FC3": (158, 45), "FC4": (22, 45), "C3": (180, 45),
    "Cz": (90, 90), "C4": (0, 45), "CP3": (202, 45), "CP4": (338, 45), "Pz": (270, 45), "Oz": (270, 0),
}  # fmt: skip
FURTHER = {"P3": (225, 30), "P4": (315, 30), "FPZ": (90, 0), "OZ": (270, 0), "PZ": (270, 45)}  # fmt: skip


class Laboratory(NamedTuple):
    """Who is recorded, with what, and how strong the effect is."""

    seed: int = SEED
    subjects: int = 6
    electrodes: tuple[str, ...] = tuple(ELECTRODES)
    weakened: float = DESYNCHRONISED
    gain: float = 1.0
    words: tuple[str, str] = ("left_hand", "right_hand")


LABORATORIES = {
    "MotorImagery.simulated": Laboratory(),
    "MotorImagery.simulated.noise": Laboratory(weakened=1.0),
    "MotorImagery.simulated.second_lab": Laboratory(
        seed=20_261_130,
        subjects=4,
        electrodes=("FPZ", "C4", "C3", "Cz", "FC4", "FC3", "CP4", "CP3", "P4", "PZ", "P3", "OZ"),
        weakened=0.5,
        gain=1.3,
        words=("LH", "RH"),
    ),
}  # fmt: skip


def on_sphere(azimuth: float, elevation: float, radius: float) -> Array:
    """Point (3,) in metres: x to the right ear, y to the nose, z up."""
    a, e = np.radians([azimuth, elevation])
    return radius * np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])


def potential(electrodes: Array, place: Array, moment: Array) -> Array:
    """Volts (electrode,) on the surface of the sphere from a dipole of `moment` (A m) at `place` (m), 0 < |place| < R."""
    r0 = float(np.linalg.norm(place))
    r = np.linalg.norm(electrodes, axis=1)
    d = electrodes - place
    a = np.linalg.norm(d, axis=1)
    f = a * (r * a + r**2 - electrodes @ place)
    common = 1 / (4 * np.pi * CONDUCTIVITY * r0**2)
    c1 = common * (2 * (d @ place) / a**3 + 1 / a - 1 / r)
    c2 = common * (2 / a**3 + (a + r) / (r * f))
    return np.asarray(
        (c1 - c2 * (electrodes @ place)) * (place @ moment)
        + c2 * r0**2 * (electrodes @ moment)
    )


def one_over_f(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Noise of unit variance over the last axis whose power falls with frequency."""
    spectrum = np.fft.rfft(rng.standard_normal(shape), axis=-1)
    frequency = np.fft.rfftfreq(shape[-1])
    spectrum *= 1 / np.sqrt(np.maximum(frequency, frequency[1]))
    noise = np.fft.irfft(spectrum, n=shape[-1], axis=-1)
    return np.asarray((noise - noise.mean(axis=-1, keepdims=True)) / noise.std())


def rhythm(rng: np.random.Generator, trials: int, samples: int, hertz: float) -> Array:
    """Sines (trial, sample) with a random phase and an amplitude that varies between 0.7 and 1.3."""
    time = np.arange(samples) / RATE
    phase = rng.uniform(0, 2 * np.pi, (trials, 1))
    waxing = 1 + 0.3 * np.sin(
        2 * np.pi * rng.uniform(0.3, 0.9, (trials, 1)) * time
        + rng.uniform(0, 2 * np.pi, (trials, 1))
    )
    return np.asarray(waxing * np.sin(2 * np.pi * hertz * time + phase))


def subject(
    rng: np.random.Generator, electrodes: Array, left: Array, weakened: float
) -> Array:
    """Windows (trial, channel, sample) in µV; `left` marks the trials of the imagined left hand."""
    samples = round(RATE * SECONDS)
    values = np.zeros((len(left), len(electrodes), samples))
    hertz = rng.uniform(9, 11)
    for azimuth, weak in ((180, ~left), (0, left)):
        direction = on_sphere(azimuth + rng.normal(0, 4), 45 + rng.normal(0, 4), 1.0)
        pattern = potential(electrodes, 0.8 * RADIUS * direction, RHYTHM * direction)
        strength = np.where(weak, weakened, 1.0)[:, None] * rng.lognormal(
            0, 0.15, (len(left), 1)
        )
        values += (
            pattern[:, None]
            * (strength * rhythm(rng, len(left), samples, hertz))[:, None]
        )
    for _ in range(30):
        direction = on_sphere(rng.uniform(0, 360), rng.uniform(-10, 90), 1.0)
        moment = rng.standard_normal(3)
        pattern = potential(
            electrodes,
            rng.uniform(0.3, 0.8) * RADIUS * direction,
            BACKGROUND * moment / np.linalg.norm(moment),
        )
        values += pattern[:, None] * one_over_f(rng, (len(left), samples))[:, None]
    values *= 1e6 * rng.uniform(0.9, 1.1)
    return np.asarray(values + SENSOR * rng.standard_normal(values.shape))


def recording(lab: Laboratory) -> xr.DataArray:
    """Signals of all subjects, sessions one after the other, in float32 µV."""
    angles = ELECTRODES | FURTHER
    places = np.stack([on_sphere(*angles[name], RADIUS) for name in lab.electrodes])
    values, labels, owners, sessions = [], [], [], []
    for number, rng in enumerate(np.random.default_rng(lab.seed).spawn(lab.subjects)):
        left = np.concatenate(
            [rng.permutation(np.repeat([True, False], TRIALS // 4)) for _ in range(2)]
        )
        values.append(lab.gain * subject(rng, places, left, lab.weakened))
        labels.append(np.where(left, *lab.words))
        owners.append(np.full(TRIALS, f"S{number + 1}"))
        sessions.append(np.repeat(["1", "2"], TRIALS // 2))
    owner, session = np.concatenate(owners), np.concatenate(sessions)
    onset = np.tile(PAUSE * np.arange(TRIALS // 2), 2 * lab.subjects)
    events = {
        "stimulus_id": np.concatenate(labels),
        "label": np.concatenate(labels),
        "subject": owner,
        "session": session,
        "recording": np.char.add(np.char.add(owner, "."), session),
        "trial": np.tile(np.arange(TRIALS // 2), 2 * lab.subjects),
        "onset": onset,
        "event": np.array(
            [f"E{number:03d}" for number in range(lab.subjects * TRIALS)]
        ),
    }
    rounded = (np.round(np.concatenate(values) / STEP) * STEP).astype(np.float32)
    return signals(
        rounded, channels=list(lab.electrodes), channel_types="eeg", sampling_rate=RATE, start=0.0, units="uV",
        events=events, positions=places,
    )  # fmt: skip


def build(folder: Path) -> list[Path]:
    """Write all data sets under `folder` and return the files to be pinned."""
    written = []
    for name, lab in LABORATORIES.items():
        home = folder / name
        home.mkdir(parents=True, exist_ok=True)
        assembly.write(recording(lab), home / "signals.nc")
        truth = {
            "weakened_to": lab.weakened,
            "seed": lab.seed,
            "decodable": lab.weakened != 1.0,
            "chance": 0.5,
        }
        write.truth(home / "truth.json", truth)
        written.append(home / "signals.nc")
    return written


if __name__ == "__main__":
    build_and_print(build)
