"""Signals: recordings become windows, and stimuli become embeddings."""
