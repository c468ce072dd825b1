"""Decoders as declared lists of steps."""
