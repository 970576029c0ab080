"""Chains in registries: the links below an artifact, and the shortest way from a state of the weights to it.

::

    walk     from the tag's artifact down, link by link, until one applies to the weights at hand
    search   when that is long, or does not get there: also by what this tag pointed to earlier, the newest first, and
             by what other tags of the name point to. Artifacts are edges between roots; the fewest bytes win.

For example, a reader at R1 of the chain R0 -A-> R1 -B-> R2 -C-> R3 takes B and C. If the owner squashed B and C into
S: R1 -> R3, and gave S a tag of the same name, a slow reader takes S alone. A tag that moved back to B is reached from
R3 only where C is reversible. Where the tag moved on to an anchor, R0 -> R3, a reader at R1 finds B and C among the
earlier entries, until they expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from maskreg.artifact.manifest import Link, PartName
from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.errors import BrokenChainError, CorruptError, MissingLinkError, NotFoundError, NotOnChainError
from maskreg.ref import Ref
from maskreg.registry.pull import bring
from maskreg.registry.registry import Registry

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact

LONG = 8
"""Links that are taken one by one before shorter ways are looked for."""

ABSENT = 16
"""A search through a tag's history ends after so many artifacts that are not there any more."""


@dataclass(frozen=True)
class Step:
    """A link on the way from one state of the weights to another.

    Attributes:
        link: the artifact.
        revert: from its target to its source.
    """

    link: Link
    revert: bool = False

    @property
    def part(self) -> PartName:
        """The part of the artifact that holds its values."""
        return "reverse" if self.revert else "delta"

    @property
    def before(self) -> str:
        """Root of the weights that it applies to."""
        return self.link.after if self.revert else self.link.before

    @property
    def after(self) -> str:
        """Root of the weights that it gives."""
        return self.link.before if self.revert else self.link.after


@dataclass(frozen=True)
class Chains:
    """Reads chains from several registries that are asked in turn; the one that has the tags is the last."""

    registries: Sequence[Registry]
    _known: dict[Digest, Link] = field(default_factory=dict, repr=False)

    def link(self, digest: Digest) -> Link:
        """An artifact of a chain, by its manifest."""
        if digest not in self._known:
            self._known[digest] = self._read(digest)
        return self._known[digest]

    def forget(self) -> None:
        """Free the manifests that were read: a long run has many, and a large model large ones."""
        self._known.clear()

    def artifact(self, digest: Digest) -> Artifact:
        """An artifact, where the nearest registry has it."""
        for registry in self.registries[:-1]:
            with suppress(NotFoundError, CorruptError):
                return registry.artifact(digest)
        return self.registries[-1].artifact(digest)

    def below(self, head: Digest) -> Iterator[Link]:
        """The links from an artifact down to the first of its chain, each checked to follow from the one below."""
        link = self.link(head)
        _check_values(link)
        states = {link.after: link}
        yield link
        while (digest := link.below) is not None:
            try:
                below = self.link(digest)
            except MissingLinkError as error:
                fault = f"link {link.digest.short} stands on {digest.short}; {error.message}"
                raise MissingLinkError(fault, link=digest) from error
            link.check_on(below)
            _check_values(below)
            if below.after in states:
                raise _circle(states[below.after], below)
            states[below.after] = link = below
            yield below
        # A run can begin with a link that publishes its source as it is.
        if link.before in states and link.before != link.after:
            raise _circle(states[link.before], link)

    def way(self, ref: Ref, head: Digest, at: str) -> tuple[Step, ...]:
        """The steps that turn weights of one root into those that an artifact gives; empty where they are those."""
        if self.link(head).after == at:
            return ()
        walked: list[Link] = []
        gap: MissingLinkError | None = None
        try:
            for link in self.below(head):
                walked.append(link)
                if link.before == at:
                    break
        except MissingLinkError as error:
            gap = error
        direct = tuple(Step(link) for link in reversed(walked)) if walked[-1].before == at else ()
        if direct and len(direct) <= LONG:
            return direct
        end, found = walked[0].after, [*walked]
        for link in () if direct else self._earlier(ref):
            found.append(link)
            if at in (link.before, link.after) and (steps := shortest(found, at, end)) and len(steps) <= LONG:
                return steps
        if steps := shortest([*found, *self._beside(ref)], at, end):
            return steps
        raise gap or NotOnChainError(
            f"no link leads from root {Digest(at).short} to {ref} ({head.short}), which gives root "
            f"{Digest(walked[0].after).short}: the tag was moved back, or these are other weights",
            hint="begin again from the source of the chain",
        )

    def bring(self, steps: Iterable[Step], into: Registry, jobs: int) -> tuple[list[tuple[Artifact, bool]], int]:
        """Copy what steps need into a registry of this machine, unless it is there.

        Returns:
            The artifacts, each with whether it is reverted, and how many bytes were fetched.
        """
        remote = self.registries[-1] if len(self.registries) > 1 else None
        brought, fetched = [], 0
        for step in steps:
            artifact, size = bring(into, remote, step.link.digest, parts=[step.part], jobs=jobs)
            brought.append((artifact, step.revert))
            fetched += size
        return brought, fetched

    def _earlier(self, ref: Ref) -> Iterator[Link]:
        """What this tag pointed to, the newest first: it is there until it expires, or is collected."""
        registry, absent = self.registries[-1], 0
        if (head := registry.head(replace(ref, digest=None))) is None:
            return
        for entry in registry.refs.back(head):
            links = [] if entry.digest is None else [*self._if_there(entry.digest)]
            yield from links
            absent += not links
            if absent == ABSENT:
                return

    def _beside(self, ref: Ref) -> Iterator[Link]:
        """What other tags of the name point to; one that is damaged leads nowhere."""
        for head in self.registries[-1].refs.heads([], project=ref.project, name=ref.name):
            if head.tag != ref.tag and head.digest is not None:
                yield from self._if_there(head.digest)

    def _if_there(self, digest: Digest) -> Iterator[Link]:
        try:
            link = self.link(digest)
        except MissingLinkError:
            return
        if link.manifest.kind == "delta" and link.manifest.exact:
            yield link

    def _read(self, digest: Digest) -> Link:
        for registry in self.registries:
            try:
                return Link(digest, read_manifest(registry.store, digest)[1])
            except NotFoundError:
                continue
        names = " or ".join(registry.name for registry in self.registries)
        raise MissingLinkError(f"artifact {digest.short} is not in {names}", remote=self.registries[-1].remote_name)


def shortest(links: Iterable[Link], start: str, end: str) -> tuple[Step, ...]:
    """The steps of the fewest bytes from one root to another; empty where no steps lead there."""
    ahead: dict[str, list[Step]] = {}
    for link in links:
        steps = [Step(link), *([Step(link, revert=True)] if "reverse" in link.manifest.parts else [])]
        for step in steps:
            ahead.setdefault(step.before, []).append(step)
    ties = count(1)  # steps do not compare
    ways: list[tuple[int, int, tuple[Step, ...]]] = [(0, 0, ())]
    done: set[str] = set()
    while ways:
        size, _, way = heappop(ways)
        at = way[-1].after if way else start
        if at == end:
            return way
        if at in done:
            continue
        done.add(at)
        for step in ahead.get(at, ()):
            heappush(ways, (size + step.link.manifest.parts[step.part].size, next(ties), (*way, step)))
    return ()


def _check_values(link: Link) -> None:
    manifest = link.manifest
    if manifest.kind != "delta" or not manifest.exact:
        fault = "drops small changes" if manifest.kind == "delta" else "holds no values"
        raise BrokenChainError(
            f"artifact {link.digest.short} {fault}, so nothing can stand on it and it cannot be followed",
            hint="extract it with the rule exact, which keeps all values",
        )


def _circle(above: Link, below: Link) -> BrokenChainError:
    return BrokenChainError(
        f"the chain goes in a circle: {below.digest.short} and {above.digest.short} have a state in common",
        hint="to return to an earlier state, move the tag back",
        circle=below.digest,
    )
