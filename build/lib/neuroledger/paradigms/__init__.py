"""Paradigms: what a model is asked, and what is measured."""
