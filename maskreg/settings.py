"""Settings: what a user chose, and where each choice came from (flag, environment, file or default)."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints
from urllib.parse import parse_qsl, urlsplit

import platformdirs

from maskreg.errors import ConfigError

if TYPE_CHECKING:
    import tomlkit

DEFAULT_JOBS = 8
"""Objects that travel at the same time."""


@dataclass(frozen=True)
class StoreOptions:
    """How to talk to an S3-compatible store. Credentials come from the AWS chain, never from here.

    Attributes:
        endpoint: base URL of the service; empty for AWS.
        region: region name; empty for the AWS chain's.
        profile: profile of the shared AWS configuration; empty for the default chain.
        addressing: bucket in the path or in the host name; ``auto`` means path when an endpoint is given.
        checksums: boto3's request and response checksum mode; some compatible stores only take ``when_required``.
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
        catalog: SQLAlchemy URL of its PostgreSQL index; empty when the store alone is the registry.
        options: how to talk to the store.
    """

    name: str
    url: str
    catalog: str = ""
    options: StoreOptions = field(default_factory=StoreOptions)

    def keeps_tags(self, create_only_holds: bool) -> bool:
        """Whether two writers cannot lose a tag: its store refuses the second, or PostgreSQL lets them take turns."""
        return create_only_holds or self.catalog.startswith("postgresql")


@dataclass(frozen=True)
class Settings:
    """Every setting after flags, environment, file and defaults were laid over each other.

    Attributes:
        home: directory of the local registry.
        config_path: the configuration file, whether it exists or not.
        default_remote: name of the remote that is meant when none is named; empty when not set.
        jobs: objects that travel at the same time.
        offline: never talk to a remote.
        remotes: by name.
        origins: where each value came from, by dotted key.
    """

    home: Path
    config_path: Path
    default_remote: str = ""
    jobs: int = DEFAULT_JOBS
    offline: bool = False
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, env: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None) -> Settings:
        """Read the settings: flags win over the environment, that over the file, that over defaults.

        Args:
            env: the environment; that of the process when left out. An empty variable counts as not set.
            flags: values from the command line by key (``config`` names another file); same texts as ``env``.

        Raises:
            ConfigError: the file is not TOML, has an unknown key or a value of the wrong type, or a flag or
                variable has a value that cannot be meant.
        """
        env = os.environ if env is None else env
        flags = flags or {}
        if unknown := set(flags) - set(_KEYS) - {"config"}:
            raise ConfigError(f"{min(unknown)!r} is not a setting", hint=_KNOWN_KEYS_HINT)
        path = _config_path(env, flags)
        found = _read(path)
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for key, spec in _KEYS.items():
            values[key], origins[key] = spec.choose(key, env, flags, found, path)
        for name, remote in found["remotes"].items():
            origins.update({f"remotes.{name}.{k}": str(path) for k in _written(remote)})
        return cls(config_path=path, remotes=found["remotes"], origins=origins, **values)

    @property
    def meant_remote(self) -> str:
        """Name of the remote that is meant when none is named: the default or the only one; empty without either."""
        return self.default_remote or (next(iter(self.remotes)) if len(self.remotes) == 1 else "")

    def remote(self, name: str | None = None) -> Remote:
        """The remote called ``name``; without a name the one that is meant.

        Raises:
            ConfigError: there is no such remote, none at all, or several and no default.
        """
        if name := name or self.meant_remote:
            if name in self.remotes:
                return self.remotes[name]
            _word(name, "remote")
            known = ", ".join(sorted(self.remotes)) or "none"
            raise ConfigError(
                f"there is no remote called {name!r} (known: {known})", hint=f"maskreg remote add {name} URL"
            )
        if not self.remotes:
            raise ConfigError("no remote is configured", hint="maskreg remote add NAME s3://BUCKET/PREFIX")
        raise ConfigError(
            f"several remotes are configured ({', '.join(sorted(self.remotes))}) and none is the default",
            hint=f"maskreg config set default_remote {min(self.remotes)}",
        )

    def items(self) -> list[tuple[str, str, str]]:
        """Every setting as (dotted key, value, where it came from)."""
        rows = [(key, str(getattr(self, key)), self.origins.get(key, "default")) for key in _KEYS]
        named = [(f"remotes.{n}.{k}", v) for n in sorted(self.remotes) for k, v in _remote_items(self.remotes[n]) if v]
        return rows + [(key, value, self.origins.get(key, "default")) for key, value in named]


def set_value(path: Path, key: str, value: str) -> None:
    """Set one key of the configuration file, or take it away with an empty value; comments stay.

    Args:
        path: the file; made when there is none.
        key: a top-level key or ``remotes.NAME.KEY``.
        value: text; turned into the key's type.

    Raises:
        ConfigError: an unknown key, a value that cannot be meant, or a file that is wrong already.
    """
    table, _, leaf = key.rpartition(".")
    if not table and key in _KEYS:
        typed = _KEYS[key].parse(value, key) if value else None
        _edit(path, lambda document: _assign(document, key, str(typed) if isinstance(typed, Path) else typed))
        return
    name = table.removeprefix("remotes.")
    if not table.startswith("remotes.") or leaf not in _REMOTE_KEYS:
        raise ConfigError(f"{path}: {key!r} is not a setting", hint=_KNOWN_KEYS_HINT)
    if name not in _read(path)["remotes"]:
        raise ConfigError(f"{path}: there is no remote called {name!r}", hint=f"maskreg remote add {name} URL")
    _edit(path, lambda document: _assign(_remote_table(document, name), leaf, value or None))


def add_remote(path: Path, remote: Remote) -> None:
    """Write a new remote, as ``checked`` gives it, into the configuration file; comments stay.

    Raises:
        ConfigError: the name is taken or not a name, a value that cannot be meant, a password in a URL.
    """
    if remote.name in _read(path)["remotes"]:
        raise ConfigError(
            f"{path}: there is a remote called {remote.name!r} already",
            hint=f"maskreg remote remove {remote.name}, or choose another name",
        )
    written = _written(checked(remote))
    _edit(path, lambda document: _remote_table(document, remote.name).update(written))


def checked(remote: Remote) -> Remote:
    """A remote as the configuration file would have it: a relative path is made absolute.

    Raises:
        ConfigError: not a name, a value that cannot be meant, a password in a URL.
    """
    url = remote.url if "://" in remote.url else str(Path(remote.url).expanduser().absolute())
    return _remote(remote.name, _written(replace(remote, url=url)), "new")


def remove_remote(path: Path, name: str) -> None:
    """Take a remote out of the configuration file, and with it ``default_remote`` when that names it.

    Raises:
        ConfigError: there is no such remote.
    """
    if name not in _read(path)["remotes"]:
        raise ConfigError(f"{path}: there is no remote called {name!r}", hint="maskreg remote list")

    def edit(document: tomlkit.TOMLDocument) -> None:
        del document["remotes"][name]
        if document.get("default_remote") == name:
            del document["default_remote"]

    _edit(path, edit)


@dataclass(frozen=True)
class _Key:
    # One top-level setting: its variable, its type in the file, how a text becomes a value, its default.
    variable: str
    kind: type
    parse: Callable[[str, str], Any]
    default: Callable[[], Any]

    def choose(
        self, key: str, env: Mapping[str, str], flags: Mapping[str, str], found: Mapping[str, Any], path: Path
    ) -> tuple[Any, str]:
        if flags.get(key):
            flag = f"--{key.replace('_', '-')}"
            return self.parse(flags[key], flag), flag
        if env.get(self.variable):
            return self.parse(env[self.variable], self.variable), self.variable
        if key in found:
            value = found[key]
            return (self.parse(value, f"{path}: {key}") if isinstance(value, str) else value), str(path)
        return self.default(), "default"


def _path(text: str, what: str) -> Path:
    path = Path(text).expanduser()
    # A relative path is fine on a command line; in a file it would mean another place in every directory.
    if what.endswith(": home") and not path.is_absolute():
        raise ConfigError(f"{what}: {text!r} is not an absolute path")
    return path.absolute()


def _jobs(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 256:
        raise ConfigError(f"{what}: {text!r} is not a number from 1 to 256")
    return int(text)


def _flag(text: str, what: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ConfigError(f"{what}: {text!r} is neither true nor false")
    return words[text.lower()]


def _word(text: str, what: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(f"{what}: {text!r} is not a name (letters, digits, '-' and '_')")
    if text == "local":
        raise ConfigError(f"{what}: 'local' means the registry of this machine", hint="choose another name")
    return text


_SECRETS = frozenset({"password", "passwd", "secret", "token", "access_key", "secret_key", "sslpassword"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KEYS = {
    "home": _Key("MASKREG_HOME", str, _path, lambda: platformdirs.user_data_path("maskreg")),
    "default_remote": _Key("MASKREG_REMOTE", str, _word, str),
    "jobs": _Key("MASKREG_JOBS", int, _jobs, lambda: DEFAULT_JOBS),
    "offline": _Key("MASKREG_OFFLINE", bool, _flag, bool),
}
_OPTION_KEYS = tuple(f.name for f in fields(StoreOptions))
_REMOTE_KEYS = ("url", "catalog", *_OPTION_KEYS)
_KNOWN_KEYS_HINT = f"known: {', '.join(_KEYS)}, remotes.NAME.({'|'.join(_REMOTE_KEYS)})"


def _config_path(env: Mapping[str, str], flags: Mapping[str, str]) -> Path:
    text = flags.get("config") or env.get("MASKREG_CONFIG")
    return Path(text).expanduser().absolute() if text else platformdirs.user_config_path("maskreg") / "config.toml"


def _read(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {"remotes": {}}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    return _check(data, path)


def _check(data: bytes, path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML ({error})") from error
    for key, value in found.items():
        if key == "remotes":
            continue
        if key not in _KEYS:
            raise ConfigError(f"{path}: unknown key {key!r}", hint=_KNOWN_KEYS_HINT)
        if type(value) is not _KEYS[key].kind:
            raise ConfigError(f"{path}: {key}: {value!r} is not of type {_KEYS[key].kind.__name__}")
        if value != "":
            _KEYS[key].parse(str(value), f"{path}: {key}")
    remotes = found.get("remotes", {})
    if not isinstance(remotes, dict):
        raise ConfigError(f"{path}: remotes: tables called [remotes.NAME] were expected")
    found["remotes"] = {name: _remote(name, table, path) for name, table in remotes.items()}
    return {k: v for k, v in found.items() if v != ""}


def _remote(name: str, table: object, path: object) -> Remote:
    where = f"{path}: remotes.{name}"
    _word(name, f"{path}: remotes")
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: a table was expected")
    allowed = get_type_hints(StoreOptions)
    for key, value in table.items():
        if key not in _REMOTE_KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}", hint=f"known: {', '.join(_REMOTE_KEYS)}")
        if not isinstance(value, str):
            raise ConfigError(f"{where}.{key}: {value!r} is not of type str")
        words = get_args(allowed.get(key, str))
        if words and value not in words:
            raise ConfigError(f"{where}.{key}: {value!r} is none of {', '.join(words)}")
        if key in ("url", "catalog", "endpoint"):
            _check_no_password(value, f"{where}.{key}")
    url = table.get("url", "")
    if not url:
        raise ConfigError(f"{where}: url is missing", hint=f"maskreg config set remotes.{name}.url s3://BUCKET/PREFIX")
    if "://" not in url and not Path(url).expanduser().is_absolute():
        raise ConfigError(f"{where}.url: {url!r} is neither a URL nor an absolute path")
    options = StoreOptions(**{k: v for k, v in table.items() if k in _OPTION_KEYS})
    return Remote(name, url, table.get("catalog", ""), options)


def _check_no_password(url: str, where: str) -> None:
    # Never quote the URL here: the message would carry the password into logs.
    try:
        parts = urlsplit(url)
        secret = parts.password is not None or any(k.lower() in _SECRETS for k, _ in parse_qsl(parts.query))
    except ValueError:
        raise ConfigError(f"{where}: not a URL") from None
    if secret:
        raise ConfigError(
            f"{where}: a URL must not hold a password",
            hint="put it into ~/.pgpass, PGPASSWORD or the AWS credential chain, and leave it out of the URL",
        )


def _remote_items(remote: Remote) -> list[tuple[str, str]]:
    options = [(key, str(getattr(remote.options, key))) for key in _OPTION_KEYS]
    return [("url", remote.url), ("catalog", remote.catalog), *options]


def _written(remote: Remote) -> dict[str, str]:
    return {key: value for key, value in _remote_items(remote) if value != getattr(StoreOptions, key, "")}


def _assign(table: Any, key: str, value: object) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _remote_table(document: tomlkit.TOMLDocument, name: str) -> Any:
    import tomlkit

    if "remotes" not in document:
        # A super table has no header of its own: only [remotes.NAME] is written.
        document["remotes"] = tomlkit.table(is_super_table=True)
    remotes: Any = document["remotes"]
    if name not in remotes:
        remotes[name] = tomlkit.table()
    return remotes[name]


def _edit(path: Path, change: Callable[[tomlkit.TOMLDocument], None]) -> None:
    import tomlkit

    place = path.resolve()  # a link from a dot-files folder stays a link
    try:
        document = tomlkit.parse(place.read_text("utf-8") if place.exists() else "")
        change(document)
        data = tomlkit.dumps(document).encode()
        _check(data, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f".{place.name}.{os.getpid()}")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            draft.chmod(place.stat().st_mode & 0o777)
        draft.replace(place)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
