"""Every error that maskreg raises on purpose, in one tree.

MaskregError
├── UsageError                  the request itself is wrong (also ValueError)
│   ├── BadRefError             a reference that does not follow the grammar
│   ├── BadRuleError            an unknown or meaningless rule
│   └── PreconditionError       a change through a service without the state that it changes
├── DataError                   data from outside is wrong (also ValueError)
│   ├── CorruptError            bytes differ from their digest, are missing, truncated or surplus
│   │   ├── RolledBackError     a remote's log that went back, forked or was rewritten
│   │   └── UntrustedError      no trusted key signed it
│   ├── FormatError             a malformed file or document
│   ├── LimitError              a document beyond a limit
│   ├── PairMismatchError       two checkpoints that do not pair up
│   ├── WrongCheckpointError    not the source checkpoint of the artifact
│   │   └── AlreadyAppliedError it is what applying the artifact gives
│   ├── BrokenChainError        links that do not follow one another
│   ├── NotOnChainError         weights from which no links lead to a tag
│   └── PipeError               standard input is not exactly one valid record
├── NotFoundError               something does not exist (also FileNotFoundError)
│   ├── MissingLinkError        a link of a chain is in no registry at hand
│   └── PartAbsentError         the artifact exists, but not the part that is needed
├── UnavailableError            a remote does not answer (also ConnectionError)
├── CannotCreateError           an output cannot be created (also OSError)
│   ├── OutputExistsError       it exists already (also FileExistsError)
│   ├── NoSpaceError            the disk is full, or would be
│   └── QuotaError              a project on a server has reached its quota
├── TryAgainError               another process was faster, or holds a lock
│   ├── RateLimitedError        a server was sent more requests than it takes
│   └── ConflictError           a tag moved between reading and writing
│       └── StaleError          the tag has moved since the caller read it
├── NotAllowedError             permission denied (also PermissionError)
│   ├── RefusedError            a store, a database or a disk refused this process
│   ├── UnauthenticatedError    a service was sent no token, or one that is not valid
│   └── ImmutableTagError       a tag that must never point to another artifact
├── WorkerError                 a process of a training run or of a cluster crashed
└── ConfigError                 settings or a schema that are missing, wrong or of another version

The exit code of each family is decided in one place, the command line's table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class MaskregError(Exception):
    """Base of every deliberate error: what happened, as a sentence and as facts.

    A program decides by the class, or by ``code``, and by the facts. No message, hint or fact holds a command line: the
    command line and the service each have a table from classes and facts to the next step of their readers.

    Attributes:
        code: stable upper-case identifier of the class, such as ``DIGEST_MISMATCH``.
        hint: what helps, in words that hold for every reader; can be empty.
        facts: what the error is about, by name: ``ref``, ``digest``, ``remote`` (empty for the local registry),
            ``part``, ``project``... Of a request that other options would mend, ``options`` has them by name:
            ``{"force": True}``, or settings of a method ``{"settings": {"k": 2}}``. None stands for a value of the
            caller's choice.
    """

    code = "ERROR"

    def __init_subclass__(cls, code: str = "") -> None:
        cls.code = code or cls.code

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        return self.message

    @property
    def fault(self) -> str:
        """The message without the key of the damaged object that it begins with."""
        return self.message.removeprefix(f"{getattr(self, 'key', '')}: ")

    def __setattr__(self, name: str, value: object) -> None:
        if name == "hint":
            # Python prints notes below the message of a traceback.
            self.__notes__ = [f"hint: {value}"] if value else []
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Of many errors the arguments are facts, and ``args`` the message that was made of them.
        return _restored, (type(self), self.args, self.__dict__)

    def to_json(self) -> dict[str, object]:
        """Code, message, hint, and the facts as JSON values."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "facts": plain_facts(self.facts)}


class UsageError(MaskregError, ValueError, code="USAGE"):
    """The request itself is wrong: a contradictory or malformed option."""


class BadRefError(UsageError, code="NAME_INVALID"):
    """A reference that does not follow ``[project/]name[:tag][@sha256:...]``."""


class BadRuleError(UsageError, code="RULE_INVALID"):
    """An unknown rule for "moved", or one with a meaningless parameter."""


class PreconditionError(UsageError, code="PRECONDITION_REQUIRED"):
    """A change through a service without the state that it changes."""


class DataError(MaskregError, ValueError, code="DATA_INVALID"):
    """Data from outside is wrong; nothing of it was used."""


class CorruptError(DataError, code="DIGEST_MISMATCH"):
    """Stored bytes differ from their digest, are missing, truncated or surplus.

    Attributes:
        key: the object that is damaged, as the store names it.
    """

    _names_key = True

    def __init__(self, key: str, fault: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(f"{key}: {fault}" if self._names_key else fault, hint=hint, **facts)
        self.key = key


class RolledBackError(CorruptError, code="ROLLED_BACK"):
    """A remote whose log of a tag went back, was rewritten or forked since this machine last read it."""

    _names_key = False  # the fault names the tag


class UntrustedError(CorruptError, code="UNTRUSTED"):
    """An entry of a signed project without a trusted signature, or a key that no trusted key handed over to."""

    _names_key = False


class FormatError(DataError, code="FORMAT_INVALID"):
    """A malformed file or document."""


class LimitError(DataError, code="SIZE_INVALID"):
    """A document from outside that is beyond a limit."""


class PairMismatchError(DataError, code="PAIR_MISMATCH"):
    """Two checkpoints that do not pair up. ``tensors``: names of the tensors that do not match."""

    def __init__(self, message: str, tensors: tuple[str, ...] = (), *, hint: str = "", **facts: object) -> None:
        super().__init__(message, hint=hint, **facts)
        self.tensors = tensors


class WrongCheckpointError(DataError, code="SOURCE_MISMATCH"):
    """A checkpoint that is not the artifact's source."""

    def __init__(self, tensor: str, fault: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(f"tensor {tensor}: {fault}", hint=hint, **facts)
        self.tensor = tensor


class WrongTargetError(DataError, code="TARGET_MISMATCH"):
    """A checkpoint that is not the target which the artifact was made from."""


class AlreadyAppliedError(WrongCheckpointError, code="ALREADY_APPLIED"):
    """A checkpoint that is already what applying the artifact to its source gives."""


class BrokenChainError(DataError, code="CHAIN_BROKEN"):
    """Links that do not follow one another, or a chain that returns to a state it had."""


class NotOnChainError(DataError, code="NOT_ON_CHAIN"):
    """Weights from which no links lead to where a tag points."""


class PipeError(DataError, code="PIPE_INVALID"):
    """Standard input is not exactly one valid record and an end record."""


class NotFoundError(MaskregError, FileNotFoundError, code="NOT_FOUND"):
    """Something that was requested does not exist."""


class MissingLinkError(NotFoundError, code="LINK_MISSING"):
    """A link of a chain that is in no registry at hand."""


class PartAbsentError(NotFoundError, code="PART_ABSENT"):
    """The artifact exists, but a part of it that is needed does not."""


class UnavailableError(MaskregError, ConnectionError, code="UNAVAILABLE"):
    """A remote that does not answer, after retries."""


class CannotCreateError(MaskregError, OSError, code="CANNOT_CREATE"):
    """An output that cannot be created."""


class OutputExistsError(CannotCreateError, FileExistsError, code="OUTPUT_EXISTS"):
    """An output that exists already and must not be replaced."""

    def __init__(self, path: object, *, reason: str = "", hint: str = "", **facts: object) -> None:
        """Take what is there and, to continue the sentence, why it cannot be replaced: ``and is not a folder``."""
        if not hint and not reason:
            hint, facts = "choose another output, or replace it", {"options": {"force": True}} | facts
        super().__init__(f"{path} exists already{reason and ' '}{reason}", hint=hint, **facts)


class NoSpaceError(CannotCreateError, code="NO_SPACE"):
    """A disk that is full, or would be; checked before anything is written.

    Attributes:
        needed: bytes that the work needs; None where that is not known.
    """

    def __init__(self, message: str, *, hint: str = "", needed: int | None = None, **facts: object) -> None:
        super().__init__(message, hint=hint, **facts)
        self.needed = needed


class QuotaError(CannotCreateError, code="QUOTA_EXCEEDED"):
    """A project on a server that has reached its quota."""


class TryAgainError(MaskregError, code="TRY_AGAIN"):
    """Another process was faster or holds a lock; the same command can work in a moment."""


class RateLimitedError(TryAgainError, code="RATE_LIMITED"):
    """More requests than a server takes from one account or address.

    Attributes:
        retry_after_s: when the server takes the next one, in seconds.
    """

    def __init__(self, retry_after_s: int, *, hint: str = "", **facts: object) -> None:
        super().__init__(f"too many requests; come back in {retry_after_s} s", hint=hint, **facts)
        self.retry_after_s = retry_after_s


class ConflictError(TryAgainError, code="CONFLICT"):
    """A tag that another writer moved between reading and writing."""


class StaleError(ConflictError, code="STALE"):
    """The tag has moved since the caller read it."""


class NotAllowedError(MaskregError, PermissionError, code="DENIED"):
    """Permission denied."""


class RefusedError(NotAllowedError):
    """A store, a database or a disk that refuses this process: its credentials, or what it would do with them."""


class UnauthenticatedError(NotAllowedError, code="UNAUTHENTICATED"):
    """A request to a service without a token, or with one that is not valid."""


class ImmutableTagError(NotAllowedError, code="TAG_IMMUTABLE"):
    """A tag that must never point to another artifact than the one that it was set to."""


class WorkerError(MaskregError, code="WORKER_FAILED"):
    """A process of a training run or of a cluster that crashed, or raised an exception that might be a bug."""


class ConfigError(MaskregError, code="CONFIG"):
    """Settings that are missing or wrong, or a schema of another version."""


def plain_facts(facts: Mapping[str, object]) -> dict[str, object]:
    """Facts as JSON values."""
    return {name: _plain(value) for name, value in facts.items()}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return plain_facts(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # A reference or a digest can be a str of its own kind.
    return value if value is None or type(value) in (bool, int, float) else str(value)


def _restored(kind: type[MaskregError], args: tuple[Any, ...], state: dict[str, Any]) -> MaskregError:
    """An error as it was when it was pickled."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


@contextmanager
def stating(*, hint: str = "", **facts: object) -> Iterator[None]:
    """Add a hint and facts, such as the name of a digest, to errors that leave the block without them."""
    try:
        yield
    except MaskregError as error:
        error.hint = error.hint or hint
        error.facts = {**facts, **error.facts}
        raise


@contextmanager
def translating(kinds: tuple[type[Exception], ...], make: Callable[[Any], MaskregError]) -> Iterator[None]:
    """Raise what ``make`` makes of errors of these kinds; this package's own, which can be of them too, stay."""
    try:
        yield
    except MaskregError:
        raise
    except kinds as error:
        raise make(error) from error


@contextmanager
def prefixed(text: str, of: type[MaskregError] = MaskregError) -> Iterator[None]:
    """Put words in front of the messages of errors, such as where they happened."""
    try:
        yield
    except of as error:
        error.message = f"{text}{error.message}"
        error.args = (error.message,)
        raise
