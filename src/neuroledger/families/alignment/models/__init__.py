"""Model builders of this family."""
