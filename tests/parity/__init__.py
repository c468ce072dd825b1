"""The same made-up packages, scored by Brain-Score's own code and by ours: `make parity`."""
