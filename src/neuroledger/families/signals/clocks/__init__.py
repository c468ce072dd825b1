"""Clocks of recordings: parts between gaps, rates of channels, and the facts that travel with windows."""
