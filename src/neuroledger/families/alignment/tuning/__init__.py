"""Tuning: curves, receptive fields and distributions of their properties."""
