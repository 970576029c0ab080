"""Signing in with an OpenID provider: the authorization code flow, with PKCE, state and nonce.

One random cookie ties the three to the browser that began::

    GET /sign-in/oidc              cookie = random; state, nonce and verifier are hashes of it, each another one
      -> provider                  sees state, nonce and the hash of the verifier
    GET /sign-in/oidc/callback     state has to fit the cookie, the provider's token has to carry the nonce,
                                   and only who knows the verifier gets that token
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from authlib.integrations.starlette_client import OAuth, OAuthError
from joserfc.errors import JoseError

from maskreg.errors import ConfigError, NotAllowedError, UnauthenticatedError, translating
from maskreg.service.auth.projects import Person
from maskreg.service.auth.roles import Role, RoleName, role_named
from maskreg.service.problems import ProviderError
from maskreg.settings.credentials import is_loopback

SECRET = "MASKREG_OIDC_SECRET"
"""The environment variable with the client's secret; with ``_FILE`` behind it, with the path of a file that has it."""

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_TIMEOUT_S = 10.0
_LEEWAY_S = 60


def client_secret(env: Mapping[str, str] = os.environ) -> str:
    """The client's secret; empty for a client that has none."""
    if secret := env.get(SECRET, ""):
        return secret
    if not (name := env.get(f"{SECRET}_FILE", "")):
        return ""
    path = Path(name)
    unread = translating((OSError, ValueError), lambda _: ConfigError(f"{SECRET}_FILE: {path} cannot be read"))
    with unread, path.open() as file:
        if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise NotAllowedError(f"{path}: others can read it", hint=f"chmod 600 {shlex.quote(str(path))}")
        return file.read(4096).strip()


def mapping(grants: Sequence[str]) -> dict[str, dict[str, Role]]:
    """The role by project of each group."""
    result: dict[str, dict[str, Role]] = {}
    for text in grants:
        group, _, rest = text.rpartition("=")
        project, _, role = rest.rpartition(":")
        if not (group and project and role in ("reader", "writer", "admin")):
            raise ConfigError(f"{text!r} does not give a group a role", hint="write GROUP=PROJECT:reader|writer|admin")
        name: RoleName = role  # type: ignore[assignment]  # one of the three
        result.setdefault(group, {})[project] = role_named(name)
    return result


@dataclass(frozen=True)
class Attempt:
    """A sign-in that was begun."""

    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def value(self, purpose: str) -> str:
        """A value for one purpose, which reveals neither the cookie nor another value."""
        return hashlib.sha256(f"{purpose}:{self.cookie}".encode()).hexdigest()


class OpenId:
    """One provider, which authlib talks to.

    Args:
        claim: the claim with the groups of a person.
        grants: the roles that groups give, each as ``GROUP=PROJECT:ROLE``.
    """

    def __init__(
        self,
        issuer: str,
        client_id: str,
        *,
        claim: str = "groups",
        grants: Sequence[str] = (),
        env: Mapping[str, str] = os.environ,
    ) -> None:
        _check_url(issuer, "the issuer")
        self._issuer, self.client_id, self._claim = issuer.rstrip("/"), client_id, claim
        self._groups = mapping(grants)
        secret = client_secret(env)
        self._client = OAuth().register(
            "provider",
            client_id=client_id,
            client_secret=secret or None,
            server_metadata_url=f"{self._issuer}/.well-known/openid-configuration",
            client_kwargs={
                "scope": "openid profile email",
                "code_challenge_method": "S256",
                "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
                "timeout": _TIMEOUT_S,
            },
        )

    async def begin(self, attempt: Attempt, callback: str) -> str:
        """Where to send the browser."""
        with self._translated():
            await self._described()
            began = await self._client.create_authorization_url(
                callback,
                state=attempt.value("state"),
                nonce=attempt.value("nonce"),
                code_verifier=attempt.value("verifier"),
            )
        return str(began["url"])

    async def finish(
        self, attempt: Attempt, callback: str, code: str, state: str
    ) -> tuple[Person, dict[str, Role] | None]:
        """The person who signed in, and the roles that their groups give; None where groups give none."""
        if not hmac.compare_digest(attempt.value("state").encode(), state.encode()):
            raise UnauthenticatedError("the answer belongs to another sign-in", hint="sign in again")
        with self._translated():
            metadata = await self._described()
            token = await self._client.fetch_access_token(callback, code=code, code_verifier=attempt.value("verifier"))
            required = {"iss": metadata["issuer"], "aud": self.client_id}
            claims = await self._client.parse_id_token(
                token,
                nonce=attempt.value("nonce"),
                claims_options={name: {"essential": True, "value": value} for name, value in required.items()},
                leeway=_LEEWAY_S,
            )
            if claims is None:
                raise ValueError("no id_token")
        return self._person(claims), self._grants(claims)

    async def _described(self) -> dict[str, Any]:
        # authlib takes what the provider says of itself; this checks that it speaks for the issuer, over TLS.
        metadata: dict[str, Any] = await self._client.load_server_metadata()
        if str(metadata.get("issuer", "")).rstrip("/") != self._issuer:
            self._client.server_metadata.clear()
            raise ConfigError(f"{self._issuer} describes another issuer", hint="check the URL of the issuer")
        for key in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            _check_url(str(metadata.get(key, "")), f"the provider's {key}")
        signs = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        # Neither unsigned tokens nor ones that a public key would sign.
        metadata["id_token_signing_alg_values_supported"] = [name for name in signs if name in _ALGORITHMS]
        return metadata

    @contextmanager
    def _translated(self) -> Iterator[None]:
        host = urlsplit(self._issuer).hostname
        try:
            yield
        except (httpx2.HTTPError, httpx2.InvalidURL, JSONDecodeError) as error:
            raise ProviderError(f"the OpenID provider {host} does not answer ({type(error).__name__})") from error
        except OAuthError as error:
            raise UnauthenticatedError("the provider refused the sign-in", hint="sign in again") from error
        except (JoseError, KeyError, ValueError, TypeError) as error:
            self._client.server_metadata.clear()  # perhaps the provider's keys have changed
            raise UnauthenticatedError("the provider's answer is not valid", hint="sign in again") from error

    def _person(self, claims: Mapping[str, Any]) -> Person:
        identity = f"{claims['iss']} {claims['sub']}"
        if claims.get("email_verified") is True and isinstance(claims.get("email"), str):
            return Person(identity, claims["email"].lower(), verified=True)
        return Person(identity, str(claims.get("preferred_username") or claims["sub"]))

    def _grants(self, claims: Mapping[str, Any]) -> dict[str, Role] | None:
        if not self._groups:
            return None
        groups = claims.get(self._claim, [])
        result: dict[str, Role] = {}
        for group in groups if isinstance(groups, list) else [groups]:
            for project, role in self._groups.get(group, {}).items() if isinstance(group, str) else ():
                result[project] = max(result.get(project, Role.NONE), role)
        return result


def _check_url(url: str, kind: str) -> None:
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not safe or not parts.hostname or parts.username:
        raise ConfigError(f"{kind} is not an https URL", hint="check the URL of the issuer")
