"""A leaderboard for a paper.

A leaderboard is exported as LaTeX, Markdown, CSV or JSON, with the intervals.
"""

import neuroledger as nl
from neuroledger.report.board import as_latex

board = nl.leaderboard(benchmarks=["Kriegeskorte2008.IT-rdm"])
print(as_latex(board))
