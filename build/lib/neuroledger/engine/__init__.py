"""The engine: plan, present, evaluate, run, record."""
