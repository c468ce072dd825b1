"""Four metrics of the same pair.

A model that has the true features of a simulated brain, with more and more features that the brain
does not have. A readout ignores the additional features; a similarity does not.
"""

import matplotlib.pyplot as plt
import numpy as np

import neuroledger as nl

rng = np.random.default_rng(0)
features = rng.standard_normal((120, 20))
brain = features @ rng.standard_normal((20, 30)) + rng.standard_normal((120, 30))
more = [0, 20, 60, 120]
plt.figure(figsize=(5, 3))
for name in ("ridge", "pls", "rdm", "cka"):
    metric = nl.metric(name)
    models = [np.hstack([features, rng.standard_normal((120, n))]) for n in more]
    values = [metric(model, brain).value for model in models]
    print(name, np.round(values, 2))
    plt.plot(more, values, marker="o", label=name)
plt.xlabel("features that the brain does not have")
plt.ylabel("score")
plt.legend()
