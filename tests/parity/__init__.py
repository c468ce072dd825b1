"""Parity tests: the same simulated packages are scored by Brain-Score's own code and by ours (`make parity`)."""
