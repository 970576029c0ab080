"""Weights of a run in servers that generate from them: staged while they serve, and committed when asked."""
