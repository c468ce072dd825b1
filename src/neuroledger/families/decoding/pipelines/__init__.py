"""Pipelines: decoders as lists of declared steps."""
