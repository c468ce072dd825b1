"""Tuning: curves, receptive fields, and distributions of what is read off them."""
