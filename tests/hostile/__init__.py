"""Attacks and faults: what a stranger or a failing machine may do to a repository."""
