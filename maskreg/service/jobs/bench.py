"""Where a worker works: what it needs to know of the server, as a process of its own gets it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from maskreg.errors import FormatError
from maskreg.service.jobs.base import JobLimits
from maskreg.service.jobs.patching import Patching
from maskreg.service.jobs.sources import Sources
from maskreg.service.jobs.sql import SqlJobQueue
from maskreg.settings import Remote, Settings
from maskreg.settings.remotes import StoreOptions


@dataclass(frozen=True)
class Bench:
    """A server's parts by name, without a connection; no secret is in it.

    Attributes:
        settings: of the server's workspace.
        remote: name in the settings of the registry that is served; None for the local one.
        url: of the database with the queue.
        sources: checkpoints that jobs may read.
        outputs: the folder where checkpoints are written.
        limits: how much is done at the same time.
        log_format: ``json`` for lines of JSON on standard error; ``text`` for warnings alone.
        signing_key: as :func:`maskreg.service.start.signer_of` takes it.
    """

    settings: Settings
    remote: str | None
    url: str
    sources: Sources
    outputs: Path
    limits: JobLimits = field(default_factory=JobLimits)
    log_format: str = "json"
    signing_key: str = "none"

    def open(self) -> Patching:
        """Open the queue; its caller closes it.

        Raises:
            MaskregError: as :meth:`maskreg.service.jobs.sql.SqlJobQueue.open`.
        """
        return Patching(SqlJobQueue.open(self.url), self.sources, self.outputs, self.limits)

    def dumps(self) -> str:
        """What :meth:`loads` reads, one line."""
        paths = {name: str(getattr(self.settings, name)) for name in ("home", "config_path")}
        return json.dumps(
            {
                "settings": {**asdict(self.settings), **paths},
                "remote": self.remote,
                "url": self.url,
                "sources": self.sources.texts(),
                "outputs": str(self.outputs),
                "limits": asdict(self.limits),
                "log_format": self.log_format,
                "signing_key": self.signing_key,
            }
        )

    @classmethod
    def loads(cls, line: str) -> Bench:
        """Read a bench from the line that another process wrote.

        Raises:
            FormatError: it is no such line.
        """
        try:
            values = json.loads(line)
            return cls(
                _settings(values["settings"]),
                values["remote"],
                values["url"],
                Sources.parse(values["sources"]),
                Path(values["outputs"]),
                JobLimits(**values["limits"]),
                values["log_format"],
                values["signing_key"],
            )
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise FormatError(f"what a worker needs to know was expected on standard input ({error!r})") from error


def _settings(values: Mapping[str, Any]) -> Settings:
    remotes = {
        name: Remote(**{**remote, "options": StoreOptions(**remote["options"])})
        for name, remote in values["remotes"].items()
    }
    paths = {name: Path(values[name]) for name in ("home", "config_path")}
    fixed = {"immutable_projects": tuple(values["immutable_projects"]), "remotes": remotes}
    return Settings(**{**values, **paths, **fixed})
