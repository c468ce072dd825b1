"""Ceilings of this family."""
