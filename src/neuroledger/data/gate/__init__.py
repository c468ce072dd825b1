"""The gate: a data set is hashed, read and examined before anything is scored on it."""
