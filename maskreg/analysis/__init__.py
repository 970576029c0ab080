"""Evidence: what a mask has in common with others and with chance, and the geometry of an update."""
