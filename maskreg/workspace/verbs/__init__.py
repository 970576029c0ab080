"""One use case a file, called by what it does: what the command line, Python and a service call.

What an argument means, what a result has and what is raised, where a use case or a result says nothing else:

Args:
    artifact: a reference, a digest or its first digits, an open artifact, or the result of an earlier call.
    masks: artifacts with a mask; ``"team/run:step-*"`` stands for all tags that match it, step 2 before step 10.
    name: ``[project/]name[:tag]`` of the result; without one it is known by its digest alone.
    source: the checkpoint that the artifact was made from: a path, a hub id, or an open one. Without one it is looked
        for where this machine has seen it, then in the hub cache.
    require_source: fail without the source, instead of leaving out what needs it.
    download: fetch hub checkpoints that are not in the cache.
    roles: only tensors of these roles (``attention``) and names within their layer (``q_proj``; ``qkvo`` for the four
        attention matrices); all by default. A fused ``qkv_proj`` or ``gate_up_proj`` is split.
    layers: only these layers, such as ``0-11`` or ``0,35``; all by default.
    allow_different: take what masks of different rules, tensors or sources share.
    device: ``cpu``, ``cuda`` or ``cuda:N``; no result depends on it.
    with_code: take along small files that can run code too: Python files, and JSON documents that name code.
    family: model family, such as ``qwen3-8b``.
    method: how the target was trained: ``opd``, ``rlvr``, ``sft`` or another word.
    license: SPDX identifier.
    description: one paragraph for people.
    meta: run metadata.
    readme: a page of Markdown for people.
    out: the file or folder to write.
    force: replace an output that exists, of whose folder other files stay; or move a name that others might use (it was
        pulled or pushed, or another user has set it), whose history keeps the old artifact.
    dry_run: do nothing but say what would be done.
    remote: a remote to work on, by its name, in place of the local registry.
    allow_rollback: take the remote's tag as it is now, though its log does not continue what this machine has seen.
    by: who does it, as the log records it; the user of this process by default.
    expected: id of the tag's latest entry; if it is another by now, nothing is changed.
    project: its name.
    theme: of a plot, ``light`` or ``dark``.
    jobs: threads; by default one per CPU, at most 16.
    group: processes that hold the model; by default all if it is sharded, or the ones of its
        ``DistributedDataParallel``.
    progress: told how far the work is, in bytes unless its phase counts something else.
    workspace: the settings, the local registry and the remotes; by default what the environment says.

Attributes:
    ref: the name of the artifact; None when it has none, or was given as a digest or open.
    digest: the artifact.
    was: the other artifact that the name pointed to before; None when there was none.
    card: what people say about the artifact.
    n: number of the entry in the name's log, from 1.
    by: who did it.
    at: when, by the clock of who did it (aware, UTC).
    size: bytes of all objects.
    source: the checkpoint that was used.
    out: the file or folder that was written.
    path: the file.
    kept_files: files that were in the output's folder, and that ``force`` left there.
    skipped_files: weight files and folders beside the source that were not copied.
    notes: remarks for people, one sentence each.
    selection: the tensors that were counted.
    remote: name of the remote; empty without one.
    dry_run: nothing was done.
    error: what is wrong, with its facts; None when nothing is.

Raises:
    UsageError: arguments that make no sense or contradict each other; or no name where one is needed.
    BadRefError: a text that names no artifact.
    NotFoundError: there is no such artifact, tag, file or checkpoint.
    DataError: something is damaged, or cannot be read.
    PartAbsentError: a part that is needed is not in the local registry, or the artifact has none.
    PairMismatchError: artifacts or checkpoints that do not belong together.
    WrongCheckpointError: a checkpoint is not the one that the artifact was made from.
    ConflictError: others might use the name, and ``force`` is not set: nothing was made; or it was moved concurrently,
        and what was made is kept.
    StaleError: the tag is not at the expected entry.
    ImmutableTagError: the name must not move.
    RolledBackError: the log of a remote's tag went back, was rewritten or forked since this machine looked at it.
    CannotCreateError: the output exists, or cannot be written; or the disk would fill up.
    NotAllowedError: a permission is missing.
    ConfigError: there is no such remote or device, a package is missing, or the settings are wrong.
    UnavailableError: a remote does not answer, or offline is set.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # fmt: off
    from maskreg.workspace.verbs import (  # noqa: F401, I001
        accounts, analyze, apply, baseline, cache, combine, compare, config, convert, db, doctor, extract,
        extract_result, follow, follow_folder, gc, jobs, keys, log, merge, publish, pull, push, recording,
        remotes, replicas, report, retention, retrain, runs, search, show, squash, tag, verify,
    )
    # fmt: on


def __getattr__(name: str) -> ModuleType:
    # A use case is imported when it is called, so that a command imports no other.
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise  # a package that the use case needs
        raise AttributeError(f"there is no use case {name}") from error
