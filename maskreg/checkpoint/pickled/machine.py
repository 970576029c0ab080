"""Reading a pickle without running it.

A pickle is a program for a small machine: it names classes and functions, calls them, and sets attributes. Python's
machine does all this; the one here looks every name up in a table that the caller gives, and knows no other. Nothing
is imported, and what a name in the table gives is a plain value or a :class:`Record`::

    GLOBAL 'torch._utils _rebuild_tensor_v2'    in the table: a function of ours, which returns where the tensor lies
    GLOBAL 'torch.distributed...metadata Metadata'    in the table, as a record: a name, arguments and a state
    GLOBAL 'os system'                          not in the table: refused, whatever would have been done with it

Only the instructions that protocols 2 to 5 need for such values are known. Memory is bounded by the number of
instructions, each of which makes at most one object.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from maskreg.checkpoint.files import AGAIN
from maskreg.errors import DataError, FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.names import shown

_KEY_PARTS = 16

Maker = Callable[..., Any]
"""Makes a value of the arguments of a call; raises ``TypeError`` for wrong ones."""


@dataclass(frozen=True, slots=True)
class Global:
    """A class, function or constant that a pickle names.

    Attributes:
        name: module and name, with a dot between.
    """

    name: str


@dataclass(eq=False, slots=True)
class Record:
    """An object of a class that has no other form here.

    Attributes:
        name: of its class.
        args: that it was made with.
        state: what was set on it: usually its attributes by name.
    """

    name: str
    args: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True)
class Names:
    """What a pickle may name, and what these names give.

    Attributes:
        makers: what a call gives, by name.
        records: classes whose objects are records.
        constants: names that are never called, such as ``torch.bfloat16``.
    """

    makers: Mapping[str, Maker] = field(default_factory=dict)
    records: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.makers or name in self.records or name in self.constants


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
    """The value that a pickle stands for.

    Args:
        data: the pickle.
        names: what it may name.
        document: where it comes from, for messages.
        persistent: gives what a persistent id stands for; raises ``TypeError`` for a wrong one.
        limits: bounds on its size.

    Raises:
        FormatError: it names something else, or is no such pickle.
        LimitError: it is too large.
    """
    if len(data) > limits.pickle_bytes:
        raise LimitError(f"{document}: a pickle of {len(data)} bytes; the limit is {limits.pickle_bytes}")
    machine = _Machine(data, names, document, persistent)
    try:
        return machine.run(limits.pickle_steps)
    except DataError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, struct.error) as error:
        raise FormatError(f"{document}: a damaged pickle, at byte {machine.at} ({error})", hint=AGAIN) from error


class _Machine:
    def __init__(self, data: bytes, names: Names, document: str, persistent: Callable[[Any], Any]) -> None:
        self.at = 0
        self._data, self._names, self._document, self._persistent = data, names, document, persistent
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self, max_steps: int) -> Any:
        for _ in range(max_steps):
            code = self._data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self._stack.pop()
            step = _STEPS.get(code)
            if step is None:
                raise FormatError(
                    f"{self._document}: a pickle with the instruction {code:#04x} at byte {self.at - 1}, which files "
                    "of torch.save do not have",
                    hint=AGAIN,
                )
            step(self)
        raise LimitError(f"{self._document}: a pickle of over {max_steps:,} instructions")

    # -- arguments

    def _take(self, count: int) -> bytes:
        data = self._data[self.at : self.at + count]
        if len(data) != count:
            raise IndexError("cut short")
        self.at += count
        return data

    def _natural(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _line(self) -> str:
        end = self._data.index(b"\n", self.at) if b"\n" in self._data[self.at : self.at + 1024] else -1
        if end < 0:
            raise IndexError("a name without an end")
        line = self._take(end - self.at).decode()
        self.at += 1
        return line

    def _pop_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marks.pop()
        return items

    # -- names, calls and states

    def name(self, module: str, name: str) -> None:
        full = f"{module}.{name}"
        # Python 2's names, as protocol 2 has them.
        full = full.replace("__builtin__.", "builtins.", 1) if full.startswith("__builtin__.") else full
        if full not in self._names:
            raise FormatError(
                f"{self._document}: its pickle names {shown(full)[1:-1]}, which is neither a tensor nor a plain value; "
                "whoever loads it would run that, so it is refused",
                hint="save the weights alone: torch.save(model.state_dict(), PATH)",
            )
        self._stack.append(Global(full))

    def call(self, function: Any, args: Any) -> None:
        if not isinstance(function, Global) or not isinstance(args, tuple):
            raise TypeError("a call of something that is no name")
        maker = self._names.makers.get(function.name)
        if maker is None and function.name not in self._names.records:
            raise TypeError(f"a call of {function.name}")
        self._stack.append(Record(function.name, args) if maker is None else maker(*args))

    def build(self) -> None:
        state = self._stack.pop()
        value = self._stack[-1]
        if isinstance(value, Record):
            value.state = state
        elif not isinstance(value, dict):  # attributes of a dictionary, such as a state dict's versions
            raise TypeError("a state for a plain value")

    def put(self, container: Any, items: list[Any]) -> None:
        if isinstance(container, dict):
            for index in range(0, len(items), 2):
                container[_key(items[index])] = items[index + 1]
        elif isinstance(container, list):
            container.extend(items)
        else:
            raise TypeError("an item for something that is no container")


def _key(key: Any) -> Any:
    # Python hashes nested tuples by recursion in C, without a bound.
    simple = (str, int, float, bool, type(None), bytes, Record)
    short = isinstance(key, tuple) and len(key) <= _KEY_PARTS and all(isinstance(part, simple) for part in key)
    if not short and not isinstance(key, simple):
        raise TypeError("a dictionary with keys that are neither text nor numbers")
    return key


def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        # First the value: making it may put another stack in place.
        value = make(machine)
        machine._stack.append(value)

    return step


def _mark(machine: _Machine) -> None:
    machine._marks.append(machine._stack)
    machine._stack = []


def _tuple_of(count: int) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        stack = machine._stack
        if len(stack) < count:
            raise IndexError("too few values")
        items = tuple(stack[len(stack) - count :])
        del stack[len(stack) - count :]
        stack.append(items)

    return step


def _reduce(machine: _Machine) -> None:
    args = machine._stack.pop()
    machine.call(machine._stack.pop(), args)


def _new_with_keywords(machine: _Machine) -> None:
    if machine._stack.pop():
        raise TypeError("keyword arguments")
    _reduce(machine)


def _stack_global(machine: _Machine) -> None:
    name, module = machine._stack.pop(), machine._stack.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise TypeError("a name that is no text")
    machine.name(module, name)


def _global(machine: _Machine) -> None:
    module = machine._line()
    machine.name(module, machine._line())


def _items(count: int) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        items = [machine._stack.pop() for _ in range(count)][::-1]
        machine.put(machine._stack[-1], items)

    return step


def _marked_items(machine: _Machine) -> None:
    items = machine._pop_mark()
    machine.put(machine._stack[-1], items)


def _remember(width: int) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        number = machine._natural(width) if width else len(machine._memo)
        machine._memo[number] = machine._stack[-1]

    return step


def _text(width: int) -> Callable[[_Machine], None]:
    return _push(lambda m: m._take(m._natural(width)).decode("utf-8", "surrogatepass"))


def _pop(machine: _Machine) -> None:
    machine._stack.pop()


_STEPS: Mapping[int, Callable[[_Machine], None]] = {
    ord("\x80"): lambda m: _skip(m, 1),  # PROTO
    ord("\x95"): lambda m: _skip(m, 8),  # FRAME
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): lambda m: _ignore(m._pop_mark()),  # POP_MARK
    ord("2"): _push(lambda m: m._stack[-1]),  # DUP
    ord("N"): _push(lambda m: None),
    ord("\x88"): _push(lambda m: True),
    ord("\x89"): _push(lambda m: False),
    ord("K"): _push(lambda m: m._natural(1)),  # BININT1
    ord("M"): _push(lambda m: m._natural(2)),  # BININT2
    ord("J"): _push(lambda m: int.from_bytes(m._take(4), "little", signed=True)),  # BININT
    ord("\x8a"): _push(lambda m: int.from_bytes(m._take(m._natural(1)), "little", signed=True)),  # LONG1
    ord("G"): _push(lambda m: struct.unpack(">d", m._take(8))[0]),  # BINFLOAT
    ord("\x8c"): _text(1),  # SHORT_BINUNICODE
    ord("X"): _text(4),  # BINUNICODE
    ord("\x8d"): _text(8),  # BINUNICODE8
    ord("U"): _push(lambda m: m._take(m._natural(1))),  # SHORT_BINSTRING
    ord("T"): _push(lambda m: m._take(m._natural(4))),  # BINSTRING
    ord("C"): _push(lambda m: m._take(m._natural(1))),  # SHORT_BINBYTES
    ord("B"): _push(lambda m: m._take(m._natural(4))),  # BINBYTES
    ord("\x8e"): _push(lambda m: m._take(m._natural(8))),  # BINBYTES8
    ord("\x96"): _push(lambda m: m._take(m._natural(8))),  # BYTEARRAY8
    ord("]"): _push(lambda m: []),
    ord("}"): _push(lambda m: {}),
    ord(")"): _push(lambda m: ()),
    ord("\x8f"): _push(lambda m: []),  # EMPTY_SET
    ord("t"): _push(lambda m: tuple(m._pop_mark())),
    ord("l"): _push(lambda m: m._pop_mark()),
    ord("\x91"): _push(lambda m: m._pop_mark()),  # FROZENSET
    ord("\x85"): _tuple_of(1),
    ord("\x86"): _tuple_of(2),
    ord("\x87"): _tuple_of(3),
    ord("s"): _items(2),  # SETITEM
    ord("a"): _items(1),  # APPEND
    ord("u"): _marked_items,  # SETITEMS
    ord("e"): _marked_items,  # APPENDS
    ord("\x90"): _marked_items,  # ADDITEMS
    ord("q"): _remember(1),  # BINPUT
    ord("r"): _remember(4),  # LONG_BINPUT
    ord("\x94"): _remember(0),  # MEMOIZE
    ord("h"): _push(lambda m: m._memo[m._natural(1)]),  # BINGET
    ord("j"): _push(lambda m: m._memo[m._natural(4)]),  # LONG_BINGET
    ord("c"): _global,
    ord("\x93"): _stack_global,
    ord("R"): _reduce,
    ord("\x81"): _reduce,  # NEWOBJ
    ord("\x92"): _new_with_keywords,  # NEWOBJ_EX
    ord("b"): lambda m: m.build(),
    ord("Q"): _push(lambda m: m._persistent(m._stack.pop())),  # BINPERSID
}
"""What each instruction does, by its byte."""


def _skip(machine: _Machine, count: int) -> None:
    machine._take(count)


def _ignore(items: list[Any]) -> None:
    """Values that a pickle makes and drops."""
