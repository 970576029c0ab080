"""What may be requested of a server that patches: bodies of requests, as strict as the use cases behind them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=128)]
Reference = Annotated[str, Field(min_length=1, max_length=400, description="[project/]name[:tag][@sha256:...]")]
Text = Annotated[str, Field(max_length=200)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ApplyRequest(_Body):
    """Patch a checkpoint of the server with an artifact, and write the other side of it.

    Attributes:
        kind: ``apply``.
        artifact: what to apply; pinned to its digest at submission.
        project: whose quota the job uses; the artifact's project when left out.
        source: name of a checkpoint that the server offers; looked for among all of them when left out.
        output: name of the new checkpoint; that of the artifact when left out.
        revert: turn the target into the source.
    """

    kind: Literal["apply"]
    artifact: Reference
    project: Name | None = None
    source: Name | None = None
    output: Name | None = None
    revert: bool = False


class MergeRequest(_Body):
    """Merge updates of one source into one artifact of the registry.

    Attributes:
        kind: ``merge``.
        artifacts: in order; each pinned to its digest at submission.
        name: ``[project/]name[:tag]`` of the new artifact, whose project's quota the job uses.
        method: as for ``maskreg merge``.
        weights: in the order of the artifacts; 1 each when left out.
        settings: of the method.
        mask: for methods that take one.
        source: name of the checkpoint that the artifacts were made from; looked for among all when left out.
        description: one paragraph for people.
    """

    kind: Literal["merge"]
    artifacts: Annotated[list[Reference], Field(min_length=1, max_length=32)]
    name: Reference
    method: Text = ""
    weights: Annotated[list[float], Field(max_length=32)] | None = None
    settings: Annotated[dict[Name, float | int | bool | Text], Field(max_length=32)] = Field(default_factory=dict)
    mask: Reference | None = None
    source: Name | None = None
    description: Annotated[str, Field(max_length=4096)] = ""


class ExtractRequest(_Body):
    """Compare two checkpoints of the server, and store what moved.

    Attributes:
        kind: ``extract``.
        source, target: names of checkpoints that the server offers.
        name: ``[project/]name[:tag]`` of the new artifact, whose project's quota the job uses.
        family, method, license, description: of the card.
        rule: what counts as moved.
        mask_only: keep which coordinates moved, not to what.
        reversible: keep the source's values too.
    """

    kind: Literal["extract"]
    source: Name
    target: Name
    name: Reference
    family: Text = ""
    method: Text = ""
    license: Text = ""
    description: Annotated[str, Field(max_length=4096)] = ""
    rule: Text = "exact"
    mask_only: bool = False
    reversible: bool = False


PatchRequest = Annotated[ApplyRequest | MergeRequest | ExtractRequest, Field(discriminator="kind")]
"""The body of a request for a job."""
