"""Behaviour: trials, choices, errors and thresholds of people and of models."""
