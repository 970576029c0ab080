"""Migrations of a catalog's schema, run through ``maskreg.catalog.sql.upgrade``; there is no ini file."""
