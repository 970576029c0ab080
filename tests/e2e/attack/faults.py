"""Rounds of work behind a proxy that fails: what a command reports as done is done, and nothing named is deleted.

What the remote may hold is kept as a set of possible states for each tag::

    a command succeeds       the tag has moved: one state
    it fails                 the tag may have moved: one state more

At the end of a round, without faults, every tag is in one of its possible states, and what it points to is whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

from maskreg_cli.exits import failure

from maskreg.errors import MaskregError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.settle import MARKERS, judge, run_of, this_process
from maskreg.registry.tags import remove, restore
from maskreg.settings import Remote, Settings, StoreOptions
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.people import Member, Said, shared_clients
from tests.e2e.attack.proxy import LISTING, STALL_SECONDS, Faults, fault_proxy
from tests.e2e.attack.stage import checkpoints
from tests.servers import S3Server

SHARE = 0.08
"""Of all requests that a fault hits."""

PATIENCE_S = 0.5
"""How long commands wait for a garbage collection that died."""

ALLOWED = {65, 69, 75}
"""Exit codes of a command that a fault stops; 66 as well, where a listing was stale or empty."""


@dataclass
class Belief:
    """What the remote may hold.

    Attributes:
        possible: digests that each tag may point to; None when it may be absent or removed.
        past: digests that each tag has ever pointed to.
    """

    possible: dict[str, set[str | None]] = field(default_factory=dict)
    past: dict[str, set[str | None]] = field(default_factory=dict)

    def moved(self, tag: str, digest: str | None, *, surely: bool) -> None:
        """A command has moved a tag, or may have."""
        self.possible[tag] = {digest} if surely else {*self.possible.get(tag, {None}), digest}
        self.past.setdefault(tag, set()).add(digest)

    def allows(self, tag: str, digest: str | None) -> bool:
        """Whether a tag may point there."""
        return digest in self.possible.get(tag, {None})

    def surely(self) -> dict[str, str]:
        """Tags that must point somewhere, and where to."""
        return {tag: digest for tag, states in self.possible.items() for digest in states
                if len(states) == 1 and digest}  # fmt: skip


class Rounds:
    """Rounds of work on one server, each in a prefix of its own."""

    def __init__(self, folder: Path, server: S3Server, endpoint: str, faults: Faults) -> None:
        self.folder = folder
        self.server = server
        self.endpoint = endpoint
        self.faults = faults
        self.bucket = server.new_bucket()
        source, opd, rlvr = checkpoints(folder)
        self.made = Member(folder / "made", server.env())
        self.digests = {}
        for name, target in (("opd", opd), ("rlvr", rlvr)):
            said = self.made.must("extract", source, target, "--name", name, "--json")
            self.digests[name] = said.json["digest"]

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """One round; see the module's text."""
        url = f"s3://{self.bucket}/{seed}/{number}"
        ada, bob, eve = (self._member(name, url) for name in ("ada", "bob", "eve"))
        shutil.copytree(self.made.registry, ada.registry)
        belief = Belief()
        self.faults.begin(f"{seed}/{number}", SHARE)
        story: list[str] = []
        steps = self._steps(ada, bob, url, belief)
        for step in steps:
            self.faults.served.clear()
            said, wrong = step()
            story.append(f"{' '.join(said.args)} -> {said.status} {dict(self.faults.served) or ''}")
            tally.counts[f"exit {said.status}"] += 1
            lied = any(self.faults.served[kind] for kind in LISTING)
            allowed = {0, *ALLOWED, *([66] if lied else [])}
            if said.status not in allowed:
                wrong = [*wrong, f"exit {said.status}"]
            tally.faults += [f"{number}: {fault}\n{said}\n  " + "\n  ".join(story) for fault in wrong]
        self.faults.begin("", 0)
        for fault in self._look_without_faults(url, ada, eve, belief):
            tally.faults.append(f"{number}: in the end: {fault}\n  " + "\n  ".join(story))

    def _member(self, name: str, url: str) -> Member:
        home = self.folder / name
        shutil.rmtree(home, ignore_errors=True)
        member = Member(home, self.server.env())
        text = f'jobs = 2\n[remotes.team]\nurl = "{url}"\nendpoint = "{self.endpoint}"\n'
        (home / "config.toml").write_text(text)
        return member

    def _steps(
        self, ada: Member, bob: Member, url: str, belief: Belief
    ) -> Iterator[Callable[[], tuple[Said, list[str]]]]:
        opd, rlvr = self.digests["opd"], self.digests["rlvr"]
        gc = ("gc", "--remote", "team", "--grace", "0s")
        yield lambda: self._moves(ada, belief, "opd", opd, "push", "opd")
        yield lambda: self._pulls(bob, belief, "opd")
        yield lambda: self._moves(ada, belief, "opd:v1", opd, "push", "opd", "--tag", "v1")
        yield lambda: self._moves(ada, belief, "rlvr", rlvr, "push", "rlvr")
        yield lambda: self._reads(ada, belief, *gc)
        yield lambda: self._changes(ada, belief, "rlvr", None, url, remove)
        yield lambda: self._lists(bob, belief)
        yield lambda: self._changes(ada, belief, "rlvr", rlvr, url, restore)
        yield lambda: self._changes(ada, belief, "opd", None, url, remove)
        yield lambda: self._reads(ada, belief, *gc)
        yield lambda: self._pulls(bob, belief, "opd:v1")
        yield lambda: self._moves(ada, belief, "opd", opd, "push", "opd")
        yield lambda: self._reads(ada, belief, *gc)
        yield lambda: self._lists(ada, belief)
        yield lambda: self._reads(ada, belief, "verify", "--all", "--remote", "team")

    def _moves(self, who: Member, belief: Belief, tag: str, digest: str, *args: str) -> tuple[Said, list[str]]:
        said = who.run(*args)
        belief.moved(tag, digest, surely=said.status == 0)
        return said, []

    def _reads(self, who: Member, belief: Belief, *args: str) -> tuple[Said, list[str]]:
        return who.run(*args), []

    def _pulls(self, who: Member, belief: Belief, tag: str) -> tuple[Said, list[str]]:
        said = who.run("pull", tag)
        if said.status == 66 and tag not in belief.surely():
            return replace(said, status=75), []
        if said.status:
            return said, []
        digest = said.json_lines[0]["digest"]
        wrong = [] if belief.allows(tag, digest) else [f"pulled {digest}, not one of {belief.possible.get(tag)}"]
        verified = who.run("verify", tag)
        return said, wrong + ([] if verified.status == 0 else [str(verified)])

    def _lists(self, who: Member, belief: Belief) -> tuple[Said, list[str]]:
        said = who.run("list", "--remote", "team", "--json")
        if said.status:
            return said, []
        rows = {row["ref"]: row["digest"] for row in said.json["names"]}
        # A reader who has not seen the latest entries cannot know that a listing lacks them, or lacks a tag.
        knows = who.home.name == "ada"
        wrong = [
            f"lists {tag} as {digest}"
            for tag, digest in rows.items()
            if not belief.allows(tag, digest) and (knows or digest not in belief.past[tag])
        ]
        wrong += [f"{tag} is not listed" for tag in belief.surely() if tag not in rows and knows and not said.err]
        return said, wrong

    def _changes(
        self, who: Member, belief: Belief, tag: str, digest: str | None, url: str,
        change: Callable[[Registry, Ref], object],
    ) -> tuple[Said, list[str]]:  # fmt: skip
        args = (change.__name__, tag)
        status, text = 0, ""
        with patch.dict(os.environ, who.variables), self._remote(url, self.endpoint, Settings.load()) as remote:
            try:
                change(remote, Ref.parse(tag))
            except (MaskregError, ArithmeticError, AttributeError, LookupError, OSError, TypeError) as error:
                described = failure(error)
                status, text = described.exit, f"error: {described.message}"
        # Removing what may be absent, or restoring what may be there, is refused for a good reason.
        refused = status in (2, 66) and len(belief.possible.get(tag, ())) > 1
        if status not in (2, 66):
            belief.moved(tag, digest, surely=status == 0)
        return Said(args, 75 if refused else status, "", text), []

    def _look_without_faults(self, url: str, ada: Member, eve: Member, belief: Belief) -> Iterator[str]:
        with patch.dict(os.environ, ada.variables), self._remote(url, self.server.endpoint) as remote:
            heads = {str(entry.ref): entry.digest for entry in remote.refs.heads()}
        for tag in {*belief.possible, *heads}:
            if not belief.allows(tag, heads.get(tag)):
                yield f"{tag} is {heads.get(tag)}, not one of {belief.possible.get(tag)}"
        verified = ada.run("verify", "--all", "--remote", "team")
        if verified.status:
            yield str(verified)
        for tag in (tag for tag, digest in heads.items() if digest):
            pulled = eve.run("pull", tag)
            if pulled.status or eve.run("verify", tag).status:
                yield str(pulled)
        collected = ada.run("gc", "--remote", "team", "--grace", "0s")
        if collected.status:
            yield str(collected)
        after = ada.run("verify", "--all", "--remote", "team")
        if after.status:
            yield f"after gc: {after}"
        with patch.dict(os.environ, ada.variables), self._remote(url, self.server.endpoint) as remote:
            # Of a run whose last request may still be under way, only age decides.
            doomed = [info.key for info in remote.store.list(MARKERS)]
            if over := [key for key in doomed if judge(remote.store, run_of(key)).over]:
                yield f"markers are left after gc: {over}"

    def _remote(self, url: str, endpoint: str, settings: Settings | None = None) -> Registry:
        return Registry.remote(Remote("team", url, options=StoreOptions(endpoint=endpoint)), settings)


def _ended_process() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


@contextmanager
def rounds(folder: Path, server: S3Server) -> Iterator[Rounds]:
    """Everything that rounds need: the proxy, clients that give up soon, and waits that are short."""
    from botocore.retries.standard import ExponentialBackoff

    faults = Faults()
    with ExitStack() as stack:
        stack.enter_context(shared_clients(read_seconds=STALL_SECONDS / 2))
        stack.enter_context(patch.object(ExponentialBackoff, "delay_amount", lambda backoff, context: 0.01))
        stack.enter_context(patch("maskreg.registry.settle.PATIENCE_S", PATIENCE_S))
        # Each command stands for a process of its own, which has ended when the next one looks.
        ended = {**this_process(), "pid": _ended_process()}
        stack.enter_context(patch("maskreg.registry.settle.this_process", lambda: ended))
        endpoint = stack.enter_context(fault_proxy(server.endpoint, faults))
        yield Rounds(folder, server, endpoint, faults)
