"""Costs of neurons: activation sparsity, membrane updates, their operations, and spikes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from neuroledger.families.efficiency.counting.counts import (
    Layer,
    Reading,
    Trace,
    cost_metric,
    failed,
    spike_based,
)

__all__ = [
    "activation_sparsity",
    "dense_neuron_operations",
    "membrane_updates",
    "neuron_operations",
    "spikes",
]


NONE: Final = (
    "not applicable: no spiking layer was recognised; name the classes of your own with their membrane potential, "
    "`spiking={MyNeuron: 'v'}`"
)


@cost_metric("activation_sparsity", version=3, needs=("activations",))
def activation_sparsity(trace: Trace) -> Reading:
    """Share of zeros among the outputs of activation functions and spiking layers, over samples and time [yik2025].

    Every activation function of torch counts, as a module or as a function. NeuroBench counts ReLU, Sigmoid and
    spiking modules only, and reports 0 for a network without these.
    """
    if "activations" in trace.failures:
        return failed(trace.failures["activations"])
    layers = {name: layer for name, layer in trace.layers.items() if layer.elements}
    parts = {name: layer.zeros / layer.elements for name, layer in layers.items()}
    n = {"samples": trace.samples}
    if trace.mode == "neurobench-2.3":
        return Reading(trace.batch_sparsity, parts=parts, n=n)
    elements = sum(layer.elements for layer in layers.values())
    if not elements:
        return failed(
            "not applicable: no activation function or spiking layer was called"
        )
    share = sum(layer.zeros for layer in layers.values()) / elements
    return spike_based(trace, Reading(share, parts=parts, n=n, notes=trace.notes))


@cost_metric("membrane_updates", version=4, needs=("membranes",))
def membrane_updates(trace: Trace) -> Reading:
    """Number of membrane potentials per sample that a time step changed; the first step writes all [yik2025].

    NeuroBench reports 0 for a network without a spiking layer that it recognises; strict mode fails.
    """
    if "membranes" in trace.failures:
        return failed(trace.failures["membranes"])
    parts = {
        name: layer.updates / trace.samples
        for name, layer in trace.layers.items()
        if layer.membranes
    }
    if not trace.spiking_layers and trace.mode == "strict":
        return failed(NONE)
    return Reading(
        sum(parts.values()),
        parts=parts,
        n={"samples": trace.samples},
        notes=trace.notes,
    )


@cost_metric("neuron_operations", version=3, needs=("membranes",))
def neuron_operations(trace: Trace) -> Reading:
    """Operations per sample of the neurons themselves, for updates that changed a membrane [yik2025].

    The number of updates times the operations per update, as NeuroBench counts them: leaky neurons 4; in snntorch,
    Synaptic 6 (8 with a reset to zero), Lapicque 11, Alpha 18 (24).
    """
    return _of_neurons(trace, lambda layer: layer.updates)


@cost_metric("dense_neuron_operations", version=2, needs=("membranes",))
def dense_neuron_operations(trace: Trace) -> Reading:
    """Operations per sample of the neurons themselves if every neuron is updated at every step [yik2025]."""
    return _of_neurons(trace, lambda layer: layer.membranes)


@cost_metric("spikes", version=2, needs=("activations", "membranes"))
def spikes(trace: Trace) -> Reading:
    """Number of spikes per sample in all spiking layers, over all time steps."""
    if "activations" in trace.failures:
        return failed(trace.failures["activations"])
    layers = {name: layer for name, layer in trace.layers.items() if layer.neuron}
    if not layers:
        return failed(NONE)
    parts = {
        name: (layer.elements - layer.zeros) / trace.samples
        for name, layer in layers.items()
    }
    reading = Reading(
        sum(parts.values()),
        parts=parts,
        n={"samples": trace.samples},
        notes=trace.notes,
    )
    return spike_based(trace, reading)


def _of_neurons(trace: Trace, count: Callable[[Layer], int]) -> Reading:
    if "membranes" in trace.failures:
        return failed(trace.failures["membranes"])
    layers = {name: layer for name, layer in trace.layers.items() if layer.membranes}
    if not layers:
        return failed(NONE)
    parts = {
        name: count(layer) * layer.per_update / trace.samples
        for name, layer in layers.items()
        if layer.per_update is not None
    }
    unknown = sorted(
        {layer.neuron for layer in layers.values() if layer.per_update is None}
    )
    reason = (
        f"it is not known how many operations an update of {', '.join(unknown)} takes"
        if unknown
        else ""
    )
    if reason and trace.mode == "strict":
        reason += ": its class says so with `operations_per_update`"
    if not parts or (reason and trace.mode == "neurobench-2.3"):
        return failed(
            f"{reason}; NeuroBench 2.3 fails there too"
            if trace.mode == "neurobench-2.3"
            else reason
        )
    n = {"samples": trace.samples}
    return Reading(
        sum(parts.values()),
        "partial" if reason else "scored",
        reason,
        parts,
        n=n,
        notes=trace.notes,
    )
