"""A run that publishes link after link and readers that follow it, all of them killed again and again.

::

    for each link
      publish the next state        killed at a numbered point or a random time, again and again, until it is done
        after each try: the folder follows, killed too, and is at a state that was published
      the folder follows to the end     it is at the last state, file by file
      a model follows to the end        begun anew from the folder's checkpoint; it has the last state's bits
      now and then: squash, collect garbage, let the readers fall behind
    every fifth link has an anchor, and older links expire
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import maskreg
from maskreg.errors import MissingLinkError, NotFoundError, NotOnChainError, TryAgainError
from maskreg.registry.collect import collect
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.dying import forked
from tests.e2e.attack.people import Said
from tests.e2e.attack.stage import Site, contents

RUN = maskreg.Ref("team", "run")
SHAPES = {
    "model.embed_tokens.weight": (64, 32),
    "model.layers.0.mlp.up_proj.weight": (48, 32),
    "model.norm.weight": (32,),
}
SQUASH_EVERY, REST_EVERY, REST_LINKS = 40, 25, 12
RETENTION = maskreg.Retention(anchor_every=5, keep_links=4, keep_every=10, lease_s=0)
TRIES = 3
"""How often a process is killed at the same work, at most."""


class Chains:
    """One chain, its publisher and its readers.

    Attributes:
        people: whose registries there are; the publisher's comes first.
    """

    people: ClassVar[tuple[str, ...]] = ("ada", "bob")

    def __init__(self, folder: Path, site: Site) -> None:
        """Make the source, and a remote for its publisher and its readers."""
        self._folder, self._site = folder, site
        self._tensors: dict[str, Tensor] = {
            name: bf16(shape, seed) for seed, (name, shape) in enumerate(SHAPES.items())
        }
        self._source = make_checkpoint(folder / "source", self._tensors)
        self._states: dict[str, list[object]] = {"folder": [], "model": []}
        self._keep(self._source)
        self._latest = self._source
        self._how: dict[str, Any] = {"onto": RUN, "source": self._source, "remote": "team", "retention": RETENTION}
        self._out = folder / "served"
        self._model = folder / "model.bin"
        self._seen = {"folder": 0, "model": 0}
        self._points = dict.fromkeys(self.people, 60)  # of the longest work of each
        _import_all(folder / "before", self._source)
        for name in self.people:
            self._in_fork(self._add_remote, name)

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Publish one link, and follow it."""
        tally.faults += [f"{number}: {fault}" for fault in self._faults(seed, number, tally)]

    def _faults(self, seed: int, number: int, tally: Tally) -> Iterator[str]:
        rng = random.Random(f"{seed}/chains/{number}")
        self._next(number)
        yield from self._publish(rng, tally)
        if number % SQUASH_EVERY == SQUASH_EVERY - 1:
            self._in_fork(_squash, "ada")
            for name in ("ada", "bob"):
                self._in_fork(_collect, name)
            tally.counts["squashed and collected"] += 1
        if number % REST_EVERY >= REST_LINKS or number < REST_LINKS:
            yield from self._followed(rng, tally)

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

    def _add_remote(self, space: maskreg.Workspace) -> object:
        return maskreg.remotes.add("team", self._site.url, endpoint=self._site.endpoint, workspace=space)

    def _publish(self, rng: random.Random, tally: Tally) -> Iterator[str]:
        def work(space: maskreg.Workspace) -> object:
            # A killed one may have published: then nothing has moved.
            return maskreg.publish(self._latest, workspace=space, **self._how)

        for _ in range(rng.randrange(TRIES)):
            tally.counts["publish: killed" if self._killed(work, "ada", rng) else "publish: was done"] += 1
            tally.counts["follow: killed" if self._killed(self._follow, "bob", rng) else "follow: was done"] += 1
            yield from self._torn()
        self._in_fork(work, "ada")
        self._in_fork(lambda space: maskreg.push(RUN, parts=["delta"], workspace=space), "ada")

    def _followed(self, rng: random.Random, tally: Tally) -> Iterator[str]:
        for _ in range(rng.randrange(TRIES)):
            for work in (self._follow, self._follow_model):
                tally.counts["follow: killed" if self._killed(work, "bob", rng) else "follow: was done"] += 1
                yield from self._torn()
        # The model begins where the folder was until now.
        self._model.unlink(missing_ok=True)
        self._in_fork(self._follow_model, "bob")
        self._in_fork(self._follow, "bob")
        yield from self._torn()
        yield from (f"the {name} is not at the last state" for name in self._seen if not self._is_at_last(name))
        tally.counts["followed"] += 1

    def _follow(self, space: maskreg.Workspace) -> object:
        with maskreg.follow_folder(RUN, self._out, self._source, every_s=0, workspace=space) as follower:
            try:
                return follower.step()
            except (MissingLinkError, TryAgainError, NotFoundError):
                return None  # on its way

    def _follow_model(self, space: maskreg.Workspace) -> object:
        current = self._out / "current"
        try:
            return self._followed_from(current if current.exists() else self._source, space)
        except NotOnChainError:
            # It comes too late for the links.
            return self._followed_from(self._source, space)

    def _followed_from(self, begun: Path, space: maskreg.Workspace) -> object:
        model = self._loaded(begun)
        with maskreg.follow(model, RUN, every_s=0, workspace=space) as follower:
            follower.step()
        return self._save(model)

    def _loaded(self, begun: Path) -> Any:
        from safetensors.torch import load_file

        return load_file(begun / "model.safetensors")

    def _save(self, model: dict[str, Any]) -> object:
        import torch

        draft = self._model.with_suffix(".draft")
        draft.write_bytes(b"".join(model[name].view(torch.int16).numpy().tobytes() for name in sorted(SHAPES)))
        return draft.replace(self._model)

    def _torn(self) -> Iterator[str]:
        for name, now in (("folder", self._current()), ("model", self._saved())):
            if now is None:
                continue
            states, seen = self._states[name], self._seen[name]
            if now not in states:
                yield f"the {name} is at no state that was ever published"
            elif (position := states.index(now)) < seen:
                yield f"the {name} went back from state {seen} to state {position}"
            else:
                self._seen[name] = position

    def _is_at_last(self, name: str) -> bool:
        return self._seen[name] == len(self._states[name]) - 1

    def _current(self) -> dict[str, bytes] | None:
        link = self._out / "current"
        return contents(link.resolve()) if link.exists() else None

    def _saved(self) -> bytes | None:
        return self._model.read_bytes() if self._model.exists() else None

    def _killed(self, work: Callable[[maskreg.Workspace], object], name: str, rng: random.Random) -> bool:
        if rng.random() < 0.5:
            # Where nothing is new, work has few points: early ones are drawn as often as all the later ones.
            return forked(self._command(work, name), at=int(self._points[name] ** rng.random())).killed
        return forked(self._command(work, name), after=rng.uniform(0, 0.25)).killed

    def _in_fork(self, work: Callable[[maskreg.Workspace], object], name: str) -> None:
        ended = forked(self._command(work, name))
        assert not ended.status, ended.said
        self._points[name] = max(self._points[name], ended.points)

    def _command(self, work: Callable[[maskreg.Workspace], object], name: str) -> Callable[[], Said]:
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


def _collect(space: maskreg.Workspace) -> object:
    for registry in (space.local, space.remote("team")):
        collect(registry, timedelta(0), delete_many=True)
    return None
