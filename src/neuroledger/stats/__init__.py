"""Statistics: splits, resampling, intervals, tests, ranks and normalisation."""
