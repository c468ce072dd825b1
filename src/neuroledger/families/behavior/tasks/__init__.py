"""Behavioral tasks: trials, choices, discrimination and solution times."""
