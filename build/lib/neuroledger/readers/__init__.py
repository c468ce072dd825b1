"""Readers: from a lab's files to stimuli and an assembly."""
