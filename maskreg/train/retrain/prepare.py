"""All checks that are possible before training, and the setup of a run that passes them."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import transformers

from maskreg.artifact.reader import Artifact
from maskreg.bucket import on_disk
from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import Digest
from maskreg.document import parse_object
from maskreg.errors import DataError, FormatError, NotFoundError, PairMismatchError, UsageError, stating
from maskreg.flow.baseline.build import make_baseline
from maskreg.flow.chain import root_of
from maskreg.mask.algebra import Everything
from maskreg.mask.baseline import BaselineSpec
from maskreg.mask.packed import Mask
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.store.file import FileStore
from maskreg.tensors.info import FLOAT
from maskreg.train.retrain.setup import RECIPES, ConfigLike, Recipe, RunSetup, arguments, calling, read_config
from maskreg.update.verified import VerifiedSource

FULL = "full"
"""The control that trains every coordinate."""

MAX_LINE_BYTES = 16 << 20

NOT_LOADED = "the checkpoint: copy all of it again, or: pip install --upgrade transformers"


@dataclass(frozen=True)
class RunRequest:
    """A requested run; see :func:`maskreg.retrain`."""

    recipe: str
    data: Path
    config: ConfigLike = ()
    teacher: str = ""
    reward: str = ""
    loss: str = ""
    control: str = ""
    control_seed: int | None = None
    batch_size: int = 8
    gradients: str | None = None
    dtype: str = "stored"
    download: bool = False

    def setup(self) -> RunSetup:
        """Its setup, without the identities of files."""
        if self.recipe not in RECIPES:
            raise UsageError(f"there is no recipe {self.recipe!r}", hint=f"one of: {', '.join(RECIPES)}")
        recipe = RECIPES[self.recipe]
        for option in ("teacher", "reward", "loss"):
            if getattr(self, option) and option != recipe.takes:
                raise UsageError(f"recipe {self.recipe} takes no {option}", hint=f"leave {option} out")
        if recipe.needed and not getattr(self, recipe.takes):
            raise UsageError(f"recipe {self.recipe} needs a {recipe.takes}", options={recipe.takes: None})
        if self.dtype not in ("stored", "float32"):
            raise UsageError(f"dtype cannot be {self.dtype!r}", hint="dtype: stored or float32")
        function = self.reward or self.loss
        return RunSetup(
            self.recipe, source="", data="", mask="", function=function, code=code_of(function) if function else "",
            gradients=self.gradients, dtype=self.dtype, batch_size=self.batch_size,
            config=read_config(self.config, recipe),
        )  # fmt: skip

    def control_spec(self) -> BaselineSpec | None:
        """How the control's mask is made; None for the mask itself, and for all coordinates."""
        if self.control not in ("", FULL):
            return BaselineSpec.of(self.control, seed=self.control_seed)
        if self.control_seed is not None:
            raise UsageError("a seed is for random controls", options={"control": None})
        return None


@dataclass(frozen=True)
class PreparedRun:
    """A run that can begin, and what it needs.

    Attributes:
        mask: what is trained, by tensor name.
        notes: remarks for people, one sentence each.
    """

    setup: RunSetup
    source: Path
    teacher: str
    mask: Mask
    records: datasets.Dataset
    tokenizer: Any
    save_every: float
    notes: list[str]


def prepare(
    request: RunRequest, artifact: Artifact | None, source: Checkpoint, home: Path, *, progress: Progress = SILENT
) -> PreparedRun:
    """Check everything that a run needs, and make the mask of a control."""
    spec, data, setup = request.control_spec(), request.data, request.setup()
    save_every = setup.config.pop("save_steps")
    arguments(setup, home, save_every=save_every)
    if not source.path.is_dir():
        raise UsageError(
            f"{source.path} is a file: training needs the folder of a checkpoint, with configuration and tokenizer",
            options={"source": source.path.parent},
        )
    folder = on_disk(source.path, "training")
    with calling(str(folder), NOT_LOADED, DataError):
        transformers.AutoConfig.from_pretrained(folder)
    tokenizer = load_tokenizer(folder)
    if artifact is not None:
        artifact.require("mask")
        VerifiedSource(artifact, source, jobs=worker_count(None))
    records = read_records(data, RECIPES[setup.recipe])
    teacher, teacher_root = "", ""
    if request.teacher:
        with closing(open_checkpoint(request.teacher, download=request.download)) as checkpoint:
            teacher = str(on_disk(checkpoint.path, "training").absolute())
            check_tokenizers(tokenizer, load_tokenizer(teacher))
            teacher_root = root_of(checkpoint)
    trained, notes = None if request.control == FULL else artifact, []
    if spec is not None and artifact is not None:
        baseline = make_baseline(artifact, spec, home, source if spec.kind.source else None, progress=progress)
        trained, notes = Artifact.open(FileStore(home), baseline.digest), list(baseline.notes)
    if trained is not None and not trained.manifest.totals.nnz:
        raise UsageError(
            f"the mask has 0 of {trained.manifest.totals.numel:,} coordinates, so nothing would be trained",
            options={"control": FULL},
            empty_mask=trained.name or trained.digest,
        )
    setup = replace(
        setup,
        source=artifact.manifest.source.root if artifact is not None else root_of(source),
        teacher=teacher_root,
        data=f"sha256:{hashlib.sha256(data.read_bytes()).hexdigest()}",
        mask="" if trained is None else str(trained.digest),
        parent="" if artifact is None else str(artifact.digest),
        control=spec.to_json() if spec is not None else {"kind": FULL} if request.control else {},
    )
    floats = {name: info.shape for name, info in source.tensors.items() if info.dtype in FLOAT}
    mask = Everything(floats) if trained is None else trained.mask
    return PreparedRun(setup, folder.absolute(), teacher, mask, records, tokenizer, save_every, notes)


def load_tokenizer(path: str | Path) -> Any:
    """A tokenizer that pads on the left, as sampling needs."""
    with calling(str(path), NOT_LOADED, DataError):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, padding_side="left")
    if tokenizer.eos_token is None:
        raise DataError(
            f"{path}: the tokenizer has no end token, so no completion would ever end",
            hint="set eos_token in tokenizer_config.json",
        )
    return tokenizer


def check_tokenizers(student: Any, teacher: Any) -> None:
    """Reject a teacher whose token ids mean other tokens than the student's; TRL compares the sizes alone."""
    left, right = student.get_vocab(), teacher.get_vocab()
    different = sorted(left.items() ^ right.items(), key=lambda entry: (entry[1], entry[0]))
    if different:
        token, index = different[0]
        who = "student" if left.get(token) == index else "teacher"
        raise PairMismatchError(
            f"{len(different):,} entries differ between the tokenizers: token {index} is {token!r} for the {who} only",
            hint="choose a teacher of the student's family; distillation across tokenizers is not supported",
        )


_LINES = 'write one JSON object per line, such as {"prompt": "..."}'


def read_records(path: Path, recipe: Recipe) -> datasets.Dataset:
    """The records of a file, one JSON object per line, all with the columns that the recipe trains on."""
    if not path.is_file():
        what = "a directory" if path.is_dir() else "no such file"
        raise NotFoundError(f"{path}: {what}", hint="data: a file with one JSON object per line")
    records: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            with stating(hint=_LINES):
                record = parse_object(line, where, max_bytes=MAX_LINE_BYTES, max_values=MAX_LINE_BYTES)
            records.append(record)
            columns = next((columns for columns in recipe.columns if set(columns) <= record.keys()), None)
            if columns is None:
                needed = " or ".join(map(" and ".join, recipe.columns))
                raise FormatError(
                    f"{where}: the record has {', '.join(record) or 'no fields'}", hint=f"needed: {needed}"
                )
            if record.keys() != records[0].keys():
                first = ", ".join(records[0])
                raise FormatError(
                    f"{where}: its fields are {', '.join(record)}, and the first record has {first}",
                    hint="give all records the same fields",
                )
            if empty := [name for name in columns if record[name] in ("", [])]:
                raise FormatError(f"{where}: {empty[0]!r} is empty", hint="leave the record out")
    if not records:
        raise DataError(f"{path}: no records", hint=_LINES)
    try:
        return datasets.Dataset.from_list(records)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}", hint="give a field values of one type in all records") from error


def load_function(name: str) -> Callable[..., Any]:
    """A ``module:function``, from the current folder too."""
    module, _, function = name.partition(":")
    hint = "my.module:function, from its folder"
    if not function or not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"{name!r} is not module:function", hint=hint)
    sys.path.insert(0, str(Path.cwd()))
    try:
        with calling(module, module):
            loaded = getattr(importlib.import_module(module), function, None)
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(loaded):
        raise UsageError(f"{module} has no function {function!r}", hint=hint)
    return loaded  # type: ignore[no-any-return]


def code_of(name: str) -> str:
    """sha256 of the file that defines a ``module:function``; of no bytes if it is not a file."""
    file = getattr(sys.modules.get(load_function(name).__module__), "__file__", None)
    return str(Digest.of(Path(file).read_bytes() if file else b""))
