"""A psychometric function and its threshold.

Simulated observers name digits at four contrasts. The curve is fitted by maximum likelihood with a
lapse rate.
"""

import matplotlib.pyplot as plt
import numpy as np

import neuroledger as nl
from neuroledger.families.behavior.psychophysics.psychometric import accuracies, fit

answers = nl.load("Digits.simulated.naming").assembly
contrast = np.array([int(name[1:]) / 100 for name in answers["condition"].values])
right = (answers == answers["truth"]).values
levels, shares = accuracies(contrast, right)
found = fit(levels, shares, guess=0.1)
threshold = found.inverse(0.5)
print(f"half of the answers are correct at a contrast of {threshold:.3f}")

plt.figure(figsize=(5, 3))
plt.plot(levels, shares, "o")
line = np.geomspace(0.05, 1, 100)
plt.plot(line, found(line))
plt.xscale("log")
plt.xlabel("contrast")
plt.ylabel("share of correct names")
