"""The page of an artifact, tab by tab, and its files to download: each tab computes what it shows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask

from maskreg.artifact.layout import FILES, artifact_prefix
from maskreg.artifact.manifest import Manifest
from maskreg.artifact.presence import absent, listing, objects_of, read_manifest, whole_parts
from maskreg.catalog.query import Measurement, Query, SearchResult
from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, LimitError, NotFoundError, TryAgainError, UsageError
from maskreg.exchange import safetensors_mask
from maskreg.exchange.outgoing import Outgoing
from maskreg.ref import README_CHARS, Card, Ref
from maskreg.reports.modules import grid_of, scale, shade, table
from maskreg.service.access import Needs, ProjectReader, client_of
from maskreg.service.api.models import DigestText
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import MOST_COORDINATES, Served, Service
from maskreg.service.gateway.parcel import parcel
from maskreg.service.gateway.verification import check_figures, latest_check
from maskreg.service.pages.listing import names
from maskreg.service.pages.maps import map_of
from maskreg.service.pages.rendering import link, page
from maskreg.store.entry import RefEntry
from maskreg.words import counted, percent, times
from maskreg.workspace.lineage import facts_of, lineage
from maskreg.workspace.verbs.log import log
from maskreg.workspace.verbs.runs import is_run
from maskreg.workspace.verbs.tag import annotate

_TAGS = 100
"""Tags of a name, and entries of a tag's log, that are shown, the newest first."""

_NAMES = 5
"""Names of an ancestor that are looked for: the first one leads to it."""

_RELATED = 60
"""Names of one source, the newest, among which an artifact's descendants are looked for."""

_MANY_LAYERS = 24
"""With more layers a picture is shown above the table of their figures, which is longer than a screen."""

_TURNS, _OF_ONE = 12, 4
"""Files that one process makes and sends at a time, and of them to one client: a slow one holds its own turns alone."""

_taken: Counter[str] = Counter()
_counting = threading.Lock()

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

Tab = Literal["card", "layers", "evidence", "files", "lineage", "history", "use"]


@dataclass(frozen=True)
class _Shown:
    """What every tab is about: the name that was asked for, its latest entry, and the artifact."""

    service: Service
    principal: Principal
    ref: Ref
    head: RefEntry
    digest: Digest
    manifest: Manifest


@router.get("/p/{project}/{reference}")
def artifact(
    request: Request, service: Served, project: str, reference: str, principal: ProjectReader, tab: Tab = "card"
) -> HTMLResponse:
    """What a name points to: ``name``, ``name:tag``, or either with ``@sha256:`` and a digest that it once had."""
    ref = Ref.parse(f"{project}/{reference}")
    digest, head = resolved(service, ref)
    check_figures(service.registry, digest)
    manifest = read_manifest(service.registry.store, digest)[1]
    shown = _Shown(service, principal, ref, head, digest, manifest)
    keys = service.registry.trust.documents(project)
    travels: dict[str, Collection[str]] = {"pull": manifest.parts.keys() - {"reverse"}, "apply": {"delta"}}
    return page(
        request,
        principal,
        "artifact.html.j2",
        tab=tab,
        tabs=[name for name in _TABS if name != "layers" or manifest.totals.numel],
        ref=ref,
        head=head,
        digest=digest,
        manifest=manifest,
        sentence=sentence(manifest),
        is_run=is_run(service.registry, replace(ref, digest=None), digest),
        vouched="signed" if head.signer else "listed" if keys else "",
        key=keys[-1].key if keys else None,
        travels={how: sum(of.size for of in objects_of(manifest, parts)) for how, parts in travels.items()},
        check=latest_check(service.registry, digest),
        can_write=ref.digest is None and principal.role(project) >= Role.WRITER,
        is_admin=principal.role(project) >= Role.ADMIN,
        **_TABS[tab](shown),
    )


def _card(shown: _Shown) -> dict[str, Any]:
    overlaps = shown.service.registry.index.overlaps(shown.digest)
    is_latest = shown.digest == shown.head.digest
    return {"card": shown.head.card if is_latest else Card(), "overlaps": overlaps}


def _layers(shown: _Shown) -> dict[str, Any]:
    grid = grid_of(shown.service.registry.artifact(shown.digest).tensors)
    low, high = scale(*table(grid))
    columns = [{at: cell for (of, at), cell in grid.cells.items() if of == layer and cell.nnz} for layer in grid.layers]
    picture = map_of(columns, grid.modules, "Density by layer and module") if len(columns) > _MANY_LAYERS else None
    heat = {"grid": grid, "picture": picture, "low": low, "high": high}
    return {"heat": heat if grid.cells else None, "shade": shade}


def _evidence(shown: _Shown) -> dict[str, Any]:
    """Recorded overlaps with what the reader can read, the latest of each kind; and what was made from the artifact."""
    found = shown.service.registry.index.use(lambda catalog: catalog.measurements_naming(shown.digest)) or []
    latest: dict[tuple[str, str, str], Measurement] = {}
    for each in found:
        other = each.against if each.digest == shown.digest else each.digest
        latest.setdefault((other, each.metric, each.by_group), each)
    others = {other: _named(shown, other) for other, _, _ in latest}
    overlaps = [(others[key[0]][0], each) for key, each in latest.items() if others[key[0]]]
    return {"overlaps": overlaps, "children": _children(shown)}


def _named(shown: _Shown, digest: str) -> tuple[SearchResult, ...]:
    """The first names of an artifact that the reader can read."""
    return names(shown.service, shown.principal, Query(digest=digest, limit=_NAMES)).names


def _children(shown: _Shown) -> list[SearchResult]:
    """What was derived from the artifact, among the newest names of its source."""
    query = Query(source_root=shown.manifest.source.root, limit=_RELATED)
    rows = names(shown.service, shown.principal, query).names
    known = ((row, facts_of(shown.service.registry, row.digest)) for row in rows)
    return [row for row, facts in known if facts is not None and shown.digest in facts.parents]


def _files(shown: _Shown) -> dict[str, Any]:
    store, manifest = shown.service.registry.store, shown.manifest
    small = [entry for entry in manifest.objects if entry.key.startswith(FILES)]
    here, fault = listing(store, shown.digest), ""
    try:
        whole_parts(store, shown.digest, manifest, here)
    except CorruptError as error:
        fault = str(error)
    can_send = "mask" in manifest.parts and manifest.totals.numel <= MOST_COORDINATES
    present = {part for part in manifest.parts if not absent(objects_of(manifest, (part,)), here)}
    trust = shown.service.registry.trust
    keys = trust.documents(shown.ref.project)
    return {
        "present": present,
        "present_size": sum(entry.size for entry in objects_of(manifest, present)),
        "file_name": _file_name(shown.ref),
        "good_until": trust.renewed(keys[-1]).expires if keys and keys[-1].fresh_s else None,
        "fault": fault,
        "small_files": {entry.key.removeprefix(FILES): entry for entry in small},
        "objects": f"/api/v1/objects/{artifact_prefix(shown.digest)}",
        "can_send": can_send,
        "waits": shown.service.accounts.checks.is_pending(shown.digest),
    }


def _lineage(shown: _Shown) -> dict[str, Any]:
    derived = lineage(shown.ref, **shown.service.here)
    named = {row.digest: _named(shown, row.digest) for row in derived.ancestors}
    earlier = {entry.digest for entry in log(replace(shown.ref, digest=None), **shown.service.here)}
    return {"lineage": derived, "named": named, "earlier": earlier, "children": _children(shown)}


def _history(shown: _Shown) -> dict[str, Any]:
    ref, service = replace(shown.ref, digest=None), shown.service
    entries = log(ref, **service.here)
    changes = [(now, before and before.digest) for before, now in pairwise((None, *entries)) if now]
    versions = Query(text=f"{ref.project}/{ref.name}:*", project=ref.project, limit=_TAGS)
    return {
        "versions": names(service, shown.principal, versions),
        "changes": changes[: -_TAGS - 1 : -1],
        "omitted": max(0, len(entries) - _TAGS),
    }


_TABS: Mapping[str, Callable[[_Shown], dict[str, Any]]] = {
    "card": _card,
    "layers": _layers,
    "evidence": _evidence,
    "files": _files,
    "lineage": _lineage,
    "history": _history,
    "use": lambda _: {},
}


@router.get("/p/{project}/{reference}/mask.safetensors", response_class=StreamingResponse)
def mask(
    request: Request, service: Served, project: str, reference: str, principal: ProjectReader
) -> StreamingResponse:
    """The mask, a BOOL tensor for each tensor of the source; made while it is sent, from the artifact alone."""
    ref = Ref.parse(f"{project}/{reference}")
    found = service.registry.artifact(resolved(service, ref)[0])
    if found.manifest.totals.numel > MOST_COORDINATES:
        raise LimitError(
            f"the mask has {counted(found.manifest.totals.numel, 'coordinate')}; "
            f"this server sends at most {MOST_COORDINATES:,}",
            hint=f"pull it, and make the file: maskreg convert {ref} --to safetensors-mask -o mask.safetensors",
        )
    update = Outgoing(found)
    pieces = in_turn(client_of(request, principal), safetensors_mask.pieces(update))
    header = next(pieces)
    return _sent(ref, "-mask.safetensors", safetensors_mask.size_of(update, header), header, pieces)


@router.get("/p/{project}/{reference}/artifact.tar", response_class=StreamingResponse)
def whole(
    request: Request, service: Served, project: str, reference: str, principal: ProjectReader
) -> StreamingResponse:
    """The whole artifact: a folder that is a registry, with the log of the tag and the keys of the project."""
    ref = Ref.parse(f"{project}/{reference}")
    digest, head = resolved(service, ref)
    size, made = parcel(service.registry, head, digest, _file_name(ref))
    pieces = in_turn(client_of(request, principal), made)
    return _sent(ref, ".tar", size, next(pieces), pieces)


def _file_name(ref: Ref) -> str:
    return f"{ref.project}-{ref.name}-{ref.tag}"


def _sent(ref: Ref, ending: str, size: int, first: bytes, rest: Generator[bytes]) -> StreamingResponse:
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{_file_name(ref)}{ending}"',
        "Cache-Control": "private, no-cache",
    }
    # Where the client hangs up, only a garbage collection would end the pieces, and give their turn back.
    answer = StreamingResponse(chain([first], rest), headers=headers, media_type="application/octet-stream")
    answer.background = BackgroundTask(rest.close)
    return answer


def in_turn(client: str, pieces: Iterable[bytes]) -> Generator[bytes]:
    """The pieces of a file; once begun, it holds one of the client's turns until it ends or is dropped.

    Raises:
        TryAgainError: all turns, or all of the client's, are taken.
    """
    with _counting:
        if _taken[client] >= _OF_ONE or _taken.total() >= _TURNS:
            raise TryAgainError("the server sends other files", hint="try again in a minute")
        _taken[client] += 1
    try:
        yield from pieces
    finally:
        with _counting:
            _taken[client] -= 1
            if not _taken[client]:
                del _taken[client]


class Text(BaseModel):
    """A README as the form sends it; ``entry`` is the tag's latest entry that the writer saw."""

    entry: DigestText
    readme: str = Field("", max_length=2 * README_CHARS)
    save: bool = False


@router.get("/p/{project}/{reference}/readme")
def edit(
    request: Request,
    service: Served,
    project: str,
    reference: str,
    principal: Annotated[Principal, Depends(Needs(Role.WRITER))],
) -> HTMLResponse:
    """A form for the README of a tag."""
    ref = Ref.parse(f"{project}/{reference}")
    resolved(service, ref)
    head = service.registry.live(ref)
    return page(request, principal, "readme.html.j2", ref=ref, text=head.card.readme, entry=head.id, shown=False)


@router.post("/p/{project}/{reference}/readme", response_class=HTMLResponse)
def change(
    request: Request,
    service: Served,
    project: str,
    reference: str,
    principal: Annotated[Principal, Depends(Needs(Role.WRITER, audited="annotate"))],
    form: Annotated[Text, Form()],
) -> Response:
    """Save the README of a tag, or show what it looks like."""
    ref = Ref.parse(f"{project}/{reference}")
    resolved(service, ref)
    text = form.readme.replace("\r\n", "\n").rstrip("\n")  # browsers send lines as RFC 1945 has them
    if not form.save:
        request.state.audited = None
        return page(request, principal, "readme.html.j2", ref=ref, text=text, entry=form.entry, shown=True)
    try:
        annotate(ref, readme=text, by=principal.name, expected=Digest(form.entry), **service.here)
    except (ConflictError, UsageError) as error:  # an error page would lose the text
        status, entry = 422 if isinstance(error, UsageError) else 412, service.registry.live(ref).id
        known = {"ref": ref, "text": text, "entry": entry, "seen": form.entry, "fault": error, "shown": False}
        return page(request, principal, "readme.html.j2", status=status, **known)
    return RedirectResponse(link(ref), 303)


def resolved(service: Service, ref: Ref) -> tuple[Digest, RefEntry]:
    """What a name points to now, or the digest that it has; and the latest entry of its tag."""
    # The registry's own words would name where it is, and names of projects that the reader cannot read.
    unpinned, head = replace(ref, digest=None), service.registry.head(ref)
    if head is None:
        raise NotFoundError(f"there is no {unpinned}")
    if ref.digest is not None:
        if all(entry.digest != ref.digest for entry in service.registry.refs.until(head)):
            raise NotFoundError(f"{unpinned} never pointed to {ref.digest.short}")
        return ref.digest, head
    if head.digest is None:
        raise NotFoundError(f"{ref} was removed by {head.by} at {head.at:%Y-%m-%d %H:%M} UTC")
    return head.digest, head


def sentence(manifest: Manifest) -> str:
    """What an artifact is, in one or two sentences."""
    totals, ffn = manifest.totals, manifest.totals.ffn
    if not totals.numel:
        return "Figures about another artifact."
    of = f"{percent(totals.density)} of {counted(totals.numel, 'coordinate')}"
    is_drawn = manifest.kind == "baseline"
    text = f"{of}, drawn to compare with." if is_drawn else f"{of} moved under the rule {manifest.rule}."
    if ffn.mask_share is not None and ffn.mask_lift is not None:
        text += f" {percent(ffn.mask_share)} of these lie in the FFN: {times(ffn.mask_lift)} its share of coordinates."
    return text
