"""A server with a queue, checkpoints to read and artifacts of two projects, for tests of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import delete, update

import maskreg
from maskreg.catalog.schema import upgrade
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import Base, JobRow
from maskreg.service.auth.roles import SYSTEM, Role
from maskreg.service.context import Service
from maskreg.service.jobs.config import JobConfig
from maskreg.service.jobs.queue import JobQueue
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.service.serving import service_in

WEIGHTS: dict[str, Tensor] = {
    "model.embed_tokens.weight": bf16((400, 64), 1),
    "model.layers.0.self_attn.q_proj.weight": bf16((64, 64), 2),
    "model.layers.0.mlp.up_proj.weight": bf16((256, 64), 3),
}


@dataclass(frozen=True)
class Site:
    """A server's folders, and its parts.

    Attributes:
        folder: everything of the server.
        service: the parts; it offers the checkpoints ``base`` and ``tuned``, and has the artifacts ``team/toy:v1``,
            ``team/toy:second`` (both with a reverse part) and ``elsewhere/secret``.
    """

    folder: Path
    service: Service

    @property
    def queue(self) -> JobQueue:
        """The queue of jobs."""
        return self.service.queue

    @property
    def config(self) -> JobConfig:
        """What workers need to know."""
        assert self.service.jobs is not None
        return self.service.jobs

    @property
    def outputs(self) -> Path:
        """Where checkpoints are written."""
        return self.config.outputs

    def having(self, **changed: object) -> Site:
        """The same server with another configuration of jobs."""
        config = replace(self.config, **changed)  # type: ignore[arg-type]
        return replace(self, service=replace(self.service, jobs=config))

    def weights(self, folder: Path) -> bytes:
        """The weight file of a checkpoint."""
        return (folder / "model.safetensors").read_bytes()

    @property
    def target(self) -> bytes:
        """The weight file that applying ``team/toy:v1`` has to give."""
        return self.weights(self.folder / "models" / "tuned")


def pass_time(queue: JobQueue, seconds: float) -> None:
    """Let every worker have been silent for so much longer, and every end be so much longer ago."""
    with queue.database.write() as connection:
        connection.execute(update(JobRow).values(beat=JobRow.beat - seconds, finished=JobRow.finished - seconds))


def with_table(url: str) -> str:
    """The same URL, of a database that has the tables of a server, a writer of team called ada, and no jobs."""
    upgrade(url, Base.metadata)
    with closing(Accounts.open(url)) as accounts:
        accounts.members.grant("team", "ada", Role.WRITER, SYSTEM)
        with accounts.database.write() as connection:
            connection.execute(delete(JobRow))
    return url


def site_in(folder: Path) -> Site:
    """A server in a folder, whose jobs are in the database of the accounts."""
    models = folder / "models"
    base = make_checkpoint(models / "base", WEIGHTS)
    targets = []
    for seed, after in ((10, models / "tuned"), (20, folder / "second")):
        weights = {name: moved(tensor, 0.4, seed + index) for index, (name, tensor) in enumerate(WEIGHTS.items())}
        targets.append(make_checkpoint(after, weights))
    make_checkpoint(folder / "private" / "secret-model", {"w": bf16((4, 4), 7)})
    service = service_in(folder / "home")
    url = with_table(f"sqlite:///{folder / 'home' / 'service.db'}")
    names = ((targets[0], "team/toy:v1"), (targets[1], "team/toy:second"), (targets[0], "elsewhere/secret"))
    for target, name in names:
        maskreg.extract(base, target, name, reversible=True, method="opd", workspace=service.workspace)
    (outputs := folder / "outputs").mkdir()
    config = JobConfig(service.workspace.settings, None, url, (models,), outputs)
    return Site(folder, replace(service, jobs=config))


@pytest.fixture(scope="module")
def module_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that the tests of a module share."""
    site = site_in(tmp_path_factory.mktemp("site"))
    yield site
    site.service.close()
