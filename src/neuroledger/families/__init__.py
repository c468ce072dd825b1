"""Families of benchmarks. Each plugs into the kernel through the entry points that other packages use."""
