"""Which pipeline decodes better?

Two pipelines are compared within each subject: a paired, one-sided test by data set, and Stouffer's
test over data sets.
"""

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier

import neuroledger as nl

recordings = nl.load("MotorImagery.simulated").assembly
power = np.log(recordings.var("sample").values)
labels, people = recordings["label"].values, recordings["subject"].values
pipelines = {"LDA": LinearDiscriminantAnalysis(), "guess": DummyClassifier()}
scores = {
    name: nl.decode(each, power, labels, groups=people)
    for name, each in pipelines.items()
}
results = nl.decoding.table(scores, dataset="simulated")
print(nl.decoding.statistics(results).to_string(index=False))
nl.plot.forest(results, "LDA", "guess")
