"""The catalog in a database: SQLite by default, PostgreSQL for teams."""

from maskreg.catalog.sql.catalog import SqlCatalog
from maskreg.catalog.sql.salvage import repairing, set_aside
from maskreg.catalog.sql.schema import current, downgrade, upgrade

__all__ = ["SqlCatalog", "current", "downgrade", "repairing", "set_aside", "upgrade"]
