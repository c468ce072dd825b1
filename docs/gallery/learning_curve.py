"""How much data does a decoder need?

The rule `learning_curve` trains on growing parts of each training set and tests on the same
windows.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression

import neuroledger as nl

recordings = nl.load("MotorImagery.simulated").assembly
power = np.log(recordings.var("sample").values)
power += 1.5 * np.random.default_rng(0).standard_normal(power.shape)
facts = {name: recordings[name].values for name in ("subject", "session", "trial")}
score = nl.decode(
    LogisticRegression(),
    power,
    recordings["label"].values,
    groups=facts,
    train="each",
    splits={"name": "learning_curve", "sizes": [0.2, 0.5, 1.0], "permutations": 2},
)
results = nl.decoding.table({"power": score})
print(results.groupby("samples")["score"].mean().round(3).to_string())
nl.plot.learning_curve(results)
