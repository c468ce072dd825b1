"""Counting of recurrent layers and cells: products with the weights, and products among the gates.

An input or hidden value is multiplied with the non-zero weights of its column, as in a linear layer. In addition, an LSTM
computes f·c, i·g and o·tanh(c), a GRU r·(W h), (1-z)·n and z·h: at most three products per unit and step. A product
counts if both of its factors can be non-zero. Layers are unrolled step by step to obtain every hidden state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from neuroledger.families.efficiency.counting.counter import Counter

__all__ = ["count_cell_module", "count_layer_module", "ones"]

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


def ones(tensor: Tensor) -> Tensor:
    """Return 1 where the tensor is not zero, else 0."""
    return tensor.ne(0).to(torch.float32)


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
    bias_ih = zero if cell.b_ih is None else ones(cell.b_ih)
    bias_hh = zero if cell.b_hh is None else ones(cell.b_hh)
    from_input = ones(states.inputs) @ ones(cell.w_ih).t() + bias_ih
    from_hidden = ones(states.hidden) @ ones(cell.w_hh).t() + bias_hh
    if cell.kind == "lstm":
        return _lstm_products(ones(from_input + from_hidden), ones(carried))
    return _gru_products(from_input, from_hidden, ones(carried))


def _lstm_products(gates: Tensor, memory: Tensor) -> Tensor:
    """Return f·c + i·g + o·[c ≠ 0]."""
    i, f, g, o = gates.chunk(4, -1)
    carried = f * memory + i * g
    return carried.sum(-1) + (o * ones(carried)).sum(-1)


def _gru_products(from_input: Tensor, from_hidden: Tensor, hidden: Tensor) -> Tensor:
    """Return r·(W h) + (1-z)·n + z·h."""
    reset, update, _ = ones(from_input + from_hidden).chunk(3, -1)
    gated = reset * ones(from_hidden.chunk(3, -1)[2])
    candidate = ones(from_input.chunk(3, -1)[2] + gated)
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


def count_cell_module(
    counter: Counter,
    name: str,
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Count one step of ``nn.RNNCell``, ``nn.LSTMCell`` or ``nn.GRUCell``, ``(input, state)``."""
    x, state = (*args, *kwargs.values(), None)[:2]
    kind = _kind_of(module)
    hidden, memory = state if isinstance(state, (tuple, list)) else (state, None)
    rows = x.reshape(-1, x.shape[-1])
    empty = rows.new_zeros(len(rows), module.hidden_size)
    before = empty if hidden is None else hidden.reshape(-1, module.hidden_size)
    if kind == "lstm":
        memory = empty if memory is None else memory.reshape(-1, module.hidden_size)
    cell = Cell(
        kind, module.weight_ih, module.weight_hh, module.bias_ih, module.bias_hh
    )
    count_cell(counter, cell, States(rows, before, memory), name)


def _kind_of(module: Any) -> Kind:
    if isinstance(module, (nn.LSTM, nn.LSTMCell)):
        return "lstm"
    if isinstance(module, (nn.GRU, nn.GRUCell)):
        return "gru"
    return "rnn_relu" if module.nonlinearity == "relu" else "rnn_tanh"


@dataclass(frozen=True)
class Sequences:
    """A batch of sequences ``(step, batch, feature)``, padded at the end if their lengths differ."""

    values: Tensor
    lengths: Tensor | None = None

    def valid(self) -> Tensor | None:
        """Return which steps belong to a sequence, ``(step, batch)``; None if all do."""
        if self.lengths is None:
            return None
        return torch.arange(len(self.values), device=self.values.device)[
            :, None
        ] < self.lengths.to(self.values.device)

    def backwards(self) -> Sequences:
        """Return each sequence reversed, with padding at the end."""
        if self.lengths is None:
            return Sequences(self.values.flip(0))
        steps = torch.arange(len(self.values), device=self.values.device)[:, None]
        lengths = self.lengths.to(self.values.device)
        index = torch.where(steps < lengths, lengths - 1 - steps, steps)
        return Sequences(
            self.values.gather(0, index[..., None].expand_as(self.values)), self.lengths
        )


def count_layer_module(
    counter: Counter,
    name: str,
    module: nn.RNNBase,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Any,
) -> None:
    """Count ``nn.RNN``, ``nn.LSTM`` or ``nn.GRU``: cells in depth and direction, over padded or packed sequences."""
    x, state = (*args, *kwargs.values(), None)[:2]
    answer = None
    if isinstance(x, PackedSequence):
        sequences = Sequences(
            *pad_packed_sequence(PackedSequence(x.data, x.batch_sizes.cpu()))
        )
        state = (
            module.permute_hidden(state, x.sorted_indices)
            if state is not None
            else None
        )
    else:
        batched = x if x.dim() == 3 else x.unsqueeze(int(not module.batch_first))
        if not module.batch_first:
            counter.tally.axes.note_recurrent(_kind_of(module), batched.shape)
        sequences = Sequences(
            batched.transpose(0, 1) if module.batch_first else batched
        )
        if module.num_layers == 1 and x.dim() == 3 and not module.proj_size:
            answer = output[0].transpose(0, 1) if module.batch_first else output[0]
    _count_stack(
        counter,
        name,
        module,
        sequences,
        _starts(module, state, sequences.values),
        answer,
    )


def _starts(
    module: nn.RNNBase, state: Any, values: Tensor
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield hidden state and memory before the first step of each cell, ``(batch, unit)``."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    width = module.proj_size or module.hidden_size
    hidden, memory = state if isinstance(state, (tuple, list)) else (state, None)
    for index in range(count):
        before = (
            values.new_zeros(values.shape[1], width)
            if hidden is None
            else hidden[index]
        )
        kept = None
        if module.mode == "LSTM":
            kept = (
                values.new_zeros(values.shape[1], module.hidden_size)
                if memory is None
                else memory[index]
            )
        yield (
            before.reshape(values.shape[1], -1),
            None if kept is None else kept.reshape(values.shape[1], -1),
        )


def _cells(module: nn.RNNBase) -> Iterator[Cell]:
    """Yield the cells of a layer, by depth and direction."""
    for names in module._all_weights:
        own = {name.split("_l")[0]: getattr(module, name) for name in names}
        yield Cell(
            _kind_of(module),
            own["weight_ih"],
            own["weight_hh"],
            own.get("bias_ih"),
            own.get("bias_hh"),
            own.get("weight_hr"),
        )


def _count_stack(
    counter: Counter,
    name: str,
    module: nn.RNNBase,
    sequences: Sequences,
    starts: Iterator[tuple[Tensor, Tensor | None]],
    answer: Tensor | None,
) -> None:
    directions = 2 if module.bidirectional else 1
    valid = sequences.valid()
    cells = list(_cells(module))
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(directions):
            cell, (hidden, memory) = cells[layer * directions + direction], next(starts)
            taken = sequences.backwards() if direction else sequences
            known = None if answer is None else answer.chunk(directions, -1)[direction]
            known = known.flip(0) if known is not None and direction else known
            states, output = _states(cell, taken.values, hidden, memory, known)
            by_sample = States(
                *(None if s is None else s.transpose(0, 1) for s in states)
            )
            count_cell(
                counter, cell, by_sample, name, None if valid is None else valid.t()
            )
            result = Sequences(output, sequences.lengths)
            outputs.append((result.backwards() if direction else result).values)
        sequences = Sequences(torch.cat(outputs, -1), sequences.lengths)


def _states(
    cell: Cell, x: Tensor, hidden: Tensor, memory: Tensor | None, output: Tensor | None
) -> tuple[States, Tensor]:
    """Return the states before each step, from the outputs if these are known.

    A non-zero LSTM output o · tanh(c) implies a non-zero memory c: it is all that is needed unless some outputs are zero.
    """
    if output is None or (memory is not None and not bool(output[:-1].ne(0).all())):
        return _unroll(cell, x, hidden, memory)
    before = torch.cat([hidden[None].to(output.dtype), output[:-1]])
    kept = (
        None
        if memory is None
        else torch.cat([memory[None].to(output.dtype), output[:-1]])
    )
    return States(x, before, kept), output


def _unroll(
    cell: Cell, x: Tensor, hidden: Tensor, memory: Tensor | None
) -> tuple[States, Tensor]:
    """Return the states before each step, ``(step, batch, …)``, and the outputs, for inputs ``(step, batch, in)``."""
    if memory is not None:
        return _unroll_lstm(cell, x, hidden, memory)
    before, outputs = [], []
    for step in x.unbind(0):
        before.append(hidden)
        hidden = STEPS[cell.kind](
            step, hidden, cell.w_ih, cell.w_hh, cell.b_ih, cell.b_hh
        )
        outputs.append(hidden)
    return States(x, torch.stack(before)), torch.stack(outputs)


def _unroll_lstm(
    cell: Cell, x: Tensor, hidden: Tensor, memory: Tensor
) -> tuple[States, Tensor]:
    before, memories, unprojected, outputs = [], [], [], []
    for step in x.unbind(0):
        before.append(hidden)
        memories.append(memory)
        gates = F.linear(step, cell.w_ih, cell.b_ih) + F.linear(
            hidden, cell.w_hh, cell.b_hh
        )
        i, f, g, o = gates.chunk(4, 1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * memory.tanh()
        unprojected.append(hidden)
        if cell.w_hr is not None:
            hidden = F.linear(hidden, cell.w_hr)
        outputs.append(hidden)
    projected = None if cell.w_hr is None else torch.stack(unprojected)
    return States(
        x, torch.stack(before), torch.stack(memories), projected
    ), torch.stack(outputs)
