"""How many repetitions does a recording need?

The consistency of two halves of the trials bounds every model. It rises with the number of
repetitions: here simulated neurons with a known ceiling.
"""

import matplotlib.pyplot as plt

import neuroledger as nl

responses = nl.load("Digits.simulated").assembly
it = responses[:, responses["region"].values == "IT"]
counts = [2, 4, 6, 8]
ceilings = [
    nl.ceiling("internal_consistency")(it[it["repetition"].values < count])
    for count in counts
]
for count, ceiling in zip(counts, ceilings, strict=True):
    print(f"{count} repetitions: {ceiling:.3f}")

plt.figure(figsize=(5, 3))
low = [each.value - each.low for each in ceilings]
high = [each.high - each.value for each in ceilings]
plt.errorbar(counts, [each.value for each in ceilings], [low, high], marker="o")
plt.xlabel("repetitions of each image")
plt.ylabel("ceiling (correlation)")
