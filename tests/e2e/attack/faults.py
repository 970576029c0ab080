"""Rounds of work over a network that fails: what a command reports as done is done, and nothing named is deleted.

What the remote can hold is kept as a set of possible states for each tag::

    a command succeeds       the tag has moved: one state
    it fails                 the tag might have moved: one state more

At the end of a round, without faults, every tag is in one of its possible states, and what it points to is whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from maskreg_cli.exits import failure

from maskreg.errors import MaskregError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.settle import MARKERS, judge, run_of, this_process
from maskreg.registry.tags import remove, restore
from maskreg.settings import Remote, Settings
from tests.buckets import options_of
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.people import Member, Said, shared_clients
from tests.e2e.attack.stage import checkpoints
from tests.e2e.attack.wire import LISTING, Faults, failing
from tests.servers import S3Server

SHARE = 0.08
"""Of all requests that a fault hits."""

PATIENCE_S = 0.5
"""How long commands wait for a garbage collection that died."""

ALLOWED = {0, 65, 69, 75}
"""Exit codes of a command that a fault can stop; 66 as well, where a listing was stale or empty."""

Step = tuple[Said, list[str]]
"""What a command said, and what is wrong with it."""


class Belief:
    """What the remote can hold.

    Attributes:
        possible: digests that each tag can point to; None when it can be absent or removed.
        past: digests that each tag has ever pointed to.
    """

    def __init__(self) -> None:
        self.possible: dict[str, set[str | None]] = {}
        self.past: dict[str, set[str | None]] = {}

    def moved(self, tag: str, digest: str | None, *, surely: bool) -> None:
        """A command has moved a tag, or might have."""
        self.possible[tag] = {digest} if surely else {*self.possible.get(tag, {None}), digest}
        self.past.setdefault(tag, set()).add(digest)

    def allows(self, tag: str, digest: str | None) -> bool:
        """Whether a tag can point there."""
        return digest in self.possible.get(tag, {None})

    def surely(self) -> set[str]:
        """Tags that must point somewhere."""
        return {tag for tag, states in self.possible.items() if len(states) == 1 and None not in states}


class Rounds:
    """Rounds of work on one server, each in a prefix of its own."""

    def __init__(self, folder: Path, server: S3Server, faults: Faults) -> None:
        self._folder, self._server, self._faults = folder, server, faults
        self._bucket = server.new_bucket()
        source, *targets = checkpoints(folder)
        self._made = Member(folder / "made", server.env())
        self._opd, self._rlvr = (
            self._made.must("extract", source, target, "--name", target.name, "--json").json["digest"]
            for target in targets
        )

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """One round; see the module's text."""
        self._url, self._belief = f"s3://{self._bucket}/{seed}/{number}", Belief()
        ada, bob, eve = (self._member(name) for name in ("ada", "bob", "eve"))
        shutil.copytree(self._made.registry, ada.registry)
        self._faults.begin(f"{seed}/{number}", SHARE)
        story: list[str] = []
        for said, wrong in self._steps(ada, bob):
            story.append(f"{' '.join(said.args)} -> {said.status} {dict(self._faults.served) or ''}")
            tally.counts[f"exit {said.status}"] += 1
            tally.counts.update(f"fault {kind}" for kind in self._faults.served.elements())
            lied = any(self._faults.served[kind] for kind in LISTING)
            if said.status not in ALLOWED | ({66} if lied else set()):
                wrong.append(f"exit {said.status}")
            tally.faults += [f"{number}: {fault}\n{said}\n  " + "\n  ".join(story) for fault in wrong]
            self._faults.served.clear()
        self._faults.begin("", 0)
        for fault in self._look_without_faults(ada, eve):
            tally.faults.append(f"{number}: in the end: {fault}\n  " + "\n  ".join(story))

    def _member(self, name: str) -> Member:
        home = self._folder / name
        shutil.rmtree(home, ignore_errors=True)
        member = Member(home, self._server.env())
        text = f'jobs = 2\n[remotes.team]\nurl = "{self._url}"\nendpoint = "{self._server.endpoint}"\n'
        (home / "config.toml").write_text(text)
        return member

    def _steps(self, ada: Member, bob: Member) -> Iterator[Step]:
        gc = ("gc", "--remote", "team", "--grace", "0s")
        yield self._moves(ada, "opd", self._opd, "push", "opd")
        yield self._pulls(bob, "opd")
        yield self._moves(ada, "opd:v1", self._opd, "push", "opd", "--tag", "v1")
        yield self._moves(ada, "rlvr", self._rlvr, "push", "rlvr")
        yield ada.run(*gc), []
        yield self._changes(ada, "rlvr", None, remove)
        yield self._lists(bob)
        yield self._changes(ada, "rlvr", self._rlvr, restore)
        yield self._changes(ada, "opd", None, remove)
        yield ada.run(*gc), []
        yield self._pulls(bob, "opd:v1")
        yield self._moves(ada, "opd", self._opd, "push", "opd")
        yield ada.run(*gc), []
        yield self._lists(ada)
        yield ada.run("verify", "--all", "--remote", "team"), []

    def _moves(self, who: Member, tag: str, digest: str, *args: str) -> Step:
        said = who.run(*args)
        self._belief.moved(tag, digest, surely=said.status == 0)
        return said, []

    def _pulls(self, who: Member, tag: str) -> Step:
        said = who.run("pull", tag)
        if said.status == 66 and tag not in self._belief.surely():
            return replace(said, status=75), []
        if said.status:
            return said, []
        digest, possible = said.json_lines[0]["digest"], self._belief.possible.get(tag)
        wrong = [] if self._belief.allows(tag, digest) else [f"pulled {digest}, not one of {possible}"]
        verified = who.run("verify", tag)
        return said, wrong + ([] if verified.status == 0 else [str(verified)])

    def _lists(self, who: Member) -> Step:
        said = who.run("list", "--remote", "team", "--json")
        if said.status:
            return said, []
        rows = {row["ref"]: row["digest"] for row in said.json["names"]}
        # A reader who has not seen the latest entries cannot know that a listing lacks them, or lacks a tag.
        knows, belief = who.home.name == "ada", self._belief
        wrong = [
            f"lists {tag} as {digest}"
            for tag, digest in rows.items()
            if not belief.allows(tag, digest) and (knows or digest not in belief.past[tag])
        ]
        wrong += [f"{tag} is not listed" for tag in belief.surely() if tag not in rows and knows and not said.err]
        return said, wrong

    def _changes(self, who: Member, tag: str, digest: str | None, change: Callable[[Registry, Ref], object]) -> Step:
        status, text = 0, ""
        with patch.dict(os.environ, who.variables), self._remote(Settings.load()) as remote:
            try:
                change(remote, Ref.parse(tag))
            except (MaskregError, ArithmeticError, AttributeError, LookupError, OSError, TypeError) as error:
                described = failure(error)
                status, text = described.exit, f"error: {described.message}"
        # Removing what can be absent, or restoring what can be there, is refused for a good reason.
        refused = status in (2, 66) and len(self._belief.possible.get(tag, ())) > 1
        if status not in (2, 66):
            self._belief.moved(tag, digest, surely=status == 0)
        return Said((change.__name__, tag), 75 if refused else status, "", text), []

    def _look_without_faults(self, ada: Member, eve: Member) -> Iterator[str]:
        with patch.dict(os.environ, ada.variables), self._remote() as remote:
            heads = {str(entry.ref): entry.digest for entry in remote.refs.heads()}
        for tag in {*self._belief.possible, *heads}:
            if not self._belief.allows(tag, heads.get(tag)):
                yield f"{tag} is {heads.get(tag)}, not one of {self._belief.possible.get(tag)}"
        said = [ada.run("verify", "--all", "--remote", "team"), ada.run("gc", "--remote", "team", "--grace", "0s")]
        for tag in {digest: tag for tag, digest in heads.items() if digest}.values():
            said += [eve.run("pull", tag), eve.run("verify", tag)]
        yield from (str(one) for one in said if one.status)
        with patch.dict(os.environ, ada.variables), self._remote() as remote:
            # Of a run whose last request can still be under way, only age decides.
            doomed = [info.key for info in remote.store.list(MARKERS)]
            if over := [key for key in doomed if judge(remote.store, run_of(key)).over]:
                yield f"markers are left after gc: {over}"

    def _remote(self, settings: Settings | None = None) -> Registry:
        return Registry.remote(Remote("team", self._url, options=options_of(self._server)), settings)


@contextmanager
def rounds(folder: Path, server: S3Server) -> Iterator[Rounds]:
    """Everything that rounds need: faults, one client for all commands, and waits that are short."""
    from botocore.retries.standard import ExponentialBackoff

    faults = Faults()
    # Each command stands for a process of its own, which has ended when the next one looks.
    child = subprocess.Popen(["true"])
    child.wait()
    ended = {**this_process(), "pid": child.pid}
    with ExitStack() as stack:
        stack.enter_context(shared_clients())
        stack.enter_context(patch.object(ExponentialBackoff, "delay_amount", lambda backoff, context: 0.01))
        stack.enter_context(patch("maskreg.registry.settle.PATIENCE_S", PATIENCE_S))
        stack.enter_context(patch("maskreg.registry.settle.this_process", lambda: ended))
        stack.enter_context(failing(faults))
        yield Rounds(folder, server, faults)
