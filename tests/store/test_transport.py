"""Requests over HTTP: whom the certificates make us believe, which proxy is asked, and how answers are bounded."""

from __future__ import annotations

import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from maskreg.errors import LimitError
from maskreg.store.message import LostError, Message
from maskreg.store.transport import Transport
from tests.store.hosting import say

Serve = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[int]]]:
    """A server on this machine: its port, and the port of the client of each request."""
    clients: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            clients.append(self.client_address[1])
            serve(self)

        do_GET = do_PUT = do_HEAD = _answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port, clients
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def say_in_chunks(handler: BaseHTTPRequestHandler) -> None:
    """Answer with six bytes of no stated length."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")


@pytest.fixture
def transport() -> Iterator[Transport]:
    with closing(Transport("", 2, 5)) as transport:
        yield transport


@pytest.mark.parametrize("serve", [lambda handler: say(handler, b"abcdef"), say_in_chunks])
def test_an_answer_beyond_the_limit_is_refused_and_harms_no_other(serve: Serve, transport: Transport) -> None:
    with serving(serve) as (port, _):
        url = f"http://127.0.0.1:{port}/x"
        for _ in range(40):  # more than there can be connections
            with pytest.raises(LimitError, match="5"):
                transport.send(Message("GET", "x", max_bytes=5), url, {})
        assert transport.send(Message("GET", "x", max_bytes=6), url, {}).data == b"abcdef"


def test_no_redirect_is_followed_and_no_cookie_kept(transport: Transport) -> None:
    seen: list[str] = []

    def move(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("cookie", ""))
        say(handler, b"", 307, Location="/elsewhere", **{"Set-Cookie": "a=b"})

    with serving(move) as (port, _):
        for _ in range(2):
            answer = transport.send(Message("GET", "x"), f"http://127.0.0.1:{port}/x", {})
            assert (answer.status, answer.headers["location"]) == (307, "/elsewhere")
    assert seen == ["", ""]


def test_a_proxy_of_the_environment_is_asked_unless_the_host_is_excepted(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def proxy(handler: BaseHTTPRequestHandler) -> None:
        asked.append((handler.path, handler.headers.get("proxy-authorization", "")))
        say(handler, b"proxied")

    with serving(proxy) as (port, _), serving(lambda handler: say(handler, b"direct")) as (own, _):
        monkeypatch.setenv("http_proxy", f"http://ada:p%40ss@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
        assert transport.send(Message("GET", "x"), "http://registry.example/x", {}).data == b"proxied"
        assert transport.send(Message("GET", "x"), f"http://127.0.0.1:{own}/x", {}).data == b"direct"
    assert asked == [("http://registry.example/x", "Basic YWRhOnBAc3M=")]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 by itself, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem = serialization.Encoding.PEM
    path = tmp_path / "own.pem"
    path.write_bytes(built.public_bytes(pem) + key.private_bytes(pem, *form))
    return path


def test_only_certificates_that_are_named_or_known_are_believed(
    certificate: Path, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    data = b"x" * 100_000
    with serving(lambda handler: say(handler, data), context) as (port, clients):
        url = f"https://127.0.0.1:{port}/x"
        with pytest.raises(LostError):
            transport.send(Message("GET", "x"), url, {})
        assert clients == []
        with closing(Transport(str(certificate), 2, 5)) as named:
            assert named.send(Message("GET", "x"), url, {}).data == data
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with closing(Transport("", 2, 5)) as known:
            assert known.send(Message("GET", "x"), url, {}).data == data
