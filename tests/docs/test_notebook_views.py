"""Whatever a public function returns shows itself in a notebook."""

from __future__ import annotations

import inspect

import pandas as pd
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.cli.own_models import Evaluated
from neuroledger.cli.start import Started
from neuroledger.data.dataset import Dataset
from neuroledger.engine.bound_metric import BoundCeiling, BoundMetric
from neuroledger.engine.compare import Comparison
from neuroledger.engine.outcome import Pending
from neuroledger.engine.why import Explanation
from neuroledger.families.alignment.layer_curves.curve import Layers
from neuroledger.families.efficiency.costs import Costs
from neuroledger.families.efficiency.same import Parting, Sameness
from neuroledger.report.board import Leaderboard

CLASSES = {
    kind.__name__: (kind,)
    for kind in (
        BoundCeiling,
        BoundMetric,
        Comparison,
        Costs,
        Dataset,
        Evaluated,
        Explanation,
        Layers,
        Leaderboard,
        Sameness,
        nl.Score,
        Started,
    )
} | {
    "list[Outcome]": (nl.Record, Pending),
    "list[Record]": (nl.Record,),
    "pd.DataFrame": (pd.DataFrame,),
    "xr.DataArray": (xr.DataArray,),
}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in nl.__all__
        if inspect.isfunction(getattr(nl, name)) and name != "as_estimator"
    ],
)
def test_a_result_has_a_view(name: str) -> None:
    returned = str(inspect.signature(getattr(nl, name)).return_annotation)
    for kind in CLASSES[returned]:
        assert hasattr(kind, "_repr_html_"), f"nl.{name} returns {kind.__name__}"


def test_texts_of_files_are_escaped() -> None:
    page = Pending("<b> is missing", "neuroledger fetch x", "data.missing")
    assert "&lt;b&gt; is missing" in page._repr_html_()
    parted = Parting("<layer>", "graph", 3, 0.25)
    view = Sameness(False, 0.25, parted, 4, {})._repr_html_()
    assert "differ by up to 0.25" in view and "&lt;layer&gt; and graph" in view
