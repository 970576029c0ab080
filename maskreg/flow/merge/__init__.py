"""Merging: a new update, or a new checkpoint, of several updates of one source."""
