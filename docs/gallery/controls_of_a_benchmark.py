"""The controls of a benchmark.

Noise must score nothing and a positive control must reach the ceiling; otherwise the benchmark does
not measure what it states.
"""

import neuroledger as nl

board = nl.leaderboard(suite="core")
nl.plot.controls("Digits.simulated.IT-ridge", board)
