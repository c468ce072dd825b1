"""Costs of synapses: multiplications and accumulations per sample."""

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
    "dense_operations",
    "effective_acs",
    "effective_macs",
    "operations_per_sample",
    "synaptic_operations",
]


@cost_metric("effective_macs", version=5, needs=("operations",))
def effective_macs(trace: Trace) -> Reading:
    """Multiply-accumulates per sample with no zero factor, for inputs that are not all -1, 0 or 1.

    Whether a layer's inputs need multiplying is decided for each sample over all time steps. NeuroBench decides for
    the whole batch at each call, so its figure depends on the batch size [yik2025].
    """
    return spike_based(trace, operations_per_sample(trace, lambda layer: layer.macs))


@cost_metric("effective_acs", version=5, needs=("operations",))
def effective_acs(trace: Trace) -> Reading:
    """Accumulates per sample: operations of non-zero weights with non-zero inputs in -1, 0, 1 (spikes)."""
    return spike_based(trace, operations_per_sample(trace, lambda layer: layer.acs))


@cost_metric("synaptic_operations", version=5, needs=("operations",))
def synaptic_operations(trace: Trace) -> Reading:
    """Effective operations per sample, multiply-accumulates and accumulates together."""
    return spike_based(
        trace, operations_per_sample(trace, lambda layer: layer.macs + layer.acs)
    )


@cost_metric("dense_operations", version=5, needs=("operations",))
def dense_operations(trace: Trace) -> Reading:
    """Operations per sample of a machine that skips no zeros: outputs of each layer times the products summed in each.

    Padded positions of a convolution count, because they are multiplied; NeuroBench leaves them out.
    """
    return operations_per_sample(trace, lambda layer: layer.dense)


def _names_of(weight: str) -> tuple[str, str]:
    """Return the names of a weight and of its module."""
    return weight, weight.rpartition(".")[0]


COMPLETE: Final = 0.99
"""Minimum share of the weights with counted operations; below it a score is partial."""


def operations_per_sample(trace: Trace, count: Callable[[Layer], float]) -> Reading:
    """Return the operations per sample of every layer; partial if a part of the network could not be counted.

    ``n["coverage"]`` is the share of the connection weights that some counted operation used.
    """
    if "operations" in trace.failures:
        return failed(trace.failures["operations"])
    parts = {
        name: count(layer) / trace.samples
        for name, layer in trace.layers.items()
        if layer.dense
    }
    n: dict[str, float] = {"samples": trace.samples}
    if trace.steps > 1:
        n["time_steps"] = trace.steps
    coverage = trace.weights_reached / trace.weights_met if trace.weights_met else 1.0
    if trace.weights_met:
        n["coverage"] = coverage
    total = sum(parts.values())
    complete = coverage >= COMPLETE or trace.mode == "neurobench-2.3"
    if complete and not trace.uncounted:
        return Reading(total, parts=parts, n=n, notes=trace.notes)
    reported = {part.name for part in trace.uncounted}
    unreached = (
        ()
        if complete
        else (
            part
            for part in trace.unreached
            if reported.isdisjoint(_names_of(part.name))
        )
    )
    missing = [*trace.uncounted, *unreached]
    names = "; ".join(
        f"{part.name or 'the network'} ({part.why})" for part in missing[:8]
    )
    if len(missing) > 8:
        and_more = f" and {len(missing) - 8} more"
    else:
        and_more = ""
    reason = f"not counted: {names}{and_more}; operations were counted for {coverage:.1%} of the weights"
    if not parts:
        return failed(reason)
    return Reading(total, "partial", reason, parts, n=n, notes=trace.notes)
