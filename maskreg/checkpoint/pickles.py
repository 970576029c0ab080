"""Pickles from outside: looked through before a library reads them, and loaded without running what they name.

A pickle is a program for a small machine. It names classes and functions, calls them, and sets attributes. What can be
named is a short list; but also a pickle of allowed names can crash a process: the machine in C reserves memory for the
largest index that an instruction says, and the hash of a deeply nested tuple overflows its stack. :func:`check` refuses
both before any instruction is carried out.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
from functools import partial
from typing import Any

from maskreg.checkpoint.files import AGAIN
from maskreg.errors import FormatError, LimitError, translating
from maskreg.limits import LIMITS
from maskreg.tensors.info import shown

_NESTED = 100

PICKLE_ERRORS = (
    AssertionError, AttributeError, EOFError, ImportError, LookupError, MemoryError, OverflowError, RuntimeError,
    TypeError, ValueError, Warning, pickle.PickleError, struct.error,
)  # fmt: skip
"""What a damaged pickle can make of the library that reads it."""


class Record:
    """An object of a class or function that a pickle names: what it was made of, and its attributes."""

    args: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *args: Any) -> Record:
        """Take any arguments."""
        record = super().__new__(cls)
        record.args = args
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


def load_records(data: bytes, names: re.Pattern[str], document: str) -> Any:
    """What a pickle stands for, with a :class:`Record` of a class of its name for everything that it names."""
    check(data, names, document, protocol=pickle.HIGHEST_PROTOCOL)

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if not names.fullmatch(f"{module} {name}"):
                raise _refused(f"{module}.{name}", document)
            return type(name, (Record,), {})

    with translating(PICKLE_ERRORS, partial(_damaged, document)):
        return Unpickler(io.BytesIO(data)).load()


def check(data: bytes, names: re.Pattern[str], document: str, *, protocol: int) -> set[str]:
    """Refuse a pickle that names what it must not, or would overflow the machine that reads it.

    ``names``: what it can name by ``GLOBAL``, as "module name". ``protocol``: the latest.

    Returns:
        What it names.
    """
    if len(data) > LIMITS.pickle_bytes:
        raise LimitError(f"{document}: a pickle of {len(data)} bytes; the limit is {LIMITS.pickle_bytes}")
    named: set[str] = set()
    stack: list[int] = []  # how deep tuples are nested in each value on the machine's stack
    marks: list[int] = []
    memo: dict[int, int] = {}
    with translating(PICKLE_ERRORS, partial(_damaged, document)):
        for count, (code, argument, _) in enumerate(pickletools.genops(data)):
            if count >= LIMITS.pickle_steps:
                raise LimitError(f"{document}: a pickle of over {LIMITS.pickle_steps:,} instructions")
            if code.proto > protocol or (code.name == "PROTO" and argument not in range(2, protocol + 1)):
                raise FormatError(
                    f"{document}: not a pickle of protocol {protocol}, as torch.save writes it",
                    hint="save the weights again: torch.save(model.state_dict(), PATH)",
                )
            if code.name == "GLOBAL" and isinstance(argument, str):
                named.add(argument)
                if not names.fullmatch(argument):
                    raise _refused(argument.replace(" ", "."), document)
            depth = _step(code, argument, stack, marks, memo)
            if depth > _NESTED:
                raise FormatError(f"{document}: a pickle with tuples more than {_NESTED} deep", hint=AGAIN)
    return named


def _step(code: pickletools.OpcodeInfo, argument: Any, stack: list[int], marks: list[int], memo: dict[int, int]) -> int:
    """Do to the depths what an instruction does to the values; the depth of what it makes."""
    if code.name == "MARK":
        marks.append(len(stack))
        return 0
    if code.name in ("PUT", "BINPUT", "LONG_BINPUT"):
        if argument > len(memo) + _NESTED:
            raise ValueError("an index that no machine would choose")
        memo[argument] = stack[-1]
        return 0
    if code.name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
        return 0
    before = list(code.stack_before)
    depths = [0]
    if pickletools.markobject in before:
        mark = marks.pop()
        depths += stack[mark:]
        del stack[mark:]
        before = before[: before.index(pickletools.markobject)]
    depths += [stack.pop() for _ in before]
    depth = memo[argument] if "GET" in code.name else max(depths) + ("TUPLE" in code.name)
    stack += [depth] * len(code.stack_after)
    return depth


def _damaged(document: str, error: Exception) -> FormatError:
    return FormatError(f"{document}: a damaged pickle ({error})", hint=AGAIN)


def _refused(name: str, document: str) -> FormatError:
    return FormatError(
        f"{document}: its pickle names {shown(name)[1:-1]}, which is neither a tensor nor a plain value; "
        "loading it would run that, so it is refused",
        hint="save the weights alone: torch.save(model.state_dict(), PATH)",
    )
