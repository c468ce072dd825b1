"""Costs of the neurons: how many of them are silent, and how often a membrane is written."""

from __future__ import annotations

from neuroledger.core.trace.counts import Trace
from neuroledger.core.trace.reading import Reading, cost_metric, failed

__all__ = ["activation_sparsity", "membrane_updates"]


@cost_metric("activation_sparsity", version=1, needs=("activations",))
def activation_sparsity(trace: Trace) -> Reading:
    """Share of zeros among the outputs of activation functions and spiking layers, over samples and time [yik2025].

    Every activation function of torch counts, as a module or as a function. NeuroBench sees ReLU, Sigmoid and
    spiking modules only, and reports 0 where it sees none.
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
        return failed("not applicable: no activation function or spiking layer was called")
    return Reading(
        sum(layer.zeros for layer in layers.values()) / elements, parts=parts, n=n, notes=trace.notes
    )


@cost_metric("membrane_updates", version=1, needs=("membranes",))
def membrane_updates(trace: Trace) -> Reading:
    """Membrane potentials per sample that a time step changed; the first step writes every one [yik2025]."""
    if "membranes" in trace.failures:
        return failed(trace.failures["membranes"])
    parts = {name: layer.updates / trace.samples for name, layer in trace.layers.items() if layer.membranes}
    notes = trace.notes if trace.spiking_layers else ("no spiking layer was recognised",)
    return Reading(sum(parts.values()), parts=parts, n={"samples": trace.samples}, notes=notes)
