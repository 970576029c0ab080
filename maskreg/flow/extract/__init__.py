"""Extraction: two checkpoints in, an artifact out."""
