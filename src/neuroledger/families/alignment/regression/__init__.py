"""Regressions from features to neuroids, each exact and in one file."""
