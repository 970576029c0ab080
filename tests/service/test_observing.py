"""Request ids, logs without secrets, metrics for the right people, traces, compression, and an end in good order."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from maskreg.service.access import PUBLIC
from maskreg.service.app import create_app
from maskreg.service.observing import JsonFormatter
from tests.service.serving import ADMIN, headers, service_in


@pytest.fixture
def app(tmp_path: Path) -> Iterator[FastAPI]:
    with service_in(tmp_path) as service:
        app = create_app(service)
        app.get("/broken", dependencies=[PUBLIC])(lambda: 1 // 0)
        yield app


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app, raise_server_exceptions=False)


def test_a_request_keeps_the_id_that_it_came_with(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setFormatter(JsonFormatter())
    with caplog.at_level(logging.INFO, "maskreg.service.requests"):
        sent = {**headers("reader-token"), "X-Request-Id": "abc.1"}
        answer = client.get("/api/v1/projects/hidden/tokens", headers=sent)
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "abc.1"
    (line,) = [json.loads(text) for text in caplog.text.splitlines() if "service.requests" in text]
    assert (line["status"], line["by"], line["path"]) == (404, "bob", "/api/v1/projects/hidden/tokens")
    assert (line["request_id"], line["route"]) == ("abc.1", "/api/v1/projects/{project}/tokens")


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "-", "é", 'a"\n{"level":"error"}'])
def test_an_id_that_could_forge_a_line_is_replaced(client: TestClient, given: str) -> None:
    answer = client.get("/livez", headers=[(b"x-request-id", given.encode())])
    assert len(answer.headers["x-request-id"]) == 32


def test_a_fault_of_the_server_has_an_id_and_says_nothing_else(client: TestClient) -> None:
    answer = client.get("/broken", headers={"X-Request-Id": "b1"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "b1"
    del (problem := answer.json())["title"]
    assert problem == {"type": "about:blank", "status": 500, "code": "ERROR", "request_id": "b1"}


def test_metrics_are_for_who_runs_the_server(client: TestClient) -> None:
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers=headers("writer-token")).status_code == 403
    client.get("/typed/by/hand", headers=headers(ADMIN))
    answer = client.get("/metrics", headers=headers(ADMIN))
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'maskreg_http_requests_total{method="GET",route="/metrics",status="401"}' in answer.text
    assert 'maskreg_http_request_seconds_bucket{le="0.05",method="GET",route="/metrics"}' in answer.text
    assert "typed" not in answer.text
    assert 'route="other"' in answer.text


def test_traces_go_where_the_standard_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

    collector = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    with service_in(tmp_path) as service:
        client = TestClient(create_app(service))
        client.get("/livez")
        client.get("/api/v1/artifacts", params={"text": "hidden-word"}, headers=headers("reader-token"))
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    provider.shutdown()
    collector.shutdown()
    collector.server_close()
    sent = b"".join(bodies)
    assert b"/api/v1/artifacts" in sent
    assert [word for word in (b"hidden-word", b"reader-token", b"livez") if word in sent] == []
