"""``module:function``: a loss of your own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from maskreg.digest import Digest
from maskreg.errors import DataError, MaskregError, UsageError
from maskreg.train.recipes.base import Batch, Context
from maskreg.train.recipes.records import Record
from maskreg.train.recipes.setup import Setup


class Custom:
    """Calls ``function(model, records, context)`` for every micro-batch; it gives the mean loss over the records.

    ``records`` are the JSON objects of the data as they are, ``context`` is a
    :class:`maskreg.train.recipes.base.Context`: tokenizer, device, teacher if there is one, step, and a seed for
    whatever chance decides. What comes back is a 0-D tensor with gradients.
    """

    needs_teacher = False
    losses: Sequence[str] = ()

    def __init__(self, name: str) -> None:
        """Find the function, also beside where the command runs.

        Raises:
            UsageError: there is no such module, or no such function in it.
        """
        self._name = name
        self._function = _function(name)

    def check(self, record: Record, setup: Setup, tokenizer: Any) -> bool:
        """Everything that is a JSON object is taken."""
        return True

    def prepare(self, model: torch.nn.Module, records: Sequence[Record], context: Context) -> Batch:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        return Batch(float(len(records)), 0, [record.fields for record in records])

    def loss(self, model: torch.nn.Module, batch: Batch, context: Context, total: float) -> torch.Tensor:
        """See :class:`maskreg.train.recipes.base.Recipe`.

        Raises:
            UsageError: the function failed.
            DataError: it gave something else than one number with gradients.
        """
        with _yours(self._name):
            loss = self._function(model, batch.content, context)
        if not isinstance(loss, torch.Tensor) or loss.dim() or not loss.requires_grad:
            raise DataError(
                f"{self._name} gave no loss but {_shown(loss)}",
                hint="return a 0-D tensor with gradients, such as a mean",
            )
        return loss.float() * (batch.weight / total)


def code_of(name: str) -> str:
    """sha256 of the file that a ``module:function`` is in; of nothing when it is in none.

    Raises:
        UsageError: there is no such module.
    """
    module = _module(name)
    try:
        with _working_folder():
            found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise _no_module(module, str(error)) from error
    if found is None:
        raise _no_module(module, "it is not installed, and not in this folder")
    code = Path(found.origin).read_bytes() if found.origin and Path(found.origin).is_file() else b""
    return str(Digest.of(code))


def _function(name: str) -> Callable[[torch.nn.Module, list[dict[str, Any]], Context], Any]:
    module, function = _module(name), name.partition(":")[2]
    try:
        with _working_folder(), _yours(module):
            found = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise _no_module(module, str(error)) from error
    if not callable(found):
        raise UsageError(f"{module} has no function {function!r}", hint="--recipe my.module:function")
    return found  # type: ignore[no-any-return] # what it gives is checked when it is called


def _module(name: str) -> str:
    module = name.partition(":")[0]
    if not all(part.isidentifier() for part in module.split(".")):
        raise _no_module(module, "that is no module's name")
    return module


def _shown(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)} with{'' if value.requires_grad else 'out'} gradients"
    return f"a {type(value).__name__}"


def _no_module(module: str, why: str) -> UsageError:
    return UsageError(
        f"module {module!r} cannot be imported: {why}", hint="--recipe my.module:function, from its folder"
    )


class _yours:  # noqa: N801 # used like a function
    # Whatever the code of others raises is theirs to see, and none of our bugs.
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
        last = next((one for one in reversed(frames) if "site-packages" not in one.filename), frames[-1])
        raise UsageError(
            f"{self._name} failed: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})",
            hint="add --debug to see the traceback",
        ) from error


class _working_folder:  # noqa: N801 # used like a function
    def __enter__(self) -> None:
        self._here = str(Path.cwd())
        sys.path.insert(0, self._here)

    def __exit__(self, *_: object) -> None:
        sys.path.remove(self._here)
