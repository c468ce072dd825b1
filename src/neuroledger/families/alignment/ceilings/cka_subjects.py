"""Similarity of the representations of different subjects, by centred kernel alignment."""

from __future__ import annotations

import xarray as xr

from neuroledger.families.alignment.metrics.cka import Regularisation, cka
from neuroledger.families.alignment.similarity.subject_pairs import in_pairs
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples
from neuroledger.stats.workspace import Workspace

__all__ = ["cka_subjects"]


@ceiling("cka_subjects", version=2)
def cka_subjects(
    assembly: xr.DataArray,
    *,
    workspace: Workspace,
    unbiased: bool = True,
    regularisation: Regularisation = 0.0,
) -> Samples:
    """Mean alignment of each subject with the other subjects, over the stimuli shown to both.

    Neuroids of two subjects do not correspond, so subjects are compared in pairs instead of averaged. Both patterns of a
    pair are noisy: a model of what subjects share can exceed this ceiling.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``subject`` on the neuroids; repetitions are averaged first.

    Returns
    -------
    Samples
        One number per ``subject``. A subject is part of all its pairs: leaving it out changes the numbers of the others,
        too. The pairs of two or three subjects do not show how much other subjects would differ: only stimuli vary.

    Raises
    ------
    CeilingError
        There is only one subject, or two subjects cannot be aligned.
    """

    def compare(first: xr.DataArray, second: xr.DataArray) -> Samples:
        return cka(
            first,
            second,
            workspace=workspace,
            unbiased=unbiased,
            regularisation=regularisation,
        )

    return in_pairs(assembly, compare)
