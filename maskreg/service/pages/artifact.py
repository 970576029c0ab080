"""The page of an artifact: its README and facts, how to use it, where it moved, and what happened to its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from maskreg.artifact.manifest import Group, Manifest
from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import ConflictError, NotFoundError, UsageError
from maskreg.ref import README_CHARS, Ref
from maskreg.reports.modules import CIVIDIS, scale, table
from maskreg.service.access import Needs, ProjectReader
from maskreg.service.api.models import DigestText
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served, Service
from maskreg.service.gateway.verification import latest_check
from maskreg.service.pages.listing import names
from maskreg.service.pages.rendering import link, page, remote_name
from maskreg.words import counted, percent, times
from maskreg.workspace.lineage import lineage
from maskreg.workspace.verbs import keys
from maskreg.workspace.verbs.log import log
from maskreg.workspace.verbs.runs import is_run
from maskreg.workspace.verbs.show import show
from maskreg.workspace.verbs.tag import annotate

_TAGS = 100
"""Tags of a name, and entries of a tag's log, that are shown, the newest first."""

_NAMES = 5
"""Names of an ancestor that are looked for: the first one leads to it."""

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)


@router.get("/p/{project}/{reference}")
def artifact(
    request: Request,
    service: Served,
    project: str,
    reference: str,
    principal: ProjectReader,
) -> HTMLResponse:
    """What a name points to: ``name``, ``name:tag``, or either with ``@sha256:`` and a digest that it once had."""
    ref = Ref.parse(f"{project}/{reference}")
    resolved(service, ref)
    unpinned = replace(ref, digest=None)
    shown = show(ref, remote=service.remote, workspace=service.workspace)
    entries = log(unpinned, remote=service.remote, workspace=service.workspace)
    derived = lineage(ref, remote=service.remote, workspace=service.workspace)
    signatures = keys.verify(unpinned, remote=service.remote, workspace=service.workspace).tags
    grid, totals = shown.grid(), shown.manifest.totals
    low, high = scale(*table(grid)) if grid.cells else (0.0, 1.0)

    def shade(group: Group) -> int:
        return round(min(max((group.density - low) / (high - low), 0.0), 1.0) * (len(CIVIDIS) - 1))

    return page(
        request,
        principal,
        "artifact.html.j2",
        ref=ref,
        shown=shown,
        manifest=shown.manifest,
        sentence=sentence(shown.manifest),
        commands=commands(ref, shown.manifest, str(request.base_url).rstrip("/"), remote_name(request)),
        heat={"grid": grid, "low": low, "high": high, "shades": len(CIVIDIS)} if totals.numel and grid.cells else None,
        shade=shade,
        lineage=derived,
        named={
            row.digest: names(service, principal, Query(digest=row.digest, limit=_NAMES)).names
            for row in derived.ancestors
        },
        versions=names(service, principal, Query(text=f"{project}/{ref.name}:*", project=project, limit=_TAGS)),
        is_run=is_run(service.registry, unpinned, shown.digest),
        changes=[(now, before and before.digest) for before, now in pairwise((None, *entries)) if now][
            : -_TAGS - 1 : -1
        ],
        omitted=max(0, len(entries) - _TAGS),
        head=entries[-1],
        signature=signatures[0] if signatures else None,
        check=latest_check(service.registry, shown.digest),
        waits=service.accounts.checks.is_pending(shown.digest),
        can_write=ref.digest is None and principal.role(project) >= Role.WRITER,
    )


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
        annotate(
            ref,
            readme=text,
            by=principal.name,
            expected=Digest(form.entry),
            remote=service.remote,
            workspace=service.workspace,
        )
    except (ConflictError, UsageError) as error:  # an error page would lose the text
        status, entry = 422 if isinstance(error, UsageError) else 412, service.registry.live(ref).id
        known = {"ref": ref, "text": text, "entry": entry, "seen": form.entry, "fault": error, "shown": False}
        return page(request, principal, "readme.html.j2", status=status, **known)
    return RedirectResponse(link(ref), 303)


def resolved(service: Service, ref: Ref) -> Ref:
    """A name, pinned to what it points to now, or to the digest that it has."""
    # The registry's own words would name where it is, and names of projects that the reader cannot read.
    unpinned, head = replace(ref, digest=None), service.registry.head(ref)
    if head is None:
        raise NotFoundError(f"there is no {unpinned}")
    if ref.digest is not None:
        if all(entry.digest != ref.digest for entry in service.registry.refs.until(head)):
            raise NotFoundError(f"{unpinned} never pointed to {ref.digest.short}")
        return ref
    if head.digest is None:
        raise NotFoundError(f"{ref} was removed by {head.by} at {head.at:%Y-%m-%d %H:%M} UTC")
    return ref.pinned(head.digest)


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


def commands(ref: Ref, manifest: Manifest, base: str, remote: str) -> Mapping[str, str]:
    """Lines to copy, for the command line and for Python."""
    pulled = f"maskreg pull {ref} --remote {remote}"
    python = f'import maskreg\n\nartifact = maskreg.pull("{ref}", remote="{remote}").artifact\n'
    last = 'maskreg.apply(artifact, out="patched")' if manifest.kind == "delta" else "print(artifact.manifest.kind)"
    return {
        "shell": f"{pulled} | maskreg apply" if manifest.kind == "delta" else pulled,
        "setup": f"maskreg remote add {remote} {base}",
        "verify": f"maskreg verify {ref} --remote {remote}",
        "python": python + last,
    }
