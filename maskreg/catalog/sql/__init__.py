"""The catalog in a database: SQLite by default, PostgreSQL for teams."""

from maskreg.catalog.sql.catalog import SqlCatalog
from maskreg.catalog.sql.salvage import set_aside
from maskreg.catalog.sql.schema import current, downgrade, upgrade

__all__ = ["SqlCatalog", "current", "downgrade", "set_aside", "upgrade"]
