"""Shape or texture?

The images show the shape of one object with the texture of another. The share of shape is counted
over the answers that name either: people answer by the shape.
"""

import matplotlib.pyplot as plt

import neuroledger as nl

answers = nl.load("Geirhos2021.cue-conflict").assembly
conflict = answers[answers["truth"].values != answers["texture"].values]
table = conflict.to_series().to_frame("choice").reset_index()
table["person"] = conflict["subject"].values
table["shape"] = conflict.values == conflict["truth"].values
table["texture"] = conflict.values == conflict["texture"].values
named = table[table["shape"] | table["texture"]]
shares = named.groupby("person")["shape"].mean()
print(shares.round(3).to_string())
plt.figure(figsize=(5, 3))
plt.barh(shares.index, shares)
plt.xlabel("share of answers by shape")
