"""The tables, as SQLAlchemy models. Only migrations create them. A ``seal`` is explained in ``tables/seals.py``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Double, Index, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from maskreg.catalog.sql.columns import SERIAL, Moment, Words


class Base(DeclarativeBase):
    """Holds the metadata that migrations are checked against."""

    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy reads it from the class)
        str: Words(),
        int: BigInteger(),
        float: Double(),
        bool: Boolean(),
        datetime: Moment(),
        dict[str, Any]: JSON(),
    }


class ArtifactRow(Base):
    """Facts of one artifact's manifest, and its recorded overlap; rebuilt from the store.

    Attributes:
        digest: of the manifest.
        density: moved / compared coordinates.
        ffn_density: the same within the FFN; NULL without an FFN.
        ffn_share: part of the moved coordinates that lies in the FFN.
        ffn_lift: ffn_share / the FFN's share of the compared coordinates.
        params: elements of the source checkpoint.
        size: bytes of all objects.
        source_root, target_root: identities of the checkpoints.
        rlvr_overlap: latest recorded overlap with a reference mask; NULL until recorded.
        rlvr_against: digest of that reference mask.
    """

    __tablename__ = "artifacts"

    digest: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(index=True)
    rule: Mapped[str]
    exact: Mapped[bool]
    density: Mapped[float] = mapped_column(index=True)
    ffn_density: Mapped[float | None] = mapped_column(index=True)
    ffn_share: Mapped[float | None] = mapped_column(index=True)
    ffn_lift: Mapped[float | None] = mapped_column(index=True)
    nnz: Mapped[int] = mapped_column(index=True)
    numel: Mapped[int] = mapped_column(index=True)
    params: Mapped[int] = mapped_column(index=True)
    size: Mapped[int] = mapped_column(index=True)
    source_root: Mapped[str] = mapped_column(index=True)
    source_hub: Mapped[str]
    target_root: Mapped[str] = mapped_column(index=True)
    rlvr_overlap: Mapped[float | None] = mapped_column(index=True)
    rlvr_against: Mapped[str | None]
    seal: Mapped[str | None]


class RefRow(Base):
    """The newest entry of one tag's log, with its card; rebuilt from the store.

    Attributes:
        n: number of the entry in the log.
        digest: what the tag points to; NULL when it is deleted.
        words: what a search text is compared with; see :mod:`maskreg.catalog.tables.words`.
    """

    __tablename__ = "refs"
    __table_args__ = (Index("ix_refs_project_at", "project", "at"),)

    project: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True, index=True)
    tag: Mapped[str] = mapped_column(primary_key=True)
    n: Mapped[int]
    digest: Mapped[str | None] = mapped_column(index=True)
    deleted: Mapped[bool]
    family: Mapped[str] = mapped_column(index=True)
    method: Mapped[str] = mapped_column(index=True)
    license: Mapped[str] = mapped_column(index=True)
    description: Mapped[str]
    meta: Mapped[dict[str, Any]]
    by: Mapped[str] = mapped_column(index=True)
    at: Mapped[datetime] = mapped_column(index=True)
    origin: Mapped[str]
    words: Mapped[str]
    seal: Mapped[str | None]


class FilledRow(Base):
    """One row that says which store the index was filled from, written in the same transaction.

    Attributes:
        source: uuid of the store's registry; empty while that has none.
        at: when the index was filled.
        unread: keys of the store's ref entries that could not be read then, and why.
        followed: generation of the store's journal up to which the index has taken in what moved since; NULL where it
            has not.
    """

    __tablename__ = "filled"

    source: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    unread: Mapped[dict[str, Any] | None]
    followed: Mapped[int | None]
    seal: Mapped[str | None]


class SumRow(Base):
    """What one table has to add up to; see :mod:`maskreg.catalog.tables.seals`.

    Attributes:
        table: the table's name.
        rows: how many rows it has.
        sum: sum over its rows' seals, 32 hex digits.
    """

    __tablename__ = "sums"

    table: Mapped[str] = mapped_column(primary_key=True)
    rows: Mapped[int]
    sum: Mapped[str]


class MeasurementRow(Base):
    """One number that was measured on an artifact. Kept nowhere else."""

    __tablename__ = "measurements"
    __table_args__ = (Index("ix_measurements_digest_metric", "digest", "metric"),)

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True)
    digest: Mapped[str]
    metric: Mapped[str] = mapped_column(index=True)
    against: Mapped[str]
    by_group: Mapped[str]
    value: Mapped[float]
    detail: Mapped[dict[str, Any]]
    at: Mapped[datetime]
    by: Mapped[str]
    seal: Mapped[str | None]


class EventRow(Base):
    """One event of the append-only audit log. Kept nowhere else."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True)
    at: Mapped[datetime] = mapped_column(index=True)
    by: Mapped[str] = mapped_column(index=True)
    action: Mapped[str] = mapped_column(index=True)
    subject: Mapped[str] = mapped_column(index=True)
    detail: Mapped[dict[str, Any]]
    seal: Mapped[str | None]


class SeenSourceRow(Base):
    """A path where this machine saw a checkpoint of a given identity. Kept nowhere else."""

    __tablename__ = "seen_sources"
    __table_args__ = (UniqueConstraint("root", "path", name="uq_seen_sources_root_path"),)

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True)
    root: Mapped[str]
    path: Mapped[str]
    at: Mapped[datetime]
