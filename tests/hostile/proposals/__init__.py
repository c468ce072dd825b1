"""Proposals, honest and malicious, with the verdict and the codes that their review must give.

``python -m tests.hostile.proposals`` tries each end to end: a throw-away repository, a process of its own, and canaries.
"""
