"""Attacks that need nothing but a folder, by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Protocol

from tests.e2e.attack.chains import Chains
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.faults import rounds
from tests.e2e.attack.outages import Outages
from tests.e2e.attack.replicas import Replicas
from tests.e2e.attack.served import ServedKills
from tests.e2e.attack.serving import Server
from tests.e2e.attack.stage import Site
from tests.servers import SeaweedFS, start_postgres
from tests.service.serving import service_in

NAMES = ("faults", "chains", "replicas", "polls", "served", "outages")


class Attack(Protocol):
    """Something that can be done again and again, each time another way."""

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Attack once; what happens follows from the seed and the number."""


@contextmanager
def attacking(name: str, folder: Path) -> Iterator[Attack]:
    """One of them, with the servers that it needs.

    ::

        faults     work behind a proxy that fails, and compare what commands reported with what is there
        chains     publish links and follow them, and kill both sides
        replicas   the same over a bucket that crashes too, while a folder and a model follow on
        polls      the same over a service, which they ask to say when the tag moves
        served     push to a service and pull from it, and kill both sides
        outages    the same, while its bucket or its database goes away
    """
    with ExitStack() as stack:
        match name:
            case "faults":
                yield stack.enter_context(rounds(folder, stack.enter_context(closing(SeaweedFS()))))
            case "chains":
                yield Chains(folder, Site((folder / "team").as_uri()))
            case "replicas":
                bucket = stack.enter_context(closing(SeaweedFS()))
                site = Site(f"s3://{bucket.new_bucket()}/team", bucket.endpoint, bucket.env())
                yield stack.enter_context(closing(Replicas(folder, site, bucket)))
            case "polls":
                server = Server(lambda: service_in(folder / "service"))
                stack.callback(server.kill)
                yield stack.enter_context(closing(Replicas(folder, Site(server.url), server)))
            case "served":
                yield stack.enter_context(closing(ServedKills(folder)))
            case _:
                bucket = stack.enter_context(closing(SeaweedFS()))
                database = stack.enter_context(closing(start_postgres()))
                yield stack.enter_context(closing(Outages(folder, bucket, database)))
