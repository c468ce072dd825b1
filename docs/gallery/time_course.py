"""A score over time.

Each time bin after stimulus onset is predicted on its own, so the score and its ceiling are curves.
"""

import neuroledger as nl

score = nl.score("small_cnn.digits", "Digits.simulated.time.IT-ridge")
print(score)
nl.plot.time(score)
