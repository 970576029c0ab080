"""All checks that are possible before training, and the setup of a run that passes them."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from maskreg.artifact.reader import Artifact
from maskreg.bucket import on_disk
from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import fingerprint, fingerprint_root, leaf_hashes
from maskreg.errors import ConfigError, UsageError
from maskreg.flow.baseline.build import make_baseline
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import TensorInfo, blocks_of
from maskreg.train.optim.options import check_numbers
from maskreg.train.recipes import RECIPES, Recipe, get_recipe
from maskreg.train.recipes.custom import code_of
from maskreg.train.recipes.records import Records
from maskreg.train.recipes.setup import RunSetup
from maskreg.train.recipes.vocabulary import check_vocabularies
from maskreg.train.runs.folder import RunPaths
from maskreg.train.runs.models import load_config, load_tokenizer
from maskreg.train.runs.request import FULL, RunRequest, control_options
from maskreg.update.verified import VerifiedSource


def root_of(checkpoint: Checkpoint, *, progress: Progress = SILENT, jobs: int | None = None) -> str:
    """Identity of a checkpoint: sha256 over the name, dtype, shape and fingerprint of every tensor."""
    import numpy as np

    tensors = list(checkpoint.tensors.values())
    tasks = ((info, start, stop) for info in tensors for start, stop in list(blocks_of(info.numel)) or [(0, 0)])
    leaves: dict[str, list[np.ndarray]] = {}

    def work(task: tuple[TensorInfo, int, int]) -> tuple[TensorInfo, int, np.ndarray]:
        info, start, stop = task
        return info, (stop - start) * info.item_bytes, leaf_hashes(checkpoint.read(info.name, start, stop))

    progress.start("identify", sum(info.nbytes for info in tensors))
    with closing(ordered(work, tasks, jobs=worker_count(jobs), size=lambda task: task[2] - task[1])) as results:
        for info, size, hashes in results:
            leaves.setdefault(info.name, []).append(hashes)
            progress.advance(size)
    return fingerprint_root(
        (info.name, info.dtype, info.shape, fingerprint(np.concatenate(leaves[info.name]))) for info in tensors
    )


DEFAULT_LENGTH = 1024


@dataclass(frozen=True)
class PreparedRun:
    """A run that may begin.

    Attributes:
        setup: what decides its result.
        paths: where its files are.
        records: number of records in the data.
        notes: remarks for people, one sentence each.
    """

    setup: RunSetup
    paths: RunPaths
    records: int
    notes: tuple[str, ...]


class _Teacher(NamedTuple):
    """Folder and identity of a teacher; empty without one."""

    path: str = ""
    root: str = ""


class _Data(NamedTuple):
    """Records that can all be trained on, how many of them are truncated, and the tokenizer that says so."""

    records: Records
    truncated: int
    tokenizer: Any


def check_source(artifact: Artifact, source: Checkpoint) -> None:
    """Reject a checkpoint that is not the mask's source, by names, shapes and both ends of each tensor."""
    VerifiedSource(artifact, source, jobs=worker_count(None))


def prepare(
    request: RunRequest,
    artifact: Artifact | None,
    source: Checkpoint,
    home: Path,
    *,
    progress: Progress = SILENT,
) -> PreparedRun:
    """Check everything that a run needs, and make the mask of a control."""
    spec = request.control_spec()
    recipe = _checked_recipe(request)
    if not source.path.is_dir():
        raise UsageError(
            f"{source.path} is a file: training needs the folder of a checkpoint, with configuration and tokenizer",
            hint=f"--source {source.path.parent}",
        )
    device = _device(request.device)
    setup = _initial_setup(request, recipe, source)
    _check_setup(setup)
    if artifact is not None:
        artifact.require("mask")
        _check_trained(artifact, request.control)
        check_source(artifact, source)
    data = _checked_data(request, setup, recipe, source, progress)
    teacher = _teacher(request, source, data.tokenizer, progress)
    notes: tuple[str, ...] = ()
    if data.truncated:
        share = f"{data.truncated:,} of {len(data.records):,} records"
        notes = (f"{share} are cut at {setup.max_length:,} tokens (--max-length)",)
    mask = "" if artifact is None or request.control == FULL else str(artifact.digest)
    if spec is not None and artifact is not None:
        with control_options():
            baseline = make_baseline(artifact, spec, home, source if spec.kind.source else None, progress=progress)
        mask, notes = str(baseline.digest), (*notes, *baseline.notes)
    setup = replace(
        setup,
        source=artifact.manifest.source.root if artifact is not None else root_of(source, progress=progress),
        teacher=teacher.root,
        data=data.records.digest,
        mask=mask,
        parent="" if artifact is None else str(artifact.digest),
        control=spec.to_json() if spec is not None else {"kind": FULL} if request.control else {},
    )
    paths = RunPaths(
        source=str(source.path.absolute()),
        teacher=teacher.path,
        data=str(request.data.absolute()),
        home=str(home),
        device=device,
        parallel=request.parallel,
        save_every=request.save_every,
    )
    return PreparedRun(setup, paths, len(data.records), notes)


def _check_trained(artifact: Artifact, control: str) -> None:
    """Reject a mask, or the control of one, that has no coordinates. Only two controls have others than the mask."""
    totals = artifact.manifest.totals
    trained = {FULL: totals.numel, "complement": totals.numel - totals.nnz}.get(control, totals.nnz)
    if not trained:
        name = f"control {control}" if control else "the mask"
        raise UsageError(
            f"{name} has 0 of {totals.numel:,} coordinates, so nothing would be trained",
            options={"control": FULL},
            empty_mask=artifact.name or artifact.digest,
        )


def _checked_recipe(request: RunRequest) -> Recipe:
    recipe = get_recipe(request.recipe)
    if recipe.needs_teacher and not request.teacher:
        raise UsageError(f"recipe {request.recipe} needs a teacher", hint="add --teacher CKPT")
    if request.teacher and request.recipe in RECIPES and not recipe.needs_teacher:
        raise UsageError(f"recipe {request.recipe} takes no teacher", hint="leave --teacher out, or --recipe opd")
    return recipe


def _initial_setup(request: RunRequest, recipe: Recipe, source: Checkpoint) -> RunSetup:
    """The setup without identities of files."""
    return RunSetup(
        recipe=request.recipe,
        recipe_code=code_of(request.recipe) if ":" in request.recipe else "",
        source="",
        data="",
        mask="",
        loss=_loss(recipe, request),
        max_length=_max_length(request, source),
        **request.setup_options(),
    )


def _loss(recipe: Recipe, request: RunRequest) -> str:
    if request.loss and request.loss not in recipe.losses:
        known = f"--loss {' or '.join(recipe.losses)}" if recipe.losses else "leave --loss out"
        raise UsageError(f"recipe {request.recipe} has no loss {request.loss!r}", hint=known)
    return request.loss or next(iter(recipe.losses), "")


def _folder(checkpoint: Checkpoint) -> Path:
    return on_disk(checkpoint.path, "training")


def _max_length(request: RunRequest, source: Checkpoint) -> int:
    limit = getattr(load_config(_folder(source)).get_text_config(), "max_position_embeddings", None)
    if request.max_length is None:
        return min(DEFAULT_LENGTH, limit or DEFAULT_LENGTH)
    if limit and request.max_length > limit:
        raise UsageError(
            f"the source takes {limit:,} tokens at most, not {request.max_length:,}", hint=f"--max-length {limit}"
        )
    return request.max_length


def _check_setup(setup: RunSetup) -> None:
    check_numbers(vars(setup))
    if math.isinf(setup.clip):
        raise UsageError("clip cannot be inf", hint="--clip 0 disables clipping")
    if setup.seed >= 1 << 64:
        raise UsageError(f"seed {setup.seed} does not fit 64 bits", hint="--seed from 0 to 2^64 - 1")
    if setup.optimizer == "adamw" and setup.momentum:
        raise UsageError("adamw has no momentum", hint="--optimizer sgd; or --betas, whose first is similar")
    if setup.warmup > setup.steps:
        raise UsageError(f"warmup of {setup.warmup} steps in a run of {setup.steps}", hint="--warmup of fewer steps")
    if setup.micro_batch > setup.batch:
        raise UsageError(
            f"micro-batches of {setup.micro_batch:,} records in batches of {setup.batch:,}",
            hint=f"--micro-batch-size {setup.batch}, or a smaller one",
        )
    if setup.recipe == "opd" and setup.max_new_tokens >= setup.max_length:
        raise UsageError(
            f"{setup.max_new_tokens:,} tokens to sample leave no room for a prompt in {setup.max_length:,}",
            hint=f"--max-new-tokens {max(setup.max_length // 4, 1)}",
        )
    if setup.gradients == "in-backward" and setup.clip:
        raise UsageError("updates in the backward pass cannot clip", hint="--clip 0, or --gradients packed")
    if setup.gradients == "in-backward" and setup.micro_batch < setup.batch:
        raise UsageError(
            "updates in the backward pass cannot accumulate", hint="--micro-batch-size as large as the batch"
        )


def _checked_data(
    request: RunRequest, setup: RunSetup, recipe: Recipe, source: Checkpoint, progress: Progress
) -> _Data:
    records = Records.of(request.data)
    tokenizer = load_tokenizer(_folder(source))
    progress.start("read data", request.data.stat().st_size)
    truncated = sum(not recipe.check(record, setup, tokenizer) for record in records)
    return _Data(records, truncated, tokenizer)


def _teacher(request: RunRequest, source: Checkpoint, tokenizer: Any, progress: Progress) -> _Teacher:
    if not request.teacher:
        return _Teacher()
    with closing(open_checkpoint(request.teacher, download=request.download)) as teacher:
        configs = load_config(_folder(source)), load_config(_folder(teacher))
        check_vocabularies(*configs, tokenizer, load_tokenizer(_folder(teacher)))
        return _Teacher(str(teacher.path.absolute()), root_of(teacher, progress=progress))


def _device(name: str) -> str:
    import torch

    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ConfigError("no CUDA device is available", hint="add --device cpu")
    return name if name != "auto" else "cuda" if available else "cpu"
