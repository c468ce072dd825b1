"""What a data set is known by: the signatures that its spec names, computed when it is validated, for its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import xarray as xr
from pydantic import (
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from neuroledger.data.arrays import Floats, floats
from neuroledger.errors import Finding, RequestError
from neuroledger.spec.base import Component, Frozen, worded
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.registry import get

__all__ = ["Course", "Signature", "are_current", "problems_of", "signatures_of"]

MOST_VALUES: Final = 6_000
"""Places of all classes and channels of one signature, which a report can hold and a page can draw."""
DIGITS: Final = 4
LIMITS: Final = ("mean", "low", "high")


class Course(Frozen):
    """A class on a channel: means and limits of 95 % intervals at each place."""

    label: str
    channel: str
    mean: tuple[float, ...]
    low: tuple[float, ...] = ()
    """Empty if there is no interval."""
    high: tuple[float, ...] = ()
    people: int
    over: str
    """What the interval is over: people or windows."""


class Signature(Frozen):
    """A signature of a data set, with the component and the parameters that gave it, or why it cannot be computed."""

    name: str
    version: int
    parameters: dict[str, JsonValue]
    unit: str = ""
    places: tuple[float, ...] = ()
    courses: tuple[Course, ...] = ()
    problem: str = ""

    @model_serializer(mode="wrap")
    def _plain(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, object] = serialize(self)
        return {
            name: value for name, value in fields.items() if name != "problem" or value
        }


def signatures_of(
    spec: DatasetSpec, assembly: xr.DataArray | None
) -> tuple[Signature, ...]:
    """The signatures that a spec names; none of private data.

    Parameters
    ----------
    assembly
        The data, (presentation, channel, sample) for signals.
    """
    if spec.access == "private":
        return ()
    return tuple(_computed(declared, assembly) for declared in spec.signatures)


def problems_of(
    spec: DatasetSpec, signatures: Sequence[Signature]
) -> Iterator[Finding]:
    """Yield a warning for each signature that cannot be computed."""
    fix = "correct the fields of the signature in the spec, or remove it"
    for number, each in enumerate(signatures):
        if each.problem:
            where = f"data set {spec.id}, signatures[{number}]"
            yield Finding("data.signature", "warning", where, each.problem, fix)


def are_current(spec: DatasetSpec, signatures: Sequence[Signature]) -> bool:
    """Whether signatures are those that a spec names, by their present versions; there are none of private data."""
    wanted = () if spec.access == "private" else spec.signatures
    return [(each.name, each.version, each.parameters) for each in signatures] == [
        (each.name, _version(each), each.parameters) for each in wanted
    ]


def _version(declared: Component) -> int:
    """The version of the component; 0 if there is none of this name."""
    try:
        return get("signature", declared.name).version
    except RequestError:
        return 0


def _computed(declared: Component, assembly: xr.DataArray | None) -> Signature:
    """Compute a signature, or say why it is not defined for these data."""
    named = Signature(
        name=declared.name,
        version=_version(declared),
        parameters=declared.parameters,
    )
    try:
        component = get("signature", declared.name)
        parameters = component.bind(declared.parameters)
        if assembly is None:
            raise RequestError("the data set has no recordings")
        result = component.function(assembly, **parameters)
        _require_few(result["mean"])
    except (RequestError, ValidationError) as error:
        return named.model_copy(update={"problem": _why(error)})
    axis = str(result["mean"].dims[-1])
    computed = {
        "unit": component.unit or str(assembly.attrs.get("units", "")),
        "places": _rounded(result[axis].values, finer=2),
        "courses": tuple(_courses(result)),
    }
    return named.model_copy(update=computed)


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {worded(first)}"
    return str(error)


def _require_few(mean: xr.DataArray) -> None:
    if mean.size <= MOST_VALUES:
        return
    sizes = " × ".join(f"{size:,} ({dim})" for dim, size in mean.sizes.items())
    raise RequestError(
        f"{sizes} are more than {MOST_VALUES:,} values: name a few `channels`, and a part by `between`"
    )


def _courses(result: xr.Dataset) -> Iterator[Course]:
    for label in result["class"].values.tolist():
        of_class = result.sel({"class": label})
        for channel in result["channel"].values.tolist():
            one = of_class.sel(channel=channel)
            mean, low, high = (floats(one[name].values) for name in LIMITS)
            is_known = bool((low == low).all())
            yield Course(
                label=str(label),
                channel=str(channel),
                mean=_rounded(mean),
                low=_rounded(low) if is_known else (),
                high=_rounded(high) if is_known else (),
                people=int(of_class["people"]),
                over=str(of_class["over"].item()),
            )


def _rounded(values: Floats, finer: int = 0) -> tuple[float, ...]:
    """Numbers to a few digits, which are the same on every machine."""
    return tuple(float(f"{value:.{DIGITS + finer}g}") for value in values)
