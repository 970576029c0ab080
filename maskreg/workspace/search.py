"""Search: what a registry holds, found by text and by numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from maskreg.catalog.query import Query, Range, SearchResult
from maskreg.errors import UsageError
from maskreg.ref import Ref
from maskreg.registry.index.results import LeftOut
from maskreg.result import plain
from maskreg.workspace.arguments import check_arguments
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.workspace import Workspace, opened


@dataclass(frozen=True)
class Listed(SearchResult):
    """A name of a registry, with its card and what the catalog knows of its artifact."""

    @property
    def ref(self) -> Ref:
        """The name as a reference."""
        return Ref(self.project, self.name, self.tag)

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints: the reference, then every field."""
        return {"ref": str(self.ref), **{key: plain(value) for key, value in asdict(self).items()}}


class Listing(tuple[Listed, ...]):
    """The names that a search found, in order, and those that it could not look at.

    Attributes:
        left_out: names that match or not: what describes them is damaged or missing.
    """

    left_out: tuple[LeftOut, ...]

    def __new__(cls, names: Iterable[Listed], left_out: Iterable[LeftOut] = ()) -> Listing:
        """Names, and what was left out."""
        listing = super().__new__(cls, names)
        listing.left_out = tuple(left_out)
        return listing

    @property
    def names(self) -> tuple[Listed, ...]:
        """The names alone."""
        return tuple(self)

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {"names": plain(self.names), "left_out": plain(self.left_out)}


def _next_step(name: LeftOut, remote: str | None) -> LeftOut:
    # What repairs a local registry does not repair a remote; verifying says more, where reading is allowed.
    if name.hint.startswith("ls -ld "):
        return name
    verify = f"maskreg verify {name.ref} --remote {remote}" if remote else f"maskreg verify {name.ref}"
    return replace(name, hint=verify if remote else name.hint or verify)


def _refuse_empty(**filters: str | None) -> None:
    # Such as the value of an unset variable, which is no request for everything.
    for name, value in filters.items():
        if value is not None and not value.strip():
            raise UsageError(f"the filter {name} is empty", hint="leave it out, or write what it has to match")


@check_arguments
def search(
    text: str | None = None,
    *,
    family: str | None = None,
    method: str | None = None,
    project: str | None = None,
    license: str | None = None,
    kind: str | None = None,
    density: Range | None = None,
    ffn_density: Range | None = None,
    ffn_share: Range | None = None,
    ffn_lift: Range | None = None,
    rlvr_overlap: Range | None = None,
    sort: str = "created",
    descending: bool = True,
    limit: int | None = None,
    remote: str | None = None,
    workspace: Workspace | None = None,
) -> Listing:
    """Search the artifacts of a registry. Without arguments it lists all names of the local registry.

    A name whose artifact or ref entry is damaged cannot be searched. It is in the result's ``left_out``, whether it
    would match or not.

    Ranges are (lowest, highest), both included; ``float("inf")`` leaves a side open.

    Args:
        text: words that must all occur in name, project, family or description, or begin the digest.
        family: model family, such as ``qwen3-8b``.
        method: ``opd``, ``rlvr``, ``sft`` or another word.
        project: namespace.
        license: SPDX identifier.
        kind: ``mask``, ``delta``, ``baseline`` or ``analysis``.
        density: share of the compared coordinates that moved.
        ffn_density: the same within the FFN.
        ffn_share: share of the moved coordinates that lies in the FFN.
        ffn_lift: ``ffn_share`` divided by the FFN's share of the parameters; 1 is no preference.
        rlvr_overlap: recorded overlap with the reference mask, as lift.
        sort: ``created``, ``name``, ``by``, ``size``, ``params``, ``nnz``, ``numel``, or any filter but ``text``.
        descending: newest, largest or last in the alphabet first.
        limit: maximum number of results.
        remote: search this remote instead of the local registry.
        workspace: by default what the settings say.

    Raises:
        UsageError: a filter that is empty, an unknown sort key, an empty range or a negative limit.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
    """
    _refuse_empty(text=text, project=project, family=family, method=method, license=license, kind=kind)
    query = Query(
        text=text or "",
        project=project or "",
        family=family or "",
        method=method or "",
        license=license or "",
        kind=kind or "",
        density=density,
        ffn_density=ffn_density,
        ffn_share=ffn_share,
        ffn_lift=ffn_lift,
        rlvr_overlap=rlvr_overlap,
        sort=sort,
        descending=descending,
        limit=limit,
    )
    with opened(workspace) as space:
        registry = space.registry(remote)
        search = registry.search(query)
        note_catalog(space, registry)
    names = (Listed(**vars(entry)) for entry in search.results)
    return Listing(names, (_next_step(name, remote) for name in search.left_out))
