"""The Gram matrix is exact for any type, location and size of the features, and is computed once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroledger.errors import MetricError, UnavailableError
from neuroledger.families.alignment.similarity import gram as module
from neuroledger.families.alignment.similarity.gram import features, gram
from neuroledger.stats import workspace as workspaces
from neuroledger.stats.workspace import Memo, Workspace, fingerprint
from neuroledger.store.hashes import hashed
from neuroledger.store.store import Store
from tests.devices import DEVICES


def centred(X: np.ndarray) -> np.ndarray:
    X = np.asarray(X, np.float64)
    return X - X.mean(axis=0)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 40),
    st.integers(1, 90),
    st.sampled_from([0.0, 1e3, 1e6]),
    st.sampled_from(DEVICES),
)
def test_equals_the_product_of_centred_features(rows, count, offset, device):
    X = (
        np.random.default_rng(rows * 100 + count).standard_normal((rows, count))
        + offset
    )
    workspace = Workspace(device=device)
    found = gram(X, workspace).on_host(workspace)
    expected = centred(X) @ centred(X).T
    np.testing.assert_allclose(found.K, expected, atol=1e-12 * count + 2e-14 * offset)
    level = X - found.offset
    np.testing.assert_allclose(
        found.row_sum,
        level.sum(axis=1),
        rtol=1e-12,
        atol=1e-10 + 1e-14 * offset * count,
    )
    raw = found.K + found.mean_product[:, None] + found.mean_product + found.mean_square
    np.testing.assert_allclose(
        raw, level @ level.T, rtol=1e-11, atol=1e-9 + 1e-14 * offset * count
    )


def test_blocks_and_memory_maps_change_nothing(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((30, 500)).astype(np.float32)
    np.save(tmp_path / "features.npy", X)
    whole = gram(X, Workspace()).K
    monkeypatch.setattr(module, "BLOCK", 64)
    mapped = gram(np.load(tmp_path / "features.npy", mmap_mode="r"), Workspace()).K
    np.testing.assert_allclose(mapped, whole, atol=1e-12)
    np.testing.assert_allclose(whole, centred(X) @ centred(X).T, atol=1e-11)


def test_single_precision_blocks_stay_within_their_stated_error():
    X = np.random.default_rng(0).standard_normal((50, 3000))
    exact = gram(X, Workspace()).K
    single = gram(X, Workspace(dtype="float32")).K
    error = np.abs(single - exact).max() / np.abs(exact).max()
    assert 0 < error < 1e-6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "kind", [">f4", ">f8", ">i2", "<u2", "<u4", "<u8", "?", "longdouble"]
)
def test_any_kind_of_number_in_any_byte_order(kind, device):
    """As netCDF's classic files and old recordings hold them."""
    X = np.random.default_rng(0).integers(0, 200, (20, 300)).astype(kind)
    workspace = Workspace(device=device)
    K = gram(X, workspace).on_host(workspace).K
    np.testing.assert_allclose(K, centred(X) @ centred(X).T, rtol=1e-12, atol=1e-6)


def test_integers_and_half_precision_are_widened():
    X = np.random.default_rng(0).integers(0, 255, (20, 300)).astype(np.uint8)
    np.testing.assert_allclose(
        gram(X, Workspace()).K, centred(X) @ centred(X).T, rtol=1e-12
    )
    H = X.astype(np.float16)
    np.testing.assert_allclose(
        gram(H, Workspace()).K, centred(X) @ centred(X).T, rtol=1e-12
    )


def test_the_same_bits_every_time():
    X = np.random.default_rng(0).standard_normal((64, 5000))
    assert (gram(X, Workspace()).K == gram(X.copy(), Workspace()).K).all()


def test_is_cached_by_content():
    workspace = Workspace()
    X = np.random.default_rng(0).standard_normal((10, 20))
    first = gram(X, workspace)
    assert gram(X.copy(), workspace) is first
    X[3, 4] += 1e-9
    assert gram(X, workspace) is not first


def test_read_only_memory_is_hashed_once(monkeypatch):
    hashed = []
    once = workspaces.fingerprint
    monkeypatch.setattr(
        workspaces, "fingerprint", lambda values: hashed.append(1) or once(values)
    )
    workspace = Workspace()
    X = np.random.default_rng(0).standard_normal((10, 20))
    view = X[:]
    view.flags.writeable = False
    first = gram(view, workspace)
    X[0, 0] += 1.0  # the owner of the view is still writeable
    assert gram(view, workspace) is not first
    assert len(hashed) == 2
    X.flags.writeable = False
    for _ in range(3):
        gram(X, workspace)
        gram(X[:], workspace)
    assert len(hashed) == 3


def test_the_memo_forgets_the_least_recently_used():
    memo = Memo(limit=20)
    for name in "ab":
        memo.get((name,), lambda: object(), lambda _: 10)
    kept = memo.get(("a",), lambda: None, lambda _: 10)
    memo.get(("c",), lambda: object(), lambda _: 10)
    assert memo.get(("a",), lambda: None, lambda _: 10) is kept
    assert memo.get(("b",), lambda: "new", lambda _: 10) == "new"


@pytest.mark.parametrize("shape", [(20, 200), (200, 20)])
def test_the_operator_is_the_same_tall_or_wide(shape):
    X = np.random.default_rng(0).standard_normal(shape)
    operator = features(X, Workspace())
    assert (operator.K is None) == (shape[0] > shape[1])
    B = np.random.default_rng(1).standard_normal((shape[0], 3))
    K = centred(X) @ centred(X).T
    rows, columns = np.array([3, 1]), np.array([0, 7, 19])
    np.testing.assert_allclose(operator.times(B), K @ B, atol=1e-9)
    np.testing.assert_allclose(
        operator.block(rows, columns), K[np.ix_(rows, columns)], atol=1e-9
    )
    np.testing.assert_allclose(
        operator.times_of(columns, B[:3]), K[:, columns] @ B[:3], atol=1e-9
    )
    assert operator.trace == pytest.approx(np.trace(K))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(10, 30), (30, 10)])
@pytest.mark.parametrize("level", [0.0, 1.0, 0.1, 1e6 + 0.1])
def test_features_that_do_not_vary_have_no_gram_matrix(level, shape, device):
    workspace = Workspace(device=device)
    assert (gram(np.full(shape, level), workspace).on_host(workspace).K == 0).all()
    assert features(np.full(shape, level), workspace).trace == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(10, 30), (30, 10)])
def test_missing_features_are_refused(shape, device):
    X = np.random.default_rng(0).standard_normal(shape)
    X[2, 3] = np.nan
    with pytest.raises(MetricError, match="missing or infinite"):
        features(X, Workspace(device=device))


def test_a_missing_device_is_reported():
    import torch

    if torch.cuda.is_available():
        assert Workspace(device="cuda").xp is torch
    else:
        with pytest.raises(UnavailableError, match="not available here"):
            _ = Workspace(device="cuda").xp


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_stored_gram_matrix_has_the_bits_of_a_computed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    """In the process that computed it and in one that reads it, where nothing is multiplied again."""
    monkeypatch.setattr(module, "WORTH_KEEPING", 1000)
    X = np.random.default_rng(1).normal(size=(40, 3000)).astype(np.float32)
    plain = gram(X, Workspace(dtype=dtype))
    store = Store(tmp_path)
    first = gram(X, Workspace(dtype=dtype, store=store))
    assert len(store.entries()) == 1
    computed = module.gram_numpy
    monkeypatch.setattr(module, "gram_numpy", lambda *_: pytest.fail("computed again"))
    again = gram(X, Workspace(dtype=dtype, store=store))
    for found in (first, again):
        for name in ("K", "mean_product", "row_sum"):
            one, two = getattr(plain, name), getattr(found, name)
            assert (
                one.tobytes() == two.tobytes()
                and one.flags.c_contiguous == two.flags.c_contiguous
            )
        assert (found.mean_square, found.offset, found.count) == (
            plain.mean_square,
            plain.offset,
            plain.count,
        )
    monkeypatch.setattr(module, "gram_numpy", computed)
    (entry,) = store.entries()
    content = bytearray((entry.place / "K.npy").read_bytes())
    content[200] ^= 1
    (entry.place / "K.npy").write_bytes(content)
    assert gram(X, Workspace(dtype=dtype, store=store)).K.tobytes() == plain.K.tobytes()
    changed = X.copy()
    changed[3, 5] += 1
    assert (
        gram(changed, Workspace(dtype=dtype, store=store)).K.tobytes()
        != plain.K.tobytes()
    )


def test_fast_matrices_and_full_disks_are_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(1).normal(size=(40, 3000))
    store = Store(tmp_path / "store")
    expected = gram(X, Workspace(store=store)).K
    assert store.entries() == []
    monkeypatch.setattr(module, "WORTH_KEEPING", 1000)
    (tmp_path / "file").write_text("no folder")
    for full in (
        Store(tmp_path / "store", limit=100),
        Store(tmp_path / "file" / "store"),
    ):
        assert gram(X, Workspace(store=full)).K.tobytes() == expected.tobytes()
        assert full.entries() == []


def test_stored_activations_are_not_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroledger.stats import workspace

    values = np.random.default_rng(1).normal(size=(6, 4, 5))
    path = tmp_path / "values.bin"
    path.write_bytes(values.tobytes())
    known = fingerprint(values.reshape(6, 20))
    mapped = np.memmap(path, dtype=values.dtype, mode="r", shape=values.shape)
    hashed(path)
    monkeypatch.setattr(workspace, "fingerprint", lambda _: pytest.fail("read again"))
    assert Memo().fingerprint(mapped.reshape(6, 20)) == known
    monkeypatch.undo()
    assert Memo().fingerprint(mapped.reshape(6, 20)[:3]) == fingerprint(
        values.reshape(6, 20)[:3]
    )
