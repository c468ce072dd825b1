"""Specs: the language of declarations, their catalogue, and the registry of components."""
