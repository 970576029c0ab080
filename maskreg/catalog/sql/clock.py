"""The time by a database's own clock, so that machines whose clocks differ agree."""

from __future__ import annotations

import time

from sqlalchemy import Connection, func, select


def now(connection: Connection) -> float:
    """Seconds since 1970. Machines share a PostgreSQL, and with it its clock; a SQLite file is on one machine."""
    if connection.dialect.name == "postgresql":
        return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
    return time.time()
