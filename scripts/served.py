"""A server with a few artifacts, for the screenshots of its pages in the documentation."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

import maskreg
from maskreg.service.app import create_app
from maskreg.service.context import Service
from maskreg.service.start import Options, open_service

PROJECT = "lab"


def fill(pair: Path, home: Path) -> None:
    """Fill a registry with the updates of a pair, a baseline, and what two updates share."""
    with maskreg.Workspace(maskreg.Settings(home=home, config_path=home / "config.toml")) as space:
        for target, tag in (("target-seed1", "seed1"), ("target", "v1")):
            ref = f"{PROJECT}/sums-opd:{tag}"
            maskreg.extract(pair / "source", pair / target, ref, family="sums", method="opd", workspace=space)
        maskreg.annotate(
            f"{PROJECT}/sums-opd:v1",
            description="On-policy distillation of a small model on **sums** of two numbers; teacher and prompts are "
            "in the folder `demo` of the sources.",
            license="apache-2.0",
            meta={"seed": "0"},
            workspace=space,
        )
        seeds = [f"{PROJECT}/sums-opd:v1", f"{PROJECT}/sums-opd:seed1"]
        maskreg.baseline(seeds[0], kind="random-per-tensor", seed=1, name=f"{PROJECT}/sums-random", workspace=space)
        maskreg.combine(seeds, f"{PROJECT}/sums-both-seeds", how="and", workspace=space)


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """A server of this registry on a free port of this machine, whose project is public; gives its URL."""
    with open_service(Options(home=str(home))) as service, socket.socket() as listener:
        _open_to_all(service)
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                thread.join(0.05)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _open_to_all(service: Service) -> None:
    first = service.accounts.tokens.first()
    assert first is not None  # the registry is new
    admin = service.accounts.authenticate(first.token)
    service.accounts.projects.ensure(PROJECT, admin)
    service.accounts.projects.change(PROJECT, admin, public=True)
