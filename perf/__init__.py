"""Side-by-side speed: each metric next to what people would otherwise run, in one process, on the same arrays."""

# First, so that both sides find the same settings of BLAS.
import neuroledger  # noqa: F401
