"""Traces by OpenTelemetry, where its standard variables say where they go; otherwise none of it is imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fastapi import FastAPI

from maskreg.extras import requiring

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from starlette.types import Scope

_SWITCHES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
_QUIET = "livez,readyz,metrics"
_ADDRESSES = ("http.url", "url.full", "http.target", "url.query")


def is_on() -> bool:
    """Whether the variables of OpenTelemetry say that there shall be traces."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not off and any(os.environ.get(name) for name in _SWITCHES)


def install(app: FastAPI) -> None:
    """Trace the requests of an application, if traces are on.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    if not is_on():
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


def without_query(span: Span, scope: Scope) -> None:
    """Take the query out of the addresses of a span; it may hold what must be in no log."""
    for name in _ADDRESSES:
        span.set_attribute(name, "" if name == "url.query" else scope["path"])
