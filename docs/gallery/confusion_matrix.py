"""A confusion matrix.

The score of a decoder keeps every prediction with its truth, so that the errors can be looked at.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression

import neuroledger as nl

recordings = nl.load("MotorImagery.simulated").assembly
power = np.log(recordings.var("sample").values)
score = nl.decode(
    LogisticRegression(),
    power,
    recordings["label"].values,
    groups=recordings["subject"].values,
)
print(score)
nl.plot.confusion(score)
