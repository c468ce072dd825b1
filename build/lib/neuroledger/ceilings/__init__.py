"""Ceilings: the best score that the noise of the data allows."""
