"""Dissimilarity matrices of two regions.

The same 100 images in two simulated regions, ordered by the digit that they show: the blocks of IT
are the objects.
"""

import neuroledger as nl
from neuroledger.data.assembly import average_repetitions

responses = average_repetitions(nl.load("Digits.simulated").assembly)[::5]
regions = {
    name: responses[:, responses["region"].values == name] for name in ("V4", "IT")
}
nl.plot.rdm(regions, by="object_name")
