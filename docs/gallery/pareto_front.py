"""Score against cost.

The models that no other model beats in both score and cost form the Pareto front. Both numbers come
from the records.
"""

from neuroledger.report.pareto import pareto, pareto_figure

table = pareto("Digits.spikes-accuracy", "energy_45nm")
print(table[["model", "score", "reads", "front"]].to_string(index=False))
pareto_figure(table)
