"""Static costs, known before the network runs: parameters, bytes, zeros among the weights."""

from __future__ import annotations

from neuroledger.families.efficiency.counting.counts import (
    Reading,
    Trace,
    cost_metric,
    failed,
)

__all__ = ["connection_sparsity", "footprint", "parameter_count"]


@cost_metric("parameter_count", version=2, needs=("weights",))
def parameter_count(trace: Trace) -> Reading:
    """Number of parameters, trainable or not, each tensor once, including packed weights of quantised layers [yik2025].

    NeuroBench does not count packed weights: it reports 0 parameters for a quantised network.
    """
    if trace.weights is None:
        return failed(trace.failures.get("weights", "the weights were not counted"))
    return Reading(float(trace.weights.parameters))


@cost_metric("footprint", version=3, needs=("weights",))
def footprint(trace: Trace) -> Reading:
    """Bytes of parameters and constant buffers, in their storage types [yik2025].

    The state of spiking layers is excluded (NeuroBench adds the state after the last batch, so its figure depends on the
    batch size). So are pruning masks in strict mode: a deployed network has neither.
    """
    counted = trace.weights
    if counted is None:
        return failed(trace.failures.get("weights", "the weights were not counted"))
    notes = (
        [f"{counted.mask_bytes} bytes of pruning masks left out"]
        if counted.mask_bytes
        else []
    )
    return Reading(
        float(counted.parameter_bytes + counted.buffer_bytes),
        n={"parameters": counted.parameter_bytes, "buffers": counted.buffer_bytes},
        notes=tuple(notes),
    )


@cost_metric("connection_sparsity", version=2, needs=("weights",))
def connection_sparsity(trace: Trace) -> Reading:
    """Share of connection weights that are exactly zero [yik2025].

    Weights of linear, convolutional (including transposed), recurrent, bilinear and attention layers count as the
    forward pass uses them, with masks and norms applied. Biases are not connections. NeuroBench counts the biases of
    recurrent layers, does not support attention or transposed convolutions, and rounds to four decimals.
    """
    counted = trace.weights
    if counted is None:
        return failed(trace.failures.get("weights", "the weights were not counted"))
    if not counted.connections:
        return failed("not applicable: the network has no connection weights")
    share = counted.zeros / counted.connections
    return Reading(
        round(share, 4) if trace.mode == "neurobench-2.3" else share,
        n={"connections": counted.connections},
    )
