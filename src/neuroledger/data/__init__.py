"""Data: assemblies, stimuli and files, from their sources through the validation gate."""
