"""An HTTP server on this machine that answers as a test says, such as no healthy service does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = tuple[int, dict[str, str], bytes]
Scripted = Callable[[str, str, dict[str, str]], Reply | None]


def say(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """Answer with a body of stated length."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


class Host:
    """Answers as a script says, which closes the connection with None, and keeps what it was asked."""

    def __init__(self, script: Scripted) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.asked.append((self.command, self.path, headers))
                reply = script(self.command, self.path, headers)
                if reply is None:
                    self.close_connection = True
                    return
                status, sent, body = reply
                say(self, body, status, **sent)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class Answer:
    """An answer of an S3 service: a body, of which ``declared`` bytes are stated, or an error with this code."""

    status: int = 200
    body: bytes = b""
    declared: int = -1
    code: str = ""

    def reply(self, method: str) -> Reply:
        error = f"<?xml version='1.0'?><Error><Code>{self.code}</Code><Message>m</Message></Error>".encode()
        body = b"" if method == "HEAD" else error if self.code else self.body
        length = str(self.declared if self.declared >= 0 else len(body))
        return self.status, {"Content-Length": length, "Connection": "close"}, body


@contextmanager
def serve(*answers: Answer) -> Iterator[Host]:
    """A server that gives these answers in turn, the last one for ever."""
    left = list(answers)
    host = Host(lambda method, *_: (left.pop(0) if len(left) > 1 else left[0]).reply(method))
    try:
        yield host
    finally:
        host.close()
