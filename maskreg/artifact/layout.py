"""The keys of an artifact's objects, and which part each belongs to.

::

    artifacts/sha256/<hex>/       one prefix per artifact, the same on disk, in a bucket and in the incoming folder
      manifest.json               belongs to no part: its digest is the artifact's
      tensors.json                all parts
      analysis.json               analysis
      data.zarr/zarr.json         all parts
      data.zarr/<array>/...       by array: mask; delta, delta_index, whole; reverse, ...; leaves belong to all parts
      files/ reverse_files/       delta, reverse
"""

from __future__ import annotations

from maskreg.digest import Digest

MANIFEST = "manifest.json"
TENSORS = "tensors.json"
ANALYSIS = "analysis.json"
GROUP = "data.zarr"
FILES = "files/"
REVERSE_FILES = "reverse_files/"
PARTS = ("mask", "delta", "reverse")
"""Parts that consist of arrays; the fourth, ``analysis``, is one document."""

ARTIFACTS = "artifacts/sha256/"
"""Prefix of all artifacts in a store."""

INCOMING = "incoming/"
"""Prefix of objects that are not yet part of an artifact in a local registry."""

_ARRAY_PART = {
    "mask": "mask",
    "delta": "delta",
    "delta_index": "delta",
    "whole": "delta",
    "reverse": "reverse",
    "reverse_index": "reverse",
    "reverse_whole": "reverse",
    "leaves": "",
}


def artifact_prefix(digest: Digest) -> str:
    """Prefix of an artifact's keys in a store."""
    return f"{ARTIFACTS}{digest.hex}/"


def incoming_prefix(digest: Digest) -> str:
    """Prefix of an artifact's objects that wait until their part is complete."""
    return f"{INCOMING}{digest.hex}/"


def part_of(key: str) -> str:
    """The part that an object belongs to: ``mask``, ``delta``, ``reverse``, ``analysis``; empty for all parts."""
    if key == ANALYSIS:
        return "analysis"
    if key.startswith(FILES):
        return "delta"
    if key.startswith(REVERSE_FILES):
        return "reverse"
    segments = key.split("/")
    return _ARRAY_PART.get(segments[1], "") if segments[0] == GROUP and len(segments) > 2 else ""
