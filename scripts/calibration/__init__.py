"""Pairs of updates that know nothing of each other."""
