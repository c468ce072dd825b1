"""Your own metric.

A metric is a function of two assemblies with a decorator. This one compares how many dimensions the
responses of two systems span. It takes the place of the comparison in an existing spec; a file in
`specs/metrics` would give it an id of its own.
"""

import numpy as np
import xarray as xr

import neuroledger as nl
from neuroledger.spec.registry import metric


def dimensions(responses: xr.DataArray) -> float:
    """Participation ratio of the covariance of (presentation, neuroid) responses."""
    spread = np.linalg.svd(responses - responses.mean("presentation"), compute_uv=False)
    return float((spread**2).sum() ** 2 / (spread**4).sum())


@metric("same_dimensions", version=1)
def same_dimensions(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Ratio of the smaller to the larger number of dimensions: 1 if both are equal."""
    smaller, larger = sorted([dimensions(source), dimensions(target)])
    return xr.DataArray(smaller / larger)


responses = nl.load("Digits.simulated").assembly
v4 = responses[:, responses["region"].values == "V4"]
it = responses[:, responses["region"].values == "IT"]
print(f"V4 {dimensions(v4):.1f} dimensions, IT {dimensions(it):.1f}")
print(f"ratio {float(same_dimensions(v4, it)):.3f}")
