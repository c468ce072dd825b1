"""Exports of scores to the formats of other projects."""
