"""Counting of recurrent layers and cells: products with the weights, and products among the gates.

An input or hidden value is multiplied with the non-zero weights of its column, as in a linear layer. In addition, an LSTM
computes f·c, i·g and o·tanh(c), a GRU r·(W h), (1-z)·n and z·h: at most three products per unit and step. A product
counts if both of its factors can be non-zero. Layers are unrolled step by step to obtain every hidden state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from neuroledger.families.efficiency.counting.counter import Counter
from neuroledger.families.efficiency.counting.origins import tensors_in
from neuroledger.families.efficiency.counting.rows import nonzero

__all__ = ["count_recurrent", "lstm_products", "unroll"]

Kind = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
STEPS = {
    "gru": torch.gru_cell,
    "rnn_tanh": torch.rnn_tanh_cell,
    "rnn_relu": torch.rnn_relu_cell,
}


class Cell(NamedTuple):
    """The weights of one recurrent cell; biases may be absent, and so may an LSTM's projection."""

    kind: Kind
    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None

    @property
    def gates(self) -> int:
        """The number of gates of each unit."""
        return {"lstm": 4, "gru": 3}.get(self.kind, 1)


class States(NamedTuple):
    """Inputs and states before each step, ``(batch, step, …)``; for an LSTM also memory, and unprojected outputs."""

    inputs: Tensor
    hidden: Tensor
    memory: Tensor | None = None
    unprojected: Tensor | None = None


def has_open_gates(cell: Cell) -> bool:
    """Return whether the biases keep all gates, and a GRU's candidate, from being zero for any input."""
    if cell.b_ih is None or cell.b_hh is None:
        return False
    either = cell.b_ih.ne(0) | cell.b_hh.ne(0)
    if cell.kind == "lstm":
        return bool(either.all())
    gates = len(either) // 3 * 2
    return bool(either[:gates].all() and cell.b_hh[gates:].ne(0).all())


def gate_products(cell: Cell, states: States) -> Tensor:
    """Return the products among the gates for each sample and step."""
    carried = states.hidden if states.memory is None else states.memory
    if has_open_gates(
        cell
    ):  # two in each unit, and a third where the carried state is not zero
        return carried.ne(0).sum(-1) + 2.0 * carried.shape[-1]
    zero = torch.zeros(1, device=carried.device)
    bias_ih = zero if cell.b_ih is None else nonzero(cell.b_ih)
    bias_hh = zero if cell.b_hh is None else nonzero(cell.b_hh)
    from_input = nonzero(states.inputs) @ nonzero(cell.w_ih).t() + bias_ih
    from_hidden = nonzero(states.hidden) @ nonzero(cell.w_hh).t() + bias_hh
    if cell.kind == "lstm":
        return lstm_products(nonzero(from_input + from_hidden), nonzero(carried))
    return _gru_products(from_input, from_hidden, nonzero(carried))


def lstm_products(gates: Tensor, memory: Tensor) -> Tensor:
    """Return f·c + i·g + o·[c ≠ 0]."""
    i, f, g, o = gates.chunk(4, -1)
    carried = f * memory + i * g
    return carried.sum(-1) + (o * nonzero(carried)).sum(-1)


def _gru_products(from_input: Tensor, from_hidden: Tensor, hidden: Tensor) -> Tensor:
    """Return r·(W h) + (1-z)·n + z·h."""
    reset, update, _ = nonzero(from_input + from_hidden).chunk(3, -1)
    gated = reset * nonzero(from_hidden.chunk(3, -1)[2])
    candidate = nonzero(from_input.chunk(3, -1)[2] + gated)
    return gated.sum(-1) + candidate.sum(-1) + (update * hidden).sum(-1)


def count_cell(
    counter: Counter, cell: Cell, states: States, name: str, valid: Tensor | None = None
) -> None:
    """Count every row of ``states``: inputs and hidden states separately, products of gates as MACs.

    For padded sequences, ``valid`` ``(batch, step)`` marks the steps that belong to a sequence.
    """
    padding = 0 if valid is None else int(valid.numel() - valid.sum())
    if valid is not None:
        states = States(*(None if s is None else s * valid[..., None] for s in states))
    layer = counter.tally.layer(name)
    products = [(states.inputs, cell.w_ih), (states.hidden, cell.w_hh)]
    if cell.w_hr is not None and states.unprojected is not None:
        products.append((states.unprojected, cell.w_hr))
    for values, weight in products:
        counter.linear(values, weight, name)
        layer.dense -= float(padding) * weight.numel()
    if cell.gates > 1:
        of_gates = gate_products(cell, states)
        layer.macs += float(
            (of_gates if valid is None else of_gates * valid).sum(dtype=torch.float64)
        )
        steps = states.inputs[..., 0].numel() - padding
        layer.dense += 3.0 * steps * (len(cell.w_hh) // cell.gates)


def count_recurrent(
    counter: Counter,
    name: str,
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Any,
) -> None:
    """Count a call of a recurrent layer or cell, ``(input, state)``, and record that its output depends on samples."""
    x, state = (*args, *kwargs.values(), None)[:2]
    if isinstance(module, nn.RNNBase):
        count_layer(counter, name, module, x, state, output)
    else:
        count_step(counter, name, module, x, state)
    axis = int(isinstance(module, nn.RNNBase) and not module.batch_first)
    for number, tensor in enumerate(tensors_in((output,))):
        of_samples = axis if number == 0 else 1
        known = tensor.dim() > of_samples
        known = known and tensor.shape[of_samples] == counter.tally.samples
        period = math.prod(tensor.shape[of_samples + 1 :]) if known else None
        counter.origins.add_sample(tensor, period)


def count_step(counter: Counter, name: str, module: Any, x: Tensor, state: Any) -> None:
    """Count one step of ``nn.RNNCell``, ``nn.LSTMCell`` or ``nn.GRUCell``."""
    hidden, memory = state if isinstance(state, (tuple, list)) else (state, None)
    rows = x.reshape(-1, x.shape[-1])
    kind = _kind_of(module)
    empty = rows.new_zeros(len(rows), module.hidden_size)
    before = empty if hidden is None else hidden.reshape(empty.shape)
    if kind == "lstm":
        memory = empty if memory is None else memory.reshape(empty.shape)
    weights = module.weight_ih, module.weight_hh, module.bias_ih, module.bias_hh
    count_cell(counter, Cell(kind, *weights), States(rows, before, memory), name)


def _kind_of(module: Any) -> Kind:
    if isinstance(module, (nn.LSTM, nn.LSTMCell)):
        return "lstm"
    if isinstance(module, (nn.GRU, nn.GRUCell)):
        return "gru"
    if module.nonlinearity == "relu":
        return "rnn_relu"
    return "rnn_tanh"


def count_layer(
    counter: Counter, name: str, module: nn.RNNBase, x: Any, state: Any, output: Any
) -> None:
    """Count ``nn.RNN``, ``nn.LSTM`` or ``nn.GRU``: cells in depth and direction, over padded or packed sequences."""
    answer = lengths = valid = None
    if isinstance(x, PackedSequence):
        packed = PackedSequence(x.data, x.batch_sizes.cpu())
        values, lengths = pad_packed_sequence(packed)
        lengths = lengths.to(values.device)
        valid = torch.arange(len(values), device=values.device) < lengths[:, None]
        if state is not None:
            state = module.permute_hidden(state, x.sorted_indices)
    else:
        batched = x if x.dim() == 3 else x.unsqueeze(int(not module.batch_first))
        if not module.batch_first:
            counter.tally.axes.note_recurrent(_kind_of(module), batched.shape)
        values = batched.transpose(0, 1) if module.batch_first else batched
        if module.num_layers == 1 and x.dim() == 3 and not module.proj_size:
            answer = output[0].transpose(0, 1) if module.batch_first else output[0]
    hidden, memory = _starts(module, state, values)
    directions = 2 if module.bidirectional else 1
    outputs: list[Tensor] = []
    for index, cell in enumerate(_cells(module)):
        direction = index % directions
        known = None if answer is None else answer.chunk(directions, -1)[direction]
        if direction:
            values = _backwards(values, lengths)
            known = None if known is None else known.flip(0)
        states, made = _states(cell, values, hidden[index], memory[index], known)
        by_sample = (None if s is None else s.transpose(0, 1) for s in states)
        count_cell(counter, cell, States(*by_sample), name, valid)
        outputs.append(_backwards(made, lengths) if direction else made)
        if direction + 1 == directions:
            values, outputs = torch.cat(outputs, -1), []


def _backwards(values: Tensor, lengths: Tensor | None) -> Tensor:
    """Return each sequence ``(step, batch, feature)`` reversed, with its padding still at the end."""
    if lengths is None:
        return values.flip(0)
    steps = torch.arange(len(values), device=values.device)[:, None]
    index = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return values.gather(0, index[..., None].expand_as(values))


def _starts(
    module: nn.RNNBase, state: Any, values: Tensor
) -> tuple[Tensor, Tensor | list[None]]:
    """Return hidden state and memory before the first step, ``(cell, batch, unit)``."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    hidden, memory = state if isinstance(state, (tuple, list)) else (state, None)

    def start(given: Tensor | None, width: int) -> Tensor:
        shape = (count, values.shape[1], width)
        if given is None:
            return values.new_zeros(shape)
        return given.reshape(shape)

    before = start(hidden, module.proj_size or module.hidden_size)
    if module.mode != "LSTM":
        return before, [None] * count
    return before, start(memory, module.hidden_size)


def _cells(module: nn.RNNBase) -> Iterator[Cell]:
    """Yield the cells of a layer, by depth and direction."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    for given in module._all_weights:
        own = {name.split("_l")[0]: getattr(module, name) for name in given}
        yield Cell(_kind_of(module), *map(own.get, names))


def _states(
    cell: Cell, x: Tensor, hidden: Tensor, memory: Tensor | None, output: Tensor | None
) -> tuple[States, Tensor]:
    """Return the states before each step, from the outputs if these are known.

    A non-zero LSTM output o · tanh(c) implies a non-zero memory c: it is all that is needed unless some outputs are zero.
    """
    if output is None or (memory is not None and not bool(output[:-1].ne(0).all())):
        return unroll(cell, x, hidden, memory)
    before = torch.cat([hidden[None].to(output.dtype), output[:-1]])
    if memory is None:
        return States(x, before), output
    kept = torch.cat([memory[None].to(output.dtype), output[:-1]])
    return States(x, before, kept), output


def unroll(
    cell: Cell, x: Tensor, hidden: Tensor, memory: Tensor | None
) -> tuple[States, Tensor]:
    """Return the states before each step, ``(step, batch, …)``, and the outputs, for inputs ``(step, batch, in)``."""
    before = []
    memories = []
    unprojected = []
    outputs = []
    weights = cell.w_ih, cell.w_hh, cell.b_ih, cell.b_hh
    for step in x.unbind(0):
        before.append(hidden)
        if memory is None:
            hidden = STEPS[cell.kind](step, hidden, *weights)
        else:
            memories.append(memory)
            gates = F.linear(step, cell.w_ih, cell.b_ih)
            gates = gates + F.linear(hidden, cell.w_hh, cell.b_hh)
            i, f, g, o = gates.chunk(4, 1)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * memory.tanh()
            unprojected.append(hidden)
            hidden = hidden if cell.w_hr is None else F.linear(hidden, cell.w_hr)
        outputs.append(hidden)
    kept = torch.stack(memories) if memories else None
    projected = None if cell.w_hr is None else torch.stack(unprojected)
    return States(x, torch.stack(before), kept, projected), torch.stack(outputs)
