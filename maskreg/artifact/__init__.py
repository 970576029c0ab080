"""Artifacts: a mask or delta at rest, a manifest and a Zarr payload that any reader opens."""
