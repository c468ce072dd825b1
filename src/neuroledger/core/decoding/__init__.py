"""Decoding: signals, their divisions and gates, and what is trained on them."""
