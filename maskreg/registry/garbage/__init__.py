"""Garbage collection: which artifacts have no name, whether that can be right, and deleting them."""
