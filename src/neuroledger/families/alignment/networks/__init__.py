"""Vision networks that models of repositories use."""
