"""Efficiency: what a network computes, and what that computation costs."""
