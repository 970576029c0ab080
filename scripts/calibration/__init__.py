"""Pairs of updates that know nothing of each other, and what `compare` counts of them."""
