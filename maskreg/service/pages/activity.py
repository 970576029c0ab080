"""The pages of what was changed, on the server or in a project: the audit log in the words of people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import groupby
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from maskreg.ref import Ref
from maskreg.service.api.accounts import Admin, Before, ServerAdmin, project_audit
from maskreg.service.auth.roles import EVERY_PROJECT, Audited, Principal
from maskreg.service.context import Served
from maskreg.service.pages.rendering import link, page
from maskreg.words import counted, human_bytes

router = APIRouter(prefix="/activity", tags=["pages"], default_response_class=HTMLResponse)

SAID = {
    "sign in": "{by} signed in",
    "create project": "{by} made the project {project}",
    "change project": "{by} changed {project}: {changes}",
    "delete project": "{by} deleted the project {project}",
    "grant": "{by} gave {name} the role {role} in {project}",
    "revoke": "{by} took the role of {name} in {project}",
    "create token": "{by} made a token{owner}, {role} in {project}",
    "revoke token": "{by} revoked the token {code} of {project}",
    "set tag": "{by} published {tag}",
    "annotate": "{by} annotated {tag}",
    "remove": "{by} removed {tag}",
    "restore": "{by} restored {tag}",
    "expire links": "{by} deleted old versions of {tag}",
    "request verification": "{by} asked the server to verify {code}",
    "write key": "{by} changed the signing keys of {project}",
    "delete object": "{by} deleted objects of the store",
    "submit job": "{by} submitted the job {job}",
    "cancel job": "{by} canceled the job {job}",
    "job done": "the job {job} of {by} is done",
    "job failed": "the job {job} of {by} failed",
    "job canceled": "the job {job} of {by} has stopped",
}
"""What an action of the audit log is called on a page."""

ROWS = 100
"""Changes on a page, before equal ones are joined."""


@router.get("")
def of_server(request: Request, service: Served, principal: ServerAdmin, before: Before = None) -> HTMLResponse:
    """What was changed on the server, newest first."""
    rows = service.accounts.audit(before=before, limit=ROWS)
    return _activity(request, principal, rows, before=before, project="")


@router.get("/{project}")
def of_project(
    request: Request, service: Served, project: str, principal: Admin, before: Before = None
) -> HTMLResponse:
    """What was changed in a project, newest first."""
    rows = project_audit(service, project, principal, before, ROWS).items
    return _activity(request, principal, rows, before=before, project=project)


def _activity(request: Request, principal: Principal, rows: Sequence[Audited], **values: Any) -> HTMLResponse:
    older = rows[-1].id if len(rows) == ROWS else None
    return page(request, principal, "activity.html.j2", status=200, days=days(rows), older=older, **values)


def days(rows: Sequence[Audited]) -> Iterator[tuple[date, list[tuple[datetime, Markup, int]]]]:
    """By day, the time and the sentence of each change, and how often it was made in a row."""
    for day, of_day in groupby(rows, key=lambda row: row.at.date()):
        runs = [(sentence, list(same)) for sentence, same in groupby(of_day, key=sentence_of)]
        yield day, [(same[0].at, sentence, len(same)) for sentence, same in runs]


def sentence_of(row: Audited) -> Markup:
    """One change as a sentence; an action that has none yet is only named, because its subject can be a key."""
    detail, project = row.detail, Markup('<a href="/p/{0}">{0}</a>').format(row.project)
    facts: Mapping[str, Any] = {
        "by": Markup("<b>{}</b>").format(row.by),
        "action": row.action,
        "name": Markup("<b>{}</b>").format(row.subject),
        "role": detail.get("role"),
        "owner": Markup(" for <b>{}</b>").format(detail.get("name")) if detail.get("name") != row.by else "",
        "code": Markup("<code>{}</code>").format(row.subject[:19]),
        "job": Markup('<a href="/jobs/{0}"><code>{0}</code></a>').format(row.subject),
        "project": "all projects" if row.project == EVERY_PROJECT else project,
        "changes": ", ".join(_changed(detail)),
    }
    said = SAID.get(row.action, "{by}: {action}")
    tag = Markup('<a href="{}">{}</a>').format(link(Ref.parse(row.subject)), row.subject) if "{tag}" in said else ""
    return Markup(said).format(**facts, tag=tag)  # each fact is escaped


def _changed(detail: Mapping[str, Any]) -> Iterator[str]:
    for key, value in detail.items():
        if key == "public":
            yield "visitors can read it" if value else "only members can read it"
        elif key == "max_bytes":
            yield "any size" if value is None else f"{human_bytes(value)} at most"
        elif key == "max_artifacts":
            yield "any number of artifacts" if value is None else f"{counted(value, 'artifact')} at most"
