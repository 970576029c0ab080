"""An OpenID provider for tests that holds clients to PKCE, which the package itself ignores.

::

    POST /oauth2/authorize   the challenge of the code that it gives is remembered; without one by S256: refused
    POST /oauth2/token       the verifier has to hash to the challenge of the code
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flask
import oidc_provider_mock.__main__ as package

_challenges: dict[str, str] = {}


def _before() -> Any:
    request = flask.request
    if request.path == "/oauth2/authorize":
        is_sent = request.args.get("code_challenge") and request.args.get("code_challenge_method") == "S256"
        return None if is_sent else ({"error": "invalid_request"}, 400)
    if request.path == "/oauth2/token":
        verifier = request.form.get("code_verifier", "")
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        if _challenges.get(request.form.get("code", "")) != digest:
            return {"error": "invalid_grant"}, 400
    return None


def _after(response: flask.Response) -> flask.Response:
    if flask.request.path == "/oauth2/authorize":
        for code in parse_qs(urlsplit(response.headers.get("Location", "")).query).get("code", []):
            _challenges[code] = flask.request.args["code_challenge"]
    return response


def guarded(**options: Any) -> flask.Flask:
    """The application of the package, guarded."""
    app: flask.Flask = _make(**options)
    app.before_request(_before)
    app.after_request(_after)
    return app


_make = package.app

if __name__ == "__main__":
    package.app = guarded
    package.run()
