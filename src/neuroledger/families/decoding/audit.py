"""An audit of signals: problems that a publisher should know about before a data set is decoded."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.data.integrity import verified_files
from neuroledger.data.load import read_dataset
from neuroledger.errors import (
    DataError,
    Finding,
    ImplausibleError,
    RequestError,
    UnlikeError,
)
from neuroledger.families.decoding.audit_altered import altered_copies
from neuroledger.families.decoding.audit_altered_windows import altered_windows
from neuroledger.families.decoding.audit_channels import (
    channels_in_another_order,
    inconsistent_units,
    mains_only_channels,
    same_channels,
)
from neuroledger.families.decoding.audit_common import Problems, first_names, text_of
from neuroledger.families.decoding.audit_copies import (
    duplicated_events,
    same_recordings,
    same_windows,
)
from neuroledger.families.decoding.audit_labels import (
    events_in_another_unit,
    labels_of_other_windows,
    labels_predicted_by_subjects,
)
from neuroledger.families.decoding.audit_recordings import (
    exchanged_subjects,
    shifted_events,
    wrong_sampling_rates,
)
from neuroledger.families.decoding.protocols.leakage_checks import (
    label_channels,
    telling_channels,
)
from neuroledger.families.signals.signals import blocks, check, is_signals
from neuroledger.families.signals.units import PLAUSIBLE, to_microvolts
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.expectations import Distinct, Expectations, RowCount
from neuroledger.spec.kinds import DatasetSpec

__all__ = ["as_recorded", "audit", "audit_dataset", "report_of"]

Lenience = Literal["units", "channels", "resample"]
# Steps of preprocessing that hide units, clipping and flat channels.
HIDING: Final = (
    "notch",
    "high_pass",
    "low_pass",
    "resample",
    "baseline",
    "scale",
    "clamp",
    "reference",
)
# A channel is clipped if a larger share of its samples is at its extremes.
CLIPPED: Final = 0.01
# A recording may have another unit if its standard deviation differs by this factor: 1,000 less a margin.
OTHER_UNIT: Final = 100.0
# Or if its logarithm is this many robust deviations from the median, and differs by this factor: people differ less.
ODD_DEVIATIONS: Final = 6.0
ODD_FACTOR: Final = 10.0
FEWEST_COMPARED: Final = 4
MAD_TO_DEVIATION: Final = 1.4826
# Labels are ordered in time if their changes differ from chance by more standard deviations.
ORDERED: Final = 6.0
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
    "copies of recordings and windows, also inverted or reversed in time, or with a filter or noise; duplicated events; "
    "exchanged subjects; shifted events, or events in another unit of time; labels shifted by one trial, or exchanged; "
    "wrong sampling rates; numbers of subjects and trials that differ from the stated ones; implausible or inconsistent "
    "units; channels in another order, with equal samples, with mains hum only, flat or clipped; channels of which one "
    "value encodes or tells the label; labels that the order in time or the subject predicts"
)


def audit_dataset(catalog: Catalog, id: str) -> list[Finding]:
    """Audit the recordings of a data set, read without filters and scaling.

    What a reader refuses is a finding here, and the audit goes on: with implausible amplitudes without units, with other
    channels on those that all recordings have, with other rates after resampling.

    Raises
    ------
    RequestError
        The data set consists of others.
    DataError
        The data are missing, cannot be read, or are not signals.
    """
    spec = catalog.dataset(id)
    if spec.members:
        raise RequestError(
            f"data set {id!r} has no recordings of its own: audit its members, {', '.join(spec.members)}"
        )
    files = verified_files(catalog, "datasets", id)
    name = f"data set {id}"
    findings: list[Finding] = []
    lenient: frozenset[Lenience] = frozenset()
    while True:
        try:
            dataset = read_dataset(as_recorded(catalog, id, lenient), id, files)
            break
        except ImplausibleError as error:
            if "units" in lenient:
                raise
            lenient |= {"units"}
            fix = (
                "Find the unit of the files; what follows was looked for without units"
            )
            findings.append(Finding("audit.units", "error", name, str(error), fix))
        except UnlikeError as error:
            if "resample" in lenient:
                raise
            # Channels are compared by name first; recordings with other rates form one assembly only after resampling.
            lenient |= {"resample"} if "channels" in lenient else {"channels"}
            fix = "Compare the channels and rates of the recordings; what follows was looked for in what they share"
            if "resample" not in lenient:
                findings.append(
                    Finding("audit.channels", "error", name, str(error), fix)
                )
    if dataset.assembly is None or not is_signals(dataset.assembly):
        raise DataError(
            f"data set {id!r} has no signals (presentation, channel, sample): it cannot be audited"
        )
    findings += audit(dataset.assembly, expected=spec.expectations, name=name)
    return sorted(findings, key=lambda finding: finding.severity)


def as_recorded(
    catalog: Catalog, id: str, lenient: frozenset[Lenience] = frozenset()
) -> Catalog:
    """The catalogue, with the data set's reader without the steps that hide units, clipping and flat channels.

    Parameters
    ----------
    lenient
        ``units``: amplitudes are read without a unit, so that implausible ones are not refused. ``channels``: only the
        channels of all recordings are read, in one order. ``resample``: the declared resampling is kept.
    """
    entry = catalog.entry("datasets", id)
    spec = catalog.dataset(id)
    if spec.reader is None:
        return catalog
    steps = spec.reader.parameters.get("preprocessing") or {}
    hiding = set(HIDING) - ({"resample"} & lenient)
    visible = {name: value for name, value in steps.items() if name not in hiding}
    if "units" in lenient:
        visible["units"] = "arbitrary"
    if "channels" in lenient and not visible.get("channels"):
        visible["channels"] = "shared"
    if visible == steps:
        return catalog
    reader = spec.reader.model_copy(update={"preprocessing": visible})
    return catalog.with_spec(
        "datasets", id, spec.model_copy(update={"reader": reader}), entry.document
    )


def audit(
    assembly: xr.DataArray,
    *,
    expected: Expectations | None = None,
    name: str = "signals",
) -> list[Finding]:
    """Find suspicious properties of signals, and return them with errors first.

    The checks look for equal recordings and windows, also with another gain or sign or reversed in time, and duplicated
    events; sessions that seem to be exchanged between two subjects; recordings that respond at another time than the
    others, whose events have another unit of time, whose windows show the label of the next one, or whose mains hum is at
    another frequency; unexpected numbers of subjects and of trials of each label, and subjects without a label that others
    have; implausible amplitudes, and recordings or channels in another unit than the rest; subjects whose channels are in
    another order; channels with equal samples, with mains hum only, flat or clipped; channels whose extreme value encodes
    the label; and labels that the order in time, the recording or the subject predicts.

    Parameters
    ----------
    assembly
        (presentation, channel, sample), with the coordinates of signals and `label` where there are labels.
    expected
        The expectations of the data set's spec; its counts are compared.
    """
    assembly = check(assembly.transpose("presentation", "channel", "sample"), name=name)
    findings: list[Finding] = []
    checks: tuple[Callable[[xr.DataArray], Problems], ...] = (
        same_recordings,
        same_windows,
        altered_copies,
        altered_windows,
        duplicated_events,
        exchanged_subjects,
        shifted_events,
        events_in_another_unit,
        wrong_sampling_rates,
        labels_of_other_windows,
        lambda assembly: _unexpected_counts(assembly, expected),
        _implausible_units,
        channels_in_another_order,
        same_channels,
        mains_only_channels,
        _flat_or_clipped,
        _leaking_channels,
        _ordered_labels,
        labels_predicted_by_subjects,
    )
    for problems_in in checks:
        for code, description, fix in problems_in(assembly):
            severity = "error" if code in GRAVE else "warning"
            findings.append(Finding(code, severity, name, description, fix))  # type: ignore[arg-type]
    return sorted(findings, key=lambda finding: finding.severity)


def report_of(spec: DatasetSpec, findings: Sequence[Finding]) -> str:
    """The findings as a Markdown page, to be attached to an issue for the publisher."""
    digest = hashlib.sha256(
        "".join(sorted(pin.sha256 for pin in spec.files.values())).encode()
    ).hexdigest()
    pinned = (
        f"{len(spec.files)} pinned files, hash over their SHA-256: {digest[:16]}"
        if spec.files
        else ""
    )
    lines = [f"# Audit of {spec.id}", "", spec.title, ""]
    lines += [
        line
        for line in (f"Source: {spec.source}" if spec.source else "", pinned)
        if line
    ]
    lines += ["", f"Looked for: {LOOKED_FOR}.", ""]
    lines += [
        f"- **{finding.severity}** `{finding.code}` {finding.what}. {finding.fix}."
        for finding in findings
    ]
    return "\n".join(
        [*lines, *([] if findings else ["Nothing suspicious was found."]), ""]
    )


def _unexpected_counts(
    assembly: xr.DataArray, expected: Expectations | None
) -> Problems:
    subjects = text_of(assembly, "subject")
    for expectation in expected.assembly if expected is not None else ():
        if isinstance(expectation, Distinct) and expectation.column in assembly.coords:
            count = len(set(text_of(assembly, expectation.column).tolist()))
            if count != expectation.count:
                yield (
                    "audit.counts",
                    f"{expectation.column}: {count} different, {expectation.count} stated",
                    "Correct one of the two",
                )
        if isinstance(expectation, RowCount) and set(expectation.where) <= set(
            map(str, assembly.coords)
        ):
            rows = np.ones(len(subjects), dtype=bool)
            for column, values in expectation.where.items():
                rows &= np.isin(
                    text_of(assembly, column), np.asarray(values, dtype=str).ravel()
                )
            low = expectation.low
            high = expectation.high
            if expectation.count is not None:
                low = high = expectation.count
            count = int(rows.sum())
            if (low is not None and count < low) or (high is not None and count > high):
                selection = ", ".join(
                    f"{column} {value}" for column, value in expectation.where.items()
                )
                if low == high:
                    stated = f"{low}"
                else:
                    stated = f"{low} to {high}"
                yield (
                    "audit.counts",
                    f"{selection}: {count} windows, {stated} stated",
                    "Correct one of the two",
                )
    if "label" not in assembly.coords:
        return
    labels = text_of(assembly, "label")
    classes = sorted(set(labels.tolist()))
    if len(classes) <= 1:
        yield (
            "audit.counts",
            f"all windows have the label {classes[0]!r}",
            "Nothing can be decoded",
        )
        return
    subjects_present = sorted(set(subjects.tolist()))
    tables = {
        subject: [
            int((labels[subjects == subject] == label).sum()) for label in classes
        ]
        for subject in subjects_present
    }
    several_classes = any(
        sum(count > 0 for count in counts) > 1 for counts in tables.values()
    )
    incomplete = [
        f"{subject} ({classes[counts.index(0)]})"
        for subject, counts in tables.items()
        if several_classes and 0 in counts
    ]
    if incomplete:
        description = f"{len(incomplete)} subjects lack a label that others have: {first_names(incomplete)}"
        yield "audit.counts", description, "State it, or exclude these subjects"
    totals = {subject: sum(counts) for subject, counts in tables.items()}
    median = float(np.median(list(totals.values())))
    short = [
        f"{subject} ({total})"
        for subject, total in totals.items()
        if total < median / 3
    ]
    if short:
        description = f"{len(short)} subjects have less than a third of the median, {median:g} windows: {first_names(short)}"
        yield "audit.counts", description, "State it, or exclude these subjects"


def _deviations(assembly: xr.DataArray) -> dict[tuple[str, str], Floats]:
    """Median over windows of each channel's standard deviation within a window, by (recording, channel type)."""
    recordings = text_of(assembly, "recording")
    kinds = text_of(assembly, "channel_type")
    deviation = np.concatenate(
        [np.std(values, axis=2, dtype=float) for _, values in blocks(assembly)]
    )
    return {
        (recording, kind): np.median(
            deviation[recordings == recording][:, kinds == kind], axis=0
        )
        for recording in sorted(set(recordings.tolist()))
        for kind in sorted(set(kinds.tolist()))
    }


def _implausible_units(assembly: xr.DataArray) -> Problems:
    unit = str(assembly.attrs["units"])
    deviations = {
        place: float(np.median(values))
        for place, values in _deviations(assembly).items()
    }
    for kind in sorted({kind for _, kind in deviations}):
        amplitudes = {
            recording: value
            for (recording, of_kind), value in deviations.items()
            if of_kind == kind
        }
        median = float(np.median(list(amplitudes.values())))
        factor = to_microvolts(unit, kind)
        if factor is not None and kind in PLAUSIBLE:
            low, high, shown_unit = PLAUSIBLE[kind]
            if not low <= median * factor <= high:
                yield (
                    "audit.units",
                    f"{kind} varies by {median * factor:.3g} {shown_unit} (median standard deviation, stated unit {unit}); "
                    f"{low:g} to {high:g} {shown_unit} are plausible",
                    "Find the unit of the files",
                )
        outliers = {
            recording: f"{recording} ({amplitudes[recording]:.3g})"
            for recording in _odd_amplitudes(amplitudes, median)
        }
        least = min(
            (_times(amplitudes[recording], median) for recording in outliers),
            default=0.0,
        )
        if outliers:
            yield (
                "audit.units",
                f"{len(outliers)} recordings vary at least {min(least, OTHER_UNIT):.3g} times more or less than the others "
                f"({kind}, median {median:.3g} {unit}): {first_names(list(outliers.values()))}",
                "Find out whether they have another unit or gain",
            )
    yield from _units_of_channels(assembly)


def _times(value: float, median: float) -> float:
    """How many times larger or smaller than the median a value is."""
    return max(value / median, median / value)


def _odd_amplitudes(amplitudes: Mapping[str, float], median: float) -> list[str]:
    """Recordings whose amplitude differs from the median by a unit, or by far more than the others do."""
    present = {recording: value for recording, value in amplitudes.items() if value > 0}
    if median <= 0 or not present:
        return []
    logarithms = {
        recording: float(np.log(value / median)) for recording, value in present.items()
    }
    spread = MAD_TO_DEVIATION * float(np.median(np.abs(list(logarithms.values()))))
    limit = np.log(OTHER_UNIT)
    if len(present) >= FEWEST_COMPARED:
        limit = min(limit, max(np.log(ODD_FACTOR), ODD_DEVIATIONS * spread))
    return [
        recording
        for recording, logarithm in logarithms.items()
        if abs(logarithm) >= limit
    ]


def _units_of_channels(assembly: xr.DataArray) -> Problems:
    """Channels whose scale differs by a unit from the others of their type, in most recordings."""
    channels = text_of(assembly, "channel_id")
    kinds = text_of(assembly, "channel_type")
    spreads = _deviations(assembly)
    recordings = {recording for recording, _ in spreads}
    odd: dict[str, list[float]] = defaultdict(list)
    for (_, kind), spread in spreads.items():
        median = float(np.median(spread))
        if len(spread) < 3 or median <= 0:
            continue
        for channel, value in zip(
            channels[kinds == kind].tolist(), spread.tolist(), strict=True
        ):
            if value > 0 and not 1 / OTHER_UNIT < value / median < OTHER_UNIT:
                odd[channel].append(value / median)
    yield from inconsistent_units(spreads, assembly)
    outliers = [
        f"{channel} ({np.median(ratios):.3g} times, in {len(ratios)} of {len(recordings)} recordings)"
        for channel, ratios in odd.items()
        if 2 * len(ratios) > len(recordings)
    ]
    if outliers:
        yield (
            "audit.units",
            f"{len(outliers)} channels vary by other orders of magnitude than the others of their type: "
            f"{first_names(outliers)}",
            "Find the unit of these channels; they may also be broken",
        )


def _flat_or_clipped(assembly: xr.DataArray) -> Problems:
    channels = text_of(assembly, "channel_id")
    recordings = text_of(assembly, "recording")
    flat: dict[str, list[str]] = defaultdict(list)
    clipped: dict[str, list[str]] = defaultdict(list)
    values = assembly.values
    for recording in sorted(set(recordings.tolist())):
        signal = np.moveaxis(values[recordings == recording], 1, 0).reshape(
            len(channels), -1
        )
        low = signal.min(axis=1)
        high = signal.max(axis=1)
        spread = signal.std(axis=1)
        typical = float(np.median(spread))
        for at, channel in enumerate(channels.tolist()):
            if spread[at] <= 1e-4 * typical or low[at] == high[at]:
                flat[channel].append(recording)
                continue
            ends = (signal[at] == low[at]) | (signal[at] == high[at])
            # A clipped signal stays at its bound for consecutive samples. Signals with few levels are not clipped.
            stays = float(np.mean(ends[1:] & ends[:-1]))
            if stays > CLIPPED and len(np.unique(signal[at][:4096])) > 16:
                clipped[channel].append(recording)
    for code, word, channels_of in (
        ("audit.flat", "flat", flat),
        ("audit.clipped", "clipped", clipped),
    ):
        if channels_of:
            channel_names = [
                f"{channel} in {len(places)} recordings, first {places[0]}"
                for channel, places in channels_of.items()
            ]
            yield (
                code,
                f"{len(channels_of)} channels are {word}: {first_names(channel_names)}",
                "Mark them as bad",
            )


def _leaking_channels(assembly: xr.DataArray) -> Problems:
    if (
        "label" not in assembly.coords
        or len(set(text_of(assembly, "label").tolist())) < 2
    ):
        return
    leaking = label_channels(assembly, assembly["label"].values)
    if leaking:
        yield (
            "audit.leak",
            f"the extreme value of channels {first_names(leaking)} encodes the label",
            "Drop these channels",
        )
    telling = [
        name
        for name in telling_channels(assembly, text_of(assembly, "label"))
        if name not in leaking
    ]
    if telling:
        yield (
            "audit.leak",
            f"one threshold on one value of channels {first_names(telling)} tells the label",
            "Find out what these channels recorded; drop them if it is the answer or the hand that gave it",
        )


def _ordered_labels(assembly: xr.DataArray) -> Problems:
    """Labels in blocks: fewer changes between consecutive windows than expected by chance, or one label per recording."""
    if "label" not in assembly.coords:
        return
    labels = text_of(assembly, "label")
    recordings = text_of(assembly, "recording")
    onset = assembly["onset"].values.astype(float)
    classes = set(labels.tolist())
    if len(classes) < 2:
        return
    changes, chance, spread, mixed = 0, 0.0, 0.0, 0
    for recording in sorted(set(recordings.tolist())):
        rows = np.flatnonzero(recordings == recording)
        ordered = labels[rows[np.argsort(onset[rows], kind="stable")]]
        counts = np.unique(ordered, return_counts=True)[1].astype(float)
        total = counts.sum()
        if len(counts) < 2:
            continue
        mixed += 1
        # Expectation and variance of the number of runs under exchangeability (Barton and David 1957).
        squares = float((counts**2).sum())
        cubes = float((counts**3).sum())
        changes += int((ordered[1:] != ordered[:-1]).sum())
        chance += total - squares / total
        spread += (
            squares * (squares + total * (total + 1)) - 2 * total * cubes - total**3
        ) / (total**2 * (total - 1))
    if not mixed:
        subjects = text_of(assembly, "subject")
        within = any(
            len(set(labels[subjects == subject].tolist())) > 1
            for subject in set(subjects.tolist())
        )
        if within:
            yield (
                "audit.order",
                "every recording has one label: differences between recordings (time, impedance) predict the label",
                "Decode across subjects: a split by recording cannot be balanced",
            )
        return
    if spread > 0 and (chance - changes) / np.sqrt(spread) > ORDERED:
        yield (
            "audit.order",
            f"labels come in blocks: {changes} changes from one window to the next in {mixed} recordings, {chance:.0f} by "
            "chance: slow drifts predict the label",
            "Test on other blocks than those used for training",
        )
