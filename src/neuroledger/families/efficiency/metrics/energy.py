"""Energy from a declared model or a declared meter; the notes state which of the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    field_validator,
)

from neuroledger.families.efficiency.counting.counts import (
    Layer,
    Reading,
    Trace,
    cost_metric,
    failed,
)
from neuroledger.families.efficiency.metrics.operations import operations_per_sample

__all__ = ["energy", "execution_rate", "lemaire_energy", "memory_traffic"]

Picojoules = NonNegativeFloat
DataType = Literal[
    "float64", "float32", "float16", "bfloat16", "int32", "int16", "int8", "any"
]
Prices = dict[DataType, Picojoules]
Zeros = Literal["skipped", "computed"]
WeightReads = Literal["each operation", "each time step", "none"]

BYTES: Final = {
    "float64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
}


class PerOperation(BaseModel):
    """Energy of arithmetic: picojoules per operation; memory traffic is not included."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["per_operation"] = "per_operation"
    picojoules_per_mac: Picojoules
    picojoules_per_ac: Picojoules
    source: Annotated[str, Field(min_length=3)]


class Metered(BaseModel):
    """Energy that the caller read from a meter, with the name of the meter."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["meter"] = "meter"
    joules_per_sample: NonNegativeFloat
    meter: Annotated[str, Field(min_length=3)]


class Level(BaseModel):
    """A memory of ``kibibytes`` (None: unlimited), with the energy of one byte read or written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1)]
    kibibytes: PositiveFloat | None = None
    picojoules_per_byte: Picojoules


class Hardware(BaseModel):
    """A profile of a machine: energy of operations by data type, of memory by level, of neuron updates and spikes.

    Weights, states and activations are each stored in the first level that is large enough for all of them.
    ``weight_reads`` is how often a weight is fetched. With ``partial_sums``, every operation reads and writes its
    partial sum in memory.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["hardware"] = "hardware"
    mac: Prices = Field(default_factory=dict)
    ac: Prices = Field(default_factory=dict)
    zeros: Zeros
    memory: tuple[Level, ...] = ()
    weight_reads: WeightReads = "none"
    partial_sums: bool = False
    picojoules_per_update: Picojoules = 0.0
    picojoules_per_spike: Picojoules = 0.0
    source: Annotated[str, Field(min_length=3)]

    @field_validator("memory")
    @classmethod
    def _require_unbounded_last(cls, levels: tuple[Level, ...]) -> tuple[Level, ...]:
        sizes = [level.kibibytes or float("inf") for level in levels]
        if (
            sizes != sorted(sizes)
            or len(set(sizes)) < len(sizes)
            or (levels and levels[-1].kibibytes is not None)
        ):
            raise ValueError(
                "memory levels must be in ascending order of size, and the last one must have no `kibibytes` (unlimited)"
            )
        return levels


class Amount(NamedTuple):
    """Bytes moved per sample, and bytes stored."""

    moved: float
    held: float


def traffic(
    trace: Trace, zeros: Zeros, weight_reads: WeightReads, partial_sums: bool
) -> dict[str, Amount]:
    """Return the bytes per sample that are read or written, by component.

    Activations are the outputs of activation functions and spiking layers, written once and read once. Zero activations
    are not moved if zeros are ``skipped``. The state of a neuron is read and written at every step.
    """
    layers = trace.layers.values()
    weights = sum(layer.weights * _width(layer) for layer in layers)
    used = (
        sum(operations(layer, zeros) * _width(layer) for layer in layers)
        / trace.samples
    )
    weight_bytes = {
        "each operation": used,
        "each time step": float(weights * trace.steps),
        "none": 0.0,
    }[weight_reads]
    activation_bytes = [
        (layer.elements - layer.zeros * (zeros == "skipped"))
        * layer.width
        / trace.samples
        for layer in layers
    ]
    state = sum(layer.membranes * layer.state_bytes for layer in layers) / trace.samples
    steps = max(1, trace.steps)
    amounts = {
        "weights": Amount(weight_bytes, weights),
        "activations": Amount(
            2 * sum(activation_bytes),
            max((layer.elements * layer.width for layer in layers), default=0)
            / trace.samples
            / steps,
        ),
        "state": Amount(2 * state, state / steps),
    }
    if partial_sums:
        amounts["partial sums"] = Amount(2 * used, 0.0)
    return amounts


def operations(layer: Layer, zeros: Zeros) -> float:
    """Return a layer's operations over all samples, on a machine that skips or computes zeros."""
    if zeros == "computed":
        return layer.dense
    return layer.macs + layer.acs


def _width(layer: Layer) -> int:
    return BYTES.get(layer.data_type, 4)


@cost_metric(
    "memory_traffic", version=3, needs=("operations", "activations", "membranes")
)
def memory_traffic(
    trace: Trace,
    *,
    zeros: Zeros = "skipped",
    weight_reads: WeightReads = "each operation",
    partial_sums: bool = False,
) -> Reading:
    """Bytes per sample that are read and written: weights, neuron states, activations, and optionally partial sums.

    By default, the machine is event-driven and has no caches: each effective operation reads its weight.
    """
    base = operations_per_sample(trace, lambda layer: operations(layer, zeros))
    if base.status == "failed":
        return base
    amounts = traffic(trace, zeros, weight_reads, partial_sums)
    parts = {name: amount.moved for name, amount in amounts.items()}
    status, reason = _status_with_membranes(trace, base)
    n = {
        **base.n,
        **{
            f"held_{name.replace(' ', '_')}": amount.held
            for name, amount in amounts.items()
        },
    }
    notes = (
        f"evidence: modelled; zeros {zeros}, weights read: {weight_reads}",
        *trace.notes,
    )
    return Reading(
        sum(parts.values()), status, reason, parts, "component", n, notes, "modelled"
    )


@cost_metric("energy", version=5, needs=("operations", "activations", "membranes"))
def energy(
    trace: Trace,
    *,
    model: Annotated[PerOperation | Metered | Hardware, Field(discriminator="name")]
    | None = None,
) -> Reading:
    """Joules per sample, by the declared ``model``: a profile of hardware, prices per operation, or a meter's reading.

    Its evidence, modelled or measured, is one of its facts.
    """
    if model is None:
        return failed(
            "energy needs a declared model (hardware, per_operation) or meter; none was given"
        )
    if isinstance(model, Metered):
        return Reading(
            model.joules_per_sample,
            notes=(f"evidence: measured, by {model.meter}",),
            evidence="measured",
        )
    if isinstance(model, Hardware):
        return _hardware_energy(trace, model)
    macs = operations_per_sample(trace, lambda layer: layer.macs)
    acs = operations_per_sample(trace, lambda layer: layer.acs)
    if macs.status == "failed":
        return macs
    prices = (model.picojoules_per_mac, model.picojoules_per_ac)
    joules = (macs.value * prices[0] + acs.value * prices[1]) * 1e-12
    parts = {
        name: (macs.parts[name] * prices[0] + acs.parts[name] * prices[1]) * 1e-12
        for name in macs.parts
    }
    notes = (
        f"evidence: modelled, {prices[0]:g} pJ per MAC, {prices[1]:g} pJ per AC ({model.source})",
    )
    return Reading(
        joules,
        macs.status,
        macs.reason,
        parts,
        n=macs.n,
        notes=(*notes, *trace.notes),
        evidence="modelled",
    )


def _hardware_energy(trace: Trace, model: Hardware) -> Reading:
    base = operations_per_sample(trace, lambda layer: operations(layer, model.zeros))
    if base.status == "failed":
        return base
    parts = dict.fromkeys(("macs", "acs"), 0.0)
    for name, layer in trace.layers.items():
        counts = {"macs": (layer.macs, model.mac), "acs": (layer.acs, model.ac)}
        if (
            model.zeros == "computed"
        ):  # such a machine multiplies spikes like all other values
            counts = {"macs": (layer.dense, model.mac)}
        for kind, (count, prices) in counts.items():
            if count:
                price = _price(prices, layer.data_type)
                if price is None:
                    kinds = "multiply-accumulates" if kind == "macs" else "accumulates"
                    return failed(
                        f"the profile states no price of {kinds} in {layer.data_type}, which layer {name!r} has"
                    )
                parts[kind] += count * price / trace.samples
    amounts = (
        traffic(trace, model.zeros, model.weight_reads, model.partial_sums)
        if model.memory
        else {}
    )
    for name, amount in amounts.items():
        stored = amounts["state"].held if name == "partial sums" else amount.held
        level = next(
            x
            for x in model.memory
            if x.kibibytes is None or stored <= x.kibibytes * 1024
        )
        if amount.moved:
            parts[f"{name} ({level.name})"] = amount.moved * level.picojoules_per_byte
    layers = trace.layers.values()
    if model.picojoules_per_update:
        parts["updates"] = (
            sum(layer.membranes for layer in layers)
            * model.picojoules_per_update
            / trace.samples
        )
    if model.picojoules_per_spike:
        spikes = sum(layer.elements - layer.zeros for layer in layers if layer.neuron)
        parts["spikes"] = spikes * model.picojoules_per_spike / trace.samples
    status, reason = _status_with_membranes(trace, base)
    parts = {name: value * 1e-12 for name, value in parts.items()}
    n = {
        **base.n,
        **{
            f"bytes_{name.replace(' ', '_')}": amount.moved
            for name, amount in amounts.items()
        },
    }
    notes = (f"evidence: modelled ({model.source})", *trace.notes)
    return Reading(
        sum(parts.values()), status, reason, parts, "component", n, notes, "modelled"
    )


def _price(prices: Mapping[DataType, float], data_type: str) -> float | None:
    """Return the picojoules of an operation in a data type; the price for ``any`` type is the default."""
    return prices.get(data_type, prices.get("any"))  # type: ignore[call-overload,no-any-return]


def _status_with_membranes(
    trace: Trace, base: Reading
) -> tuple[Literal["scored", "partial", "failed"], str]:
    """Return status and reason: partial if the operations are, or if neuron states cannot be read."""
    failure = trace.failures.get("membranes", "")
    if failure:
        return (
            "partial",
            "; ".join(reason for reason in (base.reason, failure) if reason),
        )
    return (base.status, base.reason)


@cost_metric("lemaire_energy", version=2, needs=("lemaire",))
def lemaire_energy(trace: Trace) -> Reading:
    """Joules per sample by the analytical model of Lemaire et al., memory and addressing included [lemaire2022].

    Linear layers, convolutions and spiking neurons on 45 nm hardware with 32-bit integers, as SpikingJelly 2.0 counts
    them. The cost of an access depends on the memory that a whole batch needs: use batches of one sample.
    """
    if trace.lemaire is None:
        return failed(trace.failures.get("lemaire", "the energy was not counted"))
    parts = {
        name: picojoules * 1e-12 / trace.samples
        for name, picojoules in trace.lemaire.items()
    }
    omission = (
        f"the model leaves out {', '.join(trace.omitted)}" if trace.omitted else ""
    )
    if not sum(parts.values()):
        return failed(
            omission
            or "not applicable: the network has no linear layer, convolution or spiking layer"
        )
    notes = ("evidence: modelled (45 nm, 32-bit integers)", *trace.notes)
    status: Literal["scored", "partial"] = "partial" if omission else "scored"
    return Reading(
        sum(parts.values()),
        status,
        omission,
        parts,
        "component",
        {"samples": trace.samples},
        notes,
        "modelled",
    )


@cost_metric("execution_rate", version=1, needs=())
def execution_rate(trace: Trace, *, hertz: PositiveFloat | None = None) -> Reading:
    """Answers per second in the network's application, as declared: the inverse of its input's stride [yik2025]."""
    if hertz is None:
        return failed(
            "the rate at which the network is executed is not declared (`hertz`)"
        )
    return Reading(hertz, notes=("evidence: declared",), evidence="declared")
