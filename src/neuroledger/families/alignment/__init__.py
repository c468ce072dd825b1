"""Alignment: whether a model processes information the way the brain does."""
