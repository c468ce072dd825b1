"""Needs of models: how their windows must be prepared, and how a reader's preprocessing is composed with that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import PositiveFloat, model_validator

from neuroledger.errors import RequestError
from neuroledger.families.fields import AtLeastOne, Names
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    RecordingScale,
)
from neuroledger.families.signals.units import to_microvolts
from neuroledger.spec.base import Frozen

__all__ = ["FilterNeed", "Needs", "composed", "only_as_cut", "unmet"]

Positive = PositiveFloat
SCALED = ("robust", "standard")


class FilterNeed(Frozen):
    """A pass band and notches in Hz; what is not stated is not filtered."""

    high_pass: Positive | None = None
    low_pass: Positive | None = None
    notch: tuple[Positive, ...] = ()


class Needs(Frozen):
    """How the windows of a model must be prepared; of what is not stated, the preparation of the data set stays.

    Attributes
    ----------
    rate
        Samples per second.
    unit, one
        Unit of amplitudes, and the amplitude in this unit that is 1.0 for the network.
    scale, clamp
        Scaling of each channel over its recording, and the limit of values; `none` for neither.
    baseline
        `none`: no baseline is subtracted.
    filter
        A band and notches, or `none`.
    channels
        Channels by name, in the order of the network, regardless of case; `any` for those that there are.
    window_multiple
        Windows must be a multiple of this number of samples.
    """

    rate: Positive | None = None
    unit: Literal["V", "mV", "uV"] | None = None
    one: Positive = 1.0
    scale: Literal["robust", "standard", "none"] | None = None
    clamp: Positive | Literal["none"] | None = None
    baseline: Literal["none"] | None = None
    filter: FilterNeed | Literal["none"] | None = None
    channels: Names | Literal["any"] = "any"
    window_multiple: AtLeastOne = 1

    @model_validator(mode="after")
    def _amplitudes(self) -> Self:
        if self.unit is not None and self.scale in SCALED:
            raise ValueError(
                f"scaled windows have no `unit`: remove it, or `scale: {self.scale}`"
            )
        if self.unit is None and self.one != 1.0:
            raise ValueError("`one` is an amplitude in a `unit`: state it")
        return self

    def applied_to(self, own: Preprocessing) -> Preprocessing:
        """The preprocessing of a data set with the steps that the model needs."""
        steps: dict[str, Any] = {}
        if self.rate is not None:
            steps |= {"resample": self.rate, "upsample": False}
        if self.unit is not None:
            steps |= {"units": self.unit, "scale": None, "clamp": None}
        if self.scale is not None:
            steps["scale"] = self._scale_in_place_of(own.scale)
        if self.clamp is not None:
            steps["clamp"] = None if self.clamp == "none" else self.clamp
        if self.baseline is not None:
            steps["baseline"] = None
        if self.filter is not None:
            wanted = FilterNeed() if self.filter == "none" else self.filter
            steps |= {name: getattr(wanted, name) for name in FilterNeed.model_fields}
        return own.model_copy(update=steps)

    def _scale_in_place_of(
        self, own: str | RecordingScale | None
    ) -> str | RecordingScale | None:
        """The needed scaling, over what the data set scales: whole recordings, or their windows."""
        if self.scale in (None, "none"):
            return None
        if isinstance(own, RecordingScale):
            return own.model_copy(update={"how": self.scale})
        return self.scale


def composed(parameters: Mapping[str, Any], needs: Needs) -> dict[str, Any]:
    """The parameters of a reader of recordings that a model's needs change: its `preprocessing`.

    Raises
    ------
    RequestError
        The files contain epochs, which cannot be filtered.
    """
    if parameters.get("epoched") and isinstance(needs.filter, FilterNeed):
        raise RequestError(
            "its files contain epochs, which are too short for the filters that the model needs"
        )
    return {"preprocessing": needs.applied_to(parameters["preprocessing"])}


def only_as_cut(parameters: Mapping[str, Any], needs: Needs) -> dict[str, Any]:
    """No change: windows that are cut already stay as they are; their rate, unit and scale are compared when they are read.

    Raises
    ------
    RequestError
        The model needs filters or windows without a baseline, which nobody can tell of windows.
    """
    wanted = [
        name for name in ("filter", "baseline") if getattr(needs, name) is not None
    ]
    if wanted:
        raise RequestError(
            f"its windows are cut already, and what the model needs of {' and '.join(wanted)} cannot be done or told"
        )
    return {}


def unmet(needs: Needs, rate: float, units: str) -> list[str]:
    """What windows lack of a model's needs: one sentence for each need of rate, unit and scale that is not met.

    Parameters
    ----------
    rate, units
        Samples per second of the windows, and their unit; `robust` for scaled windows.
    """
    problems = []
    if needs.rate is not None and rate != needs.rate:
        problems.append(
            f"windows have {rate:g} samples per second instead of {needs.rate:g}"
        )
    if needs.unit is not None and to_microvolts(units, "eeg") is None:
        problems.append(f"amplitudes are in {units!r} instead of {needs.unit}")
    if needs.unit is None and needs.scale == "none" and units in SCALED:
        problems.append("windows are scaled")
    if needs.scale in SCALED and units not in SCALED:
        problems.append(f"amplitudes are in {units!r}, not scaled by recording")
    return problems
