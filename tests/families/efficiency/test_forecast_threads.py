"""A chaotic forecast is identical to the last bit for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from neuroledger.data.load import load_dataset
from neuroledger.families.efficiency.models.echo_state import echo_state
from neuroledger.families.efficiency.networks.answers import forecast
from neuroledger.spec.catalog import open_catalog


def forecasts(assembly, threads):
    before = torch.get_num_threads()
    with threadpool_limits(threads):
        torch.set_num_threads(threads)
        try:
            arguments = (echo_state(id="echo"), assembly, ("operations",), "strict")
            result, counted = forecast(
                *arguments, train=750, test=300, windows=2, stride=75.0, per_time=75.0
            )
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
    return result.source.values, counted.layers


@pytest.mark.slow
def test_forecasts_do_not_depend_on_the_number_of_threads(repository):
    assembly = load_dataset(open_catalog(repository), "MackeyGlass").assembly[:1]
    (one, costs), (two, again) = forecasts(assembly, 1), forecasts(assembly, 2)
    np.testing.assert_array_equal(one, two)
    assert costs == again
