"""The counts of one pass of a network over its batches, and the readings of cost metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

from neuroledger.data.facts import Fact
from neuroledger.spec import registry

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ALL",
    "Energy",
    "Layer",
    "Memory",
    "Mode",
    "Need",
    "Reading",
    "Timing",
    "Trace",
    "Uncounted",
    "Weights",
    "cost_metric",
    "failed",
    "needs_of",
    "spike_based",
]

Mode = Literal["strict", "neurobench-2.3"]
Need = Literal[
    "operations",
    "activations",
    "membranes",
    "weights",
    "timing",
    "memory",
    "energy",
    "lemaire",
]

ALL: tuple[Need, ...] = get_args(Need)


@dataclass
class Layer:
    """Counts of one layer, summed over all calls and samples.

    ``macs`` and ``acs`` are effective synaptic operations, ``dense`` those of a machine that skips no zeros;
    ``zeros`` of ``elements`` activations are zero; ``updates`` of ``membranes`` membrane potentials changed, and an
    update takes ``per_update`` operations (None: unknown) in neurons of the class ``neuron``. ``weights`` values of
    ``data_type`` were used; an activation takes ``width`` bytes, the state of a neuron ``state_bytes``.
    """

    macs: float = 0.0
    acs: float = 0.0
    dense: float = 0.0
    zeros: int = 0
    elements: int = 0
    updates: int = 0
    membranes: int = 0
    neuron: str = ""
    per_update: float | None = None
    weights: int = 0
    data_type: str = ""
    width: int = 4
    state_bytes: int = 0


@dataclass(frozen=True)
class Uncounted:
    """A part of the network whose operations could not be counted, with its number of weights."""

    name: str
    why: str
    weights: int = 0


@dataclass(frozen=True)
class Weights:
    """Static counts: parameters, bytes, and zeros among the weights of connections."""

    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    state_bytes: int
    mask_bytes: int
    zeros: int
    connections: int


@dataclass(frozen=True)
class Timing:
    """Wall-clock times in seconds, without counting."""

    latency: tuple[float, ...]
    batch: tuple[float, ...]
    batch_size: int
    warm_up: int
    threads: int
    device: str


@dataclass(frozen=True)
class Memory:
    """Peak bytes of one forward pass of one sample: the weights, and all other tensors alive."""

    weights: int
    activations: int
    device: str


@dataclass(frozen=True)
class Energy:
    """The reading of a meter of this machine during the forward passes of ``samples`` samples."""

    joules: float
    samples: int
    seconds: float
    meter: str


@dataclass(frozen=True)
class Trace:
    """The counts of one pass.

    Attributes
    ----------
    samples, batches, steps
        Numbers of samples and batches, and time steps per sample: those the network was stepped through, or the smallest
        number of calls of a spiking layer in a batch (else 1).
    layers
        Counts by dotted module name; operations outside any module are listed by the function's name.
    batch_sparsity
        Sample-weighted mean over batches of the share of zero activations, as NeuroBench reports it.
    weights_met, weights_reached
        Numbers of weights that connect neurons, and of those that some counted operation used.
    unreached
        The weights that no counted operation used, by name.
    lemaire, omitted
        Picojoules of all samples by component, by the model of Lemaire et al., and classes of layers it leaves out.
    solving
        For a solver, by problem: seconds and joules until a solution was within a share of the best known cost.
    facts
        What the counts depend on and the file of a network may not state: the time step of its neurons, and their reset.
    silent
        Spiking layers without one spike in all batches.
    failures
        Needs that could not be met at all, with the reason.
    beyond
        Types of iterators in the network, whose state cannot be restored.
    """

    mode: Mode
    needs: frozenset[Need]
    samples: int = 0
    batches: int = 0
    steps: int = 1
    layers: Mapping[str, Layer] = field(default_factory=dict)
    batch_sparsity: float = 0.0
    spiking_layers: int = 0
    uncounted: tuple[Uncounted, ...] = ()
    weights_met: int = 0
    weights_reached: int = 0
    unreached: tuple[Uncounted, ...] = ()
    weights: Weights | None = None
    timing: Timing | None = None
    memory: Memory | None = None
    energy: Energy | None = None
    lemaire: Mapping[str, float] | None = None
    omitted: tuple[str, ...] = ()
    solving: Mapping[str, Mapping[str, float]] | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    beyond: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


F = TypeVar("F", bound=Callable[..., Any])

NOTHING: Mapping[str, float] = MappingProxyType({})

_NEEDS: dict[str, frozenset[Need]] = {}


class Reading(NamedTuple):
    """A number read from a trace.

    Attributes
    ----------
    value
        The number; NaN if ``status`` is ``failed``.
    parts, parts_are
        The number by layer or by repeat, and the name of this dimension.
    n
        Counts behind the number: samples, repeats, the share of weights that was counted.
    notes
        What a reader needs to know: device, source of prices, exclusions by definition.
    evidence
        Whether the number is measured on this machine, modelled from counts, or declared; empty for a count.
    """

    value: float
    status: Literal["scored", "partial", "failed"] = "scored"
    reason: str = ""
    parts: Mapping[str, float] = NOTHING
    parts_are: str = "layer"
    n: Mapping[str, float] = NOTHING
    notes: tuple[str, ...] = ()
    evidence: Literal["", "measured", "modelled", "declared"] = ""


def spike_based(trace: Trace, reading: Reading) -> Reading:
    """Return a reading that depends on spikes, partial if a spiking layer is silent, with the facts that decide on spikes.

    The time step in seconds is one of the counts; facts that were assumed are notes.
    """
    n = dict(reading.n)
    if "time_step" in trace.facts:
        n["seconds_per_step"] = float(trace.facts["time_step"].value)
    notes = (
        *reading.notes,
        *(f"{name.replace('_', ' ')}: {fact}" for name, fact in trace.facts.items()),
    )
    reading = reading._replace(n=n, notes=notes)
    if not trace.silent or trace.mode != "strict" or reading.status == "failed":
        return reading
    assumed = [
        name.replace("_", " ")
        for name, fact in trace.facts.items()
        if fact.origin == "assumed"
    ]
    why = f"no spike in any batch: {', '.join(trace.silent)}"
    if assumed:
        why += f"; {' and '.join(assumed)} are assumed: state them"
    return reading._replace(
        status="partial", reason="; ".join(filter(None, (reading.reason, why)))
    )


def failed(reason: str) -> Reading:
    """Return a reading without a number."""
    return Reading(float("nan"), "failed", reason)


def cost_metric(
    name: str, *, version: int, needs: tuple[Need, ...]
) -> Callable[[F], F]:
    """Register a cost metric, ``(trace, *, …) -> Reading``, with the counts that it needs."""

    def decorate(function: F) -> F:
        _NEEDS[name] = frozenset(needs)
        register = registry.metric(
            name, version=version, input="trace", example=_example
        )
        return register(function)

    return decorate


def needs_of(name: str) -> frozenset[Need]:
    """Return the counts that a registered cost metric needs."""
    return _NEEDS[name]


def _example(_: np.random.Generator, __: Mapping[str, Any]) -> registry.Example:
    """The counts of two samples of a spiking network with two layers."""
    layers = {
        "input": Layer(
            macs=24.0, acs=8.0, dense=48.0, zeros=6, elements=12, weights=24,
            data_type="float32",
        ),
        "spiking": Layer(
            zeros=10, elements=16, updates=9, membranes=16, neuron="Lif",
            per_update=4.0, state_bytes=16,
        ),
    }  # fmt: skip
    shares = ("0.1", "0.05", "0.01")
    solved = {
        f"{name}_{share}": 0.5 for name in ("seconds", "joules") for share in shares
    }
    return registry.Example(
        (
            Trace(
                "strict",
                frozenset(ALL),
                samples=2,
                batches=1,
                steps=4,
                layers=layers,
                batch_sparsity=0.57,
                spiking_layers=1,
                weights_met=24,
                weights_reached=24,
                weights=Weights(28, 112, 0, 16, 0, 4, 24),
                timing=Timing((0.01, 0.012), (0.02, 0.021), 2, 1, 1, "cpu"),
                memory=Memory(112, 64, "cpu"),
                energy=Energy(0.5, 2, 0.1, "RAPL"),
                lemaire={"memory": 12.0, "operations": 3.0},
                solving={"problem": solved},
                facts={"time_step": Fact(0.001, "assumed")},
            ),
        )
    )
