"""Readers of this family."""
