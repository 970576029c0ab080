"""The time by a database's own clock, so that machines whose clocks differ agree."""

from __future__ import annotations

import time

from sqlalchemy import Connection, func, select

from maskreg.catalog.address import Address
from maskreg.errors import ConfigError

MAX_SKEW_S = 300.0
"""How far a machine's clock can be from the clock of its database, in seconds."""


def now(connection: Connection) -> float:
    """Seconds since 1970. Machines share a PostgreSQL, and with it its clock; a SQLite file is on one machine."""
    if connection.dialect.name == "postgresql":
        return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
    return time.time()


def check_clock(connection: Connection, address: Address, own: float) -> None:
    """Refuse a machine whose clock is far from the database's.

    Its times would mean something else to other machines: tokens would expire years early, or never.
    """
    ahead_s = own - now(connection)
    if abs(ahead_s) > MAX_SKEW_S:
        raise ConfigError(
            f"the clock of this machine is {abs(ahead_s):,.0f} seconds {'ahead of' if ahead_s > 0 else 'behind'} "
            f"the clock of {address}",
            hint="timedatectl",
        )
