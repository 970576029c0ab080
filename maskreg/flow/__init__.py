"""One folder per feature: extract, apply, overlap, baseline, geometry, combine, merge, chain, publish."""
