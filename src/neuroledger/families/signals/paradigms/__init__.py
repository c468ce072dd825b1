"""Paradigms of this family."""
