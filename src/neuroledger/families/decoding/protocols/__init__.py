"""Protocols: how signals are divided, checked for leakage and put to a decoder."""
