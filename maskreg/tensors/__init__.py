"""Tensors, wherever they are stored: dtypes, casts, blocks and leaves."""
