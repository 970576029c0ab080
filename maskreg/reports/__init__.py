"""Reports: one self-contained page with plots that answers whether a mask is more than rounding."""

FORMATS = ("svg", "png", "pdf", "csv", "tex")
"""Files that a figure can be: pictures, and its numbers as tables."""
