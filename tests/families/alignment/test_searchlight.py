"""Searchlights: members by brute force, each as the measure itself, where the signal is, and maps as files."""

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import MetricError, NeuroLedgerError, RequestError
from neuroledger.families.alignment.space.maps import gifti, nifti
from neuroledger.families.alignment.space.searchlights import Lights, spacing
from tests.families.alignment.neural_cases import assembly


def volume(shape=(6, 5, 4), *, signal=(), rows=14, seed=0):
    """A model and a brain of voxels 2 mm apart, of which those in ``signal`` follow the model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 10))
    index = np.array(np.unravel_index(np.arange(np.prod(shape)), shape)).T
    Y = rng.standard_normal((rows, len(index)))
    chosen = list(signal)
    Y[:, chosen] += 2 * X @ rng.standard_normal((10, len(chosen)))
    x, y, z = (2.0 * index).T
    side = np.where(index[:, 0] < shape[0] // 2, "left", "right")
    places = {"x": x, "y": y, "z": z, "side": side}
    brain = assembly(Y).assign_coords({n: ("neuroid", v) for n, v in places.items()})
    return assembly(X), brain


@pytest.mark.parametrize("within", [None, "side"])
def test_members_are_the_neuroids_within_the_radius(within):
    _, brain = volume()
    places = np.stack([brain[axis].values for axis in "xyz"], axis=1)
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    found = Lights(radius=3.0, within=within, fewest=3).members(brain)
    for centre, members in enumerate(found):
        near = distance[centre] <= 3
        if within:
            near &= brain["side"].values == brain["side"].values[centre]
        assert members.tolist() == np.flatnonzero(near).tolist()
    adaptive = Lights(neighbours=9, within=within).members(brain)
    for centre, members in enumerate(adaptive):
        assert len(members) == 9
        assert centre in members
        own = distance[centre]
        if within:
            own = np.where(brain["side"] == brain["side"][centre], own, np.inf)
        assert own[members].max() == pytest.approx(np.sort(own)[8])
    assert spacing(places) == pytest.approx(2.02)


def test_each_searchlight_has_the_value_of_the_measure():
    model, brain = volume((3, 3, 2))
    lights = {"neighbours": 6, "radius": None}
    score = nl.metric("rdm_searchlight", lights=lights)(model, brain)
    members = Lights(neighbours=6).members(brain)
    expected = [nl.metric("rdm")(model, brain.isel(neuroid=m)).value for m in members]
    np.testing.assert_allclose(score.samples.values, expected)
    assert score.value == pytest.approx(np.mean(expected))
    assert score.low < score.value < score.high


def test_the_signal_is_found_where_it_is():
    shape = (5, 3, 2)
    block = [np.ravel_multi_index(v, shape) for v in np.ndindex(2, 2, 2)]
    model, brain = volume(shape, signal=block)
    score = nl.metric(
        "rdm_searchlight",
        measure={"name": "cka"},
        lights={"neighbours": 6},
        interval={"over": ["stimulus"]},
        permutations=25,
    )(model, brain)
    samples = score.samples
    assert (samples["cluster_p"].values[block] <= 0.05).all()
    far = samples["x"].values > 4
    assert not (samples["cluster_p"].values[far] <= 0.05).any()
    assert samples.values[block].mean() > samples.values[far].mean() + 0.3
    assert "discovered at a false discovery rate of 5 %" in score.notes[-1]


def test_a_searchlight_with_two_voxels_is_refused():
    model, brain = volume((8, 2, 1))
    metric = nl.metric("rdm_searchlight", lights={"radius": 2.5, "neighbours": None})
    with pytest.raises(MetricError, match="16 of 16 searchlights have fewer than 5"):
        metric(model, brain)
    two = brain.isel(neuroid=[0, 1])
    with pytest.raises(MetricError, match="neuroid 0 only 2, and patterns of so few"):
        nl.metric("rdm_searchlight", lights={"neighbours": 5})(model, two)
    for wrong in ({"radius": 2.0}, {"neighbours": None}):
        with pytest.raises(NeuroLedgerError, match="give `radius`, or `neighbours`"):
            nl.metric("rdm_searchlight", lights=wrong)
    with pytest.raises(MetricError, match="no coordinate 'z'; a searchlight needs"):
        nl.metric("rdm_searchlight")(model, brain.drop_vars("z"))
    with pytest.raises(MetricError, match="'area', which `within` names"):
        nl.metric("rdm_searchlight", lights={"within": "area"})(model, brain)


def test_maps_are_read_back(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    _, brain = volume()
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    affine[:3, 3] = -4
    places = np.stack([brain[axis].values for axis in "xyz"], axis=1)[:20] - 4
    values = np.arange(20.0)
    image = nibabel.load(nifti(values, places, affine, (6, 5, 4), tmp_path / "m.nii"))
    data = image.get_fdata()
    np.testing.assert_array_equal(data.ravel()[:20], values)
    assert np.isnan(data.ravel()[20:]).all()
    np.testing.assert_array_equal(image.affine, affine)
    read = nibabel.load(gifti(values, tmp_path / "m.shape.gii"))
    np.testing.assert_array_equal(read.darrays[0].data, values)
    for wrong, message in (
        (places + 1, "between voxels"),
        (places - 2, "outside"),
        (places[[0] * 20], "two values"),
    ):
        with pytest.raises(RequestError, match=message):
            nifti(values, wrong, affine, (6, 5, 4), tmp_path / "m.nii")


def test_values_of_vertices_are_drawn_on_a_brain(tmp_path):
    pytest.importorskip("nilearn")
    from neuroledger.families.alignment.space.figures import fsaverage

    values = np.full(10_242, np.nan)
    values[:500] = 1.0
    ax = fsaverage(values)
    assert ax.data["value"][0] == 1.0
    assert nl.plot.save(ax, tmp_path / "brain.png").stat().st_size > 10_000
    with pytest.raises(RequestError, match="10242 vertices in a hemisphere"):
        fsaverage(values[:5])
