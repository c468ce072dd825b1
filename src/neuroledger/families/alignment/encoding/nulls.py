"""Nulls of continuous recordings: a model that must lose, and one that knows only neighbours in time."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.encoding.time_axis import Rows
from neuroledger.spec.base import Frozen

__all__ = ["Neighbours", "Null", "Shifted"]


class Shifted(Frozen):
    """The features of the model, ``bins`` bins too late in each run; what leaves at the end comes in at the beginning.

    Features and responses keep their autocorrelations, and lose their relation. A model whose score survives the shift
    is scored for slow changes alone.
    """

    name: Literal["shifted"] = "shifted"
    bins: Annotated[int, Field(ge=1)] = 100

    def features(self, rows: Rows, reach: int) -> Floats:
        """Return the features (row × unit) instead of those of the model.

        Raises
        ------
        MetricError
            The shift is within reach of the delays, in one direction or around the end of a run.
        """
        count = int(rows.bin.max()) + 1
        if not reach < self.bins < count - reach:
            raise MetricError(
                f"a shift by {self.bins} of {count} bins is within reach of delays over {reach} bins: shift by "
                f"more than {reach} "
                f"and less than {count - reach}"
            )
        shape = rows.values.shape
        by_run = rows.values.reshape(-1, count, shape[1])
        late = np.roll(by_run, self.bins, axis=1)
        return np.asarray(late.reshape(shape))


class Neighbours(Frozen):
    """A model that knows nothing but the time: Gaussian bumps of width ``bins``, as far apart, over each run [hadidi2025].

    It predicts a response from those at neighbouring times. What it scores is due to test blocks near training rows.
    """

    name: Literal["neighbours"] = "neighbours"
    bins: Annotated[int, Field(ge=1)] = 10

    def features(self, rows: Rows, reach: int) -> Floats:
        """Return the features (row × bump) instead of those of the model."""
        del reach
        runs = int(rows.run.max()) + 1
        count = int(rows.bin.max()) + 1
        centres = np.arange(0, count, self.bins) + (self.bins - 1) / 2
        distance = np.arange(count)[:, None] - centres
        bumps = np.exp(-0.5 * (distance / self.bins) ** 2)
        # Each run has bumps of its own.
        return np.asarray(np.kron(np.eye(runs), bumps))


Null = Annotated[Shifted | Neighbours, Field(discriminator="name")]
