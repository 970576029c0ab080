"""The recorded overlaps with a reference mask that are columns of an artifact's row as well."""

from __future__ import annotations

from sqlalchemy import Connection, select

from maskreg.catalog.records import RLVR_OVERLAP
from maskreg.catalog.sql.models import MeasurementRow
from maskreg.catalog.tables.rows import NO_OVERLAP, Overlap
from maskreg.digest import Digest

_RECORDED = select(MeasurementRow.digest, MeasurementRow.value, MeasurementRow.against).where(
    MeasurementRow.metric == RLVR_OVERLAP, MeasurementRow.by_group == ""
)


def recorded_overlap(connection: Connection, digest: Digest) -> Overlap:
    """The overlap that counts for an artifact."""
    # The latest recording counts, even one older than the row: an artifact may be dropped and indexed again.
    latest = _RECORDED.where(MeasurementRow.digest == digest).order_by(MeasurementRow.id.desc()).limit(1)
    row = connection.execute(latest).one_or_none()
    return NO_OVERLAP if row is None else (row.value, row.against)


def recorded_overlaps(connection: Connection) -> dict[str, Overlap]:
    """The same for every artifact that has one, by digest."""
    recorded = connection.execute(_RECORDED.order_by(MeasurementRow.id))
    return {row.digest: (row.value, row.against) for row in recorded}
