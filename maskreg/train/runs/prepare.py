"""Everything that can be known to be wrong before training begins, and the setup of a run when nothing is."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import ConfigError, UsageError
from maskreg.flow.baseline.build import make_baseline
from maskreg.mask.baseline import KINDS, BaselineSpec
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.train.optim.options import check_numbers
from maskreg.train.recipes import RECIPES, Recipe, get_recipe
from maskreg.train.recipes.custom import code_of
from maskreg.train.recipes.records import Records
from maskreg.train.recipes.setup import Places, Setup
from maskreg.train.recipes.vocabulary import check_vocabularies
from maskreg.train.runs.identity import root_of
from maskreg.train.runs.models import load_config, load_tokenizer
from maskreg.update.verified import VerifiedSource

FULL = "full"
"""The control that trains every coordinate."""

CONTROLS = (FULL, *KINDS)
"""What may be trained in place of a mask."""

DEFAULT_LENGTH = 1024

SGD_LR = 1e-2
"""The learning rate of SGD where nobody says another (Dense Supervision, Sparse Updates, arXiv 2606.13657)."""


@dataclass(frozen=True)
class Asked:
    """What somebody wants to run.

    Attributes:
        recipe: name of a recipe, or ``module:function``.
        data: the data file.
        teacher: path or hub id; empty without.
        loss: of the recipe; empty for its default.
        control: one of :data:`CONTROLS`; empty for the mask itself.
        mask_seed: of the control's draw; None for 0, or where chance decides nothing.
        mask_density: of a ``subset``.
        options: fields of :class:`Setup` by name, such as ``lr``; what is None, or not there, follows from the rest.
        max_length: tokens of prompt and completion; None for as many as the model takes, 1,024 at most.
        device: ``auto``, ``cpu`` or ``cuda``.
        parallel: how processes share the model.
        save_every: steps between checkpoints.
        download: fetch what is not in the hub's cache.
    """

    recipe: str
    data: Path
    teacher: str = ""
    loss: str = ""
    control: str = ""
    mask_seed: int | None = None
    mask_density: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    device: str = "auto"
    parallel: Literal["fsdp", "ddp"] = "fsdp"
    save_every: int = 50
    download: bool = False

    def control_spec(self) -> BaselineSpec | None:
        """How the control's mask is made; None for the mask itself, and for all coordinates.

        Raises:
            UsageError: there is no such control, or it takes no such parameter.
        """
        given = {"seed": self.mask_seed, "density": self.mask_density}
        if self.control and self.control not in CONTROLS:
            raise UsageError(f"there is no control {self.control!r}", hint=f"--mask {', '.join(CONTROLS)}")
        if not self.control or self.control == FULL:
            if odd := [name for name, value in given.items() if value is not None]:
                what = "all coordinates" if self.control else "the mask itself"
                raise UsageError(
                    f"--mask-{odd[0]} is for controls, and {what} would be trained", hint="add --mask KIND"
                )
            return None
        return BaselineSpec.of(self.control, seed=self.mask_seed, density=self.mask_density)


@dataclass(frozen=True)
class Prepared:
    """A run that may begin.

    Attributes:
        setup: what it is.
        places: where things are.
        records: of the data.
        notes: what people should know, one sentence each.
    """

    setup: Setup
    places: Places
    records: int
    notes: tuple[str, ...]


def check_source(artifact: Artifact, source: Checkpoint) -> None:
    """Refuse a source that the mask was not made from; names, shapes and both ends of each tensor are looked at.

    Raises:
        WrongCheckpointError: it is another checkpoint.
    """
    VerifiedSource(artifact, source, jobs=worker_count(None))


def prepare(
    asked: Asked,
    artifact: Artifact | None,
    source: Checkpoint,
    home: Path,
    *,
    progress: Progress = SILENT,
) -> Prepared:
    """Check everything that a run needs, and make the mask of a control.

    Args:
        asked: what is wanted.
        artifact: has the mask, or is what a control is made of; None to train all coordinates of any checkpoint.
        source: the checkpoint to train.
        home: folder of the local registry, where the control's mask goes.
        progress: told about bytes.

    Raises:
        UsageError: options that contradict each other or make no sense.
        NotFoundError: a file that was named is not there.
        DataError: the source is not the mask's, vocabularies differ, or a record cannot be trained on.
        ConfigError: transformers is not installed, or there is no such device.
    """
    control = asked.control_spec()
    recipe = get_recipe(asked.recipe)
    if artifact is None and asked.control != FULL:
        raise UsageError("say which mask to train", hint="maskreg retrain REF; or --mask full to train everything")
    if recipe.needs_teacher and not asked.teacher:
        raise UsageError(f"recipe {asked.recipe} needs a teacher", hint="add --teacher CKPT")
    if asked.teacher and asked.recipe in RECIPES and not recipe.needs_teacher:
        raise UsageError(f"recipe {asked.recipe} learns from no teacher", hint="leave --teacher out, or --recipe opd")
    if not source.path.is_dir():
        raise UsageError(
            f"{source.path} is a file: training needs the folder of a checkpoint, with configuration and tokenizer",
            hint=f"--source {source.path.parent}",
        )
    device = _device(asked.device)
    setup = _asked_setup(asked, recipe, source)
    _check_setup(setup)
    if artifact is not None:
        artifact.require("mask")
        check_source(artifact, source)
    records = Records.of(asked.data)
    tokenizer = load_tokenizer(source.path)
    progress.start("read data", asked.data.stat().st_size)
    cut = sum(not recipe.check(record, setup, tokenizer) for record in records)
    teacher, root = _teacher(asked, source, tokenizer, progress)
    notes: tuple[str, ...] = ()
    if cut:
        notes = (f"{cut:,} of {len(records):,} records are cut at {setup.max_length:,} tokens (--max-length)",)
    mask = "" if artifact is None or asked.control == FULL else str(artifact.digest)
    if control is not None and artifact is not None:
        made = make_baseline(artifact, control, home, source if control.kind.source else None, progress=progress)
        mask, notes = str(made.digest), (*notes, *made.notes)
    setup = replace(
        setup,
        source=artifact.manifest.source.root if artifact is not None else root_of(source, progress=progress),
        teacher=root,
        data=records.digest,
        mask=mask,
        parent="" if artifact is None else str(artifact.digest),
        control=control.to_json() if control is not None else {"kind": FULL} if asked.control else {},
    )
    places = Places(
        source=str(source.path.absolute()),
        teacher=teacher,
        data=str(asked.data.absolute()),
        home=str(home),
        device=device,
        parallel=asked.parallel,
        save_every=asked.save_every,
    )
    return Prepared(setup, places, len(records), notes)


def _asked_setup(asked: Asked, recipe: Recipe, source: Checkpoint) -> Setup:
    """The setup before it is known what is in the files."""
    return Setup(
        recipe=asked.recipe,
        recipe_code=code_of(asked.recipe) if ":" in asked.recipe else "",
        source="",
        data="",
        mask="",
        loss=_loss(recipe, asked),
        max_length=_length(asked, source),
        **_options(asked),
    )


def _options(asked: Asked) -> dict[str, Any]:
    options = {name: value for name, value in asked.options.items() if value is not None}
    # Gradients of copies are averaged after the backward pass, as they are.
    options.setdefault("gradients", "dense" if asked.parallel == "ddp" else "packed")
    options.setdefault("clip", 0.0 if options["gradients"] == "in-backward" else Setup.clip)
    options.setdefault("lr", SGD_LR if options.get("optimizer") == "sgd" else Setup.lr)
    batch = options.get("batch", Setup.batch)
    return {**options, "micro_batch": min(options.get("micro_batch", batch), batch)}


def _loss(recipe: Recipe, asked: Asked) -> str:
    if asked.loss and asked.loss not in recipe.losses:
        known = f"--loss {' or '.join(recipe.losses)}" if recipe.losses else "leave --loss out"
        raise UsageError(f"recipe {asked.recipe} has no loss {asked.loss!r}", hint=known)
    return asked.loss or next(iter(recipe.losses), "")


def _length(asked: Asked, source: Checkpoint) -> int:
    most = getattr(load_config(source.path).get_text_config(), "max_position_embeddings", None)
    if asked.max_length is None:
        return min(DEFAULT_LENGTH, most or DEFAULT_LENGTH)
    if most and asked.max_length > most:
        raise UsageError(
            f"the source takes {most:,} tokens at most, not {asked.max_length:,}", hint=f"--max-length {most}"
        )
    return asked.max_length


def _check_setup(setup: Setup) -> None:
    check_numbers(vars(setup))
    if setup.seed >= 1 << 64:
        raise UsageError(f"seed {setup.seed} is not a number of 64 bits", hint="--seed from 0 to 2^64 - 1")
    if setup.optimizer == "adamw" and setup.momentum:
        raise UsageError("adamw has no momentum", hint="--optimizer sgd; or --betas, of which the first is like it")
    if setup.warmup > setup.steps:
        raise UsageError(f"warmup of {setup.warmup} steps in a run of {setup.steps}", hint="--warmup of fewer steps")
    if setup.recipe == "opd" and setup.max_new_tokens >= setup.max_length:
        raise UsageError(
            f"{setup.max_new_tokens:,} tokens to sample leave no room for a prompt among {setup.max_length:,}",
            hint=f"--max-new-tokens {max(setup.max_length // 4, 1)}",
        )
    if setup.gradients == "in-backward" and setup.clip:
        raise UsageError("steps within the backward pass cannot clip", hint="--clip 0, or --gradients packed")
    if setup.gradients == "in-backward" and setup.micro_batch < setup.batch:
        raise UsageError(
            "steps within the backward pass cannot accumulate", hint="--micro-batch-size as large as the batch"
        )


def _teacher(asked: Asked, source: Checkpoint, tokenizer: Any, progress: Progress) -> tuple[str, str]:
    """Where the teacher is, and its identity; empty without one."""
    if not asked.teacher:
        return "", ""
    with closing(open_checkpoint(asked.teacher, download=asked.download)) as teacher:
        configs = load_config(source.path), load_config(teacher.path)
        check_vocabularies(*configs, tokenizer, load_tokenizer(teacher.path))
        return str(teacher.path.absolute()), root_of(teacher, progress=progress)


def _device(wanted: str) -> str:
    import torch

    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise ConfigError("no CUDA device can be used here", hint="add --device cpu")
    return wanted if wanted != "auto" else "cuda" if there else "cpu"
