"""An analysis: figures about an artifact, stored as an artifact that refers to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from maskreg.artifact.layout import ANALYSIS, TENSORS
from maskreg.artifact.manifest import ENCODER, SCHEMA, part_entry
from maskreg.artifact.reader import Artifact
from maskreg.artifact.staging import Staging
from maskreg.artifact.tensors import dump_tensors
from maskreg.digest import Digest
from maskreg.document import canonical, parse_object
from maskreg.errors import FormatError
from maskreg.extras import upgrade_command
from maskreg.limits import LIMITS

ANALYSIS_SCHEMA = "maskreg.analysis/1"


def write_analysis(root: Path, of: Artifact, document: Mapping[str, Any], recipe: Mapping[str, Any]) -> Digest:
    """Store figures about an artifact as a new artifact without a name.

    It has the source, target, rule, totals and tensor table of the analyzed artifact, and neither mask nor values.

    ``recipe``: how they were computed, with ``kind``: lineage.
    """
    staging = Staging(root)
    try:
        staging.store.put(TENSORS, dump_tensors(of.tensors))
        staging.store.put(ANALYSIS, canonical({**document, "schema": ANALYSIS_SCHEMA}))
        objects = staging.objects
        return staging.publish(
            replace(
                of.manifest,
                schema=SCHEMA,
                kind="analysis",
                encoder=ENCODER,
                exact=False,
                parents=(str(of.digest),),
                recipe=dict(recipe),
                parts={"analysis": part_entry("analysis", objects, "json")},
                objects=objects,
            )
        )
    finally:
        staging.discard()


def read_analysis(artifact: Artifact) -> dict[str, Any]:
    """The figures that an artifact of kind ``analysis`` holds."""
    artifact.require("analysis")
    data = artifact.document(ANALYSIS, max_bytes=LIMITS.analysis_bytes)
    document = parse_object(
        data, ANALYSIS, max_bytes=LIMITS.analysis_bytes, max_depth=LIMITS.json_depth, max_values=LIMITS.analysis_values
    )
    if document.get("schema") != ANALYSIS_SCHEMA:
        raise FormatError(
            f"{ANALYSIS}: schema {document.get('schema')!r} is not {ANALYSIS_SCHEMA}", hint=upgrade_command()
        )
    return document
