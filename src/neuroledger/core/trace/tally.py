"""Where the counts of one pass are added up: per layer, one transfer from the device per batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from neuroledger.core.trace.batches import Network
from neuroledger.core.trace.counts import Layer, Uncounted
from neuroledger.core.trace.static import connection_weights, is_quantised

__all__ = ["EXACT", "Scratch", "Tally"]

# Sums of integers are exact in float32 below this, in any order.
EXACT = 2**24

# Values handled at a time: they stay in the processor's cache.
PIECE = 2**16


class Tally:
    """Counts by layer name; what is still on the device waits in a list until the batch ends.

    Its memory does not grow with the number of batches: after each one, only plain numbers are kept.
    """

    def __init__(self, network: Network) -> None:
        self.layers: dict[str, Layer] = {}
        self.uncounted: dict[str, Uncounted] = {}
        self.reached: dict[int, int] = {}
        self.fans: dict[object, Tensor] = {}
        self.scratch = Scratch()
        self.samples = 0
        self._waiting: list[tuple[Layer, str, Tensor]] = []
        self._by_sample: dict[tuple[int, object], tuple[Layer, Tensor, Tensor]] = {}
        self._owners: dict[int, tuple[str, Tensor]] = {}
        for prefix, child in network.parts:
            if is_quantised(child):
                continue
            named = (child._parameters, child._buffers, vars(child))
            for tensor in [value for group in named for value in group.values()]:
                if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.numel():
                    held = (prefix or type(child).__name__, tensor)
                    self._owners.setdefault(tensor.untyped_storage().data_ptr(), held)

    def owner(self, tensor: Tensor) -> str | None:
        """Dotted name of the module that holds the tensor's storage, or None for a tensor made on the way."""
        held = self._owners.get(tensor.untyped_storage().data_ptr())
        return None if held is None else held[0]

    def reach(self, weight: Tensor) -> None:
        """Note that operations were counted for these weights."""
        self.reached[weight.untyped_storage().data_ptr()] = weight.numel()

    def layer(self, name: str) -> Layer:
        """The counts of one layer, to be added to."""
        found = self.layers.get(name)
        if found is None:
            found = self.layers[name] = Layer()
        return found

    def add(self, layer: Layer, what: str, amount: Tensor) -> None:
        """Add a number that is still on the device."""
        self._waiting.append((layer, what, amount))

    def operations(
        self, layer: Layer, role: object, leading: Sequence[int], per_row: Tensor, plain: Tensor
    ) -> None:
        """Add effective operations ``per_row``, of rows that are ``leading`` in the input's own shape.

        Whether a sample's operations are MACs or ACs is decided for each ``role`` of a layer over all its calls for
        that sample: ACs if all its inputs were ``plain`` (-1, 0 or 1), at every step. Neither the other samples of
        the batch nor their number matter. Rows that cannot be told apart by sample decide each for itself.
        """
        size = self.samples
        if len(leading) != 1 or leading[0] != size:
            if leading and leading[0] == size:
                shape, axes = (size, -1), (1,)
            elif len(leading) > 1 and leading[1] == size:
                shape, axes = (leading[0], size, -1), (2, 0)
            else:
                self._split(layer, per_row, plain)
                return
            per_row = per_row.reshape(shape).sum(axes, dtype=torch.float64)
            plain = plain.reshape(shape)
            for axis in axes:
                plain = plain.all(axis)
        held = self._by_sample.get((id(layer), role))
        if held is not None:
            _, before, always = held
            per_row, plain = per_row.to(torch.float64) + before, plain & always
        self._by_sample[id(layer), role] = (layer, per_row, plain)

    def _split(self, layer: Layer, amounts: Tensor, plain: Tensor) -> None:
        self._waiting.append((layer, "operations", amounts.sum(dtype=torch.float64)))
        self._waiting.append((layer, "plain", torch.dot(amounts.to(torch.float64), plain.to(torch.float64))))

    def miss(self, name: str, why: str, weights: int = 0) -> None:
        """Note a part that cannot be counted."""
        self.uncounted.setdefault(name, Uncounted(name, why, weights))

    def settle(self) -> None:
        """Fetch what waits on the device, once per batch, and forget the tensors."""
        for layer, amounts, plain in self._by_sample.values():
            self._split(layer, amounts, plain)
        self._by_sample.clear()
        if not self._waiting:
            return
        for (layer, what, _), amount in zip(self._waiting, self._fetch(), strict=True):
            if what == "operations":
                layer.macs += amount
            elif what == "plain":
                layer.acs += amount
                layer.macs -= amount
            else:
                setattr(layer, what, getattr(layer, what) + amount)
        self._waiting.clear()

    def _fetch(self) -> list[float]:
        """The waiting numbers, in one transfer where they lie on a device."""
        amounts = [amount for _, _, amount in self._waiting]
        if amounts[0].device.type == "cpu":
            return [amount.item() for amount in amounts]
        return [float(x) for x in torch.stack([amount.to(torch.float64) for amount in amounts]).tolist()]

    def unreached(self, module: nn.Module) -> int:
        """Number of connection weights that the module holds itself and that no counted operation used."""
        return sum(
            weight.numel()
            for name, weight in connection_weights(module)
            if "." not in name and weight.untyped_storage().data_ptr() not in self.reached
        )


class Scratch:
    """Working memory that lasts as long as the pass, for intermediate values of one piece of a tensor at a time.

    Fresh memory for every layer would cost more than the counting itself, and would disturb the network's own.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[torch.dtype, torch.device, int], Tensor] = {}

    def like(self, part: Tensor, which: int = 0) -> Tensor:
        """Uninitialised memory of the shape of ``part``."""
        key = (part.dtype, part.device, which)
        held = self._held.get(key)
        if held is None or held.numel() < part.numel():
            held = self._held[key] = torch.empty(
                max(PIECE, part.numel()), dtype=part.dtype, device=part.device
            )
        return held[: part.numel()].view(part.shape)

    def rows(self, rows: Tensor, fan: Tensor | None) -> tuple[Tensor, Tensor]:
        """For each row ``(row, feature)``: its operations ``1[x ≠ 0] · fan``, and whether it is all -1, 0 and 1.

        Products with such a row need no multiplier. Signs are had faster than comparisons with zero.
        """
        if rows.is_quantized:
            rows = rows.dequantize()
        elif rows.dtype == torch.bool:
            rows = rows.to(torch.int8)
        if rows.numel() == 0:
            none = torch.zeros(len(rows), dtype=torch.float32, device=rows.device)
            return none, torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        amounts, plain = [], []
        step = len(rows) if rows.device.type != "cpu" else max(1, PIECE // rows.shape[1])
        for part in rows.split(step):
            signs = torch.sign(part, out=self.like(part))
            rest = torch.sub(part, signs, out=self.like(part, 1))
            plain.append(rest.abs_().amax(1).eq(0))
            if fan is not None:
                amounts.append(signs.abs_().to(fan.dtype) @ fan)
        if len(plain) == 1:
            return (amounts or plain)[0], plain[0]
        return torch.cat(amounts or plain), torch.cat(plain)

    def nonzero(self, values: Tensor) -> Tensor:
        """Number of values that are not zero, as a tensor on their device."""
        if values.is_quantized:
            values = values.dequantize()
        if not values.is_floating_point():
            return values.ne(0).sum()
        flat = values.reshape(-1)
        wide = torch.float32 if flat.numel() < EXACT else torch.float64
        step = max(1, flat.numel() if flat.device.type != "cpu" else PIECE)
        parts = [torch.sign(part, out=self.like(part)).abs_().sum(dtype=wide) for part in flat.split(step)]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()
