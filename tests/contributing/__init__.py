"""Tests of workflows, hooks and community files, without GitHub and without a network."""
