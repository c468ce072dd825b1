"""Images become a module's input, those of the next batch while the present one is computed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from neuroledger.data.screen import shown, shown_as
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError
from neuroledger.models.preprocessing import Preprocessing

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float32]

AT_ONCE: Final = 2
"""The batch that is asked for and the one after it."""


@dataclass
class Inputs:
    """The input of ``model`` for stimuli; declared steps run in threads, a function of the user's only where it is called.

    What was prepared :meth:`ahead` is used once, and only for the same stimuli of the same set.
    """

    preprocessing: Preprocessing | Callable[..., Any]
    model: str
    _begun: dict[tuple[str, ...], tuple[StimulusSet, Future[Floats]]] = field(
        default_factory=dict, repr=False
    )

    def __call__(self, stimuli: StimulusSet, ids: Sequence[str]) -> torch.Tensor:
        """(stimulus, …) for ``ids``, in that order.

        Raises
        ------
        ModelError
            Images end up with different sizes.
        DataError
            An image cannot be decoded or placed.
        """
        import torch

        if isinstance(self.preprocessing, Preprocessing):
            of, begun = self._begun.pop(tuple(ids), (None, None))
            if begun is not None and of is stimuli:
                return torch.from_numpy(begun.result())
            return torch.from_numpy(self._prepared(stimuli, ids))
        tensors = [self._tensor(self.preprocessing(image)) for image in shown(stimuli, ids)]
        sizes = sorted({tuple(tensor.shape) for tensor in tensors})
        if len(sizes) > 1:
            raise ModelError(
                f"model {self.model!r}: its preprocessing gives tensors of several shapes, {sizes[0]} and {sizes[1]}"
            )
        return torch.stack(tensors)

    def _tensor(self, made: Any) -> torch.Tensor:
        import torch

        try:
            return torch.as_tensor(made)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ModelError(
                f"model {self.model!r}: its preprocessing gives {type(made).__name__}, not a tensor or an array ({error})"
            ) from error

    def ahead(self, stimuli: StimulusSet, ids: Sequence[str]) -> None:
        """Begin with what will be asked for next."""
        if isinstance(self.preprocessing, Preprocessing):
            begun = _background(os.getpid()).submit(self._prepared, stimuli, ids)
            self._begun[tuple(ids)] = (stimuli, begun)
            while len(self._begun) > AT_ONCE:  # of a pass that ended before its time
                self._begun.pop(next(iter(self._begun)))[1].cancel()

    def _prepared(self, stimuli: StimulusSet, ids: Sequence[str]) -> Floats:
        steps = self.preprocessing
        if not isinstance(steps, Preprocessing):
            raise TypeError("only declared steps are prepared in threads")
        steps.check(self.model)
        return steps.stack(list(shown_as(stimuli, ids, steps.one)), model=self.model)


@lru_cache(maxsize=1)
def _background(process: int) -> ThreadPoolExecutor:
    """One thread that prepares batches, for this process; the images of a batch have threads of their own."""
    return ThreadPoolExecutor(1, thread_name_prefix="neuroledger-batches")
