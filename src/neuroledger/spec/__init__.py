"""Specs: what is declared. The language, its catalogue, and the registry of components."""
