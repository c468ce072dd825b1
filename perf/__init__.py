"""Speed comparisons: each metric and the usual alternatives, in one process, on the same arrays."""

# Imported first, so that both sides use the same BLAS settings.
import neuroledger  # noqa: F401
