"""All checks that are possible before training, and the setup of a run that passes them."""

from __future__ import annotations

import hashlib
import importlib
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from functools import wraps
from numbers import Real
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers

from maskreg.artifact.reader import Artifact
from maskreg.bucket import on_disk
from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import Digest
from maskreg.document import parse_object
from maskreg.errors import DataError, FormatError, MaskregError, NotFoundError, PairMismatchError, UsageError
from maskreg.flow.baseline.build import make_baseline
from maskreg.flow.chain import root_of
from maskreg.mask.algebra import Everything
from maskreg.mask.baseline import KINDS, BaselineSpec
from maskreg.mask.packed import Mask
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.store.file import FileStore
from maskreg.tensors.info import FLOAT
from maskreg.train.optim.options import check_numbers
from maskreg.train.retrain.folder import RunPaths
from maskreg.train.retrain.setup import LR, RECIPES, Recipe, RunSetup, arguments, check_recipe, read_config
from maskreg.update.verified import VerifiedSource

FULL = "full"
"""The control that trains every coordinate."""

CONTROLS = (FULL, *(name for name, kind in KINDS.items() if "density" not in kind.options))
"""What may be trained in place of a mask, at its density."""

MAX_LINE_BYTES = 16 << 20

_WORDS = {"optimizer": ("adamw", "sgd"), "gradients": ("packed", "dense"), "dtype": ("stored", "float32")}
_LEAST = {"steps": 1, "batch_size": 1, "save_every": 1, "max_new_tokens": 1, "max_length": 2, "seed": 0}
_OWN = (*_WORDS, "lr", "steps", "batch_size", "max_new_tokens", "max_length", "seed")
"""Options that are fields of a setup as they are."""


@dataclass(frozen=True)
class RunRequest:
    """A requested run; its setup lacks the identities of files. See :func:`maskreg.retrain`."""

    setup: RunSetup
    data: Path
    teacher: str = ""
    control: str = ""
    control_seed: int | None = None
    save_every: int = 50
    download: bool = False

    @classmethod
    def of(cls, recipe: str, data: str | Path, **options: Any) -> RunRequest:
        """A request from options by name, of which None means the default."""
        known = {*_OWN, "reward", "loss", "config", *(entry.name for entry in fields(cls)[2:])}
        if unknown := sorted(options.keys() - known):
            raise UsageError(f"unknown option {unknown[0]!r}", hint=f"one of: {', '.join(sorted(known))}")
        given = {name: value for name, value in options.items() if value is not None}
        for name, value in given.items():
            if name in _LEAST and (type(value) is not int or value < _LEAST[name]):
                raise UsageError(f"{name} cannot be {value!r}", hint=f"{name}: a whole number, at least {_LEAST[name]}")
            if name in _WORDS and value not in _WORDS[name]:
                raise UsageError(f"{name} cannot be {value!r}", hint=f"{name}= one of: {', '.join(_WORDS[name])}")
        if given.get("seed", 0) >= 1 << 32:
            raise UsageError(f"seed {given['seed']} does not fit 32 bits", hint="seed: from 0 to 2^32 - 1")
        made_by = check_recipe(recipe, given)
        own = {name: given.pop(name) for name in _OWN if name in given}
        own.setdefault("lr", LR[own.get("optimizer", "adamw")])
        check_numbers({"lr": own["lr"], "betas": (0.9, 0.999)})
        function = given.pop("reward", "") or given.pop("loss", "")
        config = read_config(given.pop("config", None), made_by)
        setup = RunSetup(recipe, source="", data="", mask="", function=function, config=config, **own)
        others = {name: value for name, value in given.items() if name not in ("reward", "loss")}
        return cls(replace(setup, code=code_of(function) if function else ""), Path(data), **others)

    def control_spec(self) -> BaselineSpec | None:
        """How the control's mask is made; None for the mask itself, and for all coordinates."""
        if self.control and self.control not in CONTROLS:
            raise UsageError(f"there is no control {self.control!r}", hint=f"one of: {', '.join(CONTROLS)}")
        if self.control and self.control != FULL:
            return BaselineSpec.of(self.control, seed=self.control_seed)
        if self.control_seed is not None:
            trained = "all coordinates" if self.control else "the mask itself"
            raise UsageError(
                f"a control's seed is for controls, but {trained} would be trained", options={"control": "KIND"}
            )
        return None


@dataclass(frozen=True)
class PreparedRun:
    """A run that may begin, the number of its records, and remarks for people, one sentence each."""

    setup: RunSetup
    paths: RunPaths
    records: int
    notes: tuple[str, ...]


def prepare(
    request: RunRequest, artifact: Artifact | None, source: Checkpoint, home: Path, *, progress: Progress = SILENT
) -> PreparedRun:
    """Check everything that a run needs, and make the mask of a control."""
    spec, setup, data = request.control_spec(), request.setup, request.data
    arguments(setup, home, save_every=request.save_every)
    if not source.path.is_dir():
        raise UsageError(
            f"{source.path} is a file: training needs the folder of a checkpoint, with configuration and tokenizer",
            options={"source": source.path.parent},
        )
    folder = on_disk(source.path, "training")
    config, tokenizer = load_config(folder), load_tokenizer(folder)
    if artifact is not None:
        artifact.require("mask")
        _check_trained(artifact, request.control)
        VerifiedSource(artifact, source, jobs=worker_count(None))
    records = read_records(data, RECIPES[setup.recipe], tokenizer)
    teacher, teacher_root = "", ""
    if request.teacher:
        with closing(open_checkpoint(request.teacher, download=request.download)) as checkpoint:
            teacher = str(on_disk(checkpoint.path, "training").absolute())
            check_vocabularies(config, load_config(teacher), tokenizer, load_tokenizer(teacher))
            teacher_root = root_of(checkpoint)
    notes: tuple[str, ...] = ()
    mask = "" if artifact is None or request.control == FULL else str(artifact.digest)
    if spec is not None and artifact is not None:
        baseline = make_baseline(artifact, spec, home, source if spec.kind.source else None, progress=progress)
        mask, notes = str(baseline.digest), tuple(baseline.notes)
    setup = replace(
        setup,
        source=artifact.manifest.source.root if artifact is not None else root_of(source),
        teacher=teacher_root,
        data=f"sha256:{hashlib.sha256(data.read_bytes()).hexdigest()}",
        mask=mask,
        parent="" if artifact is None else str(artifact.digest),
        control=spec.to_json() if spec is not None else {"kind": FULL} if request.control else {},
    )
    paths = RunPaths(str(folder.absolute()), str(data.absolute()), str(home), teacher, request.save_every)
    return PreparedRun(setup, paths, len(records), notes)


# -- checkpoints


def mask_to_train(setup: RunSetup, paths: RunPaths, source: Checkpoint) -> Mask:
    """The mask of a setup: its artifact's, or all coordinates of floating-point tensors."""
    if setup.mask:
        return Artifact.open(FileStore(Path(paths.home)), Digest(setup.mask)).mask
    return Everything({name: info.shape for name, info in source.tensors.items() if info.dtype in FLOAT})


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


@contextmanager
def loading(path: str | Path, needed: str) -> Iterator[Any]:
    """The library transformers, to load something of a checkpoint with."""
    if not (Path(path) / needed).is_file():
        raise NotFoundError(
            f"{path}: no {needed}: training needs the folder of a checkpoint, with configuration and tokenizer",
            hint=f"add {needed} to the folder",
        )
    try:
        yield transformers
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(
            f"{path}: transformers cannot load it ({error})",
            hint="copy the whole checkpoint again, or: pip install --upgrade transformers",
        ) from error


def load_config(path: str | Path) -> Any:
    """A model's configuration."""
    with loading(path, "config.json") as library:
        return library.AutoConfig.from_pretrained(path)


def load_tokenizer(path: str | Path) -> Any:
    """A tokenizer that pads on the left, as sampling needs."""
    with loading(path, "tokenizer_config.json") as library:
        tokenizer = library.AutoTokenizer.from_pretrained(path, padding_side="left")
    if tokenizer.eos_token is None:
        raise DataError(
            f"{path}: the tokenizer has no end token, so no completion would ever end",
            hint="set eos_token in tokenizer_config.json",
        )
    return tokenizer


def check_vocabularies(student: Any, teacher: Any, student_tokenizer: Any, teacher_tokenizer: Any) -> None:
    """Reject a teacher whose token ids mean other tokens than the student's.

    Sizes are from the models' configurations, which are often padded beyond their tokenizers.
    """
    student_size, teacher_size = (config.get_text_config().vocab_size for config in (student, teacher))
    hint = "choose a teacher of the student's family; distillation across tokenizers is not supported"
    if student_size != teacher_size:
        raise PairMismatchError(
            f"the student's vocabulary has {student_size:,} entries, the teacher's {teacher_size:,}", hint=hint
        )
    left, right = student_tokenizer.get_vocab(), teacher_tokenizer.get_vocab()
    if left != right:
        different = sorted(left.items() ^ right.items(), key=lambda entry: (entry[1], entry[0]))
        token, index = different[0]
        who = "student" if left.get(token) == index else "teacher"
        raise PairMismatchError(
            f"{len(different):,} entries differ between the tokenizers: token {index} is {token!r} for the {who} only",
            hint=hint,
        )


# -- data


def read_records(path: Path, recipe: Recipe, tokenizer: Any) -> datasets.Dataset:
    """The records of a file, one JSON object per line, all with the columns that the recipe trains on."""
    if not path.is_file():
        what = "a directory" if path.is_dir() else "no such file"
        raise NotFoundError(f"{path}: {what}", hint="data: a file with one JSON object per line")
    records: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            record = parse_object(line, where, max_bytes=MAX_LINE_BYTES, max_values=MAX_LINE_BYTES)
            _check_record(record, where, recipe, tokenizer)
            if records and record.keys() != records[0].keys():
                raise FormatError(
                    f"{where}: its fields are {', '.join(record) or 'none'}, and the first record has "
                    f"{', '.join(records[0])}",
                    hint="give all records the same fields",
                )
            records.append(record)
    if not records:
        raise DataError(f"{path}: no records", hint='write one JSON object per line, such as {"prompt": "..."}')
    try:
        return datasets.Dataset.from_list(records)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}", hint="give a field values of one type in all records") from error


def _check_record(record: Mapping[str, Any], where: str, recipe: Recipe, tokenizer: Any) -> None:
    columns = next((columns for columns in recipe.columns if set(columns) <= record.keys()), None)
    if columns is None:
        needed = " or ".join("{" + ", ".join(f'"{name}"' for name in names) + "}" for names in recipe.columns)
        raise FormatError(f"{where}: the record has {', '.join(record) or 'no fields'}", hint=f"it needs {needed}")
    for name in columns:
        value = record[name]
        if value in ("", []):
            raise FormatError(f"{where}: {name!r} is empty", hint="leave the record out")
        is_chat = isinstance(value, list) and all(isinstance(turn, dict) for turn in value)
        if not is_chat and (name == "messages" or not isinstance(value, str)):
            raise FormatError(
                f"{where}: {name!r} is {type(value).__name__}, not "
                + ("a list of" if name == "messages" else "text or a list of")
                + ' {"role": ..., "content": ...}'
            )
        if is_chat and not tokenizer.chat_template:
            raise FormatError(
                f"{where}: the source's tokenizer has no chat template for messages",
                hint="give text instead of messages, or add chat_template.jinja to the source",
            )


# -- functions of one's own


def load_function(name: str, *, check: Callable[[str, Any], None] | None = None) -> Callable[..., Any]:
    """A ``module:function``, from the current folder too; what it raises is told with file and line.

    ``check`` refuses results, given the name and what the function returned.
    """
    module, _, function = name.partition(":")
    hint = "my.module:function, from its folder"
    if not function or not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"{name!r} is not module:function", hint=hint)
    sys.path.insert(0, str(Path.cwd()))
    try:
        with _own_code(module):
            loaded = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise UsageError(f"module {module!r} cannot be imported: {error}", hint=hint) from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(loaded):
        raise UsageError(f"{module} has no function {function!r}", hint=hint)

    @wraps(loaded)
    def called(*args: Any, **options: Any) -> Any:
        with _own_code(name):
            result = loaded(*args, **options)
        if check is not None:
            check(name, result)
        return result

    return called


def check_rewards(name: str, rewards: Any) -> None:
    """Reject a reward that is NaN, which TRL leaves out without a word, or infinite; None is none."""
    for number, reward in enumerate(rewards if isinstance(rewards, Iterable) else ()):
        if isinstance(reward, Real | torch.Tensor) and not math.isfinite(reward):
            raise UsageError(
                f"{name} returned the reward {float(reward)} for completion {number}",
                hint="return a finite number for each completion, or None for one that it does not judge",
            )


def code_of(name: str) -> str:
    """sha256 of the file that defines a ``module:function``; of no bytes if it is not a file."""
    file = getattr(sys.modules.get(load_function(name).__module__), "__file__", None)
    return str(Digest.of(Path(file).read_bytes() if file else b""))


@contextmanager
def _own_code(name: str) -> Iterator[None]:
    """Report exceptions of the user's code with file and line, instead of as a bug of maskreg."""
    try:
        yield
    except (MaskregError, ImportError):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = next((frame for frame in reversed(frames) if "site-packages" not in frame.filename), frames[-1])
        raise UsageError(
            f"{name} failed: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})",
            options={"debug": True},
        ) from error
