"""``module:function``: a user's own loss."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from maskreg.digest import Digest
from maskreg.errors import DataError, MaskregError, UsageError
from maskreg.train.recipes.base import Batch, Context
from maskreg.train.recipes.records import Record
from maskreg.train.recipes.setup import RunSetup


class Custom:
    """Calls ``function(model, records, context)`` for every micro-batch, which returns the mean loss of the records.

    ``records`` are the JSON objects of the data, ``context`` is a :class:`maskreg.train.recipes.base.Context`:
    tokenizer, device, teacher if there is one, step, and a seed for random choices. The loss is a 0-D tensor with
    gradients.
    """

    needs_teacher = False
    losses: Sequence[str] = ()

    def __init__(self, name: str) -> None:
        """Import the function, from the current folder too."""
        self._name = name
        self._function = _function(name)

    def check(self, record: Record, setup: RunSetup, tokenizer: Any) -> bool:
        """Accept every JSON object."""
        return True

    def prepare(self, model: torch.nn.Module, records: Sequence[Record], context: Context) -> Batch:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        return Batch(float(len(records)), 0, [record.fields for record in records])

    def loss(self, model: torch.nn.Module, batch: Batch, context: Context, total: float) -> torch.Tensor:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        with _UserCode(self._name):
            loss = self._function(model, batch.content, context)
        if not isinstance(loss, torch.Tensor) or loss.dim() or not loss.requires_grad:
            raise DataError(
                f"{self._name} returned {_shown(loss)} instead of a loss",
                hint="return a 0-D tensor with gradients, such as a mean",
            )
        return loss.float() * (batch.weight / total)


def code_of(name: str) -> str:
    """sha256 of the file that defines a ``module:function``; of no bytes if it is not a file."""
    module = _module(name)
    try:
        with _working_folder():
            spec = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise _no_module(module, str(error)) from error
    if spec is None:
        raise _no_module(module, "it is neither installed nor in this folder")
    code = Path(spec.origin).read_bytes() if spec.origin and Path(spec.origin).is_file() else b""
    return str(Digest.of(code))


def _function(name: str) -> Callable[[torch.nn.Module, list[dict[str, Any]], Context], Any]:
    module, function = _module(name), name.partition(":")[2]
    try:
        with _working_folder(), _UserCode(module):
            loaded = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise _no_module(module, str(error)) from error
    if not callable(loaded):
        raise UsageError(f"{module} has no function {function!r}", hint="--recipe my.module:function")
    return loaded  # type: ignore[no-any-return] # its result is checked at every call


def _module(name: str) -> str:
    module = name.partition(":")[0]
    if not all(part.isidentifier() for part in module.split(".")):
        raise _no_module(module, "that is not a module name")
    return module


def _shown(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)} with{'' if value.requires_grad else 'out'} gradients"
    return f"a {type(value).__name__}"


def _no_module(module: str, why: str) -> UsageError:
    return UsageError(
        f"module {module!r} cannot be imported: {why}", hint="--recipe my.module:function, from its folder"
    )


class _UserCode:
    """Reports exceptions of the user's code with file and line, instead of as a bug of maskreg."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, (MaskregError, ImportError)):
            return
        frames = traceback.extract_tb(trace)
        last = next((frame for frame in reversed(frames) if "site-packages" not in frame.filename), frames[-1])
        raise UsageError(
            f"{self._name} failed: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})",
            hint="add --debug to see the traceback",
        ) from error


@contextmanager
def _working_folder() -> Iterator[None]:
    """Make modules of the current folder importable."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
