"""Decoding: how well a task is read out of brain signals."""
