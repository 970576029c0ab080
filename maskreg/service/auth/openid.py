"""Signing in with an OpenID provider: the authorization code flow, with PKCE, state and nonce.

One random cookie ties the three to the browser that began::

    GET /sign-in/oidc              cookie = random; state, nonce and verifier are hashes of it, each another one
      -> provider                  sees state, nonce and the hash of the verifier
    GET /sign-in/oidc/callback     state has to fit the cookie, the provider's token has to carry the nonce,
                                   and only who knows the verifier gets that token
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry
from sqlalchemy import Connection, select, update

from maskreg.errors import ConfigError, NotAllowedError, UnauthenticatedError
from maskreg.service.auth.changes import account, drop_grant, ensure_project, new_account, put_grant, record
from maskreg.service.auth.database import Database
from maskreg.service.auth.models import GrantRow, PrincipalRow
from maskreg.service.auth.roles import SYSTEM, Principal, Role, RoleName, name_of, role_named
from maskreg.service.faults import ProviderError
from maskreg.settings.credentials import is_loopback

SECRET = "MASKREG_OIDC_SECRET"
"""The environment variable with the client's secret; with ``_FILE`` behind it, with the path of a file that has it."""

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_FRESH_S = 3600.0
_TIMEOUT_S = 10.0
_LEEWAY_S = 60
_MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True)
class OpenIdOptions:
    """How people sign in.

    Attributes:
        issuer: the provider's URL, from which all else is found.
        client_id: what the provider calls this server.
        claim: the claim that lists somebody's groups.
        grants: role by project of each group, as ``GROUP=PROJECT:ROLE``; empty where admins alone give roles.
    """

    issuer: str
    client_id: str
    claim: str = "groups"
    grants: tuple[str, ...] = ()


def client_secret(env: Mapping[str, str] = os.environ) -> str:
    """The client's secret; empty for a client that has none.

    Raises:
        ConfigError: the file cannot be read.
        NotAllowedError: others may read it.
    """
    if secret := env.get(SECRET, ""):
        return secret
    if not (name := env.get(f"{SECRET}_FILE", "")):
        return ""
    path = Path(name)
    try:
        with path.open() as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise NotAllowedError(f"{path}: others may read it", hint=f"chmod 600 {path}")
            return file.read(4096).strip()
    except NotAllowedError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(f"{SECRET}_FILE: {path} cannot be read") from error


def mapping(grants: tuple[str, ...]) -> dict[str, dict[str, Role]]:
    """The role by project of each group.

    Raises:
        ConfigError: not of the form ``GROUP=PROJECT:ROLE``.
    """
    result: dict[str, dict[str, Role]] = {}
    for text in grants:
        group, equals, rest = text.rpartition("=")
        project, colon, role = rest.rpartition(":")
        if not (group and equals and project and colon and role in ("reader", "writer", "admin")):
            raise ConfigError(f"{text!r} does not give a group a role", hint="write GROUP=PROJECT:reader|writer|admin")
        name: RoleName = role  # type: ignore[assignment]  # one of the three
        result.setdefault(group, {})[project] = role_named(name)
    return result


@dataclass(frozen=True)
class Attempt:
    """A sign-in that was begun.

    Attributes:
        cookie: what the browser keeps; all else follows from it.
    """

    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def value(self, purpose: str) -> str:
        """A value for one purpose, from which nobody finds the cookie or another value."""
        return hashlib.sha256(f"{purpose}:{self.cookie}".encode()).hexdigest()

    @property
    def challenge(self) -> str:
        """The hash of the verifier, as PKCE has it."""
        digest = hashlib.sha256(self.value("verifier").encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class OpenId:
    """One provider. Safe to use from many threads.

    Raises:
        ConfigError: the issuer is no URL that can be trusted, or a group's role is malformed.
        NotAllowedError: others may read the secret.
    """

    def __init__(self, options: OpenIdOptions, env: Mapping[str, str] = os.environ) -> None:
        _check_url(options.issuer, "the issuer")
        self._options = options
        self._groups = mapping(options.grants)
        self._secret = client_secret(env)
        self._lock = threading.Lock()
        self._metadata: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._read_at = 0.0

    def begin(self, attempt: Attempt, callback: str) -> str:
        """Where to send the browser.

        Args:
            attempt: a new one.
            callback: URL of this server to which the provider sends it back.

        Raises:
            ProviderError: the provider does not answer.
        """
        metadata, _ = self._provider()
        query = {
            "response_type": "code",
            "client_id": self._options.client_id,
            "redirect_uri": callback,
            "scope": "openid profile email",
            "state": attempt.value("state"),
            "nonce": attempt.value("nonce"),
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        endpoint = str(metadata["authorization_endpoint"])
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def finish(self, attempt: Attempt, callback: str, code: str, state: str) -> tuple[Person, dict[str, Role] | None]:
        """Who signed in, and the roles that their groups give; None where groups give none.

        Args:
            attempt: that the browser began.
            callback: as for :meth:`begin`.
            code: what the provider sent with the browser.
            state: what it sent back.

        Raises:
            UnauthenticatedError: the answer does not belong to this attempt, or is not valid.
            ProviderError: the provider does not answer.
        """
        if not hmac.compare_digest(attempt.value("state").encode(), state.encode()):
            raise UnauthenticatedError("the answer belongs to another sign-in", hint="sign in again")
        metadata, keys = self._provider()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback,
            "client_id": self._options.client_id,
            "code_verifier": attempt.value("verifier"),
        }
        # The secret goes into the header that every provider has to understand.
        basic = (self._options.client_id, self._secret) if self._secret else None
        token = self._fetch("POST", str(metadata["token_endpoint"]), data=form, auth=basic)
        claims = self._verified(token, keys, attempt.value("nonce"))
        return self._person(claims), self._grants(claims)

    def _verified(self, token: dict[str, Any], keys: KeySet, nonce: str) -> Mapping[str, Any]:
        try:
            registry = JWSRegistry(algorithms=_ALGORITHMS)
            decoded = jwt.decode(str(token["id_token"]), keys, registry=registry)
            claims = CodeIDToken(
                decoded.claims,
                decoded.header,
                {
                    "iss": {"essential": True, "value": self._metadata["issuer"]},
                    "aud": {"essential": True, "value": self._options.client_id},
                },
                {"nonce": nonce, "client_id": self._options.client_id, "access_token": token.get("access_token")},
            )
            claims.validate(leeway=_LEEWAY_S)
        except (JoseError, KeyError, ValueError, TypeError) as error:
            with self._lock:
                self._read_at = 0.0  # perhaps the provider's keys have changed
            raise UnauthenticatedError("the provider's answer is not valid", hint="sign in again") from error
        return dict(claims)

    def _person(self, claims: Mapping[str, Any]) -> Person:
        identity = f"{claims['iss']} {claims['sub']}"
        if claims.get("email_verified") is True and isinstance(claims.get("email"), str):
            return Person(identity, claims["email"].lower(), verified=True)
        return Person(identity, str(claims.get("preferred_username") or claims["sub"]))

    def _grants(self, claims: Mapping[str, Any]) -> dict[str, Role] | None:
        if not self._groups:
            return None
        groups = claims.get(self._options.claim, [])
        result: dict[str, Role] = {}
        for group in groups if isinstance(groups, list) else [groups]:
            for project, role in self._groups.get(group, {}).items() if isinstance(group, str) else ():
                result[project] = max(result.get(project, Role.NOBODY), role)
        return result

    def _provider(self) -> tuple[dict[str, Any], KeySet]:
        with self._lock:
            if self._keys is None or time.monotonic() - self._read_at > _FRESH_S:
                issuer = self._options.issuer.rstrip("/")
                metadata = self._fetch("GET", f"{issuer}/.well-known/openid-configuration")
                if str(metadata.get("issuer", "")).rstrip("/") != issuer:
                    raise ConfigError(f"{issuer} describes another issuer", hint="check --oidc-issuer")
                for key in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    _check_url(str(metadata.get(key, "")), f"the provider's {key}")
                self._keys = KeySet.import_key_set(self._fetch("GET", metadata["jwks_uri"]))  # type: ignore[arg-type]
                self._metadata, self._read_at = metadata, time.monotonic()
            return self._metadata, self._keys

    def _fetch(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        try:
            answer = httpx2.request(method, url, timeout=_TIMEOUT_S, follow_redirects=False, **options)
            if answer.status_code in (400, 401, 403):
                raise UnauthenticatedError("the provider refused the sign-in", hint="sign in again")
            answer.raise_for_status()
            content = answer.json()
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            host = urlsplit(url).hostname
            raise ProviderError(f"the OpenID provider {host} does not answer ({type(error).__name__})") from error
        if not isinstance(content, dict) or len(answer.content) > _MAX_ANSWER_BYTES:
            raise ProviderError(f"the OpenID provider {urlsplit(url).hostname} answers something else")
        return content


def _check_url(url: str, kind: str) -> None:
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not safe or not parts.hostname or parts.username:
        raise ConfigError(f"{kind} is not an https URL", hint="check --oidc-issuer")


PROVIDER = Principal("OpenID provider", SYSTEM.grants)
"""Who gives the roles that follow from groups."""


@dataclass(frozen=True)
class Person:
    """Who somebody is, as their provider says.

    Attributes:
        identity: issuer and subject; never given to somebody else.
        name: what they are called.
        verified: the name is an address that the provider has verified.
    """

    identity: str
    name: str
    verified: bool = False


class People:
    """The accounts of people who sign in."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def sign_in(self, person: Person, grants: Mapping[str, Role] | None = None) -> Principal:
        """The account of somebody who signed in.

        Args:
            person: who, as the provider says.
            grants: roles by project that follow from groups, in place of those of the last time; None where roles are
                given by admins alone.

        Raises:
            NotAllowedError: the name belongs to another account.
        """
        with self._database.write() as connection:
            id, name = _account_of(connection, person)
            if grants is not None:
                _follow_groups(connection, id, name, grants)
        return Principal(name, id=id)


def _account_of(connection: Connection, person: Person) -> tuple[str, str]:
    live = select(PrincipalRow.id, PrincipalRow.name).where(PrincipalRow.removed_at.is_(None))
    known = connection.execute(live.where(PrincipalRow.identity == person.identity)).first()
    if known is not None:
        return known.id, known.name
    invited = account(connection, person.name)
    if invited is None:
        return new_account(connection, person.name, person.identity), person.name
    free = update(PrincipalRow).where(PrincipalRow.id == invited, PrincipalRow.identity.is_(None))
    if not person.verified or connection.execute(free.values(identity=person.identity)).rowcount != 1:
        raise NotAllowedError(f"the name {person.name} belongs to another account of this server")
    return invited, person.name


def _follow_groups(connection: Connection, id: str, name: str, grants: Mapping[str, Role]) -> None:
    rows = select(GrantRow.project, GrantRow.role, GrantRow.by).where(GrantRow.principal == id)
    held = {project: (role, by) for project, role, by in connection.execute(rows)}
    for project, (_, by) in held.items():
        if by == PROVIDER.name and project not in grants:
            drop_grant(connection, id, project)
            record(connection, PROVIDER, "revoke", project=project, subject=name)
    for project, role in grants.items():
        before, by = held.get(project, (Role.NOBODY, PROVIDER.name))
        # What an admin gave stays as it is.
        if by == PROVIDER.name and before != role:
            ensure_project(connection, project, PROVIDER)
            put_grant(connection, id, project, role, PROVIDER)
            record(connection, PROVIDER, "grant", project=project, subject=name, detail={"role": name_of(role)})
