"""One pass of a network over its batches, and everything that is counted on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal

import torch
from torch import nn

from neuroledger.errors import ModelError, NeuroLedgerError, RequestError
from neuroledger.families.efficiency.counting.counts import Energy, Memory, Mode, Need, Timing, Trace
from neuroledger.families.efficiency.counting.layer_counts import Tally
from neuroledger.families.efficiency.counting.lemaire import Lemaire
from neuroledger.families.efficiency.counting.measured import measure_energy, measure_memory, measure_time
from neuroledger.families.efficiency.counting.network import (
    Network,
    answered,
    copied,
    evaluation,
    inputs_of,
    loops,
    may_step,
    may_write,
    samples_of,
    shape_of,
    size_of,
    steps_through_time,
    uncompiled,
    without_values,
    written,
)
from neuroledger.families.efficiency.counting.neurobench_compat import PeerPass, peer_weights
from neuroledger.families.efficiency.counting.spiking import Registered, spikes
from neuroledger.families.efficiency.counting.static import count_weights
from neuroledger.families.efficiency.counting.strict import LEFT, StrictPass, Watch

__all__ = ["repeated", "trace", "watched"]

TimeAxis = int | Literal["auto"] | None
Receive = Callable[[Any, Any], None]

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
    """Run the network over the batches once, in evaluation mode, and count what ``needs`` name.

    Batches are read one at a time and nothing of them is kept: memory does not grow with their number. Every batch starts
    from the same state of the network and of the generators of random numbers, with spiking layers reset, and all of it is
    put back afterwards. A batch is a tensor ``(sample, …)``, an ``(input, target)`` pair or a mapping of keyword arguments.

    Parameters
    ----------
    time_axis
        Axis of the input along which a network that takes single steps is stepped; None hands over whole batches;
        ``"auto"`` finds out whether a spiking network takes single steps, and then steps along axis 1, or along axis 0
        where that is not the axis of the samples.
    sample_axis
        Axis of the samples in the input. None means axis 0, and a pass fails whose network takes axis 0 for time.
    spiking
        State tensors of classes of spiking layers, the membrane potential first, by class.
    carry_state
        The batches are one series: the state goes on from batch to batch.
    receive
        Called with each batch and the network's answer.

    Raises
    ------
    RequestError
        ``module`` is no torch module, or a batch holds no tensor.
    ModelError
        Something was to be received, but the forward pass fails. Otherwise a failing pass is a failure of the needs.
    """
    network, wanted = Network.of(module, spiking, sample_axis), frozenset(needs)
    if isinstance(batches, (torch.Tensor, Mapping)):  # one batch handed over bare: its samples are no batches
        batches = (batches,)
    if not isinstance(batches, Iterable):
        raise RequestError(f"batches are a list or another iterable, not {type(batches).__name__}")
    failures: dict[str, str] = {}
    full: dict[int, tuple[torch.Tensor, int]] = {}
    weights = _weights(network, mode, failures, full) if "weights" in wanted else None
    running = wanted - {"weights"}
    counting = running & {"operations", "activations", "membranes"}
    run = StrictPass(network, counting) if mode == "strict" else PeerPass(network, counting)
    run.tally.full = full
    state = _Progress(carry_state)
    state.notes += getattr(module, "cost_notes", ())
    if running or receive is not None:
        try:
            with _preserved(network), uncompiled():
                for batch in batches:
                    run = _one(network, run, batch, time_axis, running, receive, state)
        except ModelError as error:
            if receive is not None:
                raise
            failures.update(dict.fromkeys(running, str(error)))
        if not state.samples:
            failures.update({need: failures.get(need, "there were no batches to run") for need in running})
        run.finish()
    if "weights" in failures and state.batches:  # layers that took their shape from the first batch
        del failures["weights"]
        weights = _weights(network, mode, failures, {})
    failures.update(state.failures)
    if isinstance(run, PeerPass):
        failures.update({str(need): why for need, why in run.failures.items()})
    if network.spiking and isinstance(run, StrictPass) and not run.called:
        why = f"no spiking layer was called as a module: {', '.join(network.spiking)} cannot be observed"
        failures.update({need: failures.get(need, why) for need in running & {"membranes", "activations"}})
    if run.tally.blind_membranes and "membranes" in running:
        blind = ", ".join(sorted(run.tally.blind_membranes))
        failures.setdefault(
            "membranes", f"the membrane potentials of {blind} cannot be read after each time step"
        )
    met, reached, unreached = run.tally.coverage() if "operations" in running else (0, 0, ())
    return Trace(
        mode=mode,
        needs=wanted,
        samples=state.samples,
        batches=state.batches,
        steps=state.steps if state.time_axis is not None else run.tally.steps,
        layers=run.tally.layers,
        batch_sparsity=state.sparsity / state.samples if state.samples else 0.0,
        spiking_layers=len(network.spiking),
        uncounted=tuple(run.tally.uncounted.values()),
        weights_met=met,
        weights_reached=reached,
        unreached=unreached,
        weights=weights,
        timing=state.timing,
        memory=state.memory,
        energy=state.energy,
        lemaire=state.lemaire.picojoules if state.lemaire else None,
        omitted=tuple(state.lemaire.omitted) if state.lemaire else (),
        failures=failures,
        beyond=tuple(sorted(network.state.beyond)) if network.state else (),
        notes=tuple(state.notes),
    )


def repeated(
    counted: Trace, module: nn.Module, batch: Any, *, sample_axis: int | None, **options: Any
) -> Trace:
    """The trace with a note that a batch counts the same in a second run and in two parts; counts fail where it does not."""
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
            [(samples_of(inputs, axis, *part), None) for part in given],
            needs=needs,
            sample_axis=sample_axis,
            **options,
        )
        for _, given in runs
    )
    for other, (what, given) in zip(others, runs[1:], strict=True):
        names = {*whole.layers, *other.layers}
        differs = sorted(name for name in names if whole.layers.get(name) != other.layers.get(name))
        if given and (differs or whole.failures != other.failures):
            why = f"batches {what} gave other counts than one of {size}: {', '.join(differs[:8])}"
            if counted.beyond:
                why += f"; the network holds what cannot be put back: {', '.join(counted.beyond)}"
            return replace(counted, failures={**counted.failures, **dict.fromkeys(needs, why)})
    checked = " and ".join(str(what) for what, given in runs[1:] if given)
    return replace(counted, notes=(*counted.notes, f"checked: batches {checked} gave the same counts"))


class _Progress:
    """Progress of a pass between two batches."""

    def __init__(self, carry: bool) -> None:
        self.carry = carry
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
        self.notes: list[str] = []


def _one(
    network: Network,
    run: StrictPass | PeerPass,
    batch: Any,
    time_axis: TimeAxis,
    needs: frozenset[Need],
    receive: Receive | None,
    state: _Progress,
) -> StrictPass | PeerPass:
    """Run and count one batch; the pass to go on with, which after a first batch may be one that sees more."""
    inputs = inputs_of(batch)
    size = size_of(inputs, network.sample_axis)
    if size == 0:
        return run
    looped: tuple[Any, Any] | None = None
    if state.batches == 0:
        empty = without_values(network, inputs)
        if empty is not None:
            raise ModelError(
                f"{empty} is on the meta device, which holds no values: load the weights first (module.to_empty)"
            )
        state.writes = may_write(network)
        if time_axis == "auto" and isinstance(run, StrictPass) and not state.carry and not needs & MEASURED:
            looped, run = _looped(network, run, inputs, size, state)
        if looped is None:
            state.time_axis = _time_axis(network, inputs) if time_axis == "auto" else time_axis
        if state.time_axis is not None:
            state.steps = _steps(inputs, state.time_axis, network.sample_axis)
            if time_axis == "auto":
                state.notes.append(
                    f"the network takes single steps: it was stepped {state.steps} times along axis {state.time_axis}"
                )
        if needs & MEASURED:
            _measure(network, copied(inputs), needs, state)
    given, answer = looped or _shown(network, run, inputs, size, state)
    if state.batches == 0 and isinstance(run, StrictPass) and not state.carry:
        uncounted = run.hidden()
        if uncounted is not None:
            run = _anew(run, uncounted)
            given, answer = _shown(network, run, inputs, size, state)
    if "lemaire" in needs:
        state.lemaire = state.lemaire or Lemaire(network)
        with evaluation(network, carry=state.carry), state.lemaire:
            answered(network, copied(inputs), state.time_axis)
    if receive is not None:
        receive(batch, answer)
    if isinstance(run, PeerPass):
        state.sparsity += run.batch_sparsity * size
    state.writes = state.writes and written(given)
    state.samples += size
    state.batches += 1
    return run


def _looped(
    network: Network, run: StrictPass, inputs: Any, size: int, state: _Progress
) -> tuple[tuple[Any, Any] | None, StrictPass]:
    """The first batch and the answer to it of a network that calls its spiking layers step by step itself.

    Such a one takes no single steps, and need not be tried with one. None, and a pass that has counted nothing, of every
    other: also of those that have loops for something else.
    """
    if not (may_step(network, inputs) and loops(network)):
        return None, run
    try:
        found = _shown(network, run, inputs, size, state)
    except ModelError:
        return None, _anew(run)
    return (found, run) if run.tally.repeats() else (None, _anew(run))


def _anew(run: StrictPass, uncounted: frozenset[str] | None = None) -> StrictPass:
    """A pass that has counted nothing, over the same network."""
    anew = StrictPass(run.network, run.needs, uncounted)
    anew.tally.full = run.tally.full
    return anew


def _shown(
    network: Network, run: StrictPass | PeerPass, inputs: Any, size: int, state: _Progress
) -> tuple[Any, Any]:
    """A batch as it is shown to the network, and the answer."""
    given = copied(inputs) if state.writes else inputs
    return given, _answer(network, run, given, size, state)


def _answer(network: Network, run: StrictPass | PeerPass, inputs: Any, size: int, state: _Progress) -> Any:
    """The network's answer to one batch, counted.

    Raises
    ------
    ModelError
        The forward pass fails, or takes another axis for that of the samples.
    """
    shape = () if network.axis_stated or state.time_axis is not None else shape_of(inputs)
    with evaluation(network, carry=state.carry), run:
        run.begin(size, shape)
        try:
            answer = answered(network, inputs, state.time_axis)
        finally:
            run.end()
        run.settle()
    first = spikes(answer) if not isinstance(answer, Mapping) else None
    if isinstance(first, torch.Tensor):
        run.tally.answers(tuple(first.shape))
    if run.tally.clash:
        raise ModelError(
            f"{run.tally.clash}, so that axis 0 of inputs {shape} is taken for time: state the axis of the samples, "
            "`sample_axis=1` (or `sample_axis=0` if it is axis 0)"
        )
    return answer


@contextmanager
def _preserved(network: Network) -> Iterator[None]:
    """The network and the generators of random numbers are afterwards as they were."""
    network.state = network.take_state()
    try:
        yield
    finally:
        with network.turn:
            network.state.put_back(thorough=True)
            network.state.streams.go_to(network.state.streams.start)


def _steps(inputs: Any, axis: Any, sample_axis: int) -> int:
    shape = getattr(inputs, "shape", None)
    there = shape is not None and isinstance(axis, int) and -len(shape) <= axis < len(shape)
    if shape is None or not there or axis % len(shape) == sample_axis:
        of = f"of shape {tuple(shape)}" if shape is not None else "that are several tensors"
        raise RequestError(
            f"time_axis {axis!r}: inputs {of} have no such axis of time steps; axis {sample_axis} is that of the samples "
            "(`sample_axis`)"
        )
    return int(shape[axis])


def _time_axis(network: Network, inputs: Any) -> int | None:
    return steps_through_time(network, inputs) if network.spiking else None


def _measure(network: Network, inputs: Any, needs: frozenset[Need], state: _Progress) -> None:
    """Times, memory and energy, from the first batch, before anything is counted."""
    if "timing" in needs:
        try:
            state.timing = measure_time(network, inputs, state.time_axis)
        except NeuroLedgerError as error:
            state.failures["timing"] = str(error)
    if "memory" in needs:
        try:
            state.memory = measure_memory(network, inputs, state.time_axis)
        except NeuroLedgerError as error:
            state.failures["memory"] = str(error)
    if "energy" in needs:
        try:
            state.energy = measure_energy(network, inputs, state.time_axis)
        except NeuroLedgerError as error:
            state.failures["energy"] = str(error)


def _weights(
    network: Network, mode: Mode, failures: dict[str, str], full: dict[int, tuple[torch.Tensor, int]]
) -> Any:
    try:
        if mode == "strict":
            return count_weights(network.module, network.parts, full)
        return peer_weights(network.module)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        failures["weights"] = f"the weights cannot be read: {error}"
        return None


def watched(run: Callable[[], int]) -> Trace:
    """Count the operations of the torch functions that ``run`` calls; it returns the number of samples.

    For models that are more than one module: their parts are unknown, so counts are listed by the functions' names,
    and operations outside of torch are not counted. Recorded activations always leave torch, so that this is a note here,
    and does not make the count partial. Where nothing was done in torch, nothing is known, and every count has failed.
    """
    network = Network.of(nn.Module())
    tally = Tally(network)
    tally.begin(0)
    with torch.no_grad(), Watch(tally, operations=True, activations=True):
        samples = run()
    tally.settle(last=True)
    uncounted = tuple(one for one in tally.uncounted.values() if one.why != LEFT)
    why = ""
    if not samples:
        why = "no sample was answered"
    elif not tally.layers and not uncounted:
        why = (
            "nothing was multiplied in torch: what is computed elsewhere, such as in NumPy, cannot be counted"
        )
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
