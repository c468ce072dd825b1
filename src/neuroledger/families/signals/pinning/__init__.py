"""Pinning of recordings: their subjects, companion files, and facts about the subjects."""
