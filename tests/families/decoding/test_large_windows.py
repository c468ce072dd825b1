"""Tests of windows that exceed the memory: the same predictions as from an array, with only parts in memory."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr

from neuroledger.data import memory
from neuroledger.data.assembly import content_sha256
from neuroledger.data.gate import gx_tables as facts
from neuroledger.data.memory import LazyRows
from neuroledger.errors import LimitError
from neuroledger.families.decoding.models.classical_decoders import (
    cospectra_decoder,
    covariance_decoder,
    dummy_decoder,
    shrinkage_lda,
    sklearn_decoder,
)
from neuroledger.families.decoding.models.network_decoders import network_decoder
from neuroledger.families.decoding.paradigms.decoding import measure_folds
from neuroledger.families.decoding.pipelines.declare import declared_step
from neuroledger.families.decoding.protocols import fold_windows, leakage_checks
from neuroledger.families.decoding.protocols.decoder import Decoder
from neuroledger.families.decoding.protocols.fold_windows import (
    mean_and_spread,
    quartiles,
)
from neuroledger.families.decoding.protocols.leakage_checks import gate
from neuroledger.families.decoding.protocols.splits import Fold
from neuroledger.families.decoding.training import linear_heads
from neuroledger.families.decoding.training.decoding_recipes import Laptop
from neuroledger.families.signals.signals import check, digests
from tests.families.decoding.decoding_cases import windows

TINY = 1 << 12


@pytest.fixture
def views(monkeypatch):
    """From now on, everything above 4 KiB is large, and blocks are of that size."""

    def begin():
        for module in (fold_windows, linear_heads, memory):
            monkeypatch.setattr(module, "WHOLE", TINY)
        monkeypatch.setattr(memory, "BLOCK", TINY)

    return begin


def mapped(assembly: xr.DataArray, path) -> xr.DataArray:
    """The same assembly with its values in a read-only memory map."""
    np.save(path, assembly.values)
    return assembly.copy(data=np.load(path, mmap_mode="r"))


def folds(count: int) -> list[Fold]:
    rows = np.arange(count)
    parts = (rows[rows % 3 == 0], rows[rows % 3 == 1], rows[rows % 3 == 2])
    return [Fold(*parts), Fold(parts[1], np.empty(0, dtype=np.intp), parts[0])]


def predicted(
    decoder: Decoder, assembly: xr.DataArray, objective="classification"
) -> xr.DataArray:
    truth = (
        assembly["label"].values
        if objective == "classification"
        else assembly["number"].values
    )
    rng = np.random.default_rng(0)
    return measure_folds(
        decoder,
        assembly,
        truth,
        folds(len(truth)),
        objective=objective,
        seeds=(33,),
        rng=rng,
    ).source


SHORT = Laptop(epochs=2, batch=16)
DECODERS = [
    (dummy_decoder(id="dummy"), "classification"),
    (covariance_decoder(id="covariance"), "classification"),
    (covariance_decoder(id="fewer", most=40, plants=0.5), "classification"),
    (
        covariance_decoder(id="ridge", head=declared_step("ridge_search"), plants=0.5),
        "regression",
    ),
    (cospectra_decoder(id="cospectra", window=16, low=1.0, high=8.0), "classification"),
    (shrinkage_lda(id="lda", every=4, shuffles_labels=True), "classification"),
    (
        sklearn_decoder(id="sklearn", path="sklearn.linear_model.LogisticRegression"),
        "classification",
    ),
    (network_decoder(id="net", architecture="eegnet", recipe=SHORT), "classification"),
    (network_decoder(id="number", architecture="eegnet", recipe=SHORT), "regression"),
    (
        network_decoder(
            id="standard",
            architecture="shallow_fbcsp_net",
            parameters={"pool": 16, "stride": 8, "filters": 4},
            recipe=SHORT.model_copy(update={"scale": "none"}),
        ),
        "classification",
    ),
]


@pytest.mark.parametrize(
    ("decoder", "objective"), DECODERS, ids=[f"{d.id}-{o}" for d, o in DECODERS]
)
def test_predictions_from_a_view_are_those_from_an_array(
    decoder, objective, views, tmp_path
):
    assembly = windows(
        subjects=4, trials=30, samples=64, rate=32.0, strength=0.4
    ).astype(np.float32)
    if decoder.id in (
        "fewer",
        "ridge",
    ):  # the planted signal's size is added up in another order
        assembly = assembly.astype(np.float64)
    from_array = predicted(decoder, assembly, objective)
    views()
    from_view = predicted(decoder, mapped(assembly, tmp_path / "values.npy"), objective)
    if decoder.id in ("dummy", "net", "number", "standard"):
        assert from_view.identical(from_array)
    else:  # products of matrices of fewer rows are rounded otherwise
        np.testing.assert_allclose(
            from_view.values, from_array.values, rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("classes", ["all", "rarest"])
def test_xdawn_of_a_view_differs_by_rounding_only(classes, views, tmp_path):
    decoder = covariance_decoder(id="xdawn", xdawn=2, xdawn_classes=classes)
    assembly = windows(subjects=4, trials=30, samples=64, rate=32.0, strength=0.4)
    from_array = predicted(decoder, assembly)
    views()
    from_view = predicted(decoder, mapped(assembly, tmp_path / "values.npy"))
    np.testing.assert_allclose(from_view.values, from_array.values, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(7, 3, 5), (50, 4, 30), (1, 2, 1), (2, 2, 1), (33, 80, 3), (101, 5, 1)]
)
def test_quartiles_of_a_view_are_those_of_numpy_to_the_last_bit(shape, dtype, views):
    views()
    rng = np.random.default_rng(1)
    for scale in (1e-3, 1.0, 1e4):
        values = (rng.standard_normal(shape) * scale).astype(dtype)
        values[::3] = np.round(values[::3])  # ties, and zeros of both signs
        view = LazyRows(values, np.arange(len(values)))
        assert np.array_equal(
            quartiles(view), np.percentile(values, [25, 50, 75], axis=(0, 2))
        )
        mean, spread = mean_and_spread(view)
        np.testing.assert_allclose(
            mean, values.mean(axis=(0, 2), dtype=float), rtol=1e-6, atol=1e-7 * scale
        )
        np.testing.assert_allclose(
            spread, values.std(axis=(0, 2), dtype=float), rtol=1e-6
        )


def test_an_estimator_that_needs_all_windows_in_memory_is_refused_with_their_size(
    views, tmp_path, monkeypatch
):
    class Own:
        def fit(self, x, y):
            assert isinstance(x, np.ndarray)
            self.answer = y[0]
            return self

        def predict(self, x):
            return np.repeat(self.answer, len(x))

    views()
    decoder = Decoder(id="own", make=lambda signature: Own())
    assembly = mapped(windows(subjects=4, trials=30), tmp_path / "values.npy")
    assert set(predicted(decoder, assembly).values.sum(axis=1)) == {1.0}
    monkeypatch.setattr("neuroledger.data.memory.available_bytes", lambda: 10_000)
    with pytest.raises(
        LimitError,
        match=r"decoder 'own', which takes 80 windows as one array, needs about 0\.0 GiB",
    ):
        predicted(decoder, assembly)


@pytest.mark.slow
def test_windows_on_the_disk_are_never_in_memory_all_at_once(
    views, tmp_path, monkeypatch
):
    """Peak of memory that Python and NumPy take (the map itself is not counted), against the size of the windows."""
    rng = np.random.default_rng(0)
    count, channels, samples = 200, 16, 1024  # 13.1 MB
    values = np.lib.format.open_memmap(
        tmp_path / "values.npy",
        mode="w+",
        dtype=np.float32,
        shape=(count, channels, samples),
    )
    for row in range(count):
        values[row] = rng.standard_normal((channels, samples))
    values.flush()
    small = windows(
        subjects=4, trials=50, channels=channels, samples=samples, rate=1024.0
    )
    assembly = small.copy(data=np.load(tmp_path / "values.npy", mmap_mode="r"))
    del small, values
    monkeypatch.setattr(memory, "BLOCK", 1 << 18)
    monkeypatch.setattr(leakage_checks, "IN_MEMORY", 1 << 14)
    monkeypatch.setattr(fold_windows, "COUNTERS", 1 << 12)
    for module in (fold_windows, linear_heads, memory):
        monkeypatch.setattr(module, "WHOLE", 1 << 18)
    (fold, _) = folds(count)
    truth = assembly["label"].values
    network = network_decoder(
        id="net", architecture="eegnet", recipe=Laptop(epochs=1, batch=4)
    )
    steps = {
        "conventions": lambda: check(assembly),
        "content": lambda: content_sha256(assembly),
        "digests": lambda: digests(assembly),
        "gates": lambda: gate([fold], assembly),
        "finite": lambda: facts.values(assembly),
        "range": lambda: facts.value_range(assembly),
        "sites": lambda: facts.sites(assembly, "channel"),
        "dummy": lambda: predicted(dummy_decoder(id="dummy"), assembly),
        "covariance": lambda: predicted(covariance_decoder(id="covariance"), assembly),
        "network": lambda: predicted(network, assembly),
        "planted": lambda: predicted(
            covariance_decoder(id="planted", plants=1.0), assembly
        ),
    }
    assert len(truth) == count
    peaks = {}
    for name, step in steps.items():
        if name in ("covariance", "network"):
            step()  # what is imported the first time is not the windows'
        tracemalloc.start()
        step()
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    bound = assembly.nbytes // 4
    assert {name: peak for name, peak in peaks.items() if peak > bound} == {}
