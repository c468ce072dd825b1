"""Behavior: whether a model decides as people do."""
