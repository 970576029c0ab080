"""Where everything lies below an artifact's prefix, and which part it belongs to."""

from __future__ import annotations

from maskreg.digest import Digest

MANIFEST = "manifest.json"
TENSORS = "tensors.json"
ANALYSIS = "analysis.json"
GROUP = "data.zarr"
FILES = "files/"
REVERSE_FILES = "reverse_files/"
PARTS = ("mask", "delta", "reverse")
"""Parts that are arrays; besides them there is ``analysis``, which is one document."""

ARTIFACTS = "artifacts/sha256/"
"""Prefix of all artifacts in a store."""

INCOMING = "incoming/"
"""Prefix of what is not yet at its place in a local registry."""

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
    """Prefix of an artifact's objects that wait until all of their part are here."""
    return f"{INCOMING}{digest.hex}/"


def part_of(key: str) -> str:
    """The part that an object belongs to: ``mask``, ``delta``, ``reverse``, ``analysis``; empty for what all need."""
    if key == ANALYSIS:
        return "analysis"
    if key.startswith(FILES):
        return "delta"
    if key.startswith(REVERSE_FILES):
        return "reverse"
    segments = key.split("/")
    return _ARRAY_PART.get(segments[1], "") if segments[0] == GROUP and len(segments) > 2 else ""
