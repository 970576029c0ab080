"""The HTTP API, one file per resource; each has a ``router``, and stands in the table of ``maskreg.service.app``."""
