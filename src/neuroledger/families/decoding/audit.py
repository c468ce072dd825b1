"""An audit of signals: what a publisher would want to know about a data set before anybody decodes it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Strings
from neuroledger.data.load import read_dataset, verified_files
from neuroledger.errors import DataError, Finding
from neuroledger.families.decoding.audit_channels import (
    channels_in_another_order,
    mains_alone,
    same_channels,
    units_of_some,
)
from neuroledger.families.decoding.audit_copies import doubled_events, same_recordings, same_windows
from neuroledger.families.decoding.audit_labels import (
    events_in_another_unit,
    labels_of_other_windows,
    people_tell,
)
from neuroledger.families.decoding.audit_recordings import exchanged_people, other_rates, shifted_events
from neuroledger.families.decoding.protocols.leakage_checks import telling_channels
from neuroledger.families.signals.signals import blocks, check, is_signals
from neuroledger.families.signals.units import PLAUSIBLE, to_microvolts
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.expectations import Distinct, Expectations, RowCount
from neuroledger.spec.kinds import DatasetSpec

__all__ = ["as_recorded", "audit", "audit_dataset", "report_of"]

# Steps of preprocessing that hide units, clipping and flat channels.
HIDING: Final = ("notch", "high_pass", "low_pass", "resample", "baseline", "scale", "clamp", "reference")
# Share of a channel's samples at its largest or smallest value from which it is clipped.
CLIPPED: Final = 0.01
# Ratio of standard deviations of recordings from which one has another unit than the others: 1,000 less a margin.
OTHER_UNIT: Final = 100.0
# Standard deviations from chance from which the order of labels in time is no accident.
ORDERED: Final = 6.0
SHOWN: Final = 6
GRAVE: Final = frozenset(
    {
        "audit.duplicate",
        "audit.labels",
        "audit.leak",
        "audit.people",
        "audit.rate",
        "audit.shifted",
        "audit.units",
    }
)
LOOKED_FOR: Final = (
    "copies of recordings and windows, also upside down or backwards; events twice; exchanged people; shifted events, or "
    "events in another unit of time; labels of the next trial, or exchanged; other sampling rates than stated; "
    "people and trials other than stated; implausible or differing units; channels in another order, with equal samples, "
    "with nothing but mains, flat or clipped; channels that are a code of the label; "
    "labels that the order of time or the person tells"
)


def audit_dataset(catalog: Catalog, id: str) -> list[Finding]:
    """Audit the recordings of a data set as they were recorded: read again without filters and scaling.

    Raises
    ------
    DataError
        The data are not here, cannot be read, or are not signals.
    """
    spec = catalog.dataset(id)
    files = verified_files(catalog, "datasets", id)
    try:
        data = read_dataset(as_recorded(catalog, id), id, files)
    except DataError as error:
        if "length or rate" not in str(error):
            raise
        # Recordings of several rates agree only once they are resampled.
        data = read_dataset(as_recorded(catalog, id, resampled=True), id, files)
    if data.assembly is None or not is_signals(data.assembly):
        raise DataError(
            f"data set {id!r} holds no signals (presentation, channel, sample): it cannot be audited"
        )
    return audit(data.assembly, expected=spec.expectations, name=f"data set {id}")


def as_recorded(catalog: Catalog, id: str, *, resampled: bool = False) -> Catalog:
    """The catalogue with the data set's reader freed of steps that hide units, clipping and flat channels."""
    entry = catalog.entry("datasets", id)
    spec = catalog.dataset(id)
    if spec.reader is None or not (steps := spec.reader.parameters.get("preprocessing")):
        return catalog
    hiding = set(HIDING) - ({"resample"} if resampled else set())
    kept = {name: value for name, value in steps.items() if name not in hiding}
    reader = spec.reader.model_copy(update={"preprocessing": kept})
    return catalog.with_spec("datasets", id, spec.model_copy(update={"reader": reader}), entry.document)


def audit(
    assembly: xr.DataArray, *, expected: Expectations | None = None, name: str = "signals"
) -> list[Finding]:
    """Everything suspicious about signals, the gravest first.

    Looked for: equal recordings and windows, also with another gain or sign or backwards in time, and events twice;
    sessions that two people seem to have exchanged; recordings that respond at another time than the others, whose events
    have another measure of time, whose windows show the label of the next one, or whose mains hum is at another
    frequency; numbers of people and of trials of each label other than expected, and people who lack a label; amplitudes
    that no such channel has, and recordings or channels in another unit than the rest; people whose channels are in
    another order; channels of equal samples, of mains alone, flat or clipped; channels whose extreme is a code of the
    label; and labels that the order in time, the recording or the person tells.

    Parameters
    ----------
    assembly
        (presentation, channel, sample), with the coordinates of signals and `label` where there are labels.
    expected
        What the data set's spec expects; its counts are compared.
    """
    assembly = check(assembly.transpose("presentation", "channel", "sample"), name=name)
    found: list[Finding] = []
    checks: tuple[Callable[[xr.DataArray], Iterator[tuple[str, str, str]]], ...] = (
        same_recordings,
        same_windows,
        doubled_events,
        exchanged_people,
        shifted_events,
        events_in_another_unit,
        other_rates,
        labels_of_other_windows,
        lambda one: _counts(one, expected),
        _units,
        channels_in_another_order,
        same_channels,
        mains_alone,
        _flat_or_clipped,
        _channels_tell,
        _time_tells,
        people_tell,
    )
    for look in checks:
        for code, what, fix in look(assembly):
            severity = "error" if code in GRAVE else "warning"
            found.append(Finding(code, severity, name, what, fix))  # type: ignore[arg-type]
    return sorted(found, key=lambda finding: finding.severity)


def report_of(spec: DatasetSpec, findings: Sequence[Finding]) -> str:
    """The findings as a page of Markdown that one would attach to an issue at the publisher's."""
    digest = hashlib.sha256("".join(sorted(pin.sha256 for pin in spec.files.values())).encode()).hexdigest()
    pinned = f"{len(spec.files)} pinned files, hash over their SHA-256: {digest[:16]}" if spec.files else ""
    lines = [f"# Audit of {spec.id}", "", spec.title, ""]
    lines += [line for line in (f"Source: {spec.source}" if spec.source else "", pinned) if line]
    lines += ["", f"Looked for: {LOOKED_FOR}.", ""]
    lines += [f"- **{one.severity}** `{one.code}` {one.what}. {one.fix}." for one in findings]
    return "\n".join([*lines, *([] if findings else ["Nothing suspicious was found."]), ""])


def _coordinate(assembly: xr.DataArray, name: str) -> Strings:
    return np.asarray(assembly[name].values).astype(str)


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:SHOWN])}{f' and {len(names) - SHOWN} more' if names[SHOWN:] else ''}"


def _counts(assembly: xr.DataArray, expected: Expectations | None) -> Iterator[tuple[str, str, str]]:
    subjects = _coordinate(assembly, "subject")
    for one in expected.assembly if expected is not None else ():
        if isinstance(one, Distinct) and one.column in assembly.coords:
            count = len(set(_coordinate(assembly, one.column).tolist()))
            if count != one.count:
                yield (
                    "audit.counts",
                    f"{one.column}: {count} different, {one.count} stated",
                    "Correct one of the two",
                )
        if isinstance(one, RowCount) and set(one.where) <= set(map(str, assembly.coords)):
            rows = np.ones(len(subjects), dtype=bool)
            for column, wanted in one.where.items():
                rows &= np.isin(_coordinate(assembly, column), np.asarray(wanted, dtype=str).ravel())
            low, high = (one.count, one.count) if one.count is not None else (one.low, one.high)
            count = int(rows.sum())
            if (low is not None and count < low) or (high is not None and count > high):
                said = ", ".join(f"{column} {value}" for column, value in one.where.items())
                stated = f"{low}" if low == high else f"{low} to {high}"
                yield "audit.counts", f"{said}: {count} windows, {stated} stated", "Correct one of the two"
    if "label" not in assembly.coords:
        return
    labels = _coordinate(assembly, "label")
    every = sorted(set(labels.tolist()))
    if len(every) <= 1:
        yield "audit.counts", f"all windows have the label {every[0]!r}", "Nothing can be decoded"
        return
    people = sorted(set(subjects.tolist()))
    tables = {
        person: [int((labels[subjects == person] == label).sum()) for label in every] for person in people
    }
    several = any(sum(count > 0 for count in counts) > 1 for counts in tables.values())
    lacking = [
        f"{person} ({every[counts.index(0)]})" for person, counts in tables.items() if several and 0 in counts
    ]
    if lacking:
        what = f"{len(lacking)} people lack a label that others have: {_some(lacking)}"
        yield "audit.counts", what, "State it, or leave them out"
    totals = {person: sum(counts) for person, counts in tables.items()}
    middle = float(np.median(list(totals.values())))
    few = [f"{person} ({total})" for person, total in totals.items() if total < middle / 3]
    if few:
        what = f"{len(few)} people have less than a third of the median of {middle:g} windows: {_some(few)}"
        yield "audit.counts", what, "State it, or leave them out"


def _spread(assembly: xr.DataArray) -> dict[tuple[str, str], Floats]:
    """Standard deviation of each channel within windows, the median over windows, by (recording, type of channel)."""
    recordings, kinds = _coordinate(assembly, "recording"), _coordinate(assembly, "channel_type")
    deviation = np.concatenate([np.std(values, axis=2, dtype=float) for _, values in blocks(assembly)])
    return {
        (recording, kind): np.median(deviation[recordings == recording][:, kinds == kind], axis=0)
        for recording in sorted(set(recordings.tolist()))
        for kind in sorted(set(kinds.tolist()))
    }


def _units(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    unit = str(assembly.attrs["units"])
    spread = {place: float(np.median(values)) for place, values in _spread(assembly).items()}
    for kind in sorted({kind for _, kind in spread}):
        amplitudes = {recording: value for (recording, one), value in spread.items() if one == kind}
        middle = float(np.median(list(amplitudes.values())))
        factor = to_microvolts(unit, kind)
        if factor is not None and kind in PLAUSIBLE:
            low, high, shown = PLAUSIBLE[kind]
            if not low <= middle * factor <= high:
                yield (
                    "audit.units",
                    f"{kind} varies by {middle * factor:.3g} {shown} (median standard deviation, stated unit {unit}); "
                    f"{low:g} to {high:g} {shown} are plausible",
                    "Find the unit of the files",
                )
        odd = [
            f"{recording} ({value:.3g})"
            for recording, value in amplitudes.items()
            if middle > 0 and not 1 / OTHER_UNIT < value / middle < OTHER_UNIT
        ]
        if odd:
            yield (
                "audit.units",
                f"{len(odd)} recordings vary at least {OTHER_UNIT:g} times more or less than the others ({kind}, median "
                f"{middle:.3g} {unit}): {_some(odd)}",
                "They may have another unit",
            )
    yield from _units_of_channels(assembly)


def _units_of_channels(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Channels that vary by a unit more or less than the others of their kind, in most recordings."""
    channels, kinds = _coordinate(assembly, "channel_id"), _coordinate(assembly, "channel_type")
    found = _spread(assembly)
    recordings = {recording for recording, _ in found}
    odd: dict[str, list[float]] = defaultdict(list)
    for (_, kind), spread in found.items():
        middle = float(np.median(spread))
        if len(spread) < 3 or middle <= 0:
            continue
        for channel, value in zip(channels[kinds == kind].tolist(), spread.tolist(), strict=True):
            if value > 0 and not 1 / OTHER_UNIT < value / middle < OTHER_UNIT:
                odd[channel].append(value / middle)
    yield from units_of_some(found, assembly)
    told = [
        f"{channel} ({np.median(ratios):.3g} times, in {len(ratios)} of {len(recordings)} recordings)"
        for channel, ratios in odd.items()
        if 2 * len(ratios) > len(recordings)
    ]
    if told:
        yield (
            "audit.units",
            f"{len(told)} channels vary by other orders of magnitude than the others of their kind: {_some(told)}",
            "Find the unit of these channels; they may also be broken",
        )


def _flat_or_clipped(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    channels, recordings = _coordinate(assembly, "channel_id"), _coordinate(assembly, "recording")
    flat: dict[str, list[str]] = defaultdict(list)
    clipped: dict[str, list[str]] = defaultdict(list)
    values = assembly.values
    for recording in sorted(set(recordings.tolist())):
        signal = np.moveaxis(values[recordings == recording], 1, 0).reshape(len(channels), -1)
        low, high = signal.min(axis=1), signal.max(axis=1)
        spread = signal.std(axis=1)
        typical = float(np.median(spread))
        for at, channel in enumerate(channels.tolist()):
            if spread[at] <= 1e-4 * typical or low[at] == high[at]:
                flat[channel].append(recording)
                continue
            ends = (signal[at] == low[at]) | (signal[at] == high[at])
            # A clipped signal stays at its bound: neighbouring samples are both there. Counts of few levels are no clipping.
            stays = float(np.mean(ends[1:] & ends[:-1]))
            if stays > CLIPPED and len(np.unique(signal[at][:4096])) > 16:
                clipped[channel].append(recording)
    for code, what, held in (("audit.flat", "flat", flat), ("audit.clipped", "clipped", clipped)):
        if held:
            shown = [
                f"{channel} in {len(where)} recordings, first {where[0]}" for channel, where in held.items()
            ]
            yield code, f"{len(held)} channels are {what}: {_some(shown)}", "Mark them as bad"


def _channels_tell(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    if "label" not in assembly.coords or len(set(_coordinate(assembly, "label").tolist())) < 2:
        return
    told = telling_channels(assembly, assembly["label"].values)
    if told:
        yield (
            "audit.leak",
            f"the extreme value of channels {_some(told)} is a code of the label",
            "Drop these channels",
        )


def _time_tells(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Whether labels come in blocks: fewer changes from a window to the next than chance gives, or one label a recording."""
    if "label" not in assembly.coords:
        return
    labels, recordings = _coordinate(assembly, "label"), _coordinate(assembly, "recording")
    onset = assembly["onset"].values.astype(float)
    every = set(labels.tolist())
    if len(every) < 2:
        return
    changes, chance, spread, several = 0, 0.0, 0.0, 0
    for recording in sorted(set(recordings.tolist())):
        rows = np.flatnonzero(recordings == recording)
        told = labels[rows[np.argsort(onset[rows], kind="stable")]]
        counts = np.unique(told, return_counts=True)[1].astype(float)
        total = counts.sum()
        if len(counts) < 2:
            continue
        several += 1
        # Under exchangeability neighbours differ with p; the variance is that of the number of runs (Barton and David 1957).
        squares = float((counts**2).sum())
        cubes = float((counts**3).sum())
        changes += int((told[1:] != told[:-1]).sum())
        chance += total - squares / total
        spread += (squares * (squares + total * (total + 1)) - 2 * total * cubes - total**3) / (
            total**2 * (total - 1)
        )
    if not several:
        people = _coordinate(assembly, "subject")
        within = any(len(set(labels[people == person].tolist())) > 1 for person in set(people.tolist()))
        if within:
            yield (
                "audit.order",
                "every recording has one label: what differs between recordings (time, impedance) tells the label",
                "Split by recording cannot be balanced; decode across people",
            )
        return
    if spread > 0 and (chance - changes) / np.sqrt(spread) > ORDERED:
        yield (
            "audit.order",
            f"labels come in blocks: {changes} changes from one window to the next in {several} recordings, {chance:.0f} by "
            "chance: slow drifts tell the label",
            "Test on other blocks than those of training",
        )
