"""Measured energy, time and memory."""
