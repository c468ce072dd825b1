"""Counting rules of recurrent layers and cells: products with the weights, and products among the gates.

An input or hidden value is multiplied with the non-zero weights of its column, as in a linear layer. In addition, an LSTM
computes f·c, i·g and o·tanh(c), a GRU r·(W h), (1-z)·n and z·h: at most three products per unit and step. A product
counts if both of its factors can be non-zero. Layers are unrolled step by step to obtain every hidden state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from neuroledger.families.efficiency.counting.layer_counts import Tally
from neuroledger.families.efficiency.counting.rows import count_nonzero
from neuroledger.families.efficiency.counting.rules import argument, count_linear

__all__ = ["cell", "stack"]

Kind = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]


class Cell(NamedTuple):
    """The weights of one recurrent cell; biases may be absent, and so may an LSTM's projection."""

    kind: Kind
    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None


class States(NamedTuple):
    """Inputs and states of a cell, ``(batch, …)`` or ``(batch, time, …)``; for an LSTM also cell states and raw outputs."""

    inputs: Tensor
    hidden: Tensor
    memory: Tensor | None = None
    unprojected: Tensor | None = None


def ones(tensor: Tensor) -> Tensor:
    """Return 1 where the tensor is not zero, else 0."""
    return tensor.ne(0).to(torch.float32)


def always_open(cell: Cell) -> bool:
    """Return whether the biases keep all gates, and a GRU's candidate, from being zero for any input."""
    if cell.b_ih is None or cell.b_hh is None:
        return False
    bias_hh = cell.b_hh
    if cell.kind == "lstm":
        return count_nonzero(bias_hh) == len(bias_hh) or bool((bias_hh.ne(0) | cell.b_ih.ne(0)).all())
    gates = len(bias_hh) // 3 * 2
    return bool((bias_hh[:gates].ne(0) | cell.b_ih[:gates].ne(0)).all() and bias_hh[gates:].ne(0).all())


def gate_products(cell: Cell, states: States) -> Tensor:
    """Return the products among the gates for each sample and step: f·c + i·g + o·[c ≠ 0], or r·(W h) + (1-z)·n + z·h."""
    if always_open(cell):  # two in each unit, and a third where the carried state is not zero
        carried_state = states.hidden if cell.kind == "gru" or states.memory is None else states.memory
        carries = torch.ne(carried_state, 0, out=torch.empty_like(carried_state, dtype=torch.float32)).sum(-1)
        return carries + 2.0 * carried_state.shape[-1]
    zero = states.inputs.new_zeros((), dtype=torch.float32)
    bias_ih = ones(cell.b_ih) if cell.b_ih is not None else zero
    bias_hh = ones(cell.b_hh) if cell.b_hh is not None else zero
    from_input = ones(states.inputs) @ ones(cell.w_ih).t()
    from_hidden = ones(states.hidden) @ ones(cell.w_hh).t()
    if cell.kind == "lstm":
        i, f, g, o = ones(from_input + from_hidden + bias_ih + bias_hh).chunk(4, -1)
        carried = f * ones(states.memory if states.memory is not None else states.hidden) + i * g
        return carried.sum(-1) + (o * ones(carried)).sum(-1)
    reset, update, _ = ones(from_input + from_hidden + bias_ih + bias_hh).chunk(3, -1)
    recurrent = ones((from_hidden + bias_hh).chunk(3, -1)[2])
    gated = reset * recurrent
    candidate = ones((from_input + bias_ih).chunk(3, -1)[2] + gated)
    return gated.sum(-1) + candidate.sum(-1) + (update * ones(states.hidden)).sum(-1)


def count_cell(tally: Tally, cell: Cell, states: States, name: str, valid: Tensor | None = None) -> None:
    """Count every row of ``states``: inputs and hidden states separately, products of gates as MACs.

    For padded sequences, ``valid`` ``(batch, time)`` marks the steps that belong to a sequence.
    """
    if valid is not None:
        states = States(*(None if s is None else s * valid[..., None] for s in states))
    padding = 0 if valid is None else int(valid.numel() - valid.sum())
    count_linear(tally, states.inputs, cell.w_ih, name)
    count_linear(tally, states.hidden, cell.w_hh, name)
    layer = tally.layer(name)
    layer.dense -= float(padding) * (cell.w_ih.numel() + cell.w_hh.numel())
    if cell.kind in ("lstm", "gru"):
        products = gate_products(cell, states)
        tally.add(layer, "macs", (products if valid is None else products * valid).sum(dtype=torch.float64))
        units = len(cell.w_hh) // (4 if cell.kind == "lstm" else 3)
        layer.dense += 3.0 * (states.inputs[..., 0].numel() - padding) * units
    if cell.w_hr is not None and states.unprojected is not None:
        count_linear(tally, states.unprojected, cell.w_hr, name)
        layer.dense -= float(padding) * cell.w_hr.numel()


def cell(kind: Kind) -> Callable[[Tally, Any, tuple[Any, ...], dict[str, Any]], None]:
    """Return the rule of one step of a cell: ``(input, state, w_ih, w_hh, b_ih, b_hh)``."""

    def rule(tally: Tally, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x, state = args[0], args[1]
        hidden, memory = state if isinstance(state, (tuple, list)) else (state, None)
        names = ("w_ih", "w_hh", "b_ih", "b_hh")
        weights = [argument(args, kwargs, position, name) for position, name in enumerate(names, 2)]
        states = States(x.reshape(-1, x.shape[-1]), hidden.reshape(-1, hidden.shape[-1]), memory)
        if memory is not None:
            states = states._replace(memory=memory.reshape(-1, memory.shape[-1]))
        count_cell(tally, Cell(kind, *weights), states, tally.name(weights[0], kind))

    return rule


@dataclass(frozen=True)
class Sequences:
    """A batch of sequences ``(time, batch, feature)``, padded at the end if their lengths differ."""

    values: Tensor
    lengths: Tensor | None

    def valid(self) -> Tensor:
        """Return which steps belong to a sequence, ``(time, batch)``."""
        steps, batch = self.values.shape[:2]
        if self.lengths is None:
            return torch.ones((steps, batch), dtype=torch.bool, device=self.values.device)
        return torch.arange(steps, device=self.values.device)[:, None] < self.lengths.to(self.values.device)

    def backwards(self) -> Sequences:
        """Return each sequence reversed, with padding at the end."""
        if self.lengths is None:
            return Sequences(self.values.flip(0), None)
        steps = torch.arange(len(self.values), device=self.values.device)[:, None]
        lengths = self.lengths.to(self.values.device)
        index = torch.where(steps < lengths, lengths - 1 - steps, steps)
        return Sequences(self.values.gather(0, index[..., None].expand_as(self.values)), self.lengths)


def stack(kind: Kind) -> Callable[[Tally, Any, tuple[Any, ...], dict[str, Any]], None]:
    """Return the rule of a recurrent layer: several cells in depth and direction, over padded or packed sequences."""

    def rule(tally: Tally, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(args[2], (list, tuple)) and isinstance(args[3], bool):
            x, state, weights, biased, layers = args[0], args[1], args[2], args[3], args[4]
            if not args[8]:
                tally.check_sequence_axis(kind, x.shape)
            sequence = Sequences(x.transpose(0, 1) if args[8] else x, None)
            bidirectional = args[7]
        else:
            data, sizes, state, weights, biased, layers = args[:6]
            values, lengths = pad_packed_sequence(PackedSequence(data, sizes.cpu()))
            sequence, bidirectional = Sequences(values, lengths), args[8]
        hidden, memory = state if isinstance(state, (tuple, list)) else (state, None)
        answer = None
        if sequence.lengths is None:
            answer = result[0].transpose(0, 1) if args[8] else result[0]
        count_stack(
            tally, kind, sequence, hidden, memory, weights, biased, layers, 2 if bidirectional else 1, answer
        )

    return rule


def count_stack(
    tally: Tally,
    kind: Kind,
    sequence: Sequences,
    hidden: Tensor,
    memory: Tensor | None,
    weights: Sequence[Tensor],
    biased: bool,
    layers: int,
    directions: int,
    answer: Tensor | None = None,
) -> None:
    """Count a stack of ``layers`` × ``directions`` cells with initial states ``(layer · direction, batch, unit)``.

    ``answer`` is the output of the last layer, ``(time, batch, direction · unit)``, if it is known.
    """
    per_cell = len(weights) // (layers * directions)
    valid = sequence.valid() if sequence.lengths is not None else None
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            cell_weights = list(weights[index * per_cell : (index + 1) * per_cell])
            projection = cell_weights.pop() if len(cell_weights) % 2 else None
            biases = cell_weights[2:4] if biased else [None, None]
            parts = Cell(kind, cell_weights[0], cell_weights[1], biases[0], biases[1], projection)
            start = None if memory is None else memory[index]
            cell_inputs = sequence.backwards() if direction else sequence
            output = None
            if answer is not None and projection is None and layer == layers - 1:
                output = answer.chunk(directions, -1)[direction]
                output = output.flip(0) if direction else output
            if sequence.lengths is None and projection is None:
                states, output = states_from_outputs(parts, cell_inputs.values, hidden[index], start, output)
            else:
                states, output = unroll(parts, cell_inputs.values, hidden[index], start)
            by_sample = States(*(None if s is None else s.transpose(0, 1) for s in states))
            count_cell(
                tally,
                parts,
                by_sample,
                tally.name(cell_weights[0], kind),
                None if valid is None else valid.t(),
            )
            cell_outputs = Sequences(output, sequence.lengths)
            outputs.append((cell_outputs.backwards() if direction else cell_outputs).values)
        sequence = Sequences(torch.cat(outputs, -1), sequence.lengths)


def states_from_outputs(
    cell: Cell, x: Tensor, hidden: Tensor, memory: Tensor | None, output: Tensor | None
) -> tuple[States, Tensor]:
    """Return the result of ``unroll`` for a cell without projection, from its outputs; torch's layer computes these.

    A non-zero LSTM output o · tanh(c) implies a non-zero c, which is all that is needed. Cell states themselves are
    computed only if some outputs are zero.
    """
    if output is None:
        weights = [w for w in (cell.w_ih, cell.w_hh, cell.b_ih, cell.b_hh) if w is not None]
        start = hidden[None] if memory is None else (hidden[None], memory[None])
        layer = {"lstm": torch.lstm, "gru": torch.gru, "rnn_tanh": torch.rnn_tanh, "rnn_relu": torch.rnn_relu}
        output = layer[cell.kind](x, start, weights, len(weights) == 4, 1, 0.0, False, False, False)[0]
    before = torch.cat([hidden[None].to(output.dtype), output[:-1]])
    if memory is None:
        return States(x, before), output
    memories = torch.cat([memory[None].to(output.dtype), output[:-1]])
    if count_nonzero(output[:-1]) < output[:-1].numel():
        unrolled = unroll(cell, x, hidden, memory)[0].memory
        memories = memories.where(memories.ne(0), memories if unrolled is None else unrolled)
    return States(x, before, memories), output


def unroll(cell: Cell, x: Tensor, hidden: Tensor, memory: Tensor | None) -> tuple[States, Tensor]:
    """Return the states before each step, ``(time, batch, …)``, and the outputs, for inputs ``(time, batch, in)``."""
    before: list[Tensor] = []
    memories: list[Tensor] = []
    raws: list[Tensor] = []
    outputs: list[Tensor] = []
    for step in x.unbind(0):
        before.append(hidden)
        if cell.kind == "lstm":
            if memory is None:
                raise ValueError("an LSTM without a cell state")
            memories.append(memory)
            gates = F.linear(step, cell.w_ih, cell.b_ih) + F.linear(hidden, cell.w_hh, cell.b_hh)
            i, f, g, o = gates.chunk(4, 1)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * memory.tanh()
            if cell.w_hr is not None:
                raws.append(hidden)
                hidden = F.linear(hidden, cell.w_hr)
        else:
            advance = {
                "gru": torch.gru_cell,
                "rnn_tanh": torch.rnn_tanh_cell,
                "rnn_relu": torch.rnn_relu_cell,
            }
            hidden = advance[cell.kind](step, hidden, cell.w_ih, cell.w_hh, cell.b_ih, cell.b_hh)
        outputs.append(hidden)
    states = States(
        x,
        torch.stack(before),
        torch.stack(memories) if memories else None,
        torch.stack(raws) if raws else None,
    )
    return states, torch.stack(outputs)
