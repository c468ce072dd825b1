"""Parts of records: their inputs, environment and earlier forms, and their comparison with a recomputation."""
