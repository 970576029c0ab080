"""Objects in and out: what clients read from the served store, and what is accepted into it."""
