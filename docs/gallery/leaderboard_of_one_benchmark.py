"""One benchmark with floor and ceiling.

Each bar is a model with its interval. The band is the ceiling as measured, the line the best
negative control.
"""

import neuroledger as nl

board = nl.leaderboard(suite="real")
nl.plot.bars("Cowley2023.210325.V4-ridge", board)
