"""Families of benchmarks. Each registers its components through the entry points that plugins use too."""
