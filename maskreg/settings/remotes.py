"""A remote: what it consists of, how its table in the configuration file is parsed, and what is refused in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args, get_type_hints
from urllib.parse import parse_qsl, unquote

from maskreg.errors import ConfigError
from maskreg.parallel import available_cpus
from maskreg.ref import WORD

DEFAULT_JOBS = 8
"""Objects in transfer at the same time, by default."""

_MOST_JOBS = 16
_JOBS_PER_CPU = 4


def default_jobs() -> int:
    """Objects that travel at the same time on this machine: four for each CPU that this process can use, at most 16.

    Most wait for the network, and each is in memory.
    """
    return min(_MOST_JOBS, _JOBS_PER_CPU * available_cpus())


@dataclass(frozen=True)
class StoreOptions:
    """How to talk to an S3-compatible store. Credentials come from the AWS chain, never from here.

    Attributes:
        endpoint: base URL of the service; empty for AWS.
        region: region name; empty for the AWS chain's.
        profile: profile of the shared AWS configuration; empty for the default chain.
        addressing: bucket in the path or in the host name; ``auto`` means path when an endpoint is given.
        checksums: botocore's request and response checksum mode; some compatible stores only accept ``when_required``.
        ca_bundle: path of a CA bundle for TLS; empty for the system's.
    """

    endpoint: str = ""
    region: str = ""
    profile: str = ""
    addressing: Literal["auto", "path", "virtual"] = "auto"
    checksums: Literal["when_required", "when_supported"] = "when_required"
    ca_bundle: str = ""


@dataclass(frozen=True)
class Remote:
    """A registry elsewhere, by name.

    Attributes:
        name: what the user calls it.
        url: ``s3://bucket/prefix``, ``file:///path`` or an absolute path.
        catalog: URL of its PostgreSQL catalog; empty when the store alone is the registry.
        options: how to talk to the store.
        project_keys: public keys that sign projects there, as ``team=ed25519:<64 hex digits>``.
    """

    name: str
    url: str
    catalog: str = ""
    options: StoreOptions = field(default_factory=StoreOptions)
    project_keys: tuple[str, ...] = ()

    @property
    def keys(self) -> dict[str, str]:
        """The public keys that sign projects there, by project."""
        return dict(text.split("=", 1) for text in self.project_keys)

    def items(self) -> list[tuple[str, str]]:
        """Every value of the remote by its key in the configuration file."""
        options = [(key, str(getattr(self.options, key))) for key in _OPTION_KEYS]
        return [("url", self.url), ("catalog", self.catalog), *options, ("project_keys", ",".join(self.project_keys))]

    def table(self) -> dict[str, str]:
        """The remote's table in the configuration file: what differs from the defaults."""
        return {key: value for key, value in self.items() if value != getattr(StoreOptions, key, "")}


_OPTION_KEYS = tuple(f.name for f in fields(StoreOptions))
REMOTE_KEYS = ("url", "catalog", *_OPTION_KEYS, "project_keys")
"""Keys of a remote's table in the configuration file."""

_PROJECT_KEY = re.compile(rf"{WORD}=ed25519:[0-9a-f]{{64}}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def parse_name(text: str, origin: str) -> str:
    """Check the name of a remote."""
    if not _NAME.fullmatch(text):
        raise ConfigError(f"{origin}: {text!r} is not a name (letters, digits, '-' and '_')")
    if text == "local":
        raise ConfigError(f"{origin}: 'local' means the registry of this machine", hint="choose another name")
    return text


def unknown_remote(name: str, known: Iterable[str], *, origin: str = "", can_be_added: bool = True) -> ConfigError:
    """The error for a remote that is not configured; suggests the most similar name, or to add it where that helps.

    ``origin``: the file or variable that names it; empty when the caller does.
    """
    import difflib

    names = sorted(known)
    similar = difflib.get_close_matches(name, names, n=1)
    guess = f"; did you mean {similar[0]!r}?" if similar else ""
    return ConfigError(
        f"{origin and f'{origin}: '}there is no remote called {name!r} (known: {', '.join(names) or 'none'}){guess}",
        **({"known_remotes": tuple(names)} if similar or not can_be_added else {"new_remote": name, "new_url": "URL"}),
    )


def parse_remote(name: str, table: object, origin: object) -> Remote:
    """Parse the table ``[remotes.NAME]``."""
    where = f"{origin}: remotes.{name}"
    parse_name(name, f"{origin}: remotes")
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: a table was expected")
    kinds = get_type_hints(StoreOptions)
    for key, value in table.items():
        if key not in REMOTE_KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}", hint=f"known: {', '.join(REMOTE_KEYS)}")
        if not isinstance(value, str):
            raise ConfigError(f"{where}.{key}: {value!r} is not of type str")
        allowed = get_args(kinds.get(key, str))
        if allowed and value not in allowed:
            raise ConfigError(f"{where}.{key}: {value!r} is none of {', '.join(allowed)}")
        if key == "catalog" and value:
            check_catalog(value, f"{where}.{key}")
        elif key in ("url", "endpoint"):
            check_address(value, f"{where}.{key}")
    url = table.get("url", "")
    if not url:
        raise ConfigError(f"{where}: url is missing", setting=f"remotes.{name}.url", new_value="s3://BUCKET/PREFIX")
    if "://" not in url and not Path(url).expanduser().is_absolute():
        raise ConfigError(f"{where}.url: {url!r} is neither a URL nor an absolute path")
    options = StoreOptions(**{k: v for k, v in table.items() if k in _OPTION_KEYS})
    keys = _project_keys(table.get("project_keys", ""), f"{where}.project_keys")
    return Remote(name, url, table.get("catalog", ""), options, keys)


def _project_keys(text: str, where: str) -> tuple[str, ...]:
    pairs = tuple(part.strip() for part in text.split(",") if part.strip())
    for pair in pairs:
        if not _PROJECT_KEY.fullmatch(pair):
            raise ConfigError(f"{where}: {pair!r} is no key of a project", hint="write PROJECT=ed25519:<64 hex digits>")
    if len({pair.partition("=")[0] for pair in pairs}) < len(pairs):
        raise ConfigError(f"{where}: a project has two keys", hint="name the current one")
    return pairs


CATALOG_KEYS = (
    *("application_name", "channel_binding", "client_encoding", "connect_timeout", "gssencmode", "host", "hostaddr"),
    *("keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts"),
    *("passfile", "port", "require_auth", "requirepeer", "service", "sslcert", "sslcrl", "sslcrldir", "sslkey"),
    *("ssl_max_protocol_version", "ssl_min_protocol_version", "sslmode", "sslnegotiation", "sslrootcert", "sslsni"),
    *("target_session_attrs", "tcp_user_timeout"),
)
"""Query keys of a catalog's URL. Missing on purpose: ``password``, ``sslpassword``, ``options`` and ``dbname``, which
can be a whole connection string."""

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)"
_ADDRESS = re.compile(rf"[a-z][a-z0-9+.-]*://(?:{_HOST}(?::[0-9]+)?)?(?:/[^?#]*)?", re.IGNORECASE)
_CATALOG = re.compile(
    r"(?P<scheme>postgresql(?:\+psycopg)?)://"
    r"(?:(?P<user>[^:@/?#]*)(?P<password>:[^@/?#]*)?@)?"
    rf"(?P<host>{_HOST})?(?P<port>:[0-9]+)?(?P<database>/[^:@/?#]*)?(?:\?(?P<query>[^#]*))?"
)
_WORD = re.compile(r"[\w.@$+ -]*")
_VALUE = re.compile(r"[\w.,:/~+ -]*")
_USER_AND_PASSWORD = re.compile(r"//[^/]*:.*@|//[^/]+@")
_STORE_HINT = "remove it; credentials come from the AWS chain, such as AWS_PROFILE"
_SERVICE_HINT = "remove it; log in with a token instead"
_CATALOG_HINT = "put the password into ~/.pgpass (mode 0600) or the environment variable PGPASSWORD"
_CATALOG_FORM = "write postgresql+psycopg://USER@HOST/DATABASE"


def check_address(url: str, where: str) -> None:
    """Check the URL of a store or of a service; a text without a scheme is a path, and passes."""
    if "://" not in url or _ADDRESS.fullmatch(url):
        return
    decoded = _decoded(url)
    if "?" in decoded or "#" in decoded or _USER_AND_PASSWORD.search(decoded):
        fault = "a URL must not hold a password, a user, a query or a fragment"
        is_service = decoded.lower().startswith(("https://", "http://"))
        raise ConfigError(
            f"{where}: {fault}",
            hint=_SERVICE_HINT if is_service else _STORE_HINT,
            **({"token_of": "URL"} if is_service else {}),
        )
    raise ConfigError(f"{where}: malformed URL", new_url="s3://BUCKET/PREFIX", or_url="https://HOST[:PORT]")


def check_catalog(url: str, where: str) -> None:
    """Check the URL of a catalog in PostgreSQL."""
    if not url.startswith(("postgresql://", "postgresql+psycopg://")):
        raise ConfigError(f"{where}: not the URL of a PostgreSQL database", hint=_CATALOG_FORM)
    match = _CATALOG.fullmatch(url)
    if match is None:
        secret = _USER_AND_PASSWORD.search(_decoded(url))
        fault = "a URL must not hold a password" if secret else "malformed URL"
        raise ConfigError(f"{where}: {fault}", hint=_CATALOG_HINT if secret else _CATALOG_FORM)
    user, database = match["user"] or "", match["database"] or ""
    if not (_WORD.fullmatch(unquote(user)) and _WORD.fullmatch(unquote(database[1:]))):
        fault = "a user and a database consist of letters, digits and . @ $ + - _; a URL must not hold a password"
        raise ConfigError(f"{where}: {fault}", hint=_CATALOG_HINT)
    bare = f"{match['scheme']}://{user}{'@' * bool(user)}{match['host'] or ''}{match['port'] or ''}{database}"
    if match["password"] is not None:
        raise ConfigError(f"{where}: a URL must not hold a password; write {bare}", hint=_CATALOG_HINT)
    pairs = parse_qsl(match["query"] or "", keep_blank_values=True)
    if not all(key in CATALOG_KEYS and _VALUE.fullmatch(value) for key, value in pairs):
        raise ConfigError(
            f"{where}: a URL must not hold a password; its query can only have options that cannot hold one, such as "
            f"sslmode, passfile and connect_timeout; write {bare}",
            hint=f"{_CATALOG_HINT}, and other options into PGOPTIONS",
        )


def _decoded(text: str) -> str:
    # Each round shortens the text, so this ends.
    while (plain := unquote(text)) != text:
        text = plain
    return text
