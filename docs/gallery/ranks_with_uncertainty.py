"""Ranks with their uncertainty.

A rank is a set: the places that a model can have, jointly for all models with 95 % confidence.
"""

import neuroledger as nl

board = nl.leaderboard(suite="real")
nl.plot.ranks(board)
