"""Decode your own recordings.

Any scikit-learn estimator is trained on all subjects but one and tested on that one. With shuffled
labels the same procedure must be at chance.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neuroledger as nl

recordings = nl.load("MotorImagery.simulated").assembly
power = np.log(recordings.var("sample").values)
labels, people = recordings["label"].values, recordings["subject"].values
linear = make_pipeline(StandardScaler(), LogisticRegression())
print(nl.decode(linear, power, labels, groups=people))
print(nl.decode(linear, power, labels, groups=people, shuffle_labels=True))
