"""Networks of vision that repository models are made of."""
