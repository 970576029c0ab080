"""The tables of a catalog, without SQLAlchemy: columns, rows, seals, searching rows, and opening a SQLite file."""
