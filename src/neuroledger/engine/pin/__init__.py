"""Pinning: recordings that somebody downloaded become the pinned files of their data set."""
