"""What to type next: the one table from errors and their facts to command lines.

Errors carry facts (``maskreg.errors``); only this module knows what a shell can do about them. Each
class has command lines under the fact that decides; the first is shown whose facts are all there, and rows of base
classes follow the rows of the class. ``{on}`` is `` --remote NAME``, or nothing for the local registry. Options that
would mend a request are added to the command that was typed, also a method's settings beside others::

    NotFoundError(..., removed=team/opd:v1, remote="lab")     maskreg restore team/opd:v1 --remote lab
    UsageError(..., options={"allow_mismatch": True})         maskreg extract A B --name C --allow-mismatch
    UsageError(..., options={"settings": {"k": 2}})           maskreg merge A B --method consensus --set k=2
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import click

from maskreg import errors
from maskreg.errors import MaskregError

ARGUMENTS = "maskreg.arguments"
"""Key of click's context: what was typed after the command."""

_Facts = Mapping[str, Any]
_ended: ContextVar[click.Context | None] = ContextVar("maskreg_cli_ended", default=None)


def _rolled_back(facts: _Facts) -> str:
    if not facts.get("ref"):
        return f"maskreg remote check {facts['remote']} --allow-rollback takes what is there now"
    taken = _again({"allow_rollback": True}) or f"maskreg show {facts['ref']}{_on(facts)} --allow-rollback"
    return f"{taken} takes the tag as it is now"


def _fetched(facts: _Facts) -> str:
    name = facts.get("ref") or f"@{facts['artifact']}"
    if facts.get("remote"):
        return f"maskreg log {name}{_on(facts)}"
    if not _has_remotes():
        return "extract it again, or add a remote: maskreg remote add NAME URL"
    return f"maskreg pull {name}"


def _has_remotes() -> bool:
    from maskreg.settings import Settings

    # Broken settings must not hide the error that is being reported.
    with suppress(MaskregError, OSError):
        return bool(Settings.load().remotes)
    return True


def _completed(facts: _Facts) -> str:
    name = facts.get("ref") or f"@{facts['artifact']}"
    extract = "maskreg extract SOURCE TARGET --name NAME"
    steps = {"analysis": f"maskreg analyze {name}", "mask": f"maskreg squash {name} --name NAME", "delta": extract}
    return steps.get(facts["absent"], f"{extract} --reversible")


def _sources(facts: _Facts) -> str:
    return "maskreg jobs sources" + (f" --on {facts['remote']}" if facts.get("remote") else "")


def _first_artifact(facts: _Facts) -> str:
    return f"maskreg push REF{_on(facts)}" if facts.get("remote") else "maskreg extract SOURCE TARGET --name NAME"


def _login(facts: _Facts) -> str:
    # The variable goes before the token that a login keeps.
    if os.environ.get("MASKREG_TOKEN"):
        return "unset MASKREG_TOKEN, or set it to a valid token"
    return f"maskreg login {facts.get('url') or 'URL'} --token-stdin"


def _url(facts: _Facts) -> str:
    url, endpoint = facts["new_url"], facts.get("endpoint")
    if name := facts.get("new_remote"):
        return f"maskreg remote add {name} {url}" + (f" --endpoint {endpoint}" if endpoint else "")
    if (key := facts.get("setting")) and endpoint:
        return f"maskreg config set {key.rpartition('.')[0]}.endpoint {endpoint}"
    return (
        f"maskreg config set {key} {url}" if key else f"write {' or '.join(filter(None, (url, facts.get('or_url'))))}"
    )


def _piped(facts: _Facts) -> str:
    context = _typed()
    return f"maskreg pull {facts['piped']} | maskreg {context.info_name if context else 'apply'}"


_Row = str | Callable[[_Facts], str]

NEXT: Mapping[type[MaskregError], Mapping[str, _Row]] = {
    errors.NotFoundError: {
        "removed": "maskreg restore {removed}{on}",
        "similar": "maskreg list {similar}{on}",
        "history": "maskreg log {history}{on}",
        "link": "maskreg pull @{link}",
        "artifact": _fetched,
        "keyless": "maskreg key create {keyless}{on}",
        "key_file": "maskreg key export PROJECT {key_file}",
        "setting": "maskreg config show",
        "empty": _first_artifact,
        "with": "maskreg tag {swapped} {with}{on}",
        "job_sources": _sources,
        "remote": "maskreg list{on}",
    },
    errors.PartAbsentError: {
        "not_pulled": "maskreg pull {ref} --only {not_pulled}",
        "elsewhere": "maskreg pull {ref} --only {elsewhere}",
        "absent": _completed,
        "unpulled": "maskreg pull {unpulled}",
    },
    errors.RolledBackError: {"remote": _rolled_back},
    errors.UntrustedError: {
        "unsigned": "maskreg key sign {unsigned}{on}",
        "expired": "maskreg key refresh {expired}{on}",
        "new_key": "maskreg key trust {project} {new_key}{on}",
    },
    errors.DataError: {"indexed": "maskreg db rebuild{on}"},
    errors.CorruptError: {
        "seen": "maskreg show {ref}{on} --allow-rollback takes the tag as it is now",
        "artifact": _fetched,
    },
    errors.FormatError: {"no_trajectory": "maskreg analyze --trajectory SOURCE CHECKPOINT... --json > FILE"},
    errors.PipeError: {"piped": _piped},
    errors.BrokenChainError: {"circle": "maskreg tag REF@DIGEST TAG"},
    errors.ConflictError: {
        "mine": "maskreg tag {mine} {mine_as} && maskreg rm {mine}",
        "theirs": "maskreg pull {theirs}{on}",
        "keep": "maskreg tag {keep} {keep_as}",
        "project": "maskreg key list {project}{on}",
    },
    errors.ImmutableTagError: {"keep": "maskreg tag {keep} {keep_as}"},
    errors.NotAllowedError: {
        "both": "maskreg tag {both} {other}{on}",
        "has_key": "maskreg key rotate {has_key}{on}",
        "signer_of": "maskreg key import FILE; where the key is: maskreg key export {signer_of} FILE{on}",
    },
    errors.UnauthenticatedError: {"": _login},
    errors.NoSpaceError: {
        "registry": "maskreg gc deletes artifacts without a name; MASKREG_HOME moves the registry to another disk"
    },
    errors.UnavailableError: {
        "offline": "maskreg config show --origin",
        "folder": "mount its disk or move it back; or remove the remote and add it anew",
    },
    errors.ConfigError: {
        "new_url": _url,
        "known_remotes": "maskreg remote list",
        "no_default": "maskreg config set default_remote {no_default}",
        "immutable_project": "maskreg config set immutable_projects {immutable_project}",
        "new_value": "maskreg config set {setting} {new_value}",
        "setting": "maskreg config show --origin",
        "token_of": "maskreg login {token_of} --token-stdin",
    },
    errors.BadRefError: {"digits": "maskreg list -q", "not_a_name": "maskreg list"},
    errors.UsageError: {
        "unnamed": "maskreg tag {unnamed} {name}{on}",
        "names": "maskreg list {names}{on}",
        "digits": "maskreg list {digits}{on}",
        "not_a_token": "maskreg token create --project PROJECT --role reader",
        "entry": "maskreg {command} --explain {entry}",
        "empty_mask": "maskreg show {empty_mask}",
        "chain": "maskreg show {chain} --verbose",
        "analyzed": "maskreg analyze {analyzed} --source CHECKPOINT",
        "jobs": "maskreg jobs list",
    },
    errors.LimitError: {"compared": "maskreg compare {compared}"},
    errors.MaskregError: {
        "new_url": _url,
        "catalog_url": "maskreg db upgrade --catalog {catalog_url}",
        "home": "MASKREG_HOME={home} maskreg db upgrade{on}",
        "catalog_behind": "maskreg db upgrade{on}",
        "catalog_damaged": "maskreg db rebuild{on}",
        "new_value": "maskreg config set {setting} {new_value}",
        "history": "maskreg log {history}{on}",
        "earlier": "maskreg tag {earlier} {tag}",
        "lost": "maskreg pull {lost}, or maskreg rm -y {lost}",
        "registry": "maskreg gc --dry-run",
        "leftovers": "maskreg gc{on} deletes what is older than 7 days; --grace sets another age",
        "unlisted": "maskreg verify {unlisted}{on}",
        "resend": "maskreg push {resend}{on}",
        "taken_remote": "maskreg remote remove {taken_remote}",
        "job_sources": _sources,
        "whoami": "maskreg whoami",
        "project": "maskreg list --project {project}{on}",
        "admin_of": "maskreg token create --project {admin_of} --role admin --name NAME",
        "revertible": "maskreg apply {ref} --revert --source {revertible}",
    },
}
"""By class and fact, what to type; see the module's text."""


def next_step(error: MaskregError) -> str:
    """What helps with an error: its hint, and what to type; empty when there is nothing."""
    facts = error.facts
    typed = [step for step in (_row(error), _again(_options(facts), or_add=True)) if step]
    return ": ".join(part for part in (error.hint, "; or ".join(typed)) if part)


def stated(document: dict[str, Any], error: MaskregError | None) -> dict[str, Any]:
    """A JSON object about an error, with what to do about it as its ``hint``."""
    return {**document, "hint": next_step(error) if error is not None else ""}


def _options(facts: Mapping[str, object]) -> Mapping[str, object]:
    options = facts.get("options")
    return options if isinstance(options, Mapping) else {}


def _row(error: MaskregError) -> str:
    facts = {**error.facts, "on": _on(error.facts)}
    rows = ((fact, row) for kind in type(error).__mro__ for fact, row in NEXT.get(kind, {}).items())
    return next((text for fact, row in rows if (not fact or fact in facts) and (text := _filled(row, facts))), "")


def _filled(row: _Row, facts: _Facts) -> str:
    try:
        return row(facts) if callable(row) else row.format_map(facts)
    except KeyError:
        return ""


def _on(facts: _Facts) -> str:
    return f" --remote {facts['remote']}" if facts.get("remote") else ""


@contextmanager
def of_command(context: click.Context | None) -> Iterator[None]:
    """Let next steps in the block repeat the command line of a command that has ended."""
    token = _ended.set(context)
    try:
        yield
    finally:
        _ended.reset(token)


def _typed() -> click.Context | None:
    return click.get_current_context(silent=True) or _ended.get()


def _again(options: Mapping[str, object], *, or_add: bool = False) -> str:
    """The command line that was typed, with other options; empty where the command does not have them."""
    if not options:
        return ""
    context = _typed()
    known = {param.name: param for param in context.command.params if param.name} if context is not None else {}
    if context is None or ARGUMENTS not in context.meta:
        return " ".join(["add", *_spelled(options, known)]) if or_add else ""
    if not set(options) <= set(known):
        return ""
    named = {name for option in options for name in known[option].opts}
    flags = {name for param in known.values() if getattr(param, "is_flag", False) for name in param.opts}
    typed = _without(context.meta[ARGUMENTS], named, flags)
    # Other settings of a method stay as they were typed.
    options = {
        name: {**dict(context.params[name]), **value} if isinstance(value, Mapping) else value
        for name, value in options.items()
    }
    words = [*map(shlex.quote, typed)]
    # What follows "--" is no option.
    end = words.index("--") if "--" in words else len(words)
    return " ".join([context.command_path, *words[:end], *_spelled(options, known), *words[end:]])


def _without(arguments: tuple[str, ...], names: set[str], flags: set[str]) -> Iterator[str]:
    words = iter(arguments)
    for word in words:
        if word in names:
            # A flag that is typed again does no harm; what follows an option with a value is the value.
            if word not in flags:
                next(words, None)
        elif not any(word.startswith(f"{name}=") for name in names):
            yield word


def _spelled(options: Mapping[str, object], known: Mapping[str, click.Parameter]) -> Iterator[str]:
    for option, value in options.items():
        param = known.get(option)
        names = param.opts if param else [f"--{option.replace('_', '-')}"]
        values: list[object] = [(param and param.metavar) or option.upper() if value is None else value]
        if isinstance(value, Mapping):
            values = [f"{key}={key.upper() if each is None else each}" for key, each in value.items()]
        for each in values:
            if each is not False:
                yield max(names, key=len)
                if each is not True:
                    yield shlex.quote(str(each))
