"""The gate: nothing is scored on data that were not hashed, read and examined."""
