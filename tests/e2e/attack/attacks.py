"""Every attack, by name, with the servers that it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Protocol

from tests.e2e.attack.chains import Chains
from tests.e2e.attack.damages import Damages, Tally
from tests.e2e.attack.faults import rounds
from tests.e2e.attack.kills import Kills
from tests.e2e.attack.people import shared_clients
from tests.e2e.attack.served import Served, Server
from tests.e2e.attack.stage import Site, set_up
from tests.servers import Postgres, S3Server
from tests.service.serving import service_in

STAGED = ("damages", "damages-folder", "damages-bucket", "kills")
ATTACKS = (*STAGED, "faults", "chains", "replicas", "polls", "served", "outages")


class Attack(Protocol):
    """Something that can be done again and again, each time another way."""

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Attack once; what happens follows from the seed and the number."""


@contextmanager
def attacking(
    name: str,
    folder: Path,
    *,
    bucket: Callable[[], S3Server],
    database: Callable[[], Postgres],
    only: Collection[str] = (),
) -> Iterator[Attack]:
    """One of the attacks, in a folder; ``bucket`` and ``database`` give their servers to those that need them."""

    def in_bucket() -> tuple[Site, S3Server]:
        server = bucket()
        return Site(f"s3://{server.new_bucket()}/team", server.endpoint, server.env()), server

    with ExitStack() as stack:
        match name:
            case "damages-bucket":
                stack.enter_context(shared_clients())
                yield Damages(set_up(folder, in_bucket()[0]), remote=True, only=only)
            case "damages" | "damages-folder" | "kills":
                stage = set_up(folder, Site((folder / "remote").as_uri()))
                yield Kills(stage, only) if name == "kills" else Damages(stage, remote=name != "damages", only=only)
            case "faults":
                yield stack.enter_context(rounds(folder, bucket()))
            case "chains":
                yield stack.enter_context(closing(Chains(folder, Site((folder / "team").as_uri()))))
            case "replicas":
                yield stack.enter_context(closing(Chains(folder, *in_bucket())))
            case "polls":
                server = Server(lambda: service_in(folder / "service"))
                stack.callback(server.kill)
                yield stack.enter_context(closing(Chains(folder, Site(server.url), server)))
            case "served":
                yield stack.enter_context(closing(Served(folder)))
            case _:
                yield stack.enter_context(closing(Served(folder, bucket(), database())))
