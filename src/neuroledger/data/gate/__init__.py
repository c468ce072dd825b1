"""The gate: every data set is verified, read and validated before anything is scored on it."""
