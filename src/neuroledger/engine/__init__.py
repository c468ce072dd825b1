"""The engine: resolve, measure, score, record."""
