"""Simulated recordings, dissimilarities and properties, drawn from a generative model fitted to measured ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings, floats
from neuroledger.data.assembly import average_repetitions
from neuroledger.data.factorize import encode
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.families.alignment.simulated_solving import simulated_solving
from neuroledger.stats.calibration import Experiment
from neuroledger.stats.splits import Split

__all__ = ["simulated_properties", "simulated_recordings"]

Draw = Callable[[np.random.Generator, int], Experiment[Measurement]]
# Maximum number of factors.
LATENT = 10
# Maximum number of simulated stimuli, neuroids and features, and of neuroids per subject.
STIMULI, NEUROIDS, FEATURES, OF_A_SUBJECT = 200, 60, 200, 60
# New items are measured items plus noise of this share of their standard deviation.
MOVED = 0.5
# Standard deviation of a model's noise on the factors (relative to the factors), and of its noise in each feature.
SEEN, OWN = 1.0, 0.3
# Standard deviation, over subjects, of the logarithm of the factors' weights.
BETWEEN = 0.3


@dataclass(frozen=True)
class _FactorModel:
    """Factor model of responses: scores (stimulus, factor), loadings (neuroid, bin, factor), residual signal, and noise.

    ``presentations`` is their number for each stimulus. Without repetitions (``None``), the noise is unknown and the whole
    residual counts as signal.
    """

    scores: Floats
    loadings: Floats
    residual: Floats
    noise: Floats
    presentations: Indices | None


def simulated_recordings(measured: Measurement, factors: Collection[str]) -> Draw:
    """Simulate experiments like a recording: new stimuli and new neuroids or subjects, with the variances of the data.

    Raises
    ------
    MetricError
        The target consists neither of responses, nor of dissimilarities, nor of times with responses over time.
    """
    dims = set(measured.target.dims)
    if {"stimulus", "stimulus_b"} <= dims:
        return _dissimilarities(measured)
    if dims == {"presentation"} and "time_bin" in measured.source.dims:
        return simulated_solving(measured)
    if (
        not {"presentation", "neuroid"}
        <= dims
        <= {"presentation", "neuroid", "time_bin"}
    ):
        raise MetricError(
            f"no generative model of data with dimensions {', '.join(sorted(map(str, dims)))} is known"
        )
    return _responses(
        measured, "subject" in factors, bool({"neuroid", "subject"} & set(factors))
    )


def _responses(measured: Measurement, subjects: bool, new: bool) -> Draw:
    """Simulate responses; ``new``: the neuroids are drawn anew in each experiment."""
    target = measured.target.transpose("presentation", "neuroid", ...)
    values = floats(target.values).reshape(*target.shape[:2], -1)
    usable: Booleans = np.isfinite(values).all(axis=(0, 2)) & (
        np.ptp(values, axis=0) > 0
    ).all(axis=1)
    if not usable.any():
        raise MetricError(
            "no neuroid varies without missing responses, so none can be simulated"
        )
    fitted = _fit_factors(values[:, usable], measured.repeated, target, usable)
    rows = _rows_of(measured.splits, len(values))
    groups = _groups(target, usable, subjects)
    width = min(FEATURES, measured.source.sizes.get("neuroid", FEATURES))
    bins = {n: c for n, c in target.coords.items() if c.dims == ("time_bin",)}
    timed = "time_bin" in measured.source.dims
    mixing = np.random.default_rng(0).standard_normal((fitted.scores.shape[1], width))
    tested = measured.repeated is not None and len(
        set(measured.repeated["stimulus_id"].values)
    ) < len(values)

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        stimuli, splits = rows(rng)
        count = len(stimuli)
        k = fitted.scores.shape[1]
        Z = _smoothed(
            fitted.scores[rng.integers(0, len(fitted.scores), count)],
            fitted.scores,
            rng,
        )
        neurons = rng if new else np.random.default_rng(0)
        chosen, own = groups(neurons)
        loadings = _smoothed(fitted.loadings[chosen], fitted.loadings, neurons)
        if subjects:
            subject_codes = np.unique(own, return_inverse=True)[1]
            loadings = (
                loadings
                * np.exp(
                    BETWEEN * neurons.standard_normal((subject_codes.max() + 1, 1, k))
                )[subject_codes]
            )
        signal = np.einsum("sk,ntk->snt", Z, loadings)
        signal += fitted.residual[chosen] * rng.standard_normal(signal.shape)
        # Averaging over repetitions sorts by the first coordinate, so `stimulus_id` comes first.
        stimulus_coords = {
            "stimulus_id": (
                "presentation",
                np.array([f"s{i:04d}" for i in range(count)]),
            )
        } | {
            name: ("presentation", np.asarray(c.values)[stimuli])
            for name, c in target.coords.items()
            if c.dims == ("presentation",) and name not in ("stimulus_id", "repetition")
        }
        neuroid_coords: dict[str, object] = {
            "neuroid_id": (
                "neuroid",
                np.array([f"n{i:04d}" for i in range(len(chosen))]),
            )
        }
        if own.size:
            neuroid_coords["subject"] = ("neuroid", own)

        def assembly(values: Floats, times: Indices) -> xr.DataArray:
            recordings = xr.DataArray(
                values,
                dims=("presentation", "neuroid", "time_bin"),
                coords=neuroid_coords | bins,
            )
            coords = {
                name: (dim, column[times])
                for name, (dim, column) in stimulus_coords.items()
            }
            recordings = recordings.assign_coords(coords)
            if "time_bin" in target.dims:
                return recordings
            return recordings.isel(time_bin=0, drop=True)

        repeated = averaged = assembly(signal, np.arange(count))
        if fitted.presentations is not None:
            times = np.repeat(np.arange(count), fitted.presentations[stimuli])
            number = np.concatenate(
                [np.arange(n) for n in fitted.presentations[stimuli]]
            )
            noisy = signal[times] + fitted.noise[chosen] * rng.standard_normal(
                (len(times), *signal.shape[1:])
            )
            repeated = assembly(noisy, times).assign_coords(
                repetition=("presentation", number)
            )
            averaged = average_repetitions(repeated)
            if tested and splits is not None:
                repeated = repeated.isel(
                    presentation=np.flatnonzero(np.isin(times, splits[0].test))
                )
        recordings = repeated if measured.repeated is not None else None
        measurement = Measurement(averaged, averaged, recordings, splits=splits)
        sources = []
        for _ in range(models):
            visible = Z + SEEN * rng.standard_normal(Z.shape)
            # All models are equally good and the same in all experiments: one mixture of the factors they see.
            features = visible @ mixing / np.sqrt(k) + OWN * rng.standard_normal(
                (count, width)
            )
            sources.append(
                _source(
                    features,
                    stimulus_coords["stimulus_id"][1],
                    bins if timed else {},
                    signal.shape[2],
                )
            )
        noiseless = (
            assembly(signal, np.arange(count))
            if fitted.presentations is not None
            else None
        )
        return Experiment(
            [replace(measurement, source=source) for source in sources],
            None
            if noiseless is None
            else replace(
                measurement, source=noiseless.drop_vars("subject", errors="ignore")
            ),
        )

    return draw


def _source(
    features: Floats, ids: npt.ArrayLike, bins: dict[Any, Any], times: int
) -> xr.DataArray:
    """Assembly of a model's features, which are the same in every time bin."""
    coords: dict[str, object] = {
        "stimulus_id": ("presentation", ids),
        "neuroid_id": (
            "neuroid",
            np.array([f"f{i:04d}" for i in range(features.shape[1])]),
        ),
    }
    if not bins:
        return xr.DataArray(features, dims=("presentation", "neuroid"), coords=coords)
    values = np.repeat(features[:, :, None], times, axis=2)
    return xr.DataArray(
        values, dims=("presentation", "neuroid", "time_bin"), coords=coords | bins
    )


def _fit_factors(
    values: Floats,
    repeated: xr.DataArray | None,
    target: xr.DataArray,
    usable: Booleans,
) -> _FactorModel:
    """Fit factors to standardised responses (stimulus, neuroid, bin), and estimate the noise in the residual."""
    count, neuroids, bins = values.shape
    flat = values.reshape(count, -1)
    level = flat.mean(axis=0)
    spread = flat.std(axis=0)
    U, s, V = np.linalg.svd((flat - level) / spread, full_matrices=False)
    rank = min(LATENT, min(flat.shape) - 1)
    scores = U[:, :rank] * np.sqrt(count)
    loadings = (s[:rank, None] * V[:rank]).T / np.sqrt(count)
    residual = ((flat - level) / spread - scores @ loadings.T).std(axis=0)
    noise = np.zeros(neuroids * bins)
    presentations = None
    if repeated is not None and "repetition" in repeated.coords:
        noise, presentations = _noise(repeated, target, usable)
        noise = noise / spread
        residual = np.sqrt(
            np.maximum(residual**2 - noise**2 * float((1 / presentations).mean()), 0.0)
        )
    shape = (neuroids, bins)
    return _FactorModel(
        scores,
        loadings.reshape(*shape, -1),
        residual.reshape(shape),
        noise.reshape(shape),
        presentations,
    )


def _noise(
    repeated: xr.DataArray, target: xr.DataArray, usable: Booleans
) -> tuple[Floats, Indices]:
    """Standard deviation of presentations about the stimulus mean, (neuroid · bin,), and presentations per stimulus."""
    repeated = repeated.transpose("presentation", "neuroid", ...)
    values = floats(repeated.values)[:, usable].reshape(len(repeated), -1)
    ids = encode(repeated["stimulus_id"].values.astype(str))
    counts = np.bincount(ids.codes)
    present = np.isfinite(values)
    filled = np.where(present, values, 0.0)
    means = np.zeros((len(counts), values.shape[1]))
    known = np.zeros((len(counts), values.shape[1]))
    np.add.at(means, ids.codes, filled)
    np.add.at(known, ids.codes, present)
    deviations = np.where(
        present, filled - (means / np.maximum(known, 1))[ids.codes], 0.0
    )
    free = np.maximum(known - 1, 0).sum(axis=0)
    deviation = np.sqrt((deviations**2).sum(axis=0) / np.maximum(free, 1))
    target_ids = target["stimulus_id"].values.astype(str)
    labels = ids.labels.astype(str)
    positions = np.minimum(np.searchsorted(labels, target_ids), len(labels) - 1)
    # Stimuli that are not part of `repeated`, such as train stimuli, get the median number of presentations.
    presentations = np.where(
        labels[positions] == target_ids, counts[positions], int(np.median(counts))
    )
    return deviation, presentations.astype(np.intp)


def _rows_of(
    splits: Sequence[Split] | None, count: int
) -> Callable[[np.random.Generator], tuple[Indices, list[Split] | None]]:
    """Function that draws the measured stimuli whose coordinates are used, and a predefined split in its proportions."""
    size = min(count, STIMULI)

    def rows(rng: np.random.Generator) -> tuple[Indices, list[Split] | None]:
        if splits is None:
            return np.sort(rng.choice(count, size, replace=False)), None
        if len(splits) > 1:
            raise MetricError(
                "several predefined divisions of the stimuli are not simulated"
            )
        train, test = splits[0]
        share = size / count
        parts = [
            np.sort(rng.choice(part, max(3, round(share * len(part))), replace=False))
            for part in (train, test)
        ]
        chosen = np.concatenate(parts)
        return chosen, [
            Split(np.arange(len(parts[0])), np.arange(len(parts[0]), len(chosen)))
        ]

    return rows


def _groups(
    target: xr.DataArray, usable: Booleans, subjects: bool
) -> Callable[[np.random.Generator], tuple[Indices, Strings]]:
    """Function that draws neuroids and their subjects: as many subjects as measured, each with neuroids of one of them."""
    count = int(usable.sum())
    if not subjects:
        return lambda rng: (
            rng.integers(0, count, min(count, NEUROIDS)),
            np.empty(0, dtype=str),
        )
    own = encode(target["subject"].values.astype(str)[usable])
    members = [np.flatnonzero(own.codes == code) for code in range(len(own.labels))]

    def groups(rng: np.random.Generator) -> tuple[Indices, Strings]:
        chosen = []
        labels = []
        for at in range(len(members)):
            pool = members[rng.integers(0, len(members))]
            size = min(len(pool), OF_A_SUBJECT)
            chosen.append(rng.choice(pool, size))
            labels += [f"p{at}"] * size
        return np.concatenate(chosen), np.array(labels)

    return groups


def _smoothed(drawn: Floats, all_: Floats, rng: np.random.Generator) -> Floats:
    """Add noise to drawn items and shrink them, so that mean and standard deviation stay those of all items."""
    mean = all_.mean(axis=0)
    spread = all_.std(axis=0)
    noise = spread * rng.standard_normal(drawn.shape)
    shrunk = np.sqrt(1 - MOVED**2) * (drawn - mean)
    return np.asarray(mean + shrunk + MOVED * noise)


def _dissimilarities(measured: Measurement) -> Draw:
    """Simulate dissimilarities: new stimuli in the geometry that subjects share, plus dimensions specific to each subject.

    The mean RDM of the subjects is embedded in a space [torgerson1952], in which new stimuli are drawn. The strength of the
    subject-specific dimensions is chosen such that two subjects agree as much as in the data.
    """
    rdms = measured.target.transpose(..., "stimulus", "stimulus_b")
    table = floats(rdms.values).reshape(-1, *rdms.shape[-2:])
    upper = np.triu_indices(table.shape[1], 1)
    pairs = np.stack([matrix[upper] for matrix in table])
    if not np.isfinite(pairs).all():
        raise MetricError(
            "dissimilarities are missing, so none like them can be simulated"
        )
    shared = 0.5
    if len(pairs) > 1:
        agreement = np.corrcoef(pairs)
        shared = float(agreement[np.triu_indices(len(pairs), 1)].mean())
    mean = table.mean(axis=0)
    n = len(mean)
    centre = np.eye(n) - 1 / n
    level, axes = np.linalg.eigh(-centre @ mean @ centre / 2)
    rank = max(2, min(LATENT, int((level > 0).sum())))
    places = axes[:, -rank:] * np.sqrt(np.maximum(level[-rank:], 1e-12))
    if "subject" in rdms.dims:
        names = list(map(str, rdms["subject"].values))
    else:
        names = []
    # The noise is that of the measured stimuli: noise in proportion to the drawn ones would offset their variation.
    own = _own_share(places, shared)
    scale = places.std()
    mixing = np.random.default_rng(0).standard_normal((2 * rank, FEATURES))

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        Z = _smoothed(places[rng.integers(0, n, n)], places, rng)
        ids = [f"s{i:04d}" for i in range(n)]

        def rdm() -> Floats:
            return _distances(
                np.hstack([Z, own * scale * rng.standard_normal(Z.shape)])
            )

        matrices = np.stack([rdm() for _ in range(max(1, len(names)))])
        coords: dict[str, object] = {"stimulus_id": ("stimulus", ids)}
        shape: tuple[str, ...] = ("stimulus", "stimulus_b")
        if names:
            coords["subject"], shape = (
                [f"p{i}" for i in range(len(names))],
                ("subject", *shape),
            )
        target = xr.DataArray(
            matrices if names else matrices[0], dims=shape, coords=coords
        )
        sources = [
            _source(
                np.hstack([Z, scale * rng.standard_normal(Z.shape)]) @ mixing,
                ids,
                {},
                1,
            )
            for _ in range(models)
        ]
        repeated = target if measured.repeated is not None else None
        measurement = Measurement(target, target, repeated)
        return Experiment([replace(measurement, source=source) for source in sources])

    return draw


def _distances(patterns: Floats) -> Floats:
    square = (patterns**2).sum(axis=1)
    distances = square[:, None] + square - 2 * patterns @ patterns.T
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.maximum(distances, 0.0))


def _own_share(places: Floats, correlation: float) -> float:
    """Strength of the subject-specific dimensions at which the RDMs of two subjects correlate by ``wanted`` (bisection)."""
    upper = np.triu_indices(len(places), 1)

    def agreement(strength: float) -> float:
        rng = np.random.default_rng(0)
        vectors = [
            _distances(
                np.hstack(
                    [
                        places,
                        strength * places.std() * rng.standard_normal(places.shape),
                    ]
                )
            )[upper]
            for _ in range(6)
        ]
        return float(np.asarray(np.corrcoef(vectors))[np.triu_indices(6, 1)].mean())

    low, high = 0.0, 8.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if agreement(middle) > correlation else (low, middle)
    return (low + high) / 2


def simulated_properties(measured: Measurement, factors: Collection[str]) -> Draw:
    """Simulate distributions of properties: other neuroids from the measured distribution, and the same model.

    A model is measured in all its neuroids, so equally good models are identical.

    Raises
    ------
    MetricError
        The target does not have the dimensions ``(neuroid, property)``.
    """
    target = measured.target
    source = measured.source
    if target.ndim != 2 or "neuroid" not in target.dims:
        raise MetricError(
            f"no generative model of properties with dimensions {tuple(target.dims)} is known"
        )
    table = floats(target.transpose("neuroid", ...).values)
    names = {
        n: c for n, c in target.coords.items() if c.dims and "neuroid" not in c.dims
    }
    ids = [f"n{i:04d}" for i in range(len(table))]

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        resampled = xr.DataArray(
            table[rng.integers(0, len(table), len(table))],
            dims=target.transpose("neuroid", ...).dims,
            coords=names | {"neuroid_id": ("neuroid", ids)},
            attrs=target.attrs,
        )
        return Experiment(
            [
                Measurement(
                    source,
                    resampled,
                    resampled if measured.repeated is not None else None,
                )
            ]
            * models
        )

    return draw
