"""Pinning recordings: whose they are, which files belong to them, and what is known about these people."""
