"""The JSON documents that the API answers with, as ``/openapi.json`` describes them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from maskreg.catalog.query import COLUMNS, Column
from maskreg.digest import Digest
from maskreg.service.gateway.verification import Check

T = TypeVar("T")

DIGEST = "sha256:4be0a1c75d2f1b0d9a8c7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b"
"""A digest for examples."""

DigestText = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", examples=[DIGEST])]
"""The digest of an artifact, or the id of an entry."""

RefText = Annotated[str, BeforeValidator(str)]
"""A reference, as people write it."""

Next = Annotated[
    str | None,
    Field(description="Pass it as `cursor` for the next page; null on the last page. Its content can change."),
]


class Model(BaseModel):
    """Base of all documents: read from results by attribute."""

    model_config = ConfigDict(from_attributes=True)


class Page(BaseModel, Generic[T]):
    """A page of a list."""

    items: list[T]
    next: Next


class Name(Model):
    """A tag that points to an artifact, with its card and the artifact's figures."""

    ref: RefText = Field(description="The reference: `[project/]name[:tag]`.", examples=["team/qwen3-8b-opd:v3"])


def _field(column: Column) -> tuple[Any, Any]:
    kind: Any = DigestText if column.type is Digest else Literal[column.values] if column.values else column.type
    return kind | None if column.nullable else kind, Field(description=column.help)


if not TYPE_CHECKING:
    Name = create_model(
        "Name", __base__=Name, __doc__=Name.__doc__, **{each.name: _field(each) for each in COLUMNS.values()}
    )


class LeftOut(Model):
    """A tag that cannot be searched, because what describes it is damaged or missing."""

    ref: str
    digest: DigestText | None
    reason: str


class Names(Page[Name]):
    """One page of a search; it can be shorter than `limit`, or empty, while `next` is set."""

    left_out: list[LeftOut] = Field(description="Tags that match or not; on the first page.")


class Card(Model):
    """What people say about an artifact."""

    family: str = ""
    method: str = ""
    license: str = ""
    description: str = ""
    meta: dict[str, str] = Field(default_factory=dict, description="Run metadata.", examples=[{"seed": "17"}])
    readme: str = Field("", description="A page of Markdown.")


class Overlap(Model):
    """A recorded overlap with another mask."""

    lift: float = Field(description="Observed overlap divided by the overlap of uniform random masks.")
    against: str = Field(description="Digest of the other mask.")
    at: datetime


class Pointer(Model):
    """A tag that points to the artifact now."""

    ref: RefText
    by: str
    at: datetime


class Artifact(Model):
    """An artifact: what it was made from, and which tags point to it."""

    digest: DigestText
    kind: Literal["mask", "delta", "baseline", "analysis"]
    size: int = Field(description="Bytes of all objects.")
    density: float
    present: list[str] = Field(description="Parts that the registry holds.")
    refs: list[Pointer] = Field(description="Of projects that you can read.")
    more_refs: bool = Field(description="Whether there are more than these; search by `digest`.")
    rlvr_overlap: Overlap | None
    seed_overlap: Overlap | None = Field(description="Overlap of two seeds of one recipe: the ceiling of others.")
    verified: Check | None = Field(description="Null when no verification is on record.")
    waits_for_verification: bool = Field(description="Whether the server is going to verify it.")
    manifest: dict[str, Any] = Field(
        description="What was computed, and from what: rule, source, target, parents, recipe, parts, and totals by "
        "role and layer. The table of objects is left out."
    )


class Tag(Model):
    """A tag as it is now. The ETag of the answer is `id`."""

    ref: str
    n: int = Field(description="Number of its latest entry, from 1.")
    id: DigestText = Field(description="Id of that entry.")
    digest: DigestText
    card: Card
    by: str
    at: datetime
    origin: str = Field(description="The registry that it was pulled from; empty when it was set here.")
    immutable: bool = Field(description="Whether the tag must never point to another artifact.")


class Entry(Model):
    """One change of a tag."""

    n: int
    id: DigestText
    action: Literal["created", "moved", "annotated", "fixed", "removed", "restored", "set again"]
    digest: DigestText | None = Field(description="What the tag points to from then on; null when it was removed.")
    by: str
    at: datetime
    origin: str
    immutable: bool


class Body(BaseModel):
    """Base of documents that clients send."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class SetTag(Body):
    """What a tag shall point to."""

    artifact: str = Field(
        max_length=512,
        description="A digest, or a reference whose card is taken over.",
        examples=[DIGEST, "team/qwen3-8b-opd:v3"],
    )
    card: Card | None = Field(None, description="What people say about it; null takes over the card of the reference.")
    immutable: bool = Field(False, description="The tag must never point to another artifact again.")


class EditCard(Body):
    """Changes to a card; what is null stays as it is."""

    family: str | None = Field(None, examples=["qwen3-8b"])
    method: str | None = Field(None, examples=["opd"])
    license: str | None = Field(None, examples=["apache-2.0"])
    description: str | None = None
    meta: dict[str, str] | None = Field(None, description="Keys to add or replace; an empty text removes the key.")
    readme: str | None = Field(None, description="A page of Markdown.")
