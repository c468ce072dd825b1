"""Score and cost: the source of costs, exclusions, the Pareto front, and its figure."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from neuroledger.errors import NeuroLedgerError, RequestError
from neuroledger.report.pareto import front, pareto, pareto_figure, readable
from neuroledger.report.plots.style import ACCENT, SOFT
from neuroledger.stats.score import Score
from tests.engine.lab import Lab
from tests.report.ledger import altered, keep, record, with_score

HERE, ELSEWHERE, LATER = "lab.V4-ridge", "lab.V4-cost", "lab.V4-dear"


def costly(
    model: str, benchmark: str, value: float | None, cost: float | None, **fields: Any
) -> Any:
    """Return a record with a headline score and a cost in bytes."""
    made = record(model, benchmark, value)
    known = {"scale": "bytes", "direction": "lower", "unit": "B"}
    size = {} if cost is None else {"size": {"value": cost} | known | fields}
    return altered(made, scores=made.scores | size)


def test_given_costs_precede_those_of_the_same_benchmark_and_of_others(
    lab: Lab,
) -> None:
    records = [
        costly("ant", LATER, 0.1, 9.0), costly("ant", ELSEWHERE, 0.1, 7.0), costly("ant", HERE, 0.5, 30.0),
        costly("bee", LATER, 0.1, 8.0), costly("bee", ELSEWHERE, 0.1, 20.0), costly("bee", HERE, 0.6, None),
        costly("cat", ELSEWHERE, 0.1, 1.0), costly("cat", HERE, 0.7, 1.0), costly("dog", HERE, 0.4, None),
        costly("eel", ELSEWHERE, 0.9, 3.0),
    ]  # fmt: skip
    table = pareto(
        HERE,
        "size",
        records=records,
        costs={"cat": 30.0, "eel": 1.0},
        catalog=lab.open(),
    )
    assert table.to_dict("records") == [
        {"model": "bee", "score": 0.6, "low": 0.58, "high": 0.62, "cost": 20.0, "unit": "B", "reads": "20 B",
         "counted_on": ELSEWHERE, "front": True},
        {"model": "ant", "score": 0.5, "low": 0.48, "high": 0.52, "cost": 30.0, "unit": "B", "reads": "30 B",
         "counted_on": HERE, "front": False},
        {"model": "cat", "score": 0.7, "low": 0.7 - 0.02, "high": 0.7 + 0.02, "cost": 30.0, "unit": "", "reads": "30",
         "counted_on": "given", "front": True},
    ]  # fmt: skip
    assert table.attrs == {"benchmark": HERE, "cost": "size"}


def test_records_are_read_from_the_repository_by_default(lab: Lab) -> None:
    catalog = lab.open()
    keep(catalog, record("ant", HERE, 0.5), record("bee", HERE, 0.6))
    table = pareto(HERE, "size", costs={"ant": 1.0, "bee": 2.0}, catalog=catalog)
    assert table[["model", "score"]].values.tolist() == [["ant", 0.5], ["bee", 0.6]]


def test_partial_costs_and_failed_scores_are_excluded(lab: Lab) -> None:
    partial = Score(1.0, status="partial", reason="some", unit="B")
    undefined = with_score(record("dog", HERE, 0.5), value=None)
    records = [
        costly("ant", HERE, 0.5, 1.0, status="partial"), costly("bee", HERE, 0.5, None), costly("cat", HERE, None, 1.0),
        undefined, costly("eel", HERE, 0.5, 0.0),
    ]  # fmt: skip
    table = pareto(
        HERE,
        "size",
        records=records,
        costs={"bee": partial, "dog": 1.0},
        catalog=lab.open(),
    )
    assert table["model"].tolist() == ["eel"] and table["cost"].tolist() == [0.0]
    given = pareto(
        HERE,
        "size",
        records=records,
        costs={"bee": Score(2.0, unit="B")},
        catalog=lab.open(),
    )
    assert given[["model", "cost", "unit"]].values.tolist() == [
        ["eel", 0.0, "B"],
        ["bee", 2.0, "B"],
    ]
    assert given.index.tolist() == [0, 1]
    bare = pareto(
        HERE, "size", records=records, costs={"bee": Score(2.0)}, catalog=lab.open()
    )
    assert bare["unit"].tolist() == ["B", ""]
    failed = costly("ant", ELSEWHERE, None, 1.0)
    with pytest.raises(RequestError):
        pareto(
            HERE,
            "size",
            records=[record("ant", HERE, 0.5), failed],
            costs={"x": 1.0},
            catalog=lab.open(),
        )


def test_missing_scores_and_unknown_metrics_are_refused(lab: Lab) -> None:
    catalog = lab.open()
    words = rf"no model has both a score on '{HERE}' \(ridge\) and 'pls': score models on a benchmark that lists"
    with pytest.raises(RequestError, match=words):
        pareto(HERE, "pls", records=[], catalog=catalog)
    with pytest.raises(NeuroLedgerError, match="nosuch"):
        pareto(HERE, "nosuch", records=[], catalog=catalog)
    with pytest.raises(RequestError, match="and 'nosuch'"):
        pareto(HERE, "nosuch", records=[], costs={"ant": 1.0}, catalog=catalog)


def test_a_metric_with_overrides_is_named_by_its_id(lab: Lab) -> None:
    lab.benchmark("lab.V4-folds", metric={"name": "ridge", "splits": {"folds": 2}})
    with pytest.raises(RequestError, match=r"'lab.V4-folds' \(ridge\)"):
        pareto("lab.V4-folds", "pls", records=[], catalog=lab.open())


def test_lower_scores_may_be_better(lab: Lab) -> None:
    lower = [
        costly(model, HERE, value, 1.0) for model, value in (("ant", 0.5), ("bee", 0.4))
    ]
    lower = [with_score(each, direction="lower") for each in lower]
    assert pareto(HERE, "size", records=lower, catalog=lab.open())[
        "front"
    ].tolist() == [False, True]


def test_the_front_contains_the_models_that_no_other_dominates() -> None:
    assert front([], []) == [] and front([0.1], [5.0]) == [True]
    assert front([0.5, 0.5, 0.4], [1.0, 1.0, 1.0]) == [
        True,
        True,
        False,
    ]  # equals do not beat each other
    assert front([0.5, 0.5], [1.0, 2.0]) == [True, False]
    assert front([0.5, 0.6], [1.0, 2.0]) == [True, True]
    assert front([0.5, 0.6], [1.0, 2.0], lower=True) == [True, False]
    with pytest.raises(ValueError, match="argument"):
        front([0.5, 0.6], [1.0])
    rng = np.random.default_rng(0)
    scores, costs = rng.integers(0, 6, 40).tolist(), rng.integers(0, 6, 40).tolist()
    best = {
        cost: max(s for s, c in zip(scores, costs, strict=True) if c <= cost)
        for cost in set(costs)
    }
    least = {
        value: min(c for s, c in zip(scores, costs, strict=True) if s >= value)
        for value in set(scores)
    }
    expected = [
        s == best[c] and c == least[s] for s, c in zip(scores, costs, strict=True)
    ]
    assert front(scores, costs) == expected and any(expected) and not all(expected)


def table(costs: list[float], **fields: Any) -> pd.DataFrame:
    scores = [0.5, 0.4, 0.7][: len(costs)]
    plain = {
        "model": ["ant", "bee", "cat"][: len(costs)], "score": scores, "low": [0.4, None, 0.6][: len(costs)],
        "high": [0.6, None, 0.8][: len(costs)], "cost": costs, "unit": ["B", "", "B"][: len(costs)],
        "front": [True, False, True][: len(costs)],
    }  # fmt: skip
    return pd.DataFrame(plain | fields)


def test_labels_of_neighbours_do_not_overlap() -> None:
    names = [f"a model with a long name {number}" for number in range(5)]
    crowd = pd.DataFrame(
        {
            "model": names, "score": [0.5, 0.501, 0.502, 0.5, 0.503], "low": [None] * 5, "high": [None] * 5,
            "cost": [1.0, 1.01, 1.02, 1.03, 40.0], "unit": ["J/sample"] * 5, "front": [True] * 5,
        }
    )  # fmt: skip
    boxes = [text.get_window_extent() for text in pareto_figure(crowd).texts]
    assert not any(
        one.overlaps(other) for one, other in itertools.combinations(boxes, 2)
    )


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.472e-08, "J/sample", "14.7 nJ/sample"), (0.0, "J/sample", "0 J/sample"),
        (7406.98, "AC/sample", "7,407 AC/sample"),
        (2643606.0, "operations/sample", "2.64 M operations/sample"), (20.0, "B", "20 B"),
    ],
)  # fmt: skip
def test_costs_read_like_numbers_with_prefixes(
    value: float, unit: str, text: str
) -> None:
    assert readable(value, unit) == text


def test_the_figure_shows_each_model_its_interval_and_the_front() -> None:
    drawn = table([1.0, 2.0, 4.0])
    drawn.attrs = {"benchmark": HERE, "cost": "size"}
    ax: Any = pareto_figure(drawn)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()) == (
        "size (B)",
        HERE,
        "log",
    )
    assert [text.get_text() for text in ax.texts] == ["ant", "bee", "cat"]
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(
        one.overlaps(other) for one, other in itertools.combinations(boxes, 2)
    )
    points = [
        (*each.get_offsets()[0], each.get_sizes()[0], each.get_zorder())
        for each in ax.collections
    ]
    assert points == [(1.0, 0.5, 36, 3), (2.0, 0.4, 36, 3), (4.0, 0.7, 36, 3)]
    lines = [
        (list(each.get_xdata()), list(each.get_ydata()), each.get_color())
        for each in ax.lines
    ]
    assert lines == [
        ([1.0, 1.0], [0.4, 0.6], ACCENT),
        ([4.0, 4.0], [0.6, 0.8], ACCENT),
        ([1.0, 4.0], [0.5, 0.7], ACCENT),
    ]
    beaten = pareto_figure(table([1.0, 2.0, 4.0], front=[False, False, True]))
    assert beaten.lines[0].get_color() == SOFT
    assert (beaten.get_xlabel(), beaten.get_ylabel()) == ("cost (B)", "score")


def test_the_cost_axis_is_linear_below_the_smallest_positive_cost() -> None:
    ax: Any = pareto_figure(table([0.0, 2.0, 4.0], unit=["", "", ""]))
    assert ax.get_xscale() == "symlog" and ax.xaxis.get_transform().linthresh == 2.0
    assert ax.get_xlabel() == "cost"
    drawn = table([1.0, 2.0, 4.0], unit=["", "", ""])
    drawn.attrs = {"cost": "size"}
    assert pareto_figure(drawn).get_xlabel() == "size"
    assert pareto_figure(table([0.0])).get_xscale() == "linear"
    from matplotlib.figure import Figure

    mine: Any = Figure().subplots()
    assert pareto_figure(table([1.0]), ax=mine) is mine
    both = pareto_figure(table([1.0, 2.0, 3.0], unit=["s", "B", "s"]))
    assert both.get_xlabel() == "cost (B, s)"


def test_intervals_are_thinner_than_the_front_and_points_are_on_top() -> None:
    ax: Any = pareto_figure(table([1.0, 2.0, 4.0]))
    assert [(line.get_linewidth(), line.get_marker()) for line in ax.lines] == [
        (1, "None")
    ] * 2 + [(1.2, "None")]
    assert ax.lines[-1].get_zorder() == 2 and {
        each.get_zorder() for each in ax.collections
    } == {3}
    assert {float(each.get_sizes()[0]) for each in ax.collections} == {36.0}
    assert {text.get_fontsize() for text in ax.texts} == {9.0}
    assert ax.figure.get_size_inches().tolist() == pytest.approx([6, 4.2])
