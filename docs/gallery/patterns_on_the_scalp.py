"""Where is the signal? Patterns on the scalp.

The weights of a linear decoder are not its sources. Its activation patterns are: here two channels
carry the signal.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression

import neuroledger as nl

rng = np.random.default_rng(0)
angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
positions = 0.08 * np.column_stack([np.cos(angles), np.sin(angles)])
labels = np.tile(["left", "right"], 100)
signal = np.outer(np.where(labels == "left", -1, 1), np.exp(-((angles - 1) ** 2)))
common = rng.standard_normal((200, 1))
windows = signal + common + rng.standard_normal((200, 12))
fitted = LogisticRegression().fit(windows, labels)
weights, patterns = fitted.coef_.ravel(), nl.decoding.patterns(fitted, windows).ravel()
scaled = np.stack([each / np.abs(each).max() for each in (weights, patterns)])
nl.plot.topography(scaled, positions, titles=("weights", "patterns"))
