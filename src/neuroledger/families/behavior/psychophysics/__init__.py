"""Psychometric functions and their thresholds."""
