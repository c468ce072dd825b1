"""Tests of attacks and faults: hostile proposals, odd arguments, damaged files and failing file operations."""
