"""Values that leave torch: what is computed from them is seen by no operator.

``numpy()``, ``tolist()`` and pickling read memory and call no operator. A mode above torch's functions sees them; it is
entered only for networks with code that is neither torch's nor this package's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from neuroledger.families.efficiency.counting.counter import LEFT, Counter
from neuroledger.families.efficiency.counting.origins import Sample

__all__ = ["Exits"]

READS: Final[Mapping[Any, str]] = MappingProxyType(
    {
        Tensor.numpy: "numpy",
        Tensor.__array__: "numpy",
        Tensor.__dlpack__: "dlpack",
        Tensor.tolist: "tolist",
        Tensor.apply_: "apply_",
        Tensor.map_: "map_",
        Tensor.map2_: "map2_",
    }
)
# Pickling a tensor takes its storage, and so does a shallow copy, which puts it into another tensor.
STORAGE: Final = Tensor.untyped_storage


class Exits(TorchFunctionMode):  # type: ignore[misc]
    """Reports values of samples that leave torch, in its context, in this thread."""

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch, and report it if the values of its tensor leave torch."""
        result = func(*args, **(kwargs or {}))
        if func in READS and self._is_value(args[0]):
            self.counter.tally.add_uncounted(READS[func], LEFT)
        elif func is STORAGE and self._is_value(args[0]):
            self.counter.storages_taken[result._cdata] = result
        return result

    def _is_value(self, tensor: Tensor) -> bool:
        """Return whether a tensor has several values of samples; int64 values are sizes and positions."""
        origin = self.counter.origins.of(tensor)
        is_number = tensor.dtype is not torch.int64
        return isinstance(origin, Sample) and is_number and tensor.numel() > 1
