"""Score responses that are stored in an array.

Responses of any system, computed anywhere, become a model: one row for each stimulus, with its id.
Here the features are the mean intensities of the image in a grid of 6 × 6 fields.
"""

import io

import numpy as np
import xarray as xr
from PIL import Image

import neuroledger as nl

stimuli = nl.load("Kriegeskorte2008").stimuli
grids = [
    np.asarray(Image.open(io.BytesIO(content)).convert("L").resize((6, 6))).ravel()
    for content in stimuli.read(stimuli.ids)
]
features = xr.DataArray(
    np.stack(grids).astype(float),
    dims=("presentation", "neuroid"),
    coords={
        "stimulus_id": ("presentation", list(stimuli.ids)),
        "neuroid_id": ("neuroid", np.arange(36)),
    },
)
model = nl.models.responses(features, id="grid")
print(nl.score(model, "Kriegeskorte2008.IT-rdm"))
