"""Unusual cases give the numbers of the peer's code (computed once with brain-score/vision 2.3.22; see golden/peer.json)."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy.stats import spearmanr

import neuroledger as nl
from tests.golden import peer_cases

NUMBERS = json.loads(
    (Path(peer_cases.__file__).parent / "peer.json").read_text("utf-8")
)
CASES = peer_cases.cases()


def assembly(side, *, indexed):
    dims, values, coords = side
    plain = xr.DataArray(values, dims=dims, coords=coords)
    if not indexed:
        return plain
    return plain.set_index(
        {dim: [name for name, (on, _) in coords.items() if on == dim] for dim in dims}
    )


@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "MultiIndex"])
@pytest.mark.parametrize("name", CASES)
def test_the_number_of_the_peer(name, indexed):
    kind, id, sides, _, overrides = CASES[name]
    ask = nl.metric if kind == "metric" else nl.ceiling
    found = ask(id, compat="brainscore", **overrides)(
        *(assembly(side, indexed=indexed) for side in sides)
    )
    expected = NUMBERS[name]
    # The peer orders equal dissimilarities by rounding, which differs between processors: see below.
    within = 1e-3 if "equal" in name else 1e-6 if id == "pls" else 1e-9
    assert found.value == pytest.approx(expected["value"], abs=within)
    if expected["error"] is not None:
        assert found.error == pytest.approx(expected["error"], abs=within)


def test_equal_dissimilarities_are_ordered_by_rounding():
    _, id, sides, _, _ = CASES["equal dissimilarities"]
    source, target = (assembly(side, indexed=False) for side in sides)
    upper = np.triu_indices(len(source), 1)
    ordered = [
        side.values[np.argsort(side["stimulus_id"].values)] for side in (source, target)
    ]
    a, b = ((1 - np.corrcoef(values))[upper] for values in ordered)
    found = nl.metric(id, compat="brainscore")(source, target)
    assert found.value == pytest.approx(spearmanr(a, b).statistic, abs=1e-9)
    assert found.value != pytest.approx(nl.metric(id)(source, target).value, abs=1e-3)


def test_the_default_keeps_repeated_stimuli_in_one_part():
    _, id, sides, _, _ = CASES["repeated stimuli, ridge"]
    found = nl.metric(id)(*(assembly(s, indexed=False) for s in sides))
    assert found.value < NUMBERS["repeated stimuli, ridge"]["value"] - 0.01


def test_predictor_consistency_names_the_coordinate_it_could_use():
    side = assembly(CASES["images named by numbers"][2][0], indexed=False).drop_vars(
        "stimulus_id"
    )
    with pytest.raises(nl.errors.CeilingError, match="by='image_id'"):
        nl.ceiling("predictor_consistency")(side)


def test_numbers_as_text_are_the_same_stimuli():
    _, id, (source, target), _, _ = CASES["stratified folds"]
    a, b = assembly(source, indexed=False), assembly(target, indexed=False)
    texts = a.assign_coords(
        stimulus_id=("presentation", a["stimulus_id"].values.astype(float))
    )
    named = b.assign_coords(
        stimulus_id=("presentation", np.char.mod("%d", b["stimulus_id"].values))
    )
    assert nl.metric(id)(texts, named).value == pytest.approx(
        nl.metric(id)(a, b).value, abs=1e-12
    )
