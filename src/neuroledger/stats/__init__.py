"""Statistics: splits, deviations by item, intervals, tests, ranks and normalisation."""
