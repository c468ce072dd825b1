"""Arrays without labels give the scores of labelled assemblies."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import AssemblyError

STIMULI, FEATURES, NEUROIDS = 60, 12, 5


def responses(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((STIMULI, FEATURES))
    y = x @ rng.standard_normal((FEATURES, NEUROIDS))
    return x, y + rng.standard_normal(y.shape)


def assembly(values, ids=None):
    ids = np.arange(len(values)).astype(str) if ids is None else ids
    names = [str(number) for number in range(values.shape[1])]
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids),
            "neuroid_id": ("neuroid", names),
        },
    )


def tensor(values):
    torch = pytest.importorskip("torch")
    return torch.from_numpy(values).requires_grad_()


@pytest.mark.parametrize("metric", ["ridge", "pls", "rdm", "cka"])
@pytest.mark.parametrize(
    "kind",
    [np.asarray, pd.DataFrame, tensor, np.ndarray.tolist],
    ids=["array", "table", "tensor", "list"],
)
def test_every_kind_of_array_gives_the_score_of_an_assembly(metric, kind):
    x, y = responses()
    expected = nl.metric(metric)(assembly(x), assembly(y))
    found = nl.metric(metric)(kind(x), kind(y))
    assert (found.value, found.low, found.high) == (
        expected.value,
        expected.low,
        expected.high,
    )


def test_an_array_without_ids_takes_those_of_the_other():
    x, y = responses()
    ids = [f"image{number}" for number in range(STIMULI)]
    expected = nl.metric("ridge")(assembly(x, ids), assembly(y, ids))
    assert nl.metric("ridge")(x, assembly(y, ids)).value == expected.value
    assert nl.metric("ridge")(assembly(x, ids), y).value == expected.value


def test_tables_are_matched_by_their_index():
    x, y = responses()
    ids = [f"image{number}" for number in range(STIMULI)]
    target = pd.DataFrame(y, index=ids)
    source = pd.DataFrame(x, index=ids).sample(frac=1, random_state=0)
    expected = nl.metric("rdm")(x, y)
    assert nl.metric("rdm")(source, target).value == pytest.approx(expected.value)


def test_repeated_responses_give_a_ceiling_and_a_missing_presentation_is_left_out():
    _, y = responses()
    noise = np.random.default_rng(1).standard_normal((4, *y.shape))
    repeats = y + noise
    repeats[3, :10] = np.nan
    rows = repeats.reshape(-1, NEUROIDS)
    shown = ~np.isnan(rows).any(axis=1)
    labelled = assembly(rows, np.tile(np.arange(STIMULI), 4).astype(str))
    labelled = labelled.assign_coords(
        repetition=("presentation", np.repeat(np.arange(4), STIMULI))
    )
    ceiling = nl.ceiling("internal_consistency")
    expected = ceiling(labelled.isel(presentation=shown))
    assert ceiling(repeats).value == expected.value


def test_predictions_are_plain_too():
    true, guess = ["a", "b", "a", "b"], ["a", "b", "b", "b"]
    score = nl.metric("balanced_accuracy")(np.array(guess), np.array(true))
    assert score.value == 0.75


def test_other_shapes_are_refused_with_the_one_that_is_needed():
    x, y = responses()
    with pytest.raises(AssemblyError, match="source has 59 rows and target 60"):
        nl.metric("ridge")(x[:-1], y)
    with pytest.raises(AssemblyError, match=r"\(stimulus, neuroid\)"):
        nl.metric("ridge")(x[:, 0], y[:, 0])
    with pytest.raises(AssemblyError, match=r"\(repetition, stimulus, neuroid\)"):
        nl.ceiling("internal_consistency")(y)
