"""Migrations of a catalog's schema, run through ``maskreg.catalog.upgrade``; there is no ini file."""
