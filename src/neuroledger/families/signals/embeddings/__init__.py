"""Embeddings of stimuli by pretrained networks."""
