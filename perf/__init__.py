"""Side-by-side speed: each metric next to what people would otherwise run, in one process, on the same arrays."""
