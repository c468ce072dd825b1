"""Events that are found, and false alarms, against a search over single seconds; kappa against scikit-learn."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.families.decoding.metrics.detected_events import (
    Rules,
    Span,
    detected_events,
    events_of,
    found_in,
)

RULES = Rules(before=30.0, after=60.0, merge=90.0, longest=300.0)


def windows(labels, *, step=5.0, recording="r", subject="s", seeds=1):
    count = len(labels)
    coords = {
        "onset": np.arange(count) * step,
        "recording": [recording] * count,
        "subject": [subject] * count,
        "stimulus_id": [str(row) for row in range(count)],
    }
    return xr.DataArray(
        np.asarray(labels),
        dims="presentation",
        coords={name: ("presentation", value) for name, value in coords.items()},
    )


def label(flags):
    return np.where(np.asarray(flags, dtype=bool), "seizure", "background")


def by_seconds(true, predicted, step, rules):
    """Hits and false alarms by marking every second."""

    def events(flags):
        marks = np.repeat(np.asarray(flags, dtype=bool), int(step))
        edges = np.flatnonzero(np.diff(np.r_[0, marks.astype(int), 0]))
        spans = [list(pair) for pair in edges.reshape(-1, 2)]
        joined = []
        for start, stop in spans:
            if joined and start - joined[-1][1] <= rules.merge:
                joined[-1][1] = stop
            else:
                joined.append([start, stop])
        parts = []
        for start, stop in joined:
            while stop - start > rules.longest:
                parts.append((start, start + rules.longest))
                start += rules.longest
            parts.append((start, stop))
        return parts

    length = len(true) * int(step) + 1000
    known, guessed = events(true), events(predicted)

    def cover(spans, before=0, after=0):
        marks = np.zeros(length, bool)
        for start, stop in spans:
            low, high = int(start - before) + 500, int(stop + after) + 500
            marks[low:high] = True
        return marks

    hits = sum(
        (cover([span], rules.before, rules.after) & cover(guessed)).any()
        for span in known
    )
    near = cover(known, rules.before, rules.after)
    alarms = sum(not (cover([span]) & near).any() for span in guessed)
    return len(known), hits, alarms


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.booleans(), min_size=8, max_size=120),
    st.integers(0, 2**32 - 1),
    st.sampled_from([RULES, Rules(0.0, 0.0, 0.0, 50.0), Rules(10.0, 5.0, 20.0, 1e9)]),
)
def test_events_are_those_of_a_search_over_seconds(true, seed, rules):
    rng = np.random.default_rng(seed)
    predicted = rng.random(len(true)) < 0.2
    onsets = np.arange(len(true)) * 5.0
    found = found_in(
        events_of(np.array(true), onsets, 5.0, rules),
        events_of(predicted, onsets, 5.0, rules),
        1.0,
        rules,
    )
    assert found[:3] == by_seconds(true, predicted, 5.0, rules)


def test_an_event_that_lasts_long_is_divided():
    onsets = np.arange(80) * 5.0
    parts = events_of(np.ones(80, bool), onsets, 5.0, RULES)
    assert parts == [Span(0.0, 300.0), Span(300.0, 400.0)]


def test_measures_of_known_events_and_their_interval():
    rng = np.random.default_rng(0)
    sources, targets = [], []
    for person in range(6):
        true = np.zeros(720, bool)
        true[100:112] = True
        true[400:420] = True
        predicted = np.zeros(720, bool)
        predicted[104:108] = True  # the first is found, the second missed
        predicted[600 + person : 602 + person] = True  # one false alarm
        fields = {"recording": f"r{person}", "subject": f"s{person}"}
        sources.append(windows(label(predicted), **fields))
        targets.append(windows(label(true), **fields))
    source, target = (xr.concat(parts, "presentation") for parts in (sources, targets))
    order = rng.permutation(source.sizes["presentation"])
    source, target = source.isel(presentation=order), target.isel(presentation=order)

    def value(measure):
        samples = detected_events(source, target, positive="seizure", measure=measure)
        return samples.values.item()

    assert value("sensitivity") == 0.5
    assert value("precision") == 0.5
    assert value("f1") == 0.5
    assert value("false_alarms") == 1.0
    score = nl.metric("seizure_sensitivity")(source, target)
    assert score.value == 0.5
    assert score.low == pytest.approx(0.5, abs=0.05), "all people are alike"


def test_an_unknown_label_is_refused():
    rows = windows(label([0, 1, 0]))
    with pytest.raises(MetricError, match="no window is labelled 'siezure'"):
        detected_events(rows, rows, positive="siezure")


def test_windows_without_times_are_refused():
    rows = windows(label([0, 1, 0])).drop_vars("onset")
    with pytest.raises(MetricError, match="coordinate onset"):
        detected_events(rows, rows, positive="seizure")


@pytest.mark.parametrize("seed", range(5))
def test_kappa_is_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    true = rng.choice(["W", "N1", "N2", "R"], 200, p=[0.5, 0.1, 0.3, 0.1])
    guess = np.where(rng.random(200) < 0.6, true, rng.choice(["W", "N2"], 200))
    fields = [windows(values, subject="a") for values in (guess, true)]
    subjects = ("presentation", np.repeat(["a", "b", "c", "d"], 50))
    source, target = (rows.assign_coords(subject=subjects) for rows in fields)
    score = nl.metric("cohen_kappa")(source, target)
    assert score.value == pytest.approx(cohen_kappa_score(true, guess), abs=1e-12)
    assert score.low < score.value < score.high
