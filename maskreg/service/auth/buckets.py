"""The buckets of all processes together: what each has taken is taken from a row that all of them read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from maskreg.catalog.sql.clock import now
from maskreg.service.auth.database import Database
from maskreg.service.auth.models import BucketRow

_FORGOTTEN_S = 3600.0


@dataclass(frozen=True)
class Bucket:
    """What buckets of one kind are like.

    Attributes:
        name: of the kind.
        per_second: how fast one fills.
        burst: how many requests a full one holds.
    """

    name: str
    per_second: float
    burst: float


class Buckets:
    """The shared buckets of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def share(self, kind: Bucket, taken: Mapping[str, float], since: float) -> tuple[float, dict[str, float]]:
        """Take what a process has let through, and see what all have left.

        Args:
            kind: of the buckets.
            taken: how much, by whose bucket it is.
            since: the moment of the last time; 0 for the first.

        Returns:
            The moment, in seconds since 1970, and what is left in each bucket that anybody took from since the last
            time; less than nothing where several processes together let too much through.
        """
        prefix = f"{kind.name} "
        if taken:
            with self._database.write() as connection:
                at = now(connection)
                for key, count in taken.items():
                    _take(connection, kind, prefix + key, count, at)
                connection.execute(delete(BucketRow).where(BucketRow.at < at - _FORGOTTEN_S))
        with self._database.read() as connection:
            at = now(connection)
            # A transaction that began before the last time may have ended after it.
            columns = select(BucketRow.key, BucketRow.held, BucketRow.at)
            rows = connection.execute(columns.where(BucketRow.at >= since - 1, BucketRow.key.startswith(prefix))).all()
        return at, {row.key.removeprefix(prefix): _held(kind, row.held, row.at, at) for row in rows}


def _take(connection: Connection, kind: Bucket, key: str, count: float, at: float) -> None:
    row = connection.execute(select(BucketRow.held, BucketRow.at).where(BucketRow.key == key)).first()
    held = kind.burst if row is None else _held(kind, row.held, row.at, at)
    values = {"held": max(held - count, -kind.burst), "at": at}
    if row is None:
        connection.execute(insert(BucketRow).values(key=key, **values))
    else:
        connection.execute(update(BucketRow).where(BucketRow.key == key).values(**values))


def _held(kind: Bucket, held: float, then: float, at: float) -> float:
    return min(kind.burst, held + max(at - then, 0.0) * kind.per_second)
