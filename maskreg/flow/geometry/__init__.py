"""The geometry of an update, and where its mask lies among magnitudes."""
