"""Baselines: masks to compare a mask with."""
