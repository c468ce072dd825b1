"""Protocols: how signals are divided, checked for leakage and passed to a decoder."""
