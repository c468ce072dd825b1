"""Pinning: downloaded recordings become the pinned files of their data set."""
