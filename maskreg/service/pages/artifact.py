"""The page of an artifact: what it is, how to use it, where it moved, and what happened to its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from maskreg.artifact.manifest import Manifest
from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.service.access import Needs
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served
from maskreg.service.gateway.verification import latest_check
from maskreg.service.pages import ancestry
from maskreg.service.pages.heat import heat_map
from maskreg.service.pages.reading import ancestors, described, history, names, names_of, resolved, signature
from maskreg.service.pages.rendering import link, page, remote_name
from maskreg.service.pages.retrained import runs_of
from maskreg.words import counted, percent, times
from maskreg.workspace.log import LogEntry

_TAGS = 100
"""Tags of a name that are shown, the newest first."""

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)


@dataclass(frozen=True)
class Change:
    """One line of a tag's history.

    Attributes:
        entry: what happened.
        before: what the tag pointed to until then; None where it pointed to nothing.
    """

    entry: LogEntry
    before: Digest | None


@router.get("/p/{project}/{reference}")
def artifact(
    request: Request,
    service: Served,
    project: str,
    reference: str,
    principal: Annotated[Principal, Depends(Needs(Role.READER))],
) -> HTMLResponse:
    """What a name points to: ``name``, ``name:tag``, or either with ``@sha256:`` and a digest that it once had."""
    ref = Ref.parse(f"{project}/{reference}")
    shown = described(service, ref)
    entries = history(service, ref)
    lineage = ancestors(service, ref)
    known = names_of(service, principal, (ancestor.digest for ancestor in lineage.ancestors))
    return page(
        request,
        principal,
        "artifact.html.j2",
        ref=ref,
        shown=shown,
        manifest=shown.manifest,
        sentence=sentence(shown.manifest),
        commands=commands(ref, shown.manifest, str(request.base_url).rstrip("/"), remote_name(request)),
        heat=heat_map(shown.grid()) if shown.manifest.totals.numel else None,
        picture=ancestry.picture(lineage, known, ref, link),
        left_out=len(lineage.left_out),
        versions=names(service, principal, Query(text=f"{project}/{ref.name}:*", project=project, limit=_TAGS)),
        changes=[
            Change(now, before.digest if before else None)
            for before, now in pairwise((None, *entries))
            if now is not None
        ][::-1],
        head=entries[-1],
        runs=runs_of(service, principal, shown),
        signature=signature(service, ref),
        check=latest_check(service.registry, shown.digest),
        waits=service.accounts.checks.is_pending(shown.digest),
        may_check=principal.role(project) >= Role.WRITER,
    )


@router.post("/p/{project}/{reference}/verify", response_class=RedirectResponse, status_code=303)
def verify(
    service: Served,
    project: str,
    reference: str,
    principal: Annotated[Principal, Depends(Needs(Role.WRITER))],
) -> RedirectResponse:
    """Let the server verify what a name points to."""
    ref = Ref.parse(f"{project}/{reference}")
    digest = resolved(service, ref).digest
    assert digest is not None  # it is pinned
    service.accounts.checks.request(digest, principal.name)
    return RedirectResponse(f"{link(ref)}#verification", 303)


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
    """Lines to copy, for the command line and for Python.

    Args:
        ref: the name.
        manifest: of its artifact.
        base: address of the server.
        remote: what the server is called among the remotes.
    """
    pulled = f"maskreg pull {ref} --remote {remote}"
    python = f'import maskreg\n\nartifact = maskreg.pull("{ref}", remote="{remote}")\n'
    last = 'maskreg.apply(artifact, out="patched")' if manifest.kind == "delta" else "print(artifact.manifest.kind)"
    return {
        "shell": f"{pulled} | maskreg apply" if manifest.kind == "delta" else pulled,
        "setup": f"maskreg remote add {remote} {base}",
        "verify": f"maskreg verify {ref} --remote {remote}",
        "python": python + last,
    }
