"""Builders: from a model spec to something that can be recorded and asked."""
