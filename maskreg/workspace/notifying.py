"""Notifying: a server is told, by a POST to a URL, that a checkpoint is there to be loaded."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from maskreg.errors import LimitError, MaskregError, UnavailableError, UsageError, WorkerError
from maskreg.settings.credentials import is_loopback
from maskreg.store.asking import ask

if TYPE_CHECKING:
    from maskreg.workspace.verbs.follow import Followed

SECRET = "MASKREG_NOTIFY_SECRET"
"""Variable of the environment whose value signs notifications."""

SIGNATURE = "X-Maskreg-Signature-256"
"""Header of a notification: ``sha256=`` and the HMAC-SHA256 of the body under the secret, in hexadecimal."""

_PAUSES = (0.0, 0.5, 2.0, 8.0)  # seconds before each attempt
_NOT_READY = {408, 425, 429, *range(500, 600)}


class Hook:
    """A URL that is told of each switch.

    The body is the JSON of a :class:`maskreg.Followed` with ``model_path``, the checkpoint's folder: what SGLang's
    ``/update_weights_from_disk`` takes.
    """

    def __init__(self, url: str) -> None:
        """Check the URL; nothing is sent yet.

        Raises:
            UsageError: not a URL of HTTP, or one with a password, or without encryption to another machine.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{url!r} is no URL of HTTP", options={"notify": "http://127.0.0.1:30000/update_weights_from_disk"}
            )
        if parts.password:
            raise UsageError(
                "a URL that is notified cannot hold a password", hint=f"set {SECRET}, which signs the body"
            )
        self.url = url
        self._secret = os.environ.get(SECRET, "")
        if self._secret and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise UsageError(f"{url} is not encrypted, and {SECRET} is set", hint="use https, or unset it")

    def tell(self, followed: Followed) -> None:
        """Post that weights have followed, again where the server does not answer or is not ready.

        Raises:
            UnavailableError: the server was not reached, or refused.
        """
        path = str(followed.out.resolve()) if followed.out is not None else ""
        body = json.dumps({**followed.to_json(), "model_path": path}).encode()
        headers: dict[str, str] = {}
        if self._secret:
            digest = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
            headers[SIGNATURE] = f"sha256={digest}"
        fault: MaskregError | None = None
        for pause in _PAUSES:
            time.sleep(pause)
            try:
                ask(self.url, body, headers=headers, max_bytes=1 << 20)
                return
            except (UnavailableError, WorkerError, LimitError) as error:
                fault = error
                if not isinstance(error, UnavailableError) and error.facts.get("status") not in _NOT_READY:
                    break
        hint = "it is told again at the next look, or by the same command"
        raise UnavailableError(f"{fault}; it serves what it had", hint=hint) from fault
