"""Values that overlap in memory are examined where they lie: a copy of them would be many times their size."""

from __future__ import annotations

import tracemalloc

import numpy as np
import xarray as xr

from neuroledger.data.gate import gx_tables as facts


def windows(samples: int = 20_000, bins: int = 200) -> xr.DataArray:
    counts = np.zeros((samples + bins - 1, 4), dtype=np.uint8)
    counts[17, 1], counts[9, 3] = 7, 2
    views = np.lib.stride_tricks.sliding_window_view(counts, bins, axis=0)
    return xr.DataArray(
        views,
        dims=("presentation", "neuroid", "time_bin"),
        coords={"neuroid_id": ("neuroid", ["a", "b", "c", "d"])},
    )


def test_range_type_and_variation_of_integers_need_no_copy():
    assembly = windows()
    assert assembly.nbytes == 16_000_000
    tracemalloc.start()
    held = facts.value_range(assembly).rows.iloc[0]
    varies = facts.sites(assembly, "neuroid").rows
    plain = facts.values(assembly).rows.iloc[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (held["lowest"], held["highest"]) == (0.0, 7.0)
    assert varies["varies"].tolist() == [False, True, False, True]
    assert (plain["dtype"], plain["missing"], plain["infinite"]) == ("uint8", 0, 0)
    assert peak < 1_000_000


def test_floats_are_examined_as_before():
    assembly = windows(50, 3).astype(np.float32)
    assembly.values[3, 1, 0] = np.nan
    held = facts.value_range(assembly).rows.iloc[0]
    assert (held["lowest"], held["highest"]) == (0.0, 7.0)
    assert facts.sites(assembly, "neuroid").rows["varies"].tolist() == [
        False,
        True,
        False,
        True,
    ]
