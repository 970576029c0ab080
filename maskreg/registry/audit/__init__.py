"""Verification: whether a registry, or one artifact of it, is as it was written."""
