"""Logs as one JSON object a line, on standard error, as log collectors read them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from maskreg.service.observing.requests import request_id

LOGGERS = ("maskreg", "uvicorn", "uvicorn.error")
"""Whose lines are written; those of libraries only as warnings."""


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, request id, and the fields that the line was given."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        row: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if identity := request_id():
            row["request_id"] = identity
        row.update(getattr(record, "fields", {}))
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)


def configure() -> None:
    """Write the lines of a server as JSON; for a process that does nothing but serve."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.INFO)
