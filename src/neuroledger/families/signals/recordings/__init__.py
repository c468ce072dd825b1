"""Recordings: formats, events, preprocessing and windows."""
