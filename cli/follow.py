"""``maskreg follow``: keep a folder at what a run publishes."""

from __future__ import annotations

from typing import Any

import click

from maskreg.errors import NotFoundError, TryAgainError, UnavailableError
from maskreg.ref import Ref
from maskreg.words import counted, human_bytes
from maskreg.workspace import verbs

from .command import Command, workspace
from .output import Output
from .table import noted, page, table
from .values import OUT, POSITIVE, TAG, NumberType

_PASSING = (UnavailableError, TryAgainError, NotFoundError)
"""What can be gone at the next look: a remote that is away, a tag that is not there yet, a link on its way."""


@click.command(
    cls=Command,
    example="""
    maskreg follow qwen3-8b-run --source ./Qwen3-8B -o ./served --once
    maskreg follow qwen3-8b-run --source ./Qwen3-8B -o ./served --every 1 | xargs -n 1 ./reload
    maskreg follow qwen3-8b-run --source ./Qwen3-8B -o ./served --notify http://localhost:30000/update_weights_from_disk
    """,
)
@click.argument("ref", type=TAG, metavar="REF")
@click.option("--source", required=True, metavar="CKPT", help="Checkpoint that the chain began from, or a later one.")
@click.option("-o", "--out", type=OUT, required=True, help="Folder; its link `current` leads to the latest checkpoint.")
@click.option("--once", is_flag=True, help="Bring the folder up to date and exit.")
@click.option("--every", "every_s", type=NumberType(min=0.01), default=5.0, help="Seconds between looks [5].")
@click.option("--keep", type=POSITIVE, default=2, show_default=True, help="Checkpoints to keep, with the current one.")
@click.option("--remote", metavar="NAME", help="Remote [default: the default remote, or the local registry].")
@click.option("--replica", metavar="NAME", help="What a service shows this process as [default: HOST:PID].")
@click.option("--notify", metavar="URL", help="POST the event and `model_path` to this URL after each switch.")
@click.option("--with-code", is_flag=True, help="Write the links' files that can run code, such as .py.")
@click.pass_obj
def command(output: Output, /, ref: Ref, once: bool, notify: str | None, **options: Any) -> None:
    """Keep a folder at what a run publishes under REF.

    The folder has a complete checkpoint for each state, and a link `current` to the latest, which is replaced by one
    rename. Only new links are fetched. The path of each checkpoint is printed when it is complete. A tag that is not
    there yet, or a remote that does not answer, is waited for. Start the command again at any time: it goes on where it
    stopped.

    A server that --notify names is told again until it answers; MASKREG_NOTIFY_SECRET signs what it is told.
    """
    from maskreg.workspace.notifying import Hook

    hook = Hook(notify) if notify else None
    with (
        output.progress() as progress,
        verbs.follow_folder.follow_folder(ref, progress=progress, workspace=workspace(output), **options) as follower,
    ):
        if once:
            follower.fetch()
            followed = follower.apply()
            assert followed is not None  # the first look always has something to say
            _tell(output, followed)
            if hook is not None:
                hook.tell(followed)
            return
        last_fault = ""
        untold: verbs.follow.Followed | None = None
        while True:
            try:
                if switched := follower.step():
                    _tell(output, switched)
                    untold = switched
                if hook is not None and untold is not None:
                    hook.tell(untold)
                untold = None
                last_fault = ""
            except _PASSING as error:
                if error.message != last_fault:
                    last_fault = error.message
                    output.note(f"waiting: {last_fault}")
            follower.pause()


def _tell(output: Output, followed: verbs.follow.Followed) -> None:
    if output.json:
        output.record(followed.to_json())
        return
    step = f", step {followed.card.meta['step']}" if "step" in followed.card.meta else ""
    fetched = f", {human_bytes(followed.bytes)} fetched" if followed.bytes else ""
    change = counted(followed.links, "link") + fetched if followed.links else "no change"
    output.note(f"{followed.ref} is {followed.digest.short}{step}: {change}")
    assert followed.out is not None
    output.value(str(followed.out.resolve()))


@click.command(cls=Command, example="maskreg replicas lab/run http://rollout-1:8000 http://rollout-2:8000")
@click.argument("ref", type=TAG, metavar="REF")
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--remote", metavar="NAME", help="Remote that has REF [default: the local registry].")
@click.pass_obj
def replicas(output: Output, ref: Ref, urls: tuple[str, ...], remote: str | None) -> None:
    """List what the servers of a run serve.

    Each URL is a server of vLLM that was started with maskreg's worker extension. It is asked which version it serves,
    and how many versions of REF are newer is counted.
    """
    found = verbs.replicas.replicas(ref, urls, remote=remote, workspace=workspace(output))
    output.answer(found)
    rows = [("server", "version", "step", "behind")]
    rows += [
        (r.url, r.digest.short if r.digest else "", r.meta.get("step", ""), "" if r.behind is None else str(r.behind))
        for r in found.replicas
    ]
    faults = [
        f"{r.url} {r.fault or 'serves a version that the tag never had'}" for r in found.replicas if r.behind is None
    ]
    output.data(page(table(rows, right=2), noted(faults)))
