"""Representational geometry: Gram matrices, dissimilarities and their figures."""
