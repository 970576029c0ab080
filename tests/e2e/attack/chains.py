"""A run that publishes link after link, and a folder and a model that follow it, all of them killed again and again.

::

    for each link
      publish the next state      by a process that tries again until it is done; meanwhile, one to three times,
        one is killed               the remote, the publisher, the folder or the model, and started again a while later
        one dies                    of itself, at a numbered point (see tests.e2e.attack.dying)
        look                        both replicas are at states that were published, and never go back
      wait                        both come to the last state by themselves: those that live on were told nothing
      now and then: let the replicas fall behind, squash, collect garbage
    every fifth link has an anchor, and older links expire
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import maskreg
from maskreg.errors import NotFoundError, NotOnChainError, TryAgainError, UnavailableError
from maskreg.registry.collect import collect
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.dying import exit_code, forked, in_background
from tests.e2e.attack.people import HANG_SECONDS, Said
from tests.e2e.attack.served import Server
from tests.e2e.attack.stage import Site, contents
from tests.servers import S3Server

RUN = maskreg.Ref("team", "run")
SHAPES = {
    "model.embed_tokens.weight": (64, 32),
    "model.layers.0.mlp.up_proj.weight": (48, 32),
    "model.norm.weight": (32,),
}
SQUASH_EVERY, REST_EVERY, REST_LINKS = 40, 25, 12
RETENTION = maskreg.Retention(anchor_every=5, keep_links=4, keep_every=10, lease_s=0)
REPLICAS = ("folder", "model")
POINTS = 60
"""A process that dies of itself does so before it has passed this many points; early ones are drawn more often."""

Work = Callable[[maskreg.Workspace], object]


class Chains:
    """One chain, a process that publishes it, and two that follow it, each with a registry of its own."""

    def __init__(self, folder: Path, site: Site, remote: S3Server | Server | None = None) -> None:
        """Have both follow a tag that is not there yet; the remote is a folder, or this server."""
        self._folder, self._site, self._remote = folder, site, remote
        self._tensors: dict[str, Tensor] = {
            name: bf16(shape, seed) for seed, (name, shape) in enumerate(SHAPES.items())
        }
        self._source = make_checkpoint(folder / "source", self._tensors)
        self._states: dict[str, list[object]] = {name: [] for name in REPLICAS}
        self._keep(self._source)
        self._latest = self._source
        self._how: dict[str, Any] = {"onto": RUN, "source": self._source, "remote": "team", "retention": RETENTION}
        self._out, self._model = folder / "served", folder / "model.bin"
        self._seen = dict.fromkeys(REPLICAS, 0)
        self._works = {"ada": self._publish_on, "folder": self._folder_on, "model": self._model_on}
        self._pids: dict[str, int] = {}
        self._parent, self._seconds = os.getpid(), 0.5
        _import_all(folder / "before", self._source)
        for name in self._works:
            self._in_fork(self._add_remote, name)

    def close(self) -> None:
        """End the replicas."""
        for name in list(self._pids):
            self._kill(name)

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Publish one link, and follow it."""
        tally.faults += self._faults(random.Random(f"{seed}/chains/{number}"), number, tally)

    def _faults(self, rng: random.Random, number: int, tally: Tally) -> Iterator[str]:
        self._next(number)
        rests = REST_LINKS <= number % REST_EVERY < REST_EVERY - 1
        begun = time.monotonic()
        for name in ("ada", *REPLICAS):
            if rests and name in self._pids:
                self._kill(name)
            elif not rests or name == "ada":
                self._start(name, rng)
        for _ in range(rng.randint(1, 3)):
            time.sleep(rng.uniform(0, self._seconds))
            victim = rng.choice([*(["remote"] if self._remote else []), *self._pids])
            tally.counts[f"{victim}: killed"] += 1
            self._strike(victim, rng)
            yield from self._torn()
        while "ada" in self._pids or not (rests or all(map(self._is_at_last, REPLICAS))):
            if time.monotonic() - begun > HANG_SECONDS:
                yield f"after {HANG_SECONDS} seconds {list(self._pids)} go on, and replicas are at {self._seen}"
                return
            time.sleep(0.02)
            yield from self._ended(rng, tally)
            yield from self._torn()
        self._seconds = 0.9 * self._seconds + 0.1 * min(time.monotonic() - begun, 5)
        tally.counts["published" if rests else "all at the last state"] += 1
        if number % SQUASH_EVERY == SQUASH_EVERY - 1:
            for work in (_squash, _collect):
                self._in_fork(work, "ada")
            tally.counts["squashed and collected"] += 1

    def _next(self, number: int) -> None:
        self._tensors = {
            name: moved(tensor, 0.01 if tensor[1].ndim > 1 else 0.1, 1_000 * number + n)
            for n, (name, tensor) in enumerate(self._tensors.items())
        }
        self._latest = make_checkpoint(self._folder / "steps" / str(number), self._tensors)
        self._keep(self._latest)

    def _keep(self, checkpoint: Path) -> None:
        self._states["folder"].append(contents(checkpoint))
        self._states["model"].append(b"".join(self._tensors[name][1].tobytes() for name in sorted(SHAPES)))

    def _strike(self, victim: str, rng: random.Random) -> None:
        pause_s = rng.choice((1, 9)) * rng.random() if self._remote else rng.random() / 5
        if victim == "remote" and self._remote:
            self._remote.kill()
            time.sleep(pause_s)  # longer than clients try again, at times
            self._remote.restart()
        else:
            self._kill(victim)
            time.sleep(pause_s)
            self._start(victim, rng)

    def _kill(self, name: str) -> None:
        pid = self._pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def _start(self, name: str, rng: random.Random) -> None:
        if name not in self._pids:
            at = int(POINTS ** rng.random()) if rng.random() < 0.5 else -1
            self._pids[name] = in_background(self._command(self._works[name], name), at=at)

    def _ended(self, rng: random.Random, tally: Tally) -> Iterator[str]:
        for name, pid in list(self._pids.items()):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            del self._pids[name]
            status = exit_code(pid)
            if status == -signal.SIGKILL:
                tally.counts[f"{name}: died at a point"] += 1
                self._start(name, rng)
            elif status or name != "ada":
                yield f"{name} ends with {status}"

    def _torn(self) -> Iterator[str]:
        link = self._out / "current"
        there = {
            "folder": contents(link.resolve()) if link.exists() else None,
            "model": self._model.read_bytes() if self._model.exists() else None,
        }
        for name, now in there.items():
            states, seen = self._states[name], self._seen[name]
            if now is None:
                continue
            if now not in states:
                yield f"the {name} is at no state that was ever published"
            elif (position := states.index(now)) < seen:
                yield f"the {name} went back from state {seen} to state {position}"
            else:
                self._seen[name] = position

    def _is_at_last(self, name: str) -> bool:
        return self._seen[name] == len(self._states[name]) - 1

    def _in_fork(self, work: Work, name: str) -> None:
        ended = forked(self._command(work, name))
        assert not ended.status, ended.said

    def _command(self, work: Work, name: str) -> Callable[[], Said]:
        home = self._folder / name
        token = "writer-token" if name == "ada" else "reader-token"
        paths = {"MASKREG_HOME": str(home / "home"), "MASKREG_CONFIG": str(home / "config.toml")}
        environ = {**self._site.variables, **paths, "MASKREG_TOKEN": token}

        def command() -> Said:
            os.environ.update(environ)
            try:
                with maskreg.Workspace(maskreg.Settings.load(environ)) as space:
                    work(space)
            except maskreg.MaskregError as error:
                return Said((work.__name__,), 1, "", f"{type(error).__name__}: {error}")
            return Said((work.__name__,), 0, "", "")

        return command

    def _add_remote(self, space: maskreg.Workspace) -> object:
        return maskreg.remotes.add("team", self._site.url, endpoint=self._site.endpoint, workspace=space)

    def _publish_on(self, space: maskreg.Workspace) -> None:
        # A killed one might have published: then nothing has moved.
        with maskreg.Publisher(workspace=space, **self._how) as publisher:
            _until_done(lambda: publisher.publish(self._latest) is not None, lambda: time.sleep(0.1))

    def _folder_on(self, space: maskreg.Workspace) -> None:
        with maskreg.follow_folder(RUN, self._out, self._source, every_s=0.1, workspace=space) as follower:
            self._follow_on(follower, lambda: None)

    def _model_on(self, space: maskreg.Workspace) -> None:
        from safetensors.torch import load_file

        while True:
            model = load_file(self._source / "model.safetensors")
            # Otherwise the links that it needs have expired.
            with suppress(NotOnChainError), maskreg.follow(model, RUN, every_s=0.1, workspace=space) as follower:
                self._follow_on(follower, partial(self._save, model))

    def _follow_on(self, follower: maskreg.Follower, changed: Callable[[], object]) -> None:
        def step() -> bool:
            if follower.step() is not None:
                changed()
            return os.getppid() != self._parent

        _until_done(step, lambda: follower.pause(5))
        os._exit(0)

    def _save(self, model: dict[str, Any]) -> object:
        import torch

        draft = self._model.with_suffix(".draft")
        draft.write_bytes(b"".join(model[name].view(torch.int16).numpy().tobytes() for name in sorted(SHAPES)))
        return draft.replace(self._model)


def _until_done(work: Callable[[], bool], pause: Callable[[], None]) -> None:
    while True:
        with suppress(UnavailableError, TryAgainError, NotFoundError):
            if work():
                return
        pause()


def _import_all(folder: Path, source: Path) -> None:
    # In this process, so that forked ones find their modules imported.
    from maskreg.flow.apply import in_memory
    from maskreg.live import state

    assert in_memory
    assert state
    environ = {"MASKREG_HOME": str(folder / "home"), "MASKREG_CONFIG": str(folder / "config.toml")}
    with maskreg.Workspace(maskreg.Settings.load(environ)) as space:
        maskreg.remotes.add("team", folder / "team", workspace=space)
        maskreg.publish(source, RUN, source=source, remote="team", workspace=space)
        with maskreg.follow_folder(RUN, folder / "served", source, workspace=space) as follower:
            follower.step()


def _squash(space: maskreg.Workspace) -> object:
    maskreg.squash(RUN, RUN.with_tag("squashed"), force=True, workspace=space)
    return maskreg.push(RUN.with_tag("squashed"), parts=["delta"], force=True, workspace=space)


def _collect(space: maskreg.Workspace) -> None:
    for registry in (space.local, space.remote("team")):
        collect(registry, timedelta(0), delete_many=True)
