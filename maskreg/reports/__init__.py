"""Reports: one self-contained page with plots that answers whether a mask is more than rounding."""
