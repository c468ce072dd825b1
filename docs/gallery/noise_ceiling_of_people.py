"""The noise ceiling of an RDM.

Four people saw the same 92 images. The agreement of each with the mean of all bounds the score of
any model from above, the agreement with the mean of the others from below.
"""

import neuroledger as nl

rdms = nl.load("Kriegeskorte2008").assembly
people = rdms[rdms["species"].values == "human"]
for name in ("rsa_ceiling", "rsa_ceiling_lower"):
    print(f"{name}: {nl.ceiling(name)(people):.3f}")
