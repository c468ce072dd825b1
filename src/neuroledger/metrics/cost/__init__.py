"""Costs: what a network's computation takes, read from the counts of one pass."""
