"""A model known by the answers it once gave, one for each stimulus, in tables of the model-vs-human toolbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.core.behaviour.trial_tables import answers_by_stimulus, read_trial_tables
from neuroledger.core.model import Task
from neuroledger.core.registry import builder
from neuroledger.core.stimuli import StimulusSet
from neuroledger.core.time_bins import Bin
from neuroledger.errors import ModelError, RequestError

__all__ = ["StoredAnswers", "stored_answers"]


@dataclass(frozen=True)
class StoredAnswers:
    """Labels by stimulus id; it can neither be recorded from nor asked about other stimuli."""

    id: str
    answers: Mapping[str, str] = field(repr=False)
    visual_degrees: float | None = None
    varies_in_time: bool = False

    def record(
        self, stimuli: StimulusSet, region: str, time_bins: Sequence[Bin] | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Refused: there are no responses.

        Raises
        ------
        RequestError
            Always.
        """
        raise RequestError(
            f"model {self.id!r} is a table of answers: it has no responses to record from {region!r}"
        )

    def perform(
        self, task: Task, stimuli: StimulusSet, fitting_stimuli: StimulusSet | None = None, trials: int = 1
    ) -> xr.DataArray:
        """The stored answers, ``(presentation,)``.

        Raises
        ------
        RequestError
            The task asks for something other than labels.
        ModelError
            A stimulus has no stored answer.
        """
        if task.name != "label":
            raise RequestError(f"model {self.id!r} is a table of labels and cannot do the task {task.name!r}")
        missing = [id for id in stimuli.ids if id not in self.answers]
        if missing:
            raise ModelError(
                f"model {self.id!r} has no stored answer for {len(missing)} stimuli, first {missing[0]!r}"
            )
        return xr.DataArray(
            np.asarray([self.answers[id] for id in stimuli.ids]),
            dims=("presentation",),
            coords={"stimulus_id": ("presentation", np.asarray(stimuli.ids))},
        )


@builder("stored_answers", version=1)
def stored_answers(*, id: str, weights: Mapping[str, Path]) -> StoredAnswers:
    """A model of the answers in its tables, which are pinned like weights.

    Raises
    ------
    DataError
        A file is no trial table, or holds two answers for one stimulus.
    """
    tables = [weights[name] for name in sorted(weights)]
    return StoredAnswers(id, answers_by_stimulus(read_trial_tables(tables)))
