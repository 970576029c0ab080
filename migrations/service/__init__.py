"""Revisions of the service's own tables: who may do what."""
