"""Clocks of recordings: parts between gaps, rates of channels, and facts that travel with windows."""
