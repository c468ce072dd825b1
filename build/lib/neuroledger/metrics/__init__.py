"""Metrics: each compares two assemblies, or counts what a run cost."""
