"""A server that speaks just enough HTTP to give an S3 client the answers no healthy service gives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """What to say to one request.

    Attributes:
        status: HTTP status.
        body: bytes that are sent.
        declared: what Content-Length says; the length of the body when negative.
        code: when given, the body is an S3 error with this code.
    """

    status: int = 200
    body: bytes = b""
    declared: int = -1
    code: str = ""

    def sent(self) -> bytes:
        if not self.code:
            return self.body
        return f"<?xml version='1.0'?><Error><Code>{self.code}</Code><Message>m</Message></Error>".encode()


@dataclass
class Script:
    """Answers in turn, the last one for ever; and what was asked."""

    answers: list[Answer]
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def next(self, method: str) -> Answer:
        self.asked.append(method)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serve(*answers: Answer) -> Iterator[Script]:
    """Run a server that follows the script."""
    script = Script(list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = script.next(self.command)
            body = b"" if self.command == "HEAD" else answer.sent()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(answer.declared if answer.declared >= 0 else len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        script.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()
