"""Counting: operations, activations and memory of one pass of a network."""
