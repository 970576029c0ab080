"""What clients of the load send, for locust: ``locust -f clients.py --tags search``; see ``load.py``.

Everything comes by the environment: ``BENCH_TOKEN``, ``BENCH_COUNT``, ``BENCH_PACE``, ``BENCH_DIGESTS``, a file with a
digest a line, and ``BENCH_REQUESTS``, after which the clients end.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

from locust import FastHttpUser, events, tag, task
from locust.env import Environment

from scripts.bench.service.filling import FAMILIES, METHODS, SHOWN, TAGS, WORDS, name_of, project_of

API = "/api/v1"
COUNT = int(os.environ.get("BENCH_COUNT", "1000"))
TOKEN = os.environ.get("BENCH_TOKEN", "")
PACE = float(os.environ.get("BENCH_PACE", "1"))
REQUESTS = int(os.environ.get("BENCH_REQUESTS", "0"))
DIGESTS = Path(os.environ["BENCH_DIGESTS"]).read_text().split() if "BENCH_DIGESTS" in os.environ else []


def pause(_: FastHttpUser) -> float:
    """Seconds until a client's next request, drawn at random: clients in step would send all requests at one moment."""
    return random.expovariate(PACE)


def end_after(environment: Environment, **_: object) -> None:
    """End all clients after ``BENCH_REQUESTS`` requests."""

    def answered(**_: object) -> None:
        runner = environment.runner
        if environment.stats.total.num_requests >= REQUESTS and runner is not None and not ended.is_set():
            ended.set()
            # Not from within a client, which is among those that are ended; locust makes this a greenlet of its own.
            threading.Thread(target=runner.quit).start()

    ended = threading.Event()
    if REQUESTS:
        environment.events.request.add_listener(answered)  # type: ignore[no-untyped-call]


events.init.add_listener(end_after)  # type: ignore[no-untyped-call]


class Client(FastHttpUser):
    """Somebody who sends ``BENCH_PACE`` requests a second on average."""

    abstract = True
    wait_time = pause
    connection_timeout = 30.0
    network_timeout = 30.0

    def on_start(self) -> None:
        """Wait before the first request too: clients start together, and would send it at one moment."""
        self.wait()  # type: ignore[no-untyped-call]


class Reader(Client):
    """Somebody who reads a maskreg server."""

    def read(self, path: str, label: str, /, **params: object) -> None:
        """Send one request."""
        query = "&".join(f"{key}={value}" for key, value in params.items())
        address = f"{API}{path}{'?' + query if query else ''}"
        self.client.get(address, name=label, headers={"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "gzip"})

    @tag("search")
    @task
    def search(self) -> None:
        """One of the searches that people make, drawn at random."""
        family, method = random.choice(FAMILIES), random.choice(METHODS)
        low = random.uniform(0.1, 0.5)
        searches: list[dict[str, object]] = [
            {},
            {"text": "%20".join(random.sample(WORDS, 2))},
            {"text": f"{random.randrange(COUNT):06d}"},
            {"family": family, "method": method},
            {"density": f"{low:.3f}..{low + 0.05:.3f}", "sort": "density"},
            {"ffn_lift": "1.05..", "sort": "ffn_lift", "family": family},
            {"project": project_of(random.randrange(COUNT)), "sort": "name:asc"},
            {"text": name_of(random.randrange(COUNT))},
            {"sort": "size"},
        ]
        self.read("/artifacts", "search", **random.choice(searches))

    @tag("list")
    @task
    def newest(self) -> None:
        """The newest tags."""
        self.read("/artifacts", "list")

    @tag("family")
    @task
    def of_family(self) -> None:
        """Tags whose card says something."""
        self.read("/artifacts", "search by tag", family=random.choice(FAMILIES))

    @tag("name")
    @task
    def with_name(self) -> None:
        """Tags with a part of a name."""
        self.read("/artifacts", "search by name", text=f"run-{random.randrange(COUNT // TAGS):05d}")

    @tag("tag")
    @task
    def one_tag(self) -> None:
        """What a tag points to."""
        number = random.randrange(COUNT)
        self.read(f"/projects/{project_of(number)}/refs/{name_of(number)}/v{number % TAGS}", "one tag")

    @tag("artifact")
    @task
    def artifact(self) -> None:
        """One artifact."""
        self.read(f"/artifacts/{random.choice(DIGESTS[:SHOWN])}", "one artifact")

    @tag("history")
    @task
    def history(self) -> None:
        """All changes of a tag."""
        number = random.randrange(COUNT)
        self.read(f"/projects/{project_of(number)}/refs/{name_of(number)}/v{number % TAGS}/history", "history")


class Peer(Client):
    """Somebody who reads MLflow's registry."""

    root = "/api/2.0/mlflow"

    def read(self, path: str, label: str, /, **params: object) -> None:
        """Send one request."""
        query = "&".join(f"{key}={value}" for key, value in params.items())
        self.client.get(f"{self.root}{path}?{query}", name=label, headers={"Accept-Encoding": "gzip"})

    @tag("list")
    @task
    def newest(self) -> None:
        """Model versions without a filter."""
        self.read("/model-versions/search", "list", max_results=50)

    @tag("family")
    @task
    def of_family(self) -> None:
        """Model versions whose tag says something."""
        filter = f"tags.family%20%3D%20%27{random.choice(FAMILIES)}%27"
        self.read("/model-versions/search", "search by tag", max_results=50, filter=filter)

    @tag("name")
    @task
    def with_name(self) -> None:
        """Registered models with a part of a name."""
        filter = f"name%20LIKE%20%27%25run-{random.randrange(COUNT // TAGS):05d}%25%27"
        self.read("/registered-models/search", "search by name", max_results=50, filter=filter)

    @tag("tag")
    @task
    def one_tag(self) -> None:
        """What an alias points to."""
        name = name_of(random.randrange(COUNT))
        self.read("/registered-models/alias", "one tag", name=name, alias="champion")

    @tag("artifact")
    @task
    def artifact(self) -> None:
        """One model version."""
        number = random.randrange(COUNT)
        self.read("/model-versions/get", "one artifact", name=name_of(number), version=number % TAGS + 1)

    @tag("history")
    @task
    def history(self) -> None:
        """All versions of a model: MLflow has no log of what an alias pointed to."""
        filter = f"name%3D%27{name_of(random.randrange(COUNT))}%27"
        self.read("/model-versions/search", "history", max_results=50, filter=filter)
