"""Energy, only with a declared model or a declared meter; and which of the two is in the notes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from neuroledger.families.efficiency.counting.counts import Reading, Trace, cost_metric, failed
from neuroledger.families.efficiency.metrics.operations import operations_per_sample

__all__ = ["energy"]

Picojoules = Annotated[float, Field(ge=0)]


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
    joules_per_sample: Annotated[float, Field(ge=0)]
    meter: Annotated[str, Field(min_length=3)]


@cost_metric("energy", version=3, needs=("operations",))
def energy(
    trace: Trace, *, model: Annotated[PerOperation | Metered, Field(discriminator="name")] | None = None
) -> Reading:
    """Joules per sample, by the declared ``model``: effective MACs and ACs times their price, or a meter's reading.

    Its evidence class, modelled or measured, is in the notes.
    """
    if model is None:
        return failed("energy needs a declared model (per_operation) or meter; none was given")
    if isinstance(model, Metered):
        return Reading(model.joules_per_sample, notes=(f"evidence: measured, by {model.meter}",))
    macs = operations_per_sample(trace, lambda layer: layer.macs)
    acs = operations_per_sample(trace, lambda layer: layer.acs)
    if macs.status == "failed":
        return macs
    prices = (model.picojoules_per_mac, model.picojoules_per_ac)
    joules = (macs.value * prices[0] + acs.value * prices[1]) * 1e-12
    parts = {
        name: (macs.parts[name] * prices[0] + acs.parts[name] * prices[1]) * 1e-12 for name in macs.parts
    }
    notes = (f"evidence: modelled, {prices[0]:g} pJ per MAC, {prices[1]:g} pJ per AC ({model.source})",)
    return Reading(joules, macs.status, macs.reason, parts, n=macs.n, notes=(*notes, *trace.notes))
