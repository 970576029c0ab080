"""The one chain of revisions of all tables, run through ``maskreg.catalog.schema``; there is no ini file."""
