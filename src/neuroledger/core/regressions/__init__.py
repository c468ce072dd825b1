"""Readouts from features to targets, each exact, fast and in one file."""
