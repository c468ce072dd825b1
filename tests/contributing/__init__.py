"""Contributing: workflows, hooks and community files, tried without GitHub and without a network."""
