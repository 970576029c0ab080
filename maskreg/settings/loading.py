"""Settings: environment over file over defaults, with the origin of each value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskreg.errors import ConfigError, UnavailableError
from maskreg.settings.file import KEYS, as_text, config_path, read_file
from maskreg.settings.remotes import Remote, StoreOptions, default_jobs, parse_name, unknown_remote


@dataclass(frozen=True)
class Settings:
    """Every setting, after environment, file and defaults were combined.

    Attributes:
        home: directory of the local registry.
        config_path: the configuration file, whether it exists or not.
        default_remote: name of the remote to use when none is named; empty when not set.
        jobs: objects that travel at the same time; four for each CPU that this process can use, at most 16.
        offline: never talk to a remote.
        cache_size: bytes that pulled artifacts can take, for ``maskreg cache prune``; 0 for any number.
        immutable_projects: projects in which every tag but ``latest`` that this machine sets must never move.
        remotes: by name.
        origins: where each value came from, by dotted key.
    """

    home: Path
    config_path: Path
    default_remote: str = ""
    jobs: int = field(default_factory=default_jobs)
    offline: bool = False
    cache_size: int = 0
    immutable_projects: tuple[str, ...] = ()
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, env: Mapping[str, str] | None = None, *, home: str = "") -> Settings:
        """Read the settings: the environment wins over the file, that over defaults; ``home`` over all."""
        env = {**(os.environ if env is None else env), **({"MASKREG_HOME": home} if home else {})}
        path = config_path(env)
        file = read_file(path)
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for name, key in KEYS.items():
            values[name], origins[name] = key.choose(env, file, path)
        remotes: Mapping[str, Remote] = file["remotes"]
        for remote in remotes.values():
            origins.update({f"remotes.{remote.name}.{key}": str(path) for key in remote.table()})
        return cls(config_path=path, remotes=remotes, origins=origins, **values)

    @property
    def meant_remote(self) -> str:
        """Name of the remote to use when none is named: the default or the only one; empty without either."""
        return self.default_remote or (next(iter(self.remotes)) if len(self.remotes) == 1 else "")

    def asks_remote(self, name: str | None = None) -> bool:
        """Whether a pull asks a remote: a named one always, the default one unless offline is set."""
        return name is not None or bool(self.remotes and not self.offline)

    def remote(self, name: str | None = None) -> Remote:
        """The remote called ``name``; without a name the default or the only one."""
        origin = ""
        if name is None:
            name, origin = self.meant_remote or None, self.origins.get("default_remote", "")
        if name is not None:
            if name in self.remotes:
                return self.remotes[name]
            if "://" in name:
                known = next((remote.name for remote in self.remotes.values() if remote.url == name.rstrip("/")), "")
                fault = f"{name} is a URL; a remote is named by its name"
                if known:
                    raise ConfigError(fault, hint=f"write {known}, its name here")
                raise ConfigError(fault, new_remote="NAME", new_url=name)
            parse_name(name, "remote")
            raise unknown_remote(name, self.remotes, origin=origin)
        if not self.remotes:
            raise ConfigError("no remote is configured", new_remote="NAME", new_url="s3://BUCKET/PREFIX")
        raise ConfigError(
            f"several remotes are configured ({', '.join(sorted(self.remotes))}) and none is the default",
            no_default=next(iter(self.remotes)),
        )

    def options_of(self, url: str) -> StoreOptions:
        """How to talk to the service of a checkpoint's URL: as the nearest remote in its bucket, or AWS's chain."""
        if self.offline:
            raise UnavailableError(f"{url} is not read: offline is set", hint="unset MASKREG_OFFLINE")
        bucket = url.split("/")[:3]
        same = [remote for remote in self.remotes.values() if remote.url.split("/")[:3] == bucket]
        nearest = max(same, key=lambda remote: len(os.path.commonpath([remote.url, url])), default=None)
        return nearest.options if nearest else StoreOptions()

    def items(self) -> list[tuple[str, str, str]]:
        """Every setting as (dotted key, value, origin)."""
        rows = [(key, as_text(getattr(self, key))) for key in KEYS]
        rows += [(f"remotes.{n}.{k}", v) for n in sorted(self.remotes) for k, v in self.remotes[n].items() if v]
        return [(key, value, self.origins.get(key, "default")) for key, value in rows]
