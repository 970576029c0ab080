"""What decides the result of a run, and TRL's configuration that follows from it."""

from __future__ import annotations

import difflib
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args

import torch
import yaml

from maskreg.errors import ConfigError, FormatError, MaskregError, UsageError
from maskreg.extras import install_command, requiring

LEAST_TRL = (1, 16)
"""The first version of TRL that has all three trainers."""

LR = {"adamw": 1e-6, "sgd": 1e-2}
"""Default learning rates; SGD's is from Dense Supervision, Sparse Updates, arXiv 2606.13657."""

_OF_TRL = (ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)
_PRODUCT = Path(__file__).parents[2]

KEPT_SAVES = 2
"""More than one, because a machine may die while it writes the last."""


class Recipe(NamedTuple):
    """A trainer of TRL, and what a run of it takes.

    Attributes:
        method: begins the names of its class and of its configuration's.
        columns: fields that each record needs, in one of these combinations.
        takes: options that not all recipes take.
        needs: those without which there is nothing to learn from.
    """

    method: str
    columns: tuple[tuple[str, ...], ...]
    takes: tuple[str, ...]
    needs: str = ""

    @property
    def config(self) -> Any:
        """TRL's class of its configuration."""
        return getattr(trl(), f"{self.method}Config")


RECIPES: Mapping[str, Recipe] = {
    "sft": Recipe("SFT", (("prompt", "completion"), ("messages",), ("text",)), ("loss", "max_length")),
    "opd": Recipe("Distillation", (("prompt",),), ("teacher", "max_new_tokens"), "teacher"),
    "grpo": Recipe("GRPO", (("prompt",),), ("reward", "max_new_tokens"), "reward"),
}

_OURS: Mapping[str, str] = {
    "learning_rate": "lr",
    "max_steps": "steps",
    "num_train_epochs": "steps",
    "per_device_train_batch_size": "batch_size",
    "seed": "seed",
    "save_steps": "save_every",
    "max_length": "max_length",
    "max_completion_length": "max_new_tokens",
    "optim": "optimizer",
    "output_dir": "out",
}
"""Keys of TRL for which there is an option."""

_FIXED = (
    "save_strategy", "save_total_limit", "save_only_model", "load_best_model_at_end", "resume_from_checkpoint",
    "ignore_data_skip", "auto_find_batch_size", "data_seed", "model_init_kwargs", "teacher_model_name_or_path",
)  # fmt: skip
"""Keys of TRL by which a run could not resume bit for bit, or would train something else than its setup says."""


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
        lr: learning rate; its schedule is TRL's.
        gradients: how they are stored; empty for packed, but dense where processes replicate the model.
        dtype: of the weights during training: ``stored``, or ``float32``.
        seed: of data order and sampling.
        batch_size: records per step, over all processes; of GRPO, completions.
        max_length: tokens of prompt and completion that SFT reads.
        max_new_tokens: tokens sampled per prompt, at most.
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
    optimizer: Literal["adamw", "sgd"] = "adamw"
    lr: float = LR["adamw"]
    gradients: Literal["packed", "dense", ""] = ""
    dtype: Literal["stored", "float32"] = "stored"
    seed: int = 0
    steps: int = 100
    batch_size: int = 8
    max_length: int = 1024
    max_new_tokens: int = 256
    config: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RunSetup:
        """Read a setup back."""
        if unexpected := ", ".join(sorted({entry.name for entry in fields(cls)} ^ set(value))):
            raise FormatError(
                f"the run was set up by another version of maskreg: {unexpected}", hint="choose another -o"
            )
        return cls(**value)

    def differences(self, other: RunSetup) -> list[str]:
        """Fields that differ, one line each: name, this value, the other value."""
        left, right = asdict(self), asdict(other)
        return [f"{name}: {left[name]!r} there, {right[name]!r} now" for name in left if left[name] != right[name]]

    def lineage(self) -> dict[str, Any]:
        """What a manifest says of the run, without what is empty or does not apply."""
        other = {option for recipe in RECIPES.values() for option in recipe.takes} - set(RECIPES[self.recipe].takes)
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in {*other, "source"} and value not in ("", {})
        }


def check_recipe(name: str, given: Mapping[str, Any]) -> Recipe:
    """The recipe of this name, which takes the options that were given."""
    if name not in RECIPES:
        raise UsageError(f"there is no recipe {name!r}", hint=f"one of: {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    if recipe.needs and not given.get(recipe.needs):
        raise UsageError(f"recipe {name} needs a {recipe.needs}", options={recipe.needs: recipe.needs.upper()})
    for option in {option for other in RECIPES.values() for option in other.takes} - set(recipe.takes):
        if given.get(option):
            spelled = option.replace("_", "-")
            raise UsageError(f"recipe {name} takes no {spelled}", hint=f"leave {spelled} out")
    return recipe


def trl() -> Any:
    """The library, quiet, in a version that has the trainers."""
    with requiring("training", "train"):
        import datasets
        import transformers
        import trl as library

        found = version("trl")
        if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < LEAST_TRL:
            least = ".".join(map(str, LEAST_TRL))
            raise ConfigError(
                f"training needs TRL {least} or later, not {found}", hint=install_command("train", "--upgrade")
            )
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    # TRL calls transformers by names that it deprecates.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.")
    return library


@contextmanager
def calling_trl(name: str, hint: str, kind: type[MaskregError] = UsageError) -> Iterator[None]:
    """Report what TRL raises where data, a reward or a key of its configuration does not suit it: no bug of maskreg."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except _OF_TRL as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1].filename
        if isinstance(error, MaskregError) or Path(innermost).is_relative_to(_PRODUCT):
            raise
        raise kind(
            f"trl.{name}: {type(error).__name__}: {error}", hint=f"change {hint}", options={"debug": True}
        ) from error


def read_config(given: Mapping[str, Any] | str | Path | None, recipe: Recipe) -> dict[str, Any]:
    """Keys of TRL's configuration, from a YAML file or a mapping; those it does not have are refused."""
    if given is None:
        return {}
    name = "config"
    if isinstance(given, str | Path):
        name = str(given)
        try:
            given = yaml.safe_load(Path(given).read_bytes())
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror}", hint="config: a YAML file of TRL's keys") from error
        except yaml.YAMLError as error:
            raise FormatError(f"{name}: no YAML ({error})") from error
    if not isinstance(given, Mapping):
        raise FormatError(f"{name}: no mapping of keys to values", hint=f"keys of trl.{recipe.method}Config")
    known = {entry.name: entry.type for entry in fields(recipe.config)}
    for key in given:
        if key in _OURS:
            option = _OURS[key]
            raise UsageError(
                f"{name}: {key} has an option of its own", hint=f"leave {key} out", options={option: option.upper()}
            )
        if key in _FIXED:
            raise UsageError(f"{name}: {key} cannot be set: the run could not resume", hint=f"leave {key} out")
        if key not in known:
            close = difflib.get_close_matches(str(key), known, 1)
            raise UsageError(
                f"{name}: trl.{recipe.method}Config has no key {key!r}", hint=(f"{close[0]}?" if close else "")
            )
    return {key: _value(f"{name}: {key}", value, known[key]) for key, value in given.items()}


def _value(key: str, value: Any, kind: Any) -> Any:
    """The value of a key; TRL itself takes any text for a number or a boolean."""
    # YAML reads 1e-2 as text, because it has no point.
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+e[+-]?\d+", value):
        value = float(value)
    kinds = set(get_args(kind) or (kind,))
    if kinds <= {bool, int, float, NoneType} and type(value) not in kinds | ({int} if float in kinds else set()):
        names = " or ".join(sorted(one.__name__ for one in kinds - {NoneType}))
        raise UsageError(f"{key} cannot be {value!r}", hint=f"a value of the type {names}, without quotes")
    if key.endswith(": fsdp_config") and isinstance(value, str) and not Path(value).is_file():
        raise UsageError(f"{key}: {value}: no such file", hint="a JSON file, or its keys and values themselves")
    return value


def arguments(setup: RunSetup, folder: Path, *, save_every: int, processes: int = 1) -> Any:
    """TRL's configuration of one of several processes."""
    recipe = RECIPES[setup.recipe]
    accumulated = setup.config.get("gradient_accumulation_steps", 1)
    if type(accumulated) is not int or accumulated < 1:
        raise UsageError(f"gradient_accumulation_steps cannot be {accumulated!r}", hint="a whole number, at least 1")
    parts = processes * accumulated
    share, rest = divmod(setup.batch_size, parts)
    if rest:
        raise UsageError(
            f"batches of {setup.batch_size} records cannot be taken in {parts} equal parts",
            options={"batch_size": -(-setup.batch_size // parts) * parts},
        )
    defaults = {
        "bf16": False, "disable_tqdm": True, "logging_steps": 1, "report_to": [],
        "dataloader_pin_memory": torch.cuda.is_available(), "use_cpu": not torch.cuda.is_available(),
    }  # fmt: skip
    own: dict[str, Any] = {
        "output_dir": str(folder), "per_device_train_batch_size": share, "learning_rate": setup.lr, "seed": setup.seed,
        "max_steps": setup.steps, "save_strategy": "steps", "save_steps": save_every, "save_total_limit": KEPT_SAVES,
    }  # fmt: skip
    own |= {key: getattr(setup, option) for key, option in _OURS.items() if option in recipe.takes}
    with calling_trl(f"{recipe.method}Config", "the batch size, or keys of TRL"):
        made = recipe.config(**(defaults | setup.config | own))
    if made.world_size != processes:
        raise ConfigError(f"this is one of {processes} processes, of which Accelerate joins {made.world_size}")
    return made
