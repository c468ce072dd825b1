"""The leaderboard as a table.

A leaderboard is computed from the records, so no data are needed. `to_frame` gives a pandas table
with values and intervals.
"""

import neuroledger as nl

board = nl.leaderboard(suite="core")
table = board.to_frame()
print(table.iloc[:, :6].round(3).to_string(index=False))
nl.plot.heat_map(board)
