"""Encoding: continuous recordings, predicted from features of what was heard, seen or read at the time."""
