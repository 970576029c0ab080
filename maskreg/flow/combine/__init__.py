"""New masks made of several."""
