"""Ceiling of an RDM: the expected agreement of the noiseless dissimilarities with the measured ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, floats
from neuroledger.data.factorize import encode
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.missing import dissimilarities_of_present
from neuroledger.families.alignment.similarity.rdm import (
    Comparison,
    Distance,
    Sorted,
    agreement,
)
from neuroledger.spec.registry import ceiling
from neuroledger.stats.groups import COARSE, names_of
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split

__all__ = ["rdm_consistency"]

# Three stimuli have three pairs, which agree in rank by chance in one of six cases.
FEWEST_STIMULI = 4
MOST_ENTRIES: Final = 1 << 25
"""Number of dissimilarities, of 16 bytes with their order, up to which those without each group of neuroids are kept."""


class _Trials(NamedTuple):
    """Responses (trial, neuroid), NaN where missing, and the stimulus of each trial, (trial,), of ``stimuli`` stimuli."""

    values: Floats
    stimulus: Indices
    stimuli: int

    def mean(self, rows: Indices | slice = slice(None)) -> Floats:
        """Mean of each stimulus over the responses that exist in ``rows``, (stimulus, neuroid); NaN without any."""
        from scipy.sparse import csr_array

        values = self.values[rows]
        stimulus = self.stimulus[rows]
        places = (stimulus, np.arange(len(stimulus)))
        members = csr_array(
            (np.ones(len(stimulus)), places), shape=(self.stimuli, len(stimulus))
        )
        present = np.isfinite(values)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(
                (members @ np.where(present, values, 0.0))
                / (members @ present.astype(np.float64))
            )


class _Pair(NamedTuple):
    """Mean patterns in the two halves of one split, (stimulus, neuroid) each."""

    first: Floats
    second: Floats


@ceiling("rdm_consistency", version=7)
def rdm_consistency(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    rng: np.random.Generator,
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
) -> Samples:
    """Expected agreement of the noiseless RDM with the RDM of the responses averaged over all repetitions.

    The RDMs of two halves of the repetitions agree by r, the mean over splits. The Spearman-Brown formula with the
    factor k gives the square of the ceiling, ``k r / (1 + (k − 1) r)``. For responses k is 2. For dissimilarities it is not:
    a part of their noise falls with the square of the number of repetitions, and noise shrinks similarities of weak
    patterns more than those of strong ones. Therefore k is that of simulated experiments with the same trials, in which
    the noiseless patterns are known: the measured mean patterns without the power of the noise, and the measured
    deviations of single trials from them, drawn at random.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``stimulus_id`` and ``repetition``, not averaged. Stimuli may have different
        numbers of repetitions. Means are over the responses that exist, and the dissimilarity of two stimuli is over the
        neuroids that have responses to both.

    Returns
    -------
    Samples
        One number.

    Raises
    ------
    CeilingError
        There are no repetitions, fewer than 4 stimuli have a pattern in both halves, or the mean patterns vary no more
        over stimuli than noise does.
    """
    if "stimulus_id" not in assembly.coords or set(assembly.dims) != {
        "presentation",
        "neuroid",
    }:
        raise CeilingError(
            "an RDM's consistency needs (presentation, neuroid) with stimulus_id and repetitions that are not averaged"
        )
    coded = encode(assembly["stimulus_id"].values)
    trials = _Trials(_scaled(assembly), coded.codes, len(coded.labels))
    pairs = [
        _Pair(trials.mean(split.train), trials.mean(split.test)) for split in splits
    ]
    rdms = _sorted_rdms(pairs, distance, comparison)
    notes = _checked(rdms, pairs)
    r = _agreement(rdms, comparison)
    k = _factor(trials, splits, rng, distance, comparison)
    samples = xr.DataArray(_corrected(r, k))
    first, second = np.triu_indices(trials.stimuli, 1)

    kept_groups = COARSE if COARSE * 2 * len(rdms) * len(first) < MOST_ENTRIES else 1

    @lru_cache(maxsize=kept_groups)
    def of_neuroids(kept: bytes) -> list[_Rdms]:
        columns = np.frombuffer(kept, dtype=bool)
        fewer = [
            _Pair(pair.first[:, columns], pair.second[:, columns]) for pair in pairs
        ]
        return _sorted_rdms(fewer, distance, comparison)

    def without(keep: Keep) -> xr.DataArray:
        """The factor stays, which the design and the signal-to-noise ratio determine."""
        left = of_neuroids(keep["neuroid"].tobytes()) if "neuroid" in keep else rdms
        rows = keep.get("stimulus", np.ones(trials.stimuli, dtype=bool))
        of_kept = _agreement(left, comparison, rows[first] & rows[second])
        return samples.copy(data=_corrected(of_kept, k))

    items = {
        "stimulus": coded.labels.astype(str),
        "neuroid": names_of(assembly, "neuroid"),
    }
    return Samples(samples, Variation(items, without), notes=notes)


def _scaled(assembly: xr.DataArray) -> Floats:
    """Responses (presentation, neuroid) with magnitudes up to 1, NaN where missing."""
    values = floats(assembly.transpose("presentation", "neuroid").values)
    values = np.where(np.isfinite(values), values, np.nan)
    if np.isnan(values).all():
        raise CeilingError("the assembly has no responses: all are missing")
    return np.asarray(
        values / max(float(np.nanmax(np.abs(values))), np.finfo(np.float64).tiny)
    )


def _checked(rdms: Sequence[_Rdms], pairs: Sequence[_Pair]) -> list[str]:
    """Return a note about pairs of stimuli that are left out, after checking that enough stimuli remain.

    Raises
    ------
    CeilingError
        No split has 4 stimuli whose patterns can be compared in both halves.
    """
    known = [rdm.known for rdm in rdms]
    stimuli = len(pairs[0].first)
    compared = max(_stimuli_of(entries, stimuli) for entries in known)
    if compared < FEWEST_STIMULI:
        lacking = int(np.isnan(np.add(*pairs[0])).any(axis=0).sum())
        raise CeilingError(
            f"only {compared} of {stimuli} stimuli have a pattern in both halves of the repetitions ({lacking} of "
            f"{pairs[0].first.shape[1]} neuroids lack a stimulus in a half), and an RDM's consistency needs at least "
            f"{FEWEST_STIMULI}: record more repetitions, or select stimuli and neuroids with responses"
        )
    fewest = min(int(entries.sum()) for entries in known)
    total = known[0].size
    if fewest == total:
        return []
    return [
        f"pairs of stimuli without a pattern in both halves are left out: at least {fewest} of {total} stay"
    ]


def _stimuli_of(entries: Booleans, stimuli: int) -> int:
    """Number of stimuli in the marked pairs of a condensed RDM."""
    first, second = np.triu_indices(stimuli, 1)
    return len(np.unique(np.concatenate([first[entries], second[entries]])))


class _Rdms(NamedTuple):
    """The RDMs of both halves of a split."""

    first: Sorted
    second: Sorted

    @property
    def known(self) -> Booleans:
        """Mask of the entries that both have."""
        return np.isfinite(self.first.values) & np.isfinite(self.second.values)


def _sorted_rdms(
    pairs: Sequence[_Pair], distance: Distance, comparison: Comparison
) -> list[_Rdms]:
    def rdm(half: Floats) -> Sorted:
        return Sorted.of(dissimilarities_of_present(half, distance), comparison)

    return [_Rdms(rdm(pair.first), rdm(pair.second)) for pair in pairs]


def _agreement(
    rdms: Sequence[_Rdms], comparison: Comparison, kept: Booleans | None = None
) -> float:
    """Mean over splits of the agreement of the RDMs of both halves, over kept entries; NaN if it is undefined in all."""
    found = [
        _compared(*rdm, rdm.known if kept is None else rdm.known & kept, comparison)
        for rdm in rdms
    ]
    if np.isfinite(found).any():
        return float(np.nanmean(found))
    return math.nan


def _compared(a: Sorted, b: Sorted, entries: Booleans, comparison: Comparison) -> float:
    """Agreement of some entries of two condensed RDMs; NaN for fewer pairs than 4 stimuli have."""
    if entries.sum() < FEWEST_STIMULI * (FEWEST_STIMULI - 1) // 2:
        return math.nan
    first, second = (rdm.prepared(entries, comparison) for rdm in (a, b))
    return agreement(first, second, comparison)


def _corrected(r: float, k: float) -> float:
    """Root of the Spearman-Brown formula with the factor ``k``, with the sign of ``r``."""
    square = k * r / (1 + (k - 1) * r)
    return math.copysign(math.sqrt(abs(square)), square)


def _factor(
    trials: _Trials,
    splits: Sequence[Split],
    rng: np.random.Generator,
    distance: Distance,
    comparison: Comparison,
) -> float:
    """Return the factor of the Spearman-Brown formula, from one simulated experiment for each split."""
    mean = trials.mean()
    noise = _noise(trials, mean)
    truth = _without_noise(mean, trials, noise)
    noiseless = dissimilarities_of_present(truth, distance)
    order = np.lexsort(
        (noise[:, 0], trials.stimulus)
    )  # draws do not depend on the order of trials
    halves = []
    reached = []
    for split in splits:
        drawn = np.empty_like(noise)
        drawn[order] = noise[order][rng.integers(0, len(noise), len(noise))]
        simulated = trials._replace(
            values=truth[trials.stimulus] + drawn + 0 * trials.values
        )
        halves.append(_Pair(simulated.mean(split.train), simulated.mean(split.test)))
        measured = dissimilarities_of_present(simulated.mean(), distance)
        entries = np.isfinite(noiseless) & np.isfinite(measured)
        reached.append(
            _compared(
                Sorted.of(noiseless, comparison),
                Sorted.of(measured, comparison),
                entries,
                comparison,
            )
        )
    simulated_rdms = _sorted_rdms(halves, distance, comparison)
    r = _agreement(simulated_rdms, comparison)
    square = float(np.mean(reached)) ** 2
    if not r > 0:
        raise CeilingError(
            "halves of simulated experiments with the signal and the noise of these responses do not agree: the data "
            "contain no geometry to compare with; record more repetitions, stimuli or neuroids"
        )
    if r >= 1 or square >= 1:  # without noise
        return 2.0
    return square * (1 - r) / (r * (1 - square))


def _noise(trials: _Trials, mean: Floats) -> Floats:
    """Deviations of single responses from the mean of their stimulus, (trial, neuroid), with the variance of the noise.

    Missing ones, and those of cells with one response, are those of other trials of the neuroid.
    """
    present = np.isfinite(trials.values)
    cells = np.zeros(mean.shape)
    np.add.at(cells, trials.stimulus, present)
    count = cells[trials.stimulus]
    known = present & (count > 1)
    if not known.any():
        raise CeilingError(
            "no repetitions: no neuroid has two responses to a stimulus; use an assembly with repetitions, or a constant "
            "ceiling with its source"
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        noise = np.where(
            known,
            (trials.values - mean[trials.stimulus]) * np.sqrt(count / (count - 1)),
            0.0,
        )
    for column in np.flatnonzero(known.any(axis=0) & ~known.all(axis=0)).tolist():
        gaps = ~known[:, column]
        noise[gaps, column] = np.resize(noise[~gaps, column], int(gaps.sum()))
    return noise


def _without_noise(mean: Floats, trials: _Trials, noise: Floats) -> Floats:
    """Return the mean patterns (stimulus, neuroid) whose singular values lost the power of the noise."""
    count = np.zeros(mean.shape)
    np.add.at(count, trials.stimulus, np.isfinite(trials.values))
    level = np.nan_to_num(np.nanmean(mean, axis=0))
    left, sizes, right = np.linalg.svd(np.nan_to_num(mean - level), full_matrices=False)
    of_cells = np.where(count > 0, (noise**2).mean(axis=0) / np.maximum(count, 1), 0.0)
    # The mean over stimuli is subtracted, and the noise is spread over all directions.
    rank = min(len(mean) - 1, mean.shape[1])
    power = sizes**2 - (1 - 1 / len(mean)) * float(of_cells.sum()) / rank
    if not (power > 0).any():
        raise CeilingError(
            "the mean responses vary no more over stimuli than noise does: the data contain no geometry to compare with; "
            "record more repetitions, stimuli or neuroids"
        )
    return np.asarray(level + (left * np.sqrt(np.maximum(power, 0.0))) @ right)
