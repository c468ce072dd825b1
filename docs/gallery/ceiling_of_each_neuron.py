"""Each neuron against its own ceiling.

A point is a neuron: how reliable it is, and how well the model predicts it. The line is the best
that any model can do.
"""

import neuroledger as nl

score = nl.score("pixels16", "Digits.simulated.V4-pls")
print(score)
nl.plot.reliability(score)
