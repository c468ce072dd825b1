"""Do benchmarks rank models alike?

The figure shows the agreement of the rankings of each pair of benchmarks, over the models that both
scored.
"""

import neuroledger as nl

nl.plot.agreement(nl.leaderboard(suite="core"))
