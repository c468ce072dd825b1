"""The text of a diagnosis contains every section; tables are read cell by cell."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from neuroledger.errors import DataError
from neuroledger.report.diagnosis import MAX_LOADINGS, diagnosis_text, from_csv, plain
from neuroledger.stats.diagnosis import Axis, Diagnosis, Explained, Pair, Shift


def diagnosis(loadings: int = 2, *, empty: bool = False) -> Diagnosis:
    coverage = pd.DataFrame(
        {"scored": [3, 2], "failed": [0, 1], "never run": [1, 0]}, index=["one", "two"]
    )
    pair = Pair("one", "two", 0.987, 0.9, 0.999, 12)
    return Diagnosis(
        coverage=coverage,
        adjusted={"ant": 0.5, "bee": 1 / 3},
        pairs=(pair,),
        explained=(Explained("region", 0.8, 0.123, 7, 0.0421),),
        explained_share=0.256,
        axes=(Axis(0.6, {f"b{i}": (loadings - i) / 10 for i in range(loadings)}),),
        redundant=() if empty else (pair,),
        contrary=(),
        panel=("two", "one"),
        panel_tau=0.957,
        discriminative={"one": 0.25, "two": math.nan},
        growth=(Shift(1, "one", 0.5, 2, "ant"), Shift(2, "two", 1.0, 0, "bee")),
    )


def test_every_section_is_a_table() -> None:
    assert (
        diagnosis_text("The title", diagnosis())
        == """\
The title

Coverage: Numbers of models scored, failed and never run.
benchmark  scored  failed  never run
one        3       0       1
two        2       1       0

Models: Mean score adjusted for missing benchmarks (model + benchmark effects).
model  adjusted mean
ant    0.500
bee    0.333

Agreement: Attributes explain 26% of the agreement of 1 pairs.
shared attribute  mean rho if shared  if not shared  pairs  p
region            0.80                0.12           7      0.042

Axis 1: 60% of the variance.
benchmark  loading
b0         +0.20
b1         +0.10

Redundant: Benchmarks that rank models in the same order.
first  second  rho   95 % interval  models
one    two     0.99  0.90 to 1.00   12

Contrary: Benchmarks that rank models in the opposite order.
(none)

Panel: The smallest panel found that preserves the order of models (Kendall's tau 0.96).
benchmark
two
one

Discriminative power: Share of pairs of models with separated intervals.
benchmark  separated
one        25%
two        no intervals

Growth: The order of models after each benchmark, compared with that of the whole suite.
benchmarks  last added  tau   largest change of rank  of
1           one         0.50  2                       ant
2           two         1.00  0                       bee
"""
    )


@pytest.mark.parametrize("count", [MAX_LOADINGS - 1, MAX_LOADINGS, MAX_LOADINGS + 1])
def test_a_long_axis_shows_both_of_its_ends(count: int) -> None:
    text = diagnosis_text("x", diagnosis(count))
    shown = [
        line.split()[0]
        for line in text.split("Axis 1")[1].split("\n\n")[0].splitlines()[2:]
    ]
    everything = [f"b{i}" for i in range(count)]
    assert shown == (everything if count <= 12 else [*everything[:6], *everything[-6:]])


def test_plain_data_has_no_nan() -> None:
    found = plain(diagnosis())
    assert found["discriminative"] == {"one": 0.25, "two": None}
    assert found["coverage"] == {
        "one": {"scored": 3, "failed": 0, "never run": 1}, "two": {"scored": 2, "failed": 1, "never run": 0},
    }  # fmt: skip
    assert found["pairs"] == [
        {
            "first": "one",
            "second": "two",
            "rho": 0.987,
            "low": 0.9,
            "high": 0.999,
            "models": 12,
        }
    ]
    assert found["growth"][1]["model"] == "bee" and found["axes"][0]["share"] == 0.6
    assert (
        found["contrary"] == []
        and found["explained"][0]["attribute"] == "region"
        and found["panel_tau"] == 0.957
    )


def test_cells_of_a_table_are_scores_failures_or_never_run(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(
        "\ufeffmodel,one,two\n# metric ,r, rho\nant,0.5,  \nbee,-1e-2,crashed\n#region,V4,IT\n",
        encoding="utf-8",
    )
    table = from_csv(file)
    assert table.values.index.tolist() == [
        "ant",
        "bee",
    ] and table.values.columns.tolist() == ["one", "two"]
    assert (
        table.values["one"].tolist() == [0.5, -0.01]
        and table.values["two"].isna().all()
    )
    assert table.states.to_numpy().tolist() == [
        ["scored", "never run"],
        ["scored", "failed"],
    ]
    assert table.attributes == {
        "one": {"metric": "r", "region": "V4"},
        "two": {"metric": " rho", "region": "IT"},
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "model,one\n",
            "has no scores: it needs a header of benchmarks and a row for each model",
        ),
        ("model\nant\n", "has no scores: it needs a header"),
        ("model,one\n#metric,r\n", "has no scores: it needs a row for each model"),
        ("model,one\nant,1\nbee,1,2\n", ":3 has 3 cells, the header has 2"),
        ("model,one,one\nant,1,2\n", "names the benchmark 'one' twice"),
        ("model,one\nant,1\nant,2\n", "names the model 'ant' twice"),
    ],
)
def test_an_invalid_table_is_refused_with_its_line(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "table.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=words):
        from_csv(file)
    with pytest.raises(DataError, match=r"nosuch.csv cannot be read as a table"):
        from_csv(tmp_path / "nosuch.csv")
