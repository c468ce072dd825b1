"""Of a layer its Gram matrix is kept, not its activations, and gives every comparison the same bits."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data.assembly import part_of_rows
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.gram import gram, patterns
from neuroledger.models import activation_store
from neuroledger.models.activation_store import DiskStore
from neuroledger.models.activations import Recorded, Trial
from neuroledger.models.model import LayeredModel
from neuroledger.spec.channels import STIMULI
from neuroledger.stats.workspace import Memo, Workspace
from tests.models.drawn_stimuli import drawn

ROWS = 40
LAYERS: Mapping[str, tuple[int, ...]] = {"maps": (3, 5, 6), "units": (60,), "few": (8,)}
METRICS = ("pls", "ridge", "rdm", "cka")
STIMULI_SHOWN = drawn(ROWS, size=(2, 2))


class Network:
    """Three layers of features that depend on the number of the stimulus; it counts the stimuli that it is shown."""

    def __init__(self, scale: float = 1.0) -> None:
        self.shown = 0
        self.scale = scale

    def __call__(
        self,
        stimuli: StimulusSet,
        ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
    ) -> dict[str, Any]:
        self.shown += len(ids)
        drawn = [np.random.default_rng(int(id[1:])) for id in ids]
        answers = {
            name: np.stack([rng.standard_normal(shape) for rng in drawn])
            for name, shape in LAYERS.items()
        }
        scaled = {name: values * self.scale for name, values in answers.items()}
        return {name: np.float32(scaled[name]) for name in layers}


def model_of(network: Network, folder: Path | None, **changed: Any) -> LayeredModel:
    fields: dict[str, Any] = {"batch": 16, "identity": {"builder": "drawn"}, **changed}
    return LayeredModel(
        id="drawn",
        takes=STIMULI,
        extract=network,
        layers=tuple(LAYERS),
        regions={name: name for name in LAYERS},
        store=None if folder is None else DiskStore(folder),
        **fields,
    )


@pytest.fixture(scope="module")
def brain() -> xr.DataArray:
    rng = np.random.default_rng(1)
    features = Network()(STIMULI_SHOWN, STIMULI_SHOWN.ids, ["units"], Trial())["units"]
    values = features[:, :20] @ rng.standard_normal((20, 7))
    coords = {
        "stimulus_id": ("presentation", STIMULI_SHOWN.ids),
        "neuroid_id": ("neuroid", [f"n{at}" for at in range(7)]),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def scores(
    model: LayeredModel, brain: xr.DataArray, *, intervals: bool = False, **bins: Any
) -> list[bytes]:
    """Bits of the samples of all metrics on all layers, and of their intervals if asked for."""
    workspace, bits = Workspace(), []
    for layer in LAYERS:
        for id in METRICS:
            source = model.record(STIMULI_SHOWN, layer, **bins)
            score = nl.metric(id, workspace=workspace)(source, brain)
            assert score.samples is not None
            bits.append(score.samples.values.tobytes())
            if intervals:
                bits.append(np.array([score.low, score.high]).tobytes())
    return bits


def files(folder: Path, kind: str) -> list[Path]:
    return sorted(path for path in folder.glob(f"{kind}/*/*/*") if path.is_file())


def test_one_pass_then_none_with_the_bits_of_activations(
    tmp_path: Path, brain: xr.DataArray
) -> None:
    true = scores(model_of(Network(), None), brain, intervals=True)
    first, second = Network(), Network()
    assert scores(model_of(first, tmp_path), brain, intervals=True) == true
    # Two looks at the first two stimuli before anything, two before the pass, and one after it.
    assert first.shown == ROWS + 5 * 2
    once = {"time_bins": [(0, 9)]}
    binned = scores(model_of(second, tmp_path), brain, intervals=True, **once)
    assert binned == true and second.shown == 0


def test_a_layer_takes_eight_bytes_for_each_pair_of_stimuli(
    tmp_path: Path, brain: xr.DataArray
) -> None:
    scores(model_of(Network(), tmp_path), brain)
    sizes = {
        kind: [path.stat().st_size for path in files(tmp_path, kind)]
        for kind in ("grams", "activations", "layers")
    }
    headers = 2 * 8 * ROWS + 3 * 128 + 1500  # two vectors, heads of arrays, an index
    assert sum(sizes["grams"]) <= 2 * (8 * ROWS**2 + headers)
    assert len(sizes["activations"]) == 2, "the layer with fewer features than stimuli"
    assert max(sizes["activations"]) == 4 * ROWS * 8 <= 8 * ROWS**2
    assert sum(sizes["layers"]) < 3 * 1000


@pytest.mark.parametrize("kind", ["grams", "activations", "layers"])
def test_what_is_damaged_is_made_again(
    tmp_path: Path, brain: xr.DataArray, kind: str
) -> None:
    true = scores(model_of(Network(), tmp_path), brain)
    for path in files(tmp_path, kind):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    again = Network()
    assert scores(model_of(again, tmp_path), brain) == true
    assert (again.shown >= ROWS) == (kind != "layers")
    third = Network()
    assert scores(model_of(third, tmp_path), brain) == true
    assert third.shown == 0


def test_activations_are_recorded_where_they_are_asked_for(tmp_path: Path) -> None:
    network = Network()
    response = model_of(network, tmp_path).record(STIMULI_SHOWN, "maps")
    assert network.shown == 4 and response.shape == (ROWS, 90)
    expected = network(STIMULI_SHOWN, STIMULI_SHOWN.ids, ["maps"], Trial())["maps"]
    assert np.array_equal(response.values, expected.reshape(ROWS, 90))
    assert len(files(tmp_path, "activations")) == 2 * len(LAYERS)
    assert response["neuroid_id"].values[89] == "drawn.maps.89"
    assert response["channel_y"].values[7] == 1
    shown = network.shown
    matrix = gram(patterns(response, "source", []), Workspace()).K
    assert network.shown == shown, "the matrix is made from what is stored"
    assert np.array_equal(matrix, gram(np.asarray(response.values), Workspace()).K)


def test_more_than_is_held_in_memory_goes_through_a_file_that_does_not_stay(
    tmp_path: Path, brain: xr.DataArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = scores(model_of(Network(), None), brain)
    monkeypatch.setattr(activation_store, "HELD", 0)
    assert scores(model_of(Network(), tmp_path), brain) == true
    assert not [path for path in tmp_path.rglob("*.tmp") if path.is_file()]


def test_a_part_of_the_stimuli_needs_no_pass(tmp_path: Path) -> None:
    network = Network()
    response = model_of(network, tmp_path).record(STIMULI_SHOWN, "maps")
    rows = np.array([3, 30, 7, 11, 25, 0])
    part = part_of_rows(response, rows)
    assert list(part["stimulus_id"].values) == [STIMULI_SHOWN.ids[row] for row in rows]
    found = gram(patterns(part, "source", []), Workspace())
    shown = network.shown
    exact = gram(np.asarray(response.values)[rows], Workspace())
    assert shown == ROWS + 10
    for name in ("K", "mean_product", "mean_square"):
        np.testing.assert_allclose(
            getattr(found, name) + found.offset * 0,
            getattr(_with_offset(exact, found.offset), name),
            rtol=1e-9,
            atol=1e-9,
        )
    assert np.array_equal(part_of_rows(part, np.array([1])).values[0], response[30])


def _with_offset(exact: Any, offset: float) -> Any:
    """The same matrix with another number near the mean of all features."""
    from dataclasses import replace

    shift = exact.offset - offset
    level = exact.row_sum - exact.row_sum.mean()
    total = exact.row_sum.mean() * shift * 2 + exact.count * shift**2
    return replace(
        exact,
        mean_product=exact.mean_product + shift * level,
        mean_square=exact.mean_square + total,
        offset=offset,
    )


def test_a_layer_that_cannot_be_squared_stops_no_other(
    tmp_path: Path, brain: xr.DataArray
) -> None:
    class Huge(Network):
        def __call__(self, *asked: Any) -> dict[str, Any]:
            answers = super().__call__(*asked)
            return {
                name: np.float64(values) * (1e200 if name == "maps" else 1.0)
                for name, values in answers.items()
            }

    model = model_of(Huge(), tmp_path)
    units = model.record(STIMULI_SHOWN, "units")
    assert nl.metric("cka")(units, brain).value > 0
    maps = model.record(STIMULI_SHOWN, "maps")
    with pytest.raises(MetricError, match="too large to square"):
        gram(patterns(maps, "source", []), Workspace())
    small = model_of(Network(), None).record(STIMULI_SHOWN, "maps")
    for id in ("pls", "rdm", "cka"):
        huge, usual = (nl.metric(id)(side, brain).value for side in (maps, small))
        assert huge == pytest.approx(usual, rel=1e-9)


def test_deferred_values_are_those_of_arrays(tmp_path: Path) -> None:
    response = model_of(Network(), tmp_path).record(STIMULI_SHOWN, "units")
    data = response.data
    assert isinstance(data, Recorded) and data[:] is data
    assert isinstance(response.isel(presentation=slice(None)).data, Recorded)
    plain = response.copy(data=np.asarray(response.values))
    assert response.copy(deep=True).data is data
    assert (response + 1).equals(plain + 1)
    assert response.mean("presentation").equals(plain.mean("presentation"))
    assert response.isel(presentation=[2, 1]).equals(plain.isel(presentation=[2, 1]))
    assert response.astype(float).dtype == np.float64
    assert np.array_equal(np.concatenate([data, data]), np.tile(plain.values, (2, 1)))
    assert np.array_equal(pickle.loads(pickle.dumps(data)), plain.values)
    twice = model_of(Network(), tmp_path).record(
        STIMULI_SHOWN, "units", time_bins=[(0, 1), (1, 2)]
    )
    assert np.array_equal(twice.values[..., 1], plain.values)
    assert isinstance(twice.isel(time_bin=1).data, Recorded)


def test_without_a_memo_the_store_still_answers(tmp_path: Path) -> None:
    network = Network()
    response = model_of(network, tmp_path).record(STIMULI_SHOWN, "maps")
    bare = Workspace(memo=Memo(0))
    first = gram(patterns(response, "source", []), bare)
    shown = network.shown
    assert (gram(patterns(response, "source", []), bare).K == first.K).all()
    assert network.shown == shown


def test_a_model_in_memory_is_shown_the_stimuli_once_until_it_changes(
    tmp_path: Path, brain: xr.DataArray
) -> None:
    network = Network()
    here: dict[str, Any] = {"identity": lambda: {"process": "here"}}
    model = model_of(network, tmp_path, **here)
    true = scores(model_of(Network(), None), brain)
    assert scores(model, brain) == true
    assert not files(tmp_path, "grams"), "they are removed with the process"
    looks = 2 * len(LAYERS) * len(METRICS)
    assert network.shown < ROWS + 5 * 2 + 2 * looks
    network.shown = 0
    assert scores(model, brain) == true
    assert network.shown <= 2 * looks
    network.scale = -3.0
    network.shown = 0
    changed = model.record(STIMULI_SHOWN, "maps")
    workspace = Workspace()
    found = gram(patterns(changed, "source", []), workspace)
    assert network.shown > ROWS
    exact = model_of(Network(scale=-3.0), None).record(STIMULI_SHOWN, "maps")
    assert np.array_equal(found.K, gram(exact.values, workspace).K)
