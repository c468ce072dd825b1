"""One pass of a network over its batches, with all counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal

import torch
from torch import nn

from neuroledger.data.facts import Fact
from neuroledger.errors import ModelError, NeuroLedgerError, RequestError
from neuroledger.families.efficiency.counting.counter import LEFT
from neuroledger.families.efficiency.counting.counts import (
    Energy,
    Memory,
    Mode,
    Need,
    Timing,
    Trace,
    Weights,
)
from neuroledger.families.efficiency.counting.lemaire import Lemaire
from neuroledger.families.efficiency.counting.measured import (
    measure_energy,
    measure_memory,
    measure_time,
)
from neuroledger.families.efficiency.counting.network import (
    Network,
    copy_inputs,
    evaluation,
    find_meta_tensor,
    inputs_of,
    may_write,
    run_forward,
    samples_of,
    shape_of,
    size_of,
    steps_through_time,
    uncompiled,
    was_written,
)
from neuroledger.families.efficiency.counting.neurobench_compat import (
    NeuroBenchPass,
    neurobench_weights,
)
from neuroledger.families.efficiency.counting.spiking import Registered, spikes
from neuroledger.families.efficiency.counting.static import count_weights
from neuroledger.families.efficiency.counting.strict import StrictPass

__all__ = ["check_repeats", "trace", "trace_functions"]

TimeAxis = int | Literal["auto"] | None
Receive = Callable[[Any, Any], None]
Pass = StrictPass | NeuroBenchPass

MEASURED: Final = frozenset({"timing", "memory", "energy"})


def trace(
    module: nn.Module,
    batches: Iterable[Any],
    *,
    needs: Iterable[Need],
    mode: Mode = "strict",
    time_axis: TimeAxis = "auto",
    sample_axis: int | None = None,
    spiking: Registered = MappingProxyType({}),
    carry_state: bool = False,
    receive: Receive | None = None,
) -> Trace:
    """Run the network over the batches once, in evaluation mode, and return the counts named by ``needs``.

    Batches are read one at a time and not stored: memory does not grow with their number. Every batch starts from the same
    state of the network and of the random generators, with spiking layers reset, and all state is restored afterwards.
    A batch is a tensor ``(sample, …)``, an ``(input, target)`` pair or a mapping of keyword arguments.

    Parameters
    ----------
    time_axis
        Axis of the input along which a network that takes one step per call is stepped. None passes whole batches.
        ``"auto"`` detects spiking networks that take one step per call, and steps them along axis 1, or along axis 0 if
        samples are along axis 1.
    sample_axis
        Axis of the samples in the input. None means axis 0, and the pass fails if the network takes axis 0 for time.
    spiking
        State tensors of classes of spiking layers, the membrane potential first, by class.
    carry_state
        The batches are one series: the state continues from batch to batch.
    receive
        Called with each batch and the network's output.

    Raises
    ------
    RequestError
        ``module`` is not a torch module, or a batch has no tensor.
    ModelError
        The forward pass fails and ``receive`` is given. Without ``receive``, a failing pass is a failure of the needs.
    """
    network, requested = Network.of(module, spiking, sample_axis), frozenset(needs)
    if isinstance(
        batches, (torch.Tensor, Mapping)
    ):  # a single batch: its samples are not batches
        batches = (batches,)
    if not isinstance(batches, Iterable):
        raise RequestError(
            f"`batches` must be a list or another iterable, not {type(batches).__name__}"
        )
    state = _Progress(carry_state, [])
    weights = (
        _count_weights(network, mode, state.failures)
        if "weights" in requested
        else None
    )
    running = requested - {"weights"}
    counting = running & {"operations", "activations", "membranes"}
    run: Pass = (
        StrictPass(network, counting)
        if mode == "strict"
        else NeuroBenchPass(network, counting)
    )
    if running or receive is not None:
        _run_batches(network, run, batches, time_axis, running, receive, state)
    if (
        "weights" in state.failures and state.batches
    ):  # layers that took their shape from the first batch
        del state.failures["weights"]
        weights = _count_weights(network, mode, state.failures)
    return _trace_of(run, mode, requested, weights, state)


def _run_batches(
    network: Network,
    run: Pass,
    batches: Iterable[Any],
    time_axis: TimeAxis,
    needs: frozenset[Need],
    receive: Receive | None,
    state: _Progress,
) -> None:
    """Run and count all batches; failures are added to ``state``."""
    try:
        with _preserving_state(network), uncompiled():
            for batch in batches:
                _run_and_count(network, run, batch, time_axis, needs, receive, state)
    except ModelError as error:
        if receive is not None:
            raise
        state.failures.update(dict.fromkeys(needs, str(error)))
    if not state.samples:
        state.failures.update(
            {
                need: state.failures.get(need, "there were no batches to run")
                for need in needs
            }
        )
    run.finish()


def _trace_of(
    run: Pass,
    mode: Mode,
    requested: frozenset[Need],
    weights: Weights | None,
    state: _Progress,
) -> Trace:
    """Return the counts of a pass that has ended."""
    failures, tally = dict(state.failures), run.tally
    failures |= {
        need: failures.get(need, why)
        for need, why in run.failures.items()
        if need in requested
    }
    if tally.unreadable_membranes and "membranes" in requested:
        blind = ", ".join(sorted(tally.unreadable_membranes))
        failures.setdefault(
            "membranes",
            f"the membrane potentials of {blind} cannot be read after each time step",
        )
    connecting, reached, unreached = (
        tally.coverage() if "operations" in requested else (0, 0, ())
    )
    return Trace(
        mode=mode,
        needs=requested,
        samples=state.samples,
        batches=state.batches,
        steps=state.steps if state.time_axis is not None else tally.axes.steps,
        layers=tally.layers,
        batch_sparsity=state.sparsity / state.samples if state.samples else 0.0,
        spiking_layers=len(run.network.spiking),
        uncounted=tuple(tally.uncounted.values()),
        weights_met=connecting,
        weights_reached=reached,
        unreached=unreached,
        weights=weights,
        timing=state.timing,
        memory=state.memory,
        energy=state.energy,
        lemaire=state.lemaire.picojoules if state.lemaire else None,
        omitted=tuple(state.lemaire.omitted) if state.lemaire else (),
        facts=_facts_of(run.network),
        silent=tuple(name for name, fired in tally.fired.items() if not fired),
        failures=failures,
        beyond=tuple(sorted(run.network.state.beyond)) if run.network.state else (),
        notes=tuple(state.notes),
    )


def _facts_of(network: Network) -> dict[str, Fact]:
    """Return the facts on which the answers of a network's parts depend."""
    facts: dict[str, Fact] = {}
    for _, part in network.parts:
        facts |= vars(part).get("facts", {})
    return {name: fact for name, fact in facts.items() if isinstance(fact, Fact)}


def check_repeats(
    counted: Trace,
    module: nn.Module,
    batch: Any,
    *,
    sample_axis: int | None,
    **options: Any,
) -> Trace:
    """Count a batch again, whole and in two parts: add a note to the trace if counts are equal, else a failure."""
    needs = counted.needs & {"operations", "activations", "membranes"}
    inputs, axis = inputs_of(batch), sample_axis or 0
    size = size_of(inputs, axis)
    half = size // 2
    parts = [(0, half), (half, size - half)] if half else []
    runs = [
        ("", [(0, size)]),
        (f"of {size} samples again", [(0, size)]),
        (f"of {half} and {size - half} samples", parts),
    ]
    whole, *others = (
        trace(
            module,
            [(samples_of(inputs, axis, *part), None) for part in parts_of_batch],
            needs=needs,
            sample_axis=sample_axis,
            **options,
        )
        for _, parts_of_batch in runs
    )
    for other, (description, parts_of_batch) in zip(others, runs[1:], strict=True):
        names = {*whole.layers, *other.layers}
        differs = sorted(
            name for name in names if whole.layers.get(name) != other.layers.get(name)
        )
        if parts_of_batch and (differs or whole.failures != other.failures):
            why = f"batches {description} gave other counts than one of {size}: {', '.join(differs[:8])}"
            if counted.beyond:
                why += f"; the network has iterators, which cannot be restored: {', '.join(counted.beyond)}"
            return replace(
                counted, failures={**counted.failures, **dict.fromkeys(needs, why)}
            )
    checked = " and ".join(
        str(description) for description, parts_of_batch in runs[1:] if parts_of_batch
    )
    return replace(
        counted,
        notes=(*counted.notes, f"checked: batches {checked} gave the same counts"),
    )


class _Progress:
    """Progress of a pass between two batches."""

    def __init__(self, carry: bool, notes: list[str]) -> None:
        self.carry, self.notes = carry, notes
        self.samples = self.batches = 0
        self.steps = 1
        self.sparsity = 0.0
        self.time_axis: int | None = None
        self.writes = False  # whether the network may write into its inputs
        self.timing: Timing | None = None
        self.memory: Memory | None = None
        self.energy: Energy | None = None
        self.lemaire: Lemaire | None = None
        self.failures: dict[str, str] = {}


def _run_and_count(
    network: Network,
    run: Pass,
    batch: Any,
    time_axis: TimeAxis,
    needs: frozenset[Need],
    receive: Receive | None,
    state: _Progress,
) -> None:
    """Run and count one batch."""
    inputs = inputs_of(batch)
    size = size_of(inputs, network.sample_axis)
    if size == 0:
        return
    if state.batches == 0:
        _prepare(network, inputs, time_axis, needs, state)
    model_inputs = copy_inputs(inputs) if state.writes else inputs
    answer = _answer(network, run, model_inputs, size, state)
    if "lemaire" in needs:
        state.lemaire = state.lemaire or Lemaire(network)
        with evaluation(network, carry=state.carry), state.lemaire:
            run_forward(network, copy_inputs(inputs), state.time_axis)
    if receive is not None:
        receive(batch, answer)
    if isinstance(run, NeuroBenchPass):
        state.sparsity += run.batch_sparsity * size
    state.writes = state.writes and was_written(model_inputs)
    state.samples += size
    state.batches += 1


def _prepare(
    network: Network,
    inputs: Any,
    time_axis: TimeAxis,
    needs: frozenset[Need],
    state: _Progress,
) -> None:
    """Find the axis of time with the first batch, and measure what is asked for.

    Raises
    ------
    ModelError
        The network or its input has no values.
    """
    empty = find_meta_tensor(network, inputs)
    if empty is not None:
        raise ModelError(
            f"{empty} is on the meta device, without values: load the weights first (module.to_empty)"
        )
    state.writes = may_write(network)
    state.time_axis = (
        steps_through_time(network, inputs) if time_axis == "auto" else time_axis
    )
    if state.time_axis is not None:
        state.steps = _time_steps(inputs, state.time_axis, network.sample_axis)
        if time_axis == "auto":
            state.notes.append(
                f"the network takes single steps: it was stepped {state.steps} times along axis {state.time_axis}"
            )
    if needs & MEASURED:
        _measure(network, copy_inputs(inputs), needs, state)


def _answer(
    network: Network, run: Pass, inputs: Any, size: int, state: _Progress
) -> Any:
    """Run one batch, count it, and return the network's output.

    Raises
    ------
    ModelError
        The forward pass fails, or the network takes the axis of samples for time.
    """
    shape = (
        () if network.axis_stated or state.time_axis is not None else shape_of(inputs)
    )
    with evaluation(network, carry=state.carry):
        run.begin(size, shape, inputs)
        try:
            answer = run_forward(network, inputs, state.time_axis)
        finally:
            run.end()
        run.settle(answer)
    first = spikes(answer) if not isinstance(answer, Mapping) else None
    if isinstance(first, torch.Tensor):
        run.tally.axes.note_output(tuple(first.shape))
    if run.tally.axes.clash:
        raise ModelError(
            f"{run.tally.axes.clash}, so that axis 0 of inputs {shape} is taken for time: state the axis of the samples, "
            "`sample_axis=1` (or `sample_axis=0` if it is axis 0)"
        )
    return answer


@contextmanager
def _preserving_state(network: Network) -> Iterator[None]:
    """Restore the network and the random generators at the end."""
    network.state = network.take_state()
    try:
        yield
    finally:
        with network.lock:
            network.state.restore()
            network.state.streams.restore(network.state.streams.start)


def _time_steps(inputs: Any, axis: Any, sample_axis: int) -> int:
    shape = getattr(inputs, "shape", None)
    has_axis = (
        shape is not None and isinstance(axis, int) and -len(shape) <= axis < len(shape)
    )
    if shape is None or not has_axis or axis % len(shape) == sample_axis:
        of = (
            f"of shape {tuple(shape)}"
            if shape is not None
            else "that are several tensors"
        )
        raise RequestError(
            f"time_axis {axis!r}: inputs {of} have no such axis of time steps; axis {sample_axis} is that of the samples "
            "(`sample_axis`)"
        )
    return int(shape[axis])


def _measure(
    network: Network, inputs: Any, needs: frozenset[Need], state: _Progress
) -> None:
    """Measure time, memory and energy with the first batch, before counting."""
    for need, measure in (
        ("timing", measure_time),
        ("memory", measure_memory),
        ("energy", measure_energy),
    ):
        if need in needs:
            try:
                setattr(state, need, measure(network, inputs, state.time_axis))
            except NeuroLedgerError as error:
                state.failures[need] = str(error)


def _count_weights(
    network: Network, mode: Mode, failures: dict[str, str]
) -> Weights | None:
    try:
        if mode == "strict":
            return count_weights(network.module, network.parts)
        return neurobench_weights(network.module)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        failures["weights"] = f"the weights cannot be read: {error}"
        return None


def trace_functions(run: Callable[[], int]) -> Trace:
    """Count the operations of torch in ``run``, which returns the number of samples.

    This is for models that are not a single module: their parts are unknown, so counts are listed by function name, and
    operations outside of torch are not counted. If nothing was computed in torch, every count fails.
    """
    counting = StrictPass(
        Network.of(nn.Module()), frozenset({"operations", "activations"})
    )
    counting.begin(0, (), ())
    with torch.no_grad():
        try:
            samples = run()
        finally:
            counting.end()
    tally = counting.tally
    tally.settle()
    uncounted = tuple(part for part in tally.uncounted.values() if part.why != LEFT)
    why = ""
    if not samples:
        why = "no sample was answered"
    elif not tally.layers and not uncounted:
        why = "nothing was multiplied in torch: what is computed elsewhere, such as in NumPy, cannot be counted"
    return Trace(
        mode="strict",
        needs=frozenset({"operations", "activations"}),
        samples=samples,
        batches=1,
        layers=tally.layers,
        uncounted=uncounted,
        notes=("operations of torch alone, by function",),
        failures={"operations": why, "activations": why} if why else {},
    )
