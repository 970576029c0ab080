"""Applying: from source to target and back, on disk or in memory."""
