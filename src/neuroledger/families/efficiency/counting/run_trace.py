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
from neuroledger.families.efficiency.counting.counts import Mode, Need, Trace
from neuroledger.families.efficiency.counting.lemaire import Lemaire
from neuroledger.families.efficiency.counting.measured import MEASURES
from neuroledger.families.efficiency.counting.network import (
    Network,
    copy_inputs,
    evaluation,
    find_meta_tensor,
    hooked,
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

__all__ = ["TimeAxis", "trace", "trace_functions"]

TimeAxis = int | Literal["auto"] | None
Receive = Callable[[Any, Any], None]

COUNTED: Final[frozenset[Need]] = frozenset({"operations", "activations", "membranes"})
UNREADABLE: Final = (RuntimeError, TypeError, ValueError, AttributeError)


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
    check: bool = False,
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
    check
        Count the first batch again, whole and in two parts; a network with iterators, whose state cannot be restored, is
        always checked.

    Raises
    ------
    RequestError
        ``module`` is not a torch module, or a batch has no tensor.
    ModelError
        The forward pass fails and ``receive`` is given. Without ``receive``, a failing pass is a failure of the needs.
    """
    network = Network.of(module, spiking, sample_axis)
    if isinstance(batches, (torch.Tensor, Mapping)):  # its samples are not batches
        batches = (batches,)
    if not isinstance(batches, Iterable):
        raise RequestError(
            f"`batches` must be a list or another iterable, not {type(batches).__name__}"
        )
    run = _Run(network, frozenset(needs), mode, time_axis, carry_state, receive)
    run.count_weights()
    if run.running or receive is not None:
        run.over(batches)
    if "weights" in run.failures and run.trace.batches:
        run.count_weights()  # layers take their shape from the first batch
    counted = run.finish()
    repeats = run.first is not None and receive is None
    if repeats and (check or counted.beyond):
        return _check_repeats(counted, network, run.first, time_axis)
    return counted


class _Run:
    """A pass over batches, which completes its trace batch by batch."""

    def __init__(
        self,
        network: Network,
        needs: frozenset[Need],
        mode: Mode,
        time_axis: TimeAxis,
        carry: bool,
        receive: Receive | None,
    ) -> None:
        self.network, self.carry, self.receive = network, carry, receive
        self.running = needs - {"weights"}
        kind = StrictPass if mode == "strict" else NeuroBenchPass
        self.counting: StrictPass | NeuroBenchPass = kind(network, needs & COUNTED)
        self.failures: dict[str, str] = {}
        self.trace = Trace(mode, needs, failures=self.failures)
        self.first: Any = None
        self._asked_axis = time_axis
        self._time_axis: int | None = None
        self._writes = False  # whether the network may write into its inputs
        self._sparsity = 0.0
        self._lemaire: Lemaire | None = None

    def count_weights(self) -> None:
        """Count parameters and their zeros, if they are asked for."""
        if "weights" not in self.trace.needs:
            return
        module = self.network.module
        parts = self.network.parts
        strict = self.trace.mode == "strict"
        try:
            counts = (
                count_weights(module, parts) if strict else neurobench_weights(module)
            )
        except UNREADABLE as error:
            self.failures["weights"] = f"the weights cannot be read: {error}"
        else:
            self.failures.pop("weights", None)
            self.trace = replace(self.trace, weights=counts)

    def over(self, batches: Iterable[Any]) -> None:
        """Run and count all batches."""
        try:
            with _preserving_state(self.network, self.carry), uncompiled():
                for batch in batches:
                    self._count_batch(batch)
        except ModelError as error:
            if self.receive is not None:
                raise
            self.failures.update(dict.fromkeys(self.running, str(error)))
        if not self.trace.samples:
            for need in self.running:
                self.failures.setdefault(need, "there were no batches to run")
        self.counting.finish()

    def _count_batch(self, batch: Any) -> None:
        """Run and count one batch."""
        inputs = inputs_of(batch)
        size = size_of(inputs, self.network.sample_axis)
        if size == 0:
            return
        if self.first is None:
            self.first = batch
            self._prepare(inputs)
        given = copy_inputs(inputs) if self._writes else inputs
        answer = self._answer(given, size)
        if "lemaire" in self.running:
            self._lemaire = self._lemaire or Lemaire(self.network)
            watched = hooked(self.network, self._lemaire.watchers())
            with evaluation(self.network, carry=self.carry), watched:
                run_forward(self.network, copy_inputs(inputs), self._time_axis)
        if self.receive is not None:
            self.receive(batch, answer)
        self._sparsity += self.counting.batch_sparsity * size
        self._writes = self._writes and was_written(given)
        done = self.trace
        self.trace = replace(
            done, samples=done.samples + size, batches=done.batches + 1
        )

    def _prepare(self, inputs: Any) -> None:
        """Find the axis of time with the first batch, and measure what is asked for.

        Raises
        ------
        ModelError
            The network or its input has no values.
        """
        network = self.network
        axis = self._asked_axis
        empty = find_meta_tensor(network, inputs)
        if empty is not None:
            raise ModelError(
                f"{empty} is on the meta device, without values: load the weights first (module.to_empty)"
            )
        self._writes = may_write(network)
        found = steps_through_time(network, inputs) if axis == "auto" else axis
        self._time_axis = found
        if found is not None:
            steps = _time_steps(inputs, found, network.sample_axis)
            note = f"the network takes single steps: it was stepped {steps} times along axis {found}"
            notes = (note,) if axis == "auto" else ()
            self.trace = replace(self.trace, steps=steps, notes=notes)
        for need in MEASURES.keys() & self.running:
            try:
                measured = MEASURES[need](network, copy_inputs(inputs), found)
                self.trace = replace(self.trace, **{need: measured})
            except NeuroLedgerError as error:
                self.failures[need] = str(error)

    def _answer(self, inputs: Any, size: int) -> Any:
        """Run one batch, count it, and return the network's output.

        Raises
        ------
        ModelError
            The forward pass fails, or the network takes the axis of samples for time.
        """
        network = self.network
        counting = self.counting
        axis_known = network.axis_stated or self._time_axis is not None
        shape = () if axis_known else shape_of(inputs)
        with evaluation(network, carry=self.carry):
            counting.begin(size, shape, inputs)
            try:
                answer = run_forward(network, inputs, self._time_axis)
            finally:
                counting.end()
            counting.settle(answer)
        axes = counting.tally.axes
        first = spikes(answer) if not isinstance(answer, Mapping) else None
        if isinstance(first, torch.Tensor):
            axes.note_output(tuple(first.shape))
        if axes.clash:
            raise ModelError(
                f"{axes.clash}, so that axis 0 of inputs {shape} is taken for time: state the axis of the samples, "
                "`sample_axis=1` (or `sample_axis=0` if it is axis 0)"
            )
        return answer

    def finish(self) -> Trace:
        """Return the counts of the pass, which has ended."""
        done = self.trace
        counting = self.counting
        lemaire = self._lemaire
        tally = counting.tally
        failures = self.failures
        for need in done.needs & counting.failures.keys():
            failures.setdefault(need, counting.failures[need])
        if tally.unreadable_membranes and "membranes" in done.needs:
            blind = ", ".join(sorted(tally.unreadable_membranes))
            why = f"the membrane potentials of {blind} cannot be read after each time step"
            failures.setdefault("membranes", why)
        connecting, reached, unreached = (
            tally.coverage() if "operations" in done.needs else (0, 0, ())
        )
        state = self.network.state
        return replace(
            done,
            steps=done.steps if self._time_axis is not None else tally.axes.steps,
            layers=tally.layers,
            batch_sparsity=self._sparsity / max(1, done.samples),
            spiking_layers=len(self.network.spiking),
            uncounted=tuple(tally.uncounted.values()),
            weights_met=connecting,
            weights_reached=reached,
            unreached=unreached,
            lemaire=lemaire.picojoules if lemaire else None,
            omitted=tuple(lemaire.omitted) if lemaire else (),
            facts=_facts_of(self.network),
            silent=tuple(name for name, fired in tally.fired.items() if not fired),
            beyond=tuple(sorted(state.beyond)) if state else (),
        )


def _facts_of(network: Network) -> dict[str, Fact]:
    """Return the facts on which the answers of a network's parts depend."""
    facts: dict[str, Fact] = {}
    for _, part in network.parts:
        facts |= vars(part).get("facts", {})
    return {name: fact for name, fact in facts.items() if isinstance(fact, Fact)}


def _check_repeats(
    counted: Trace, network: Network, batch: Any, time_axis: TimeAxis
) -> Trace:
    """Count a batch again, whole and in two parts: add a note to the trace if counts are equal, else a failure."""
    needs = counted.needs & COUNTED
    inputs = inputs_of(batch)
    axis = network.sample_axis
    size = size_of(inputs, axis)
    half = size // 2

    def again(*sizes: int) -> Trace:
        starts = (sum(sizes[:place]) for place in range(len(sizes)))
        parts = [
            samples_of(inputs, axis, *part) for part in zip(starts, sizes, strict=True)
        ]
        run = _Run(network, needs, counted.mode, time_axis, False, None)
        run.over([(part, None) for part in parts])
        return run.finish()

    whole = again(size)
    runs = {f"of {size} samples again": again(size)}
    if half:
        runs[f"of {half} and {size - half} samples"] = again(half, size - half)
    for description, other in runs.items():
        differs = sorted(
            name
            for name in {*whole.layers, *other.layers}
            if whole.layers.get(name) != other.layers.get(name)
        )
        if differs or whole.failures != other.failures:
            why = f"batches {description} gave other counts than one of {size}: {', '.join(differs[:8])}"
            if counted.beyond:
                why += f"; the network has iterators, which cannot be restored: {', '.join(counted.beyond)}"
            failures = dict(counted.failures)
            failures |= dict.fromkeys(needs, why)
            return replace(counted, failures=failures)
    note = f"checked: batches {' and '.join(runs)} gave the same counts"
    return replace(counted, notes=(*counted.notes, note))


@contextmanager
def _preserving_state(network: Network, carry: bool) -> Iterator[None]:
    """Restore the random generators at the end, and the network if its batches are one series."""
    network.state = network.take_state()
    try:
        yield
    finally:
        with network.lock:
            if carry:
                network.state.restore()
            network.state.streams.restore(network.state.streams.start)


def _time_steps(inputs: Any, axis: Any, sample_axis: int) -> int:
    shape = tuple(getattr(inputs, "shape", ()))
    has_axis = isinstance(axis, int) and -len(shape) <= axis < len(shape)
    if not has_axis or axis % len(shape) == sample_axis:
        of = f"of shape {shape}" if shape else "that are several tensors"
        raise RequestError(
            f"time_axis {axis!r}: inputs {of} have no such axis of time steps; axis {sample_axis} is that of the samples "
            "(`sample_axis`)"
        )
    return int(shape[axis])


def trace_functions(run: Callable[[], int]) -> Trace:
    """Count the operations of torch in ``run``, which returns the number of samples.

    This is for models that are not a single module: their parts are unknown, so counts are listed by function name, and
    operations outside of torch are not counted. If nothing was computed in torch, every count fails.
    """
    needs: frozenset[Need] = frozenset({"operations", "activations"})
    counting = StrictPass(Network.of(nn.Module()), needs)
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
        needs=needs,
        samples=samples,
        batches=1,
        layers=tally.layers,
        uncounted=uncounted,
        notes=("operations of torch alone, by function",),
        failures={str(need): why for need in needs if why},
    )
