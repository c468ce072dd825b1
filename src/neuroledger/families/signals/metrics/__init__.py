"""Metrics of this family."""
