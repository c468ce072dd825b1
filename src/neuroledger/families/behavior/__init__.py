"""Behavior: compare the decisions of models with those of people."""
