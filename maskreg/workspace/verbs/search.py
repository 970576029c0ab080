"""Search: what a registry holds, found by text and by numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from maskreg.catalog.query import Counts, Position, Query, Range, SearchResult
from maskreg.errors import BadRefError, MaskregError, NotAllowedError, NotFoundError, UsageError
from maskreg.ref import Pattern, Ref, patterns_in
from maskreg.registry import Registry
from maskreg.registry.registry import similar_names
from maskreg.registry.searching import LeftOut
from maskreg.result import plain
from maskreg.words import counted, human_bytes, percent
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.workspace import Workspace, registry_of

ROWS_SHOWN = 60
"""Rows of a list that an interactive session shows."""

_HEADINGS = ("ref", "kind", "method", "density", "size", "created")


@dataclass(frozen=True)
class Listed(SearchResult):
    """A name of a registry, with its card and what the catalog knows of its artifact."""

    def __repr__(self) -> str:
        return f"<{' '.join(self.cells)}>"

    @property
    def cells(self) -> tuple[str, ...]:
        """Reference, kind, method, density, size and time, for people."""
        density, size = percent(self.density), human_bytes(self.size)
        return (str(self.ref), self.kind, self.method or "-", density, size, f"{self.at:%Y-%m-%d %H:%M}")

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints: the reference, then every field."""
        return {"ref": str(self.ref), **{key: plain(value) for key, value in asdict(self).items()}}


class Listing(tuple[Listed, ...]):
    """The names that a search found, in order, and those that it could not look at.

    Attributes:
        left_out: names that match or not: what describes them is damaged or missing.
        remark: why there are no names; empty when there are.
        error: the same as an error, with its facts; None when there are names.
    """

    left_out: tuple[LeftOut, ...]
    remark: str
    error: MaskregError | None

    def __new__(
        cls, names: Iterable[Listed], left_out: Iterable[LeftOut] = (), error: MaskregError | None = None
    ) -> Listing:
        """Names, what was left out, and what to say where there are none."""
        listing = super().__new__(cls, names)
        listing.left_out = tuple(left_out)
        listing.remark, listing.error = error.message if error else "", error
        return listing

    def __repr__(self) -> str:
        rows = [_HEADINGS, *(name.cells for name in self[:ROWS_SHOWN])]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [f"and {counted(len(self) - ROWS_SHOWN, 'name')} more"] if len(self) > ROWS_SHOWN else []
        left_out = (f"left out: {name.ref}: {name.reason}" for name in self.left_out)
        return "\n".join([*(lines if self else [self.remark or "no names"]), *left_out])

    @property
    def names(self) -> tuple[Listed, ...]:
        """The names alone."""
        return tuple(self)

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {
            "names": plain(self.names),
            "left_out": plain(self.left_out),
            "remark": self.remark,
            "error": plain(self.error),
        }


def _next_step(name: LeftOut, remote: str | None) -> LeftOut:
    # What repairs a local registry does not repair a remote; verifying says more, where reading is allowed.
    error = name.error
    if not isinstance(error, NotAllowedError) and (remote or not (error.hint or error.facts)):
        error.hint, error.facts = "", {"unlisted": name.ref, "remote": remote or ""}
    return name


def search(
    text: str | None = None,
    *,
    sort: str = "created",
    descending: bool = True,
    limit: int | None = None,
    projects: Collection[str] | None = None,
    after: Position | None = None,
    advise: bool = True,
    strict: bool = False,
    remote: str | None = None,
    workspace: Workspace | None = None,
    **filters: str | Range | None,
) -> Listing:
    """Search the artifacts of a registry. Without arguments it lists all names of the local registry.

    A name whose artifact or ref entry is damaged cannot be searched. It is in the result's ``left_out``, whether it
    would match or not.

    Ranges are (lowest, highest), both included; ``float("inf")`` leaves a side open.

    Args:
        text: words that must each begin a word of the name, project, family or description, or the digest: ``8b``
            finds ``qwen3-8b-opd``, and ``3-8b`` does not. A word with one of ``/ : @ * ? [`` is compared with the whole
            reference instead: ``team/opd``, ``team/opd:v1``, ``t/*``, ``opd@sha256:4be0``. A part that it leaves out
            can be anything.
        sort: ``created``, ``name``, ``by``, ``size``, ``params``, ``nnz``, ``numel``, or any filter but ``text``.
        descending: newest, largest or last in the alphabet first.
        limit: maximum number of results.
        projects: only names of these; None for all.
        after: only what comes behind this position in the order.
        advise: where nothing matches, look for similar names, for the result's ``remark`` and ``error``; reads every
            name.
        strict: read the latest entry of every tag too, so that ``left_out`` has each one that is damaged; a service
            answers from its index.
        **filters: what columns have to match: a text for ``project``, ``family``, ``method``, ``license``, ``kind``
            (``mask``, ``delta``, ``baseline`` or ``analysis``) and ``signed`` (``yes`` or ``no``), a range for
            ``density``, ``ffn_density``, ``ffn_share``, ``ffn_lift`` and ``rlvr_overlap``.

    Raises:
        UsageError: a filter that does not exist or is empty, an unknown sort key, an empty range or a negative limit.
    """
    # Such as the value of an unset variable, which is no request for everything.
    for name, value in {"text": text, **filters}.items():
        if isinstance(value, str) and not value.strip():
            raise UsageError(f"the filter {name} is empty", hint="leave it out, or write what it has to match")
    patterns, words = patterns_in(text or "")
    query = Query(
        text=words,
        filters={name: value for name, value in filters.items() if value is not None},
        sort=sort,
        descending=descending,
        projects=None if projects is None else frozenset(projects),
        limit=None if patterns else limit,
        after=after,
    )
    query.check()
    if limit is not None:
        replace(query, limit=limit).check()
    with registry_of(remote, workspace) as (space, registry):
        search = registry.search(narrowed(query, patterns), read_entries=strict)
        note_catalog(space, registry)
        names = [Listed(**vars(entry)) for entry in search.results]
        names = [entry for entry in names if all(pattern.matches(entry.ref, entry.digest) for pattern in patterns)]
        left_out = [
            _next_step(name, remote)
            for name in search.left_out
            if all(replace(pattern, digits="").matches(Ref.parse(name.ref), name.digest) for pattern in patterns)
            and (query.projects is None or Ref.parse(name.ref).project in query.projects)
        ]
        silent = names or left_out or limit == 0 or not advise
        return Listing(names[:limit], left_out, None if silent else _nothing(space, registry, text, query.projects))


def _nothing(space: Workspace, registry: Registry, text: str | None, projects: frozenset[str] | None) -> NotFoundError:
    heads = (entry for entry in registry.refs.heads([]) if not entry.deleted)
    tags = {entry.ref for entry in heads if projects is None or entry.ref.project in projects}
    on = registry.remote_name
    if tags:
        remark = f"nothing in {registry.name} matches {text or 'these filters'}"
        for word in (text or "").split():
            with suppress(BadRefError):
                if similar := similar_names(tags, Ref.parse(word)):
                    name = Ref.parse(similar[0]).name
                    return NotFoundError(f"{remark}; similar: {', '.join(similar)}", similar=name, remote=on)
        return NotFoundError(remark, remote=on)
    if registry.root is None:
        return NotFoundError(f"{registry.name} has no artifacts", empty=True, remote=on)
    remark, remote = "the local registry has no artifacts", space.settings.meant_remote
    return NotFoundError(remark, remote=remote) if remote else NotFoundError(remark, empty=True)


_BATCH = 500
_BATCHES = 8


@dataclass(frozen=True)
class Page:
    """Some results of a search, in its order.

    Attributes:
        names: the results; can be fewer than the limit, or none, while there are more.
        after: where the next page begins; None when this is the last.
    """

    names: tuple[SearchResult, ...]
    after: Position | None


def browse(query: Query, *, remote: str | None = None, workspace: Workspace | None = None) -> Page:
    """The results of a search behind a position, at most as many as the query's limit.

    Only the catalog is asked; a page of the newest names takes as long in a large registry as in a small one. Every
    result is on one page, even if others are added or removed in the meantime, unless it moves in the order itself.

    Args:
        query: what to look for. Its text can hold patterns of references, as for :func:`search`. Its limit is the size
            of a page, its offset what earlier pages hold.

    Raises:
        UsageError: the query has no limit or is malformed.
    """
    limit = query.limit
    if not limit:
        raise UsageError("a page needs a limit of 1 or more")
    patterns, words = patterns_in(query.text)
    query = narrowed(replace(query, text=words), patterns)
    with registry_of(remote, workspace) as (_, registry):
        if not patterns:
            return _page(registry, query, limit)
        page = _filtered(registry, replace(query, offset=0), query.offset + limit, patterns)
        return replace(page, names=page.names[query.offset :])


def counts(
    query: Query, keys: Collection[str], *, remote: str | None = None, workspace: Workspace | None = None
) -> Counts | None:
    """How many names match a query, and by value of these filters; None where its text holds patterns of references."""
    if patterns_in(query.text)[0]:
        return None
    with registry_of(remote, workspace) as (_, registry):
        return registry.counts(query, keys)


def _page(registry: Registry, query: Query, limit: int) -> Page:
    # One more says whether there is another page.
    rows = registry.page(replace(query, limit=limit + 1))
    after = rows[limit - 1].position(query.sort) if len(rows) > limit else None
    return Page(tuple(rows[:limit]), after)


def _filtered(registry: Registry, query: Query, limit: int, patterns: Sequence[Pattern]) -> Page:
    # The database does not know patterns. So much is read at most, so that no request takes for ever.
    names: list[SearchResult] = []
    for _ in range(_BATCHES):
        page = _page(registry, query, _BATCH)
        for row in page.names:
            if all(pattern.matches(row.ref, row.digest) for pattern in patterns):
                names.append(row)
                if len(names) == limit:
                    is_last = row == page.names[-1] and page.after is None
                    return Page(tuple(names), None if is_last else row.position(query.sort))
        query = replace(query, after=page.after)
        if page.after is None:
            break
    return Page(tuple(names), query.after)


def narrowed(query: Query, patterns: Sequence[Pattern]) -> Query:
    """A query that gives all that matches it and the patterns, and little else."""
    # What a single pattern says for certain need not be read and thrown away.
    if len(patterns) != 1 or "project" in query.filters:
        return query
    return replace(query, filters={**query.filters, **patterns[0].fixed})
