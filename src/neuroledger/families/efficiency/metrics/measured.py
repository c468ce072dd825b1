"""Measured costs: time, memory and energy. They depend on this machine, not on the network alone."""

from __future__ import annotations

from statistics import median

from neuroledger.families.efficiency.counting.counts import (
    Reading,
    Timing,
    Trace,
    cost_metric,
    failed,
)

__all__ = ["latency", "measured_energy", "peak_memory", "throughput"]


@cost_metric("latency", version=1, needs=("timing",))
def latency(trace: Trace) -> Reading:
    """Median seconds from one sample to its answer, in batches of one, after warm-up."""
    if trace.timing is None:
        return failed(trace.failures.get("timing", "no time was measured"))
    seconds = trace.timing.latency
    parts = {str(number): value for number, value in enumerate(seconds)}
    return Reading(
        median(seconds),
        parts=parts,
        parts_are="repeat",
        n=_protocol(trace.timing, len(seconds)),
        notes=_device_note(trace.timing),
        evidence="measured",
    )


@cost_metric("throughput", version=1, needs=("timing",))
def throughput(trace: Trace) -> Reading:
    """Samples per second in batches as given: batch size over the median time of the first batch, after warm-up."""
    if trace.timing is None:
        return failed(trace.failures.get("timing", "no time was measured"))
    timing = trace.timing
    n = {**_protocol(timing, len(timing.batch)), "batch_size": timing.batch_size}
    return Reading(
        timing.batch_size / median(timing.batch),
        n=n,
        notes=_device_note(timing),
        evidence="measured",
    )


@cost_metric("peak_memory", version=1, needs=("memory",))
def peak_memory(trace: Trace) -> Reading:
    """Peak bytes while one sample is processed: the weights, the input and every other tensor alive."""
    if trace.memory is None:
        return failed(trace.failures.get("memory", "no memory was measured"))
    memory = trace.memory
    return Reading(
        float(memory.weights + memory.activations),
        n={"weights": memory.weights, "activations": memory.activations},
        notes=(f"evidence: measured, on {memory.device}, one sample",),
        evidence="measured",
    )


@cost_metric("measured_energy", version=1, needs=("energy",))
def measured_energy(trace: Trace) -> Reading:
    """Joules per sample by a meter of this machine, in batches as given, idle power and other programs included.

    The meter is the processor's (RAPL), or the graphics card's (NVML) if the network runs there.
    """
    if trace.energy is None:
        return failed(trace.failures.get("energy", "no energy was measured"))
    reading = trace.energy
    return Reading(
        reading.joules / reading.samples,
        n={
            "samples": reading.samples,
            "seconds": reading.seconds,
            "joules": reading.joules,
        },
        notes=(
            f"evidence: measured, by {reading.meter}, idle power and other programs included",
        ),
        evidence="measured",
    )


def _protocol(timing: Timing, repeats: int) -> dict[str, float]:
    return {"repeats": repeats, "warm_up": timing.warm_up, "threads": timing.threads}


def _device_note(timing: Timing) -> tuple[str, ...]:
    return (f"evidence: measured, on {timing.device} with {timing.threads} threads",)
