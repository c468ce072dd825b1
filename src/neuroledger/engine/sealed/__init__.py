"""Sealed benchmarks: the owner keeps the answers, and every look at them is recorded."""
