"""Requests observed: ids, a log line and metrics of each; logs as JSON, traces by OpenTelemetry.

The id comes from the client or proxy, as ``X-Request-Id``, or is new. It is in the answer, in problems and in
every line that is logged while the request is worked on, so that one search in the logs of all servers tells its story.

Of the address only the path is logged: a query can hold what was searched for, or a code that signs in.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import prometheus_client as prometheus
from fastapi import FastAPI
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskreg.extras import requiring

HEADER = "X-Request-Id"

OTHER = "other"
"""The route of requests that match none: an address that a client makes up must not become a time series."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_log = logging.getLogger("maskreg.service.requests")

# Set once in the task of a request, and inherited by the threads that work on it.
_current: ContextVar[str] = ContextVar("request_id", default="")


def request_id() -> str:
    """The id of the request that is worked on; empty outside of one."""
    return _current.get()


class Observed:
    """Wraps an application; has to be the outermost of its middleware."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self.app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        identity = given if _ID.fullmatch(given) else uuid4().hex
        _current.set(identity)
        status, size = 500, 0

        async def observed(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = identity
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        started = time.perf_counter()
        with IN_FLIGHT.track_inprogress():
            try:
                await self.app(scope, receive, observed)
            finally:
                _tell(scope, self._route(scope), status, time.perf_counter() - started, size)

    def _route(self, scope: Scope) -> str:
        # The router has put the route into the scope by now.
        route: str = getattr(scope.get("route"), "path", "")
        prefix = self._prefix if scope["path"].startswith(f"{self._prefix}/") else ""
        return (route if route.startswith(prefix) else prefix + route) if route else OTHER


def _tell(scope: Scope, route: str, status: int, seconds: float, size: int) -> None:
    method = scope["method"]
    REQUESTS.labels(method, route, str(status)).inc()
    SECONDS.labels(method, route).observe(seconds)
    BYTES.labels(method, route).inc(size)
    client = scope.get("client")
    fields = {
        "method": method,
        "route": route,
        "path": scope["path"],
        "status": status,
        "seconds": round(seconds, 6),
        "bytes": size,
        "client": client[0] if client else "",
        "by": scope.get("state", {}).get("by", ""),
    }
    _log.info("%s %s %s", method, route, status, extra={"fields": fields})


FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder which workers share."""

REQUESTS = prometheus.Counter("maskreg_http_requests", "Requests that were answered.", ["method", "route", "status"])
SECONDS = prometheus.Histogram(
    "maskreg_http_request_seconds",
    "Time to the end of an answer, in seconds.",
    ["method", "route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
BYTES = prometheus.Counter("maskreg_http_response_bytes", "Bytes of answers.", ["method", "route"])
IN_FLIGHT = prometheus.Gauge(
    "maskreg_http_requests_in_flight", "Requests that are worked on.", multiprocess_mode="livesum"
)

_RUN = ["ref"]
RUN_AGE = prometheus.Gauge(
    "maskreg_run_version_age_seconds",
    "Time since a run has published its latest version, in seconds.",
    _RUN,
    multiprocess_mode="livemostrecent",
)
RUN_REPLICAS = prometheus.Gauge(
    "maskreg_run_replicas", "Replicas that follow a run.", _RUN, multiprocess_mode="livemostrecent"
)
RUN_LAG = prometheus.Gauge(
    "maskreg_run_replica_lag",
    "Versions by which the replica of a run is behind that is furthest behind.",
    _RUN,
    multiprocess_mode="livemostrecent",
)


def show_runs(runs: Mapping[str, tuple[float, int, int]], gone: Collection[str]) -> None:
    """Expose runs by their tags, and end the series of runs that are gone.

    Args:
        runs: seconds since the latest version, replicas, and versions by which the last of them is behind.
    """
    for ref, figures in {**dict.fromkeys(gone, (math.nan, 0, 0)), **runs}.items():
        for gauge, value in zip((RUN_AGE, RUN_REPLICAS, RUN_LAG), figures, strict=True):
            gauge.labels(ref).set(value)
            # A series that several processes share cannot be removed.
            if ref in gone and not os.environ.get(FOLDER):
                gauge.remove(ref)


MEDIA_TYPE = prometheus.CONTENT_TYPE_LATEST


def exposed() -> bytes:
    """All metrics as text, of all workers where there are several."""
    return prometheus.generate_latest(_collected())


def listen(host: str, port: int) -> None:
    """Answer with the metrics on a port of their own, without a token."""
    prometheus.start_http_server(port, addr=host, registry=_collected())


def _collected() -> prometheus.CollectorRegistry:
    if not os.environ.get(FOLDER):
        return prometheus.REGISTRY
    registry = prometheus.CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


LOGGERS = ("maskreg", "uvicorn", "uvicorn.error")
"""Loggers whose lines are written; libraries write warnings alone."""


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
    """Write the lines of a server as JSON, and warnings alone at a terminal; for a process that does nothing else."""
    if sys.stderr.isatty():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.INFO)


if TYPE_CHECKING:
    from opentelemetry.trace import Span

_SWITCHES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
_QUIET = "livez,readyz,metrics"
_ADDRESSES = ("http.url", "url.full", "http.target", "url.query")


def is_traced() -> bool:
    """Whether the variables of OpenTelemetry say that there shall be traces."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not off and any(os.environ.get(name) for name in _SWITCHES)


def trace_requests(app: FastAPI) -> None:
    """Trace the requests of an application, if traces are on."""
    if not is_traced():
        return
    with requiring("tracing", "telemetry"):
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    resource = Resource.create() if os.environ.get("OTEL_SERVICE_NAME") else Resource.create({SERVICE_NAME: "maskreg"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    FastAPIInstrumentor.instrument_app(
        app, tracer_provider=provider, excluded_urls=_QUIET, server_request_hook=without_query
    )
    trace.set_tracer_provider(provider)


def note_on_span(**facts: str) -> None:
    """Add facts, under ``maskreg.NAME``, to the span of the request that is worked on, if traces are on."""
    if is_traced():
        from opentelemetry import trace

        trace.get_current_span().set_attributes({f"maskreg.{name}": fact for name, fact in facts.items()})


def without_query(span: Span, scope: Scope) -> None:
    """Take the query out of the addresses of a span: it can hold what must be in no log."""
    for name in _ADDRESSES:
        span.set_attribute(name, "" if name == "url.query" else scope["path"])
