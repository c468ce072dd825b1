"""Training of decoders: recipes, objectives and steps."""
