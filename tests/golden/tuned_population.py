"""Stimuli and closed-form responses of ten neuroids, which the peer's code was run on for ``properties_pipeline.json``."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

NEUROIDS = 10
PHASES = np.arange(0, 360, 45.0)
AT = 0.35


def gratings(places, radii, frequencies, orientations, phases=PHASES):
    """A full grid of gratings in the peer's order of rows."""
    names = (
        "position_y",
        "position_x",
        "contrast",
        "radius",
        "spatial_frequency",
        "orientation",
        "phase",
    )
    rows = itertools.product(
        places, places, [1.0], radii, frequencies, orientations, phases
    )
    return pd.DataFrame(list(rows), columns=names)


def stimulus_tables():
    """Tables by name, each with a ``stimulus_id``."""
    tables = {
        "blank": gratings([AT], [1.0], [1.0], [0.0], [0.0]).assign(contrast=0.0),
        "receptive_field": gratings(
            np.linspace(0, 0.7, 8),
            [0.1],
            [1.0, 4.0],
            [0.0, 45.0, 90.0, 135.0],
            [0.0, 180.0],
        ),
        "orientation": gratings(
            [AT], [0.3, 0.6], [0.7, 1.4, 2.8, 5.6], np.arange(0, 180, 15.0)
        ),
        "spatial_frequency": gratings(
            [AT], [0.75], 2.0 ** np.linspace(-1, 3.5, 10), np.arange(0, 180, 30.0)
        ),
        "size": gratings(
            [AT], np.linspace(0.05, 1.5, 16), [1.4, 2.8], np.arange(0, 180, 30.0)
        ),
        "texture": pd.DataFrame(
            list(itertools.product(("noise", "texture"), range(5), range(7))),
            columns=("type", "family", "sample"),
        ).assign(position_y=AT, position_x=AT),
    }
    return {
        name: table.assign(
            stimulus_id=[f"{name}{row:04d}" for row in range(len(table))], degrees=4.0
        )
        for name, table in tables.items()
    }


def responses(table):
    """Activations (stimulus, neuroid): some negative, some neuroids looking elsewhere."""
    n = np.arange(NEUROIDS)
    rest, gain = 0.15 * np.sin(3.0 * n + 0.5), 0.6 + 0.25 * n
    column = {name: table[name].to_numpy()[:, None] for name in table}
    if "type" in column:
        wave = 0.5 + 0.5 * np.sin(1.7 * column["family"] + 0.9 * column["sample"] + n)
        textured = 1 + 0.4 * (column["type"] == "texture") * np.cos(
            n + column["family"].astype(float)
        )
        return rest + gain * wave * textured
    y, x = AT + 0.02 * n * np.cos(n), AT + 0.02 * n * np.sin(n)
    far = (column["position_y"] - y) ** 2 + (column["position_x"] - x) ** 2
    angle = np.deg2rad(2 * (column["orientation"] - 17.0 * n))
    tuned = np.exp((0.2 + 0.35 * n) * (np.cos(angle) - 1))
    octaves = np.log2(column["spatial_frequency"]) - (-0.5 + 0.3 * n)
    tuned = tuned * np.exp(-(octaves**2) / (2 * (0.5 + 0.12 * n) ** 2))
    centre, surround = 0.12 + 0.05 * n, 0.1 * n
    size = column["radius"] / centre
    tuned = tuned * np.maximum(
        1 - np.exp(-(size**2)) - surround * (1 - np.exp(-((size / 3) ** 2))), 0
    )
    simple = n / NEUROIDS
    beat = 1 - simple + simple * np.cos(0.7 * n + np.deg2rad(column["phase"]))
    return rest + column["contrast"] * gain * tuned * beat * np.exp(-far / 0.045)
