"""Helpers to count a module in tests."""

from __future__ import annotations

from neuroledger.families.efficiency.counting.counts import ALL, Trace
from neuroledger.families.efficiency.counting.run_trace import trace

COUNTED = ("operations", "activations", "membranes", "weights")


def counted(module, *batches, mode="strict", needs=COUNTED, **options) -> Trace:
    assert set(needs) <= set(ALL)
    return trace(module, batches, needs=needs, mode=mode, **options)


def per_sample(traced: Trace) -> tuple[float, float, float]:
    """Return MACs, ACs and dense operations per sample."""
    assert not traced.failures, traced.failures
    layers = traced.layers.values()
    sums = (
        sum(layer.macs for layer in layers),
        sum(layer.acs for layer in layers),
        sum(layer.dense for layer in layers),
    )
    return tuple(total / traced.samples for total in sums)


def ones(module):
    """Set every parameter of the module to 1."""
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1.0)
    return module
