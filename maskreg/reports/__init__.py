"""Reports: one self-contained page with plots that answers whether a mask is more than rounding."""

FORMATS = ("svg", "png", "pdf", "csv", "tex")
"""Formats of a figure: pictures, and its numbers as tables."""
