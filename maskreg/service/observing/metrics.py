"""Metrics in the text format of Prometheus, of one process or of all workers of a server together.

Workers share their numbers through files in the folder that ``PROMETHEUS_MULTIPROC_DIR`` names, which has to be set
before this module is imported; whoever starts several workers does so.
"""

from __future__ import annotations

import os

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    start_http_server,
)
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder which workers share."""

REQUESTS = Counter("maskreg_http_requests", "Requests that were answered.", ["method", "route", "status"])
SECONDS = Histogram(
    "maskreg_http_request_seconds",
    "Time to the end of an answer, in seconds.",
    ["method", "route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
BYTES = Counter("maskreg_http_response_bytes", "Bytes of answers.", ["method", "route"])
IN_FLIGHT = Gauge("maskreg_http_requests_in_flight", "Requests that are worked on.", multiprocess_mode="livesum")

MEDIA_TYPE = CONTENT_TYPE_LATEST


def exposed() -> bytes:
    """All metrics as text, of all workers where there are several."""
    return generate_latest(_collected())


def listen(host: str, port: int) -> None:
    """Answer with the metrics on a port of their own, to everybody who can reach it.

    Raises:
        OSError: the port cannot be listened on.
    """
    start_http_server(port, addr=host, registry=_collected())


def _collected() -> CollectorRegistry:
    if not os.environ.get(FOLDER):
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry
