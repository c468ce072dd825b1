"""The parts everything is computed with: assemblies, stimuli, splits, statistics, scores, the registry."""
