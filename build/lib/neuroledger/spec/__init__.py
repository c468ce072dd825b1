"""Specs: plain data that say what there is."""
