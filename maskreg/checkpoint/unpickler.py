"""Reading a pickle without running it.

A pickle is a program for a small machine: it names classes and functions, calls them, and sets attributes. Here the
machine is Python's own, with most of its instructions taken out; it imports nothing, because every name is looked up in
a table that the caller gives. What a name in the table gives is a plain value or a :class:`Record`::

    GLOBAL 'torch._utils _rebuild_tensor_v2'    in the table: a function of ours, which returns where the tensor lies
    GLOBAL 'torch.distributed...metadata Metadata'    in the table, as a record: a name, arguments and a state
    GLOBAL 'os system'                          not in the table: refused, before anything is done with it

Of the two machines in the library, the one in C is not for hostile input: a single instruction (``LONG_BINPUT``) makes
it reserve tens of GiB, and the hash of a deeply nested key overflows its stack. ``torch.load(weights_only=True)`` reads
lazily only what is a whole file on a disk: not a file in a bucket, nor a chunk in the middle of a file.

Memory is bounded by the number of instructions, each of which makes at most one object.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from maskreg.checkpoint.files import AGAIN
from maskreg.errors import DataError, FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.info import shown

_KEY_PARTS = 16

Maker = Callable[..., Any]
"""Makes a value of the arguments of a call; raises ``TypeError`` for wrong ones."""


@dataclass(eq=False, slots=True)
class Record:
    """An object of a class that has no other form here: its arguments, and its state, usually attributes by name."""

    name: str
    args: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True)
class Names:
    """What calls in a pickle make, by name; classes whose objects are records; and constants, never called."""

    makers: Mapping[str, Maker] = field(default_factory=dict)
    records: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.makers or name in self.records or name in self.constants


@dataclass(frozen=True, slots=True)
class Global:
    """A class, function or constant that a pickle names: module and name, with a dot between."""

    name: str


def refuse_persistent(pid: Any) -> Any:
    """For pickles without persistent ids."""
    raise TypeError("a persistent id")


def load(
    data: bytes,
    names: Names,
    document: str,
    *,
    persistent: Callable[[Any], Any] = refuse_persistent,
    limits: Limits = LIMITS,
) -> Any:
    """The value that a pickle stands for."""
    if len(data) > limits.pickle_bytes:
        raise LimitError(f"{document}: a pickle of {len(data)} bytes; the limit is {limits.pickle_bytes}")
    try:
        return _Unpickler(data, names, document, persistent, limits.pickle_steps).load()
    except DataError:  # some are ValueErrors too
        raise
    except _READING as error:
        raise FormatError(f"{document}: a damaged pickle ({error})", hint=AGAIN) from error


_READING = (
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    EOFError,
    struct.error,
    pickle.PickleError,
)


class _Unpickler(pickle._Unpickler):  # the machine in Python: see the top of this file
    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(
        self, data: bytes, names: Names, document: str, persistent: Callable[[Any], Any], max_steps: int
    ) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self.dispatch = _Steps(document, max_steps)  # type: ignore[misc]  # one for each pickle, as it counts
        self._names, self._document, self._persistent = names, document, persistent

    def find_class(self, module: str, name: str) -> Global:
        full = f"{module}.{name}"
        if full.startswith("__builtin__."):  # Python 2's name, as protocol 2 has it
            full = full.replace("__builtin__", "builtins", 1)
        if full not in self._names:
            raise FormatError(
                f"{self._document}: its pickle names {shown(full)[1:-1]}, which is neither a tensor nor a plain value; "
                "loading it would run that, so it is refused",
                hint="save the weights alone: torch.save(model.state_dict(), PATH)",
            )
        return Global(full)

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)

    def load_reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Global) or not isinstance(args, tuple):
            raise TypeError("a call of something that is no name")
        maker = self._names.makers.get(function.name)
        if maker is None and function.name not in self._names.records:
            raise TypeError(f"a call of {function.name}")
        self.stack.append(Record(function.name, args) if maker is None else maker(*args))

    def load_build(self) -> None:
        state, value = self.stack.pop(), self.stack[-1]
        if isinstance(value, Record):
            value.state = state
        elif not isinstance(value, dict):  # attributes of a dictionary, such as a state dict's versions, are dropped
            raise TypeError("a state for a plain value")

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put([key, value])

    def load_setitems(self) -> None:
        self._put(self.pop_mark())

    def _put(self, items: list[Any]) -> None:
        container = self.stack[-1]
        if not isinstance(container, dict):
            raise TypeError("an item for something that is no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Python hashes nested tuples by recursion in C, without a bound.
            short = isinstance(key, tuple) and len(key) <= _KEY_PARTS and all(isinstance(part, _KEYS) for part in key)
            if not short and not isinstance(key, _KEYS):
                raise TypeError("a dictionary with keys that are neither text nor numbers")
            container[key] = value

    def load_appends(self) -> None:
        items = self.pop_mark()
        self._list().extend(items)

    def load_append(self) -> None:
        item = self.stack.pop()
        self._list().append(item)

    def _list(self) -> list[Any]:
        if not isinstance(self.stack[-1], list):
            raise TypeError("an item for something that is no list")
        return self.stack[-1]


_KEYS = (str, int, float, bool, type(None), bytes, Record)

_PYTHON = (
    "PROTO FRAME MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE "
    "BINUNICODE BINUNICODE8 SHORT_BINSTRING BINSTRING SHORT_BINBYTES BINBYTES BINBYTES8 EMPTY_LIST EMPTY_DICT "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 LIST BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET "
    "GLOBAL STACK_GLOBAL BINPERSID STOP"
)
"""Instructions that Python's machine carries out as it always does."""

_OWN: Mapping[str, Any] = {
    "REDUCE": _Unpickler.load_reduce,
    "NEWOBJ": _Unpickler.load_reduce,
    "BUILD": _Unpickler.load_build,
    "SETITEM": _Unpickler.load_setitem,
    "SETITEMS": _Unpickler.load_setitems,
    "APPEND": _Unpickler.load_append,
    "APPENDS": _Unpickler.load_appends,
    # A set would hash what is in it: it is read as a list.
    "EMPTY_SET": pickle._Unpickler.dispatch[pickle.EMPTY_LIST[0]],
    "ADDITEMS": _Unpickler.load_appends,
    "FROZENSET": pickle._Unpickler.dispatch[pickle.LIST[0]],
}

_INSTRUCTIONS: Mapping[int, Any] = {
    **{getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in _PYTHON.split()},
    **{getattr(pickle, name)[0]: step for name, step in _OWN.items()},
}
"""What each instruction does, by its byte."""


class _Steps(dict[int, Callable[[Any], None]]):
    """Instructions for one pickle, which are counted."""

    def __init__(self, document: str, most: int) -> None:
        self._document, self._most, self._left = document, most, most

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self._left -= 1
        if self._left < 0:
            raise LimitError(f"{self._document}: a pickle of over {self._most:,} instructions")
        step: Callable[[Any], None] | None = _INSTRUCTIONS.get(code)
        if step is None:
            raise FormatError(
                f"{self._document}: a pickle with the instruction {code:#04x}, which files of torch.save do not have",
                hint=AGAIN,
            )
        return step
