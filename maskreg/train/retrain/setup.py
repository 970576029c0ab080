"""What decides the result of a run, and TRL's configuration that follows from it."""

from __future__ import annotations

import json
import os
import re
import sysconfig
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args

import torch
import yaml

from maskreg.errors import ConfigError, FormatError, MaskregError, TryAgainError, UsageError
from maskreg.extras import requiring
from maskreg.train.optim.options import check_numbers

_THEIRS = (ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)
_PRODUCT = Path(__file__).parents[2]
_OTHERS = (str(_PRODUCT), sysconfig.get_path("stdlib"), "<frozen ")
"""Prefixes of files that the user did not write."""


class Recipe(NamedTuple):
    """A trainer of TRL, and what a run of it takes.

    Attributes:
        method: begins the names of its class and of its configuration's.
        columns: fields that each record needs, in one of these combinations.
        takes: the teacher or function that it can have; ``needed``: without it there is nothing to learn from.
    """

    method: str
    columns: tuple[tuple[str, ...], ...]
    takes: str
    needed: bool = True

    @property
    def config(self) -> Any:
        """TRL's class of its configuration."""
        return getattr(trl(), f"{self.method}Config")


RECIPES: Mapping[str, Recipe] = {
    "sft": Recipe("SFT", (("prompt", "completion"), ("messages",), ("text",)), "loss", needed=False),
    "opd": Recipe("Distillation", (("prompt",),), "teacher"),
    "grpo": Recipe("GRPO", (("prompt",),), "reward"),
}

_DEFAULTS: Mapping[str, Any] = {
    "learning_rate": 1e-6,
    "max_steps": 100,
    "save_steps": 50,
    "seed": 0,
    "optim": "adamw_torch",
}

_LEAST = {"max_steps": 1, "save_steps": 1, "max_length": 1, "max_completion_length": 1, "dataloader_num_workers": 0}
"""The least values of keys that trainers check only when training begins, or for which they drop all data."""

_FIXED = (
    "save_strategy", "save_total_limit", "save_only_model", "load_best_model_at_end", "resume_from_checkpoint",
    "ignore_data_skip", "auto_find_batch_size", "data_seed", "model_init_kwargs", "teacher_model_name_or_path",
    "per_device_train_batch_size", "num_train_epochs", "output_dir", "optim_args",
)  # fmt: skip
"""Keys of TRL by which a run could not resume bit for bit, or would train something else than its setup says."""

_SAID_BY = {
    "output_dir": "the output has its place",
    "optim_args": "adamw_torch and sgd take none",
    "num_train_epochs": "max_steps has its place",
    "per_device_train_batch_size": "the batch size has its place",
    "teacher_model_name_or_path": "the teacher has its place",
}
"""What says the same as a key that cannot be set."""


@dataclass(frozen=True)
class RunSetup:
    """Everything that decides the result of a run. Two runs with equal setups are the same run.

    Attributes:
        source: identity of the checkpoint that training starts from.
        mask: digest of the artifact whose mask is trained; empty if all coordinates are.
        parent: digest of the artifact that was given; the mask's own, or the one that a control was made from.
        control: what is trained in place of the parent's mask: parameters of a baseline, or ``{"kind": "full"}``.
        teacher: identity of the teacher; empty without one.
        function: ``module:function`` of the reward or the loss; empty without one.
        code: sha256 of the file that defines it.
        gradients: how they are stored; None for packed, but dense where processes replicate the model.
        dtype: of the weights during training: ``stored``, or ``float32``.
        batch_size: records per step, over all processes; of GRPO, completions.
        config: keys of TRL's configuration, without the steps between saves.
    """

    recipe: str
    source: str
    data: str
    mask: str
    parent: str = ""
    control: dict[str, Any] = field(default_factory=dict)
    teacher: str = ""
    function: str = ""
    code: str = ""
    gradients: str | None = None
    dtype: str = "stored"
    batch_size: int = 8
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return int(self.config["max_steps"])

    def lineage(self) -> dict[str, Any]:
        """What a manifest says of the run, without what is empty."""
        return {name: value for name, value in asdict(self).items() if name != "source" and value not in ("", {}, None)}


def trl() -> Any:
    """The library, quiet."""
    with requiring("training", "train"):
        import datasets
        import transformers
        import trl as library
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    # TRL calls transformers by names that it deprecates.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.")
    return library


@contextmanager
def calling(name: str, hint: str, kind: type[MaskregError] = UsageError) -> Iterator[None]:
    """Report what TRL or a function of the user raises as a fault of data or options, and no bug of maskreg."""
    try:
        yield
    except (MaskregError, torch.OutOfMemoryError):
        raise
    except _THEIRS as error:
        frames = traceback.extract_tb(error.__traceback__)
        if Path(frames[-1].filename).is_relative_to(_PRODUCT):
            raise
        users = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith(_OTHERS)]
        place = f" ({users[-1].filename}, line {users[-1].lineno})" if users else ""
        told = f"{name}: {type(error).__name__}: {error}{place}"
        if isinstance(error, torch.distributed.DistError) or "/gloo/" in str(error):
            hint = "see what the others say; the same command resumes the run"
            raise TryAgainError(f"another process has ended, or does not answer: {told}", hint=hint) from error
        raise kind(told, hint=f"change {hint}", options={"debug": True}) from error


ConfigLike = Mapping[str, Any] | str | Path | Sequence[str | Path]
"""Keys of TRL's configuration: a mapping, a YAML file, ``key=value``, or several of the two, of which the last wins."""


def read_config(given: ConfigLike, recipe: Recipe) -> dict[str, Any]:
    """Keys of TRL's configuration, and the defaults of others; those that TRL does not have are refused."""
    sources = [given] if isinstance(given, Mapping | str | Path) else given
    known = {entry.name: entry.type for entry in fields(recipe.config)}
    config: dict[str, Any] = {}
    for source in sources:
        name = "config" if isinstance(source, Mapping) else str(source)
        for key, value in _entries(source, name).items():
            if key not in known:
                raise UsageError(f"{name}: trl.{recipe.method}Config has no key {key!r}", hint=f"leave {key} out")
            if key in _FIXED:
                why = _SAID_BY.get(key, "a run with it could not resume, or would train something else")
                raise UsageError(f"{name}: {key} cannot be set", hint=f"leave {key} out; {why}")
            config[key] = _value(f"{name}: {key}", value, known[key])
    config = {**_DEFAULTS, **config}
    for key, least in _LEAST.items():
        if (value := config.get(key)) is not None and not value >= least:  # nor NaN
            raise UsageError(f"{key} cannot be {value}", hint=f"{key}: a whole number, at least {least}")
    if not 0 <= config["seed"] < 1 << 32:
        raise UsageError(f"seed cannot be {config['seed']}", hint="seed: a whole number from 0 to 4,294,967,295")
    if config["optim"] not in ("adamw_torch", "sgd"):
        raise UsageError(f"optim cannot be {config['optim']!r}", hint="adamw_torch or sgd, which have a masked form")
    return config


def _entries(source: Mapping[str, Any] | str | Path, name: str) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    key, equals, value = str(source).partition("=")
    try:
        if equals and key.isidentifier():
            return {key: yaml.safe_load(value)}
        entries = yaml.safe_load(Path(source).read_bytes())
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}", hint="config: a YAML file of TRL's keys, or key=value") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # a ValueError of what looks like a date
        told = " ".join(str(error).split())
        raise FormatError(f"{name}: not YAML: {told}", hint="write texts in quotes, and keys as key: value") from error
    if not isinstance(entries, Mapping):
        raise FormatError(f"{name}: no mapping of keys to values", hint="keys of TRL's configuration")
    return entries


def _value(key: str, value: Any, kind: Any) -> Any:
    """The value of a key; TRL itself takes any text for a number or a boolean."""
    # YAML reads 1e-2 as text, because it has no point.
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+e[+-]?\d+", value):
        value = float(value)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:  # a date is no text
        raise UsageError(
            f"{key} cannot be {value!r}", hint="a text in quotes, a finite number, a list or a mapping"
        ) from error
    kinds = set(get_args(kind) or (kind,))
    if kinds <= {bool, int, float, NoneType} and type(value) not in kinds | ({int} if float in kinds else set()):
        names = " or ".join(sorted(one.__name__ for one in kinds - {NoneType}))
        raise UsageError(f"{key} cannot be {value!r}", hint=f"a value of the type {names}, without quotes")
    return value


def arguments(setup: RunSetup, folder: Path, *, save_every: float) -> Any:
    """TRL's configuration of this process, which can be one of several."""
    from transformers import Trainer, get_scheduler

    processes = int(os.environ.get("WORLD_SIZE", "1"))
    parts = processes * setup.config.get("gradient_accumulation_steps", 1)
    if setup.batch_size < 1 or parts < 1 or setup.batch_size % parts:
        whole = -(-setup.batch_size // max(parts, 1)) * parts
        raise UsageError(
            f"batches of {setup.batch_size} records cannot be taken in {parts} equal parts",
            options={"batch_size": whole} if whole > 0 else None,
        )
    defaults = {
        "bf16": False, "disable_tqdm": True, "logging_steps": 1, "report_to": [],
        "dataloader_pin_memory": torch.cuda.is_available(), "use_cpu": not torch.cuda.is_available(),
    }  # fmt: skip
    own = {
        "output_dir": str(folder), "per_device_train_batch_size": setup.batch_size // parts, "save_strategy": "steps",
        "save_steps": save_every, "save_total_limit": 2,  # a machine can die while it writes the last
    }  # fmt: skip
    recipe = RECIPES[setup.recipe]
    with calling(f"trl.{recipe.method}Config", "the batch size, or keys of TRL"):
        made = recipe.config(**(defaults | setup.config | own))
        # Trainers make these when training begins, and refuse bad values only then.
        kind, settings = Trainer.get_optimizer_cls_and_kwargs(made)
        optimizer, warmup = kind([torch.zeros(1)], **settings), made.get_warmup_steps(setup.steps)
        get_scheduler(made.lr_scheduler_type, optimizer, warmup, setup.steps, made.lr_scheduler_kwargs)
    check_numbers({"weight_decay": made.weight_decay, "max_grad_norm": made.max_grad_norm or None, **settings})
    if made.world_size != processes:
        raise ConfigError(f"this is one of {processes} processes, of which Accelerate joins {made.world_size}")
    return made
