"""URLs that are stored or printed: a short list of what each part can hold keeps secrets out.

::

    s3://BUCKET/PREFIX                          a store: no user, no query, no fragment
    https://HOST[:PORT][/PATH]                  a service: the same
    postgresql://[USER@]HOST[:PORT]/DATABASE    a catalog: a user without a password
        ?sslmode=require&...                    keys of the list below; values without '=', '@' and '%'

A list of what is forbidden would have holes: ``options=-c password%3D...``, ``user%253Apassword@``, or a password with
a slash or hash in it, at which parsers cut the URL. So everything outside the list is refused, such as text that holds
a percent sign after decoding, because it was encoded twice. No message repeats a part of the URL that did not pass.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

from maskreg.errors import ConfigError

CATALOG_KEYS = (
    *("application_name", "channel_binding", "client_encoding", "connect_timeout", "gssencmode", "host", "hostaddr"),
    *("keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts"),
    *("passfile", "port", "require_auth", "requirepeer", "service", "sslcert", "sslcrl", "sslcrldir", "sslkey"),
    *("ssl_max_protocol_version", "ssl_min_protocol_version", "sslmode", "sslnegotiation", "sslrootcert", "sslsni"),
    *("target_session_attrs", "tcp_user_timeout"),
)
"""Query keys of a catalog's URL. Missing on purpose: ``password``, ``sslpassword``, ``options`` and ``dbname``, which
may be a whole connection string."""

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
    """Check the URL of a store or of a service; a text without a scheme is a path, and passes.

    Args:
        url: the text.
        where: what it is, for the message.

    Raises:
        ConfigError: it is malformed, or has a user, a password, a query or a fragment.
    """
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
    """Check the URL of a catalog in PostgreSQL.

    Args:
        url: the text.
        where: what it is, for the message.

    Raises:
        ConfigError: another kind of database, malformed, or something that can hold a password.
    """
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
    if not _harmless(match["query"] or ""):
        raise ConfigError(
            f"{where}: a URL must not hold a password; its query may only have options that cannot hold one, such as "
            f"sslmode, passfile and connect_timeout; write {bare}",
            hint=f"{_CATALOG_HINT}, and other options into PGOPTIONS",
        )


def _harmless(query: str) -> bool:
    pairs = parse_qsl(query, keep_blank_values=True)
    return all(key in CATALOG_KEYS and _VALUE.fullmatch(value) for key, value in pairs)


def _decoded(text: str) -> str:
    # Each round shortens the text, so this ends.
    while (plain := unquote(text)) != text:
        text = plain
    return text
