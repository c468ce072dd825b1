"""Honest and malicious proposals, with the expected verdict and codes of their review.

``python -m tests.hostile.proposals`` tests each end to end, with a temporary repository, a separate process and canaries.
"""
