"""Applying: the source patched into the target, on disk or in memory."""
