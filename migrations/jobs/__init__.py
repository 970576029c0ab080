"""Revisions of the table of jobs."""
