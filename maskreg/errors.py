"""Every error that maskreg raises on purpose, in one tree.

MaskregError
├── UsageError                  the question itself is wrong (also ValueError)
│   ├── BadRefError             a reference that does not follow the grammar
│   └── BadRuleError            a rule for "moved" that is unknown or meaningless
├── DataError                   data from outside is wrong (also ValueError)
│   ├── CorruptError            bytes differ from their digest, are missing, cut or surplus
│   ├── FormatError             a file or document that breaks its format
│   ├── LimitError              a document that is larger than a limit allows
│   ├── PairMismatchError       two checkpoints that cannot be compared as asked
│   ├── WrongCheckpointError    not the checkpoint that the artifact was made from
│   └── PipeError               what came down a pipe is not one good record
├── NotFoundError               asked for something that is not there (also FileNotFoundError)
│   └── PartAbsentError         the artifact is here, but not the part that is needed
├── UnavailableError            a remote that does not answer (also ConnectionError)
├── CannotCreateError           an output that cannot be made (also OSError)
│   ├── OutputExistsError       it exists already (also FileExistsError)
│   └── NoSpaceError            the disk would fill up
├── TryAgainError               somebody else was faster, or holds a lock
│   └── ConflictError           a tag moved between reading and writing
├── NotAllowedError             the store or database refused the credentials (also PermissionError)
└── ConfigError                 settings that are missing, wrong or of another version

The exit code of each family is decided in one place, the command line's table.
"""

from __future__ import annotations


class MaskregError(Exception):
    """Base of every deliberate error: a message for people, and a next step.

    Attributes:
        hint: one runnable command or one thing to do next; empty when there is none.
        code: stable upper-case identifier for programs, such as ``DIGEST_MISMATCH``.
    """

    code = "ERROR"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(MaskregError, ValueError):
    """The question itself is wrong: a contradictory or malformed option."""

    code = "USAGE"


class BadRefError(UsageError):
    """A reference that does not follow ``[project/]name[:tag][@sha256:...]``."""

    code = "NAME_INVALID"


class BadRuleError(UsageError):
    """A rule for "moved" that is unknown, or whose parameter is meaningless."""

    code = "RULE_INVALID"


class DataError(MaskregError, ValueError):
    """Data from outside is wrong; nothing of it was used."""

    code = "DATA_INVALID"


class CorruptError(DataError):
    """Stored bytes differ from their digest, are missing, cut short or surplus.

    Attributes:
        key: the object that is damaged, as the store names it.
    """

    code = "DIGEST_MISMATCH"

    def __init__(self, key: str, what: str, *, hint: str = "") -> None:
        super().__init__(f"{key}: {what}", hint=hint)
        self.key = key


class FormatError(DataError):
    """A file or document that breaks its format."""

    code = "FORMAT_INVALID"


class LimitError(DataError):
    """A document from outside that is larger than a limit allows."""

    code = "SIZE_INVALID"


class PairMismatchError(DataError):
    """Two checkpoints that cannot be compared as asked.

    Attributes:
        tensors: names of the tensors that stand in the way.
    """

    code = "PAIR_MISMATCH"

    def __init__(self, message: str, tensors: tuple[str, ...] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.tensors = tensors


class WrongCheckpointError(DataError):
    """A checkpoint that is not the one the artifact was made from.

    Attributes:
        tensor: the first tensor that differs.
    """

    code = "SOURCE_MISMATCH"

    def __init__(self, tensor: str, what: str, *, hint: str = "") -> None:
        super().__init__(f"tensor {tensor}: {what}", hint=hint)
        self.tensor = tensor


class PipeError(DataError):
    """What came down a pipe is not exactly one good record and an end record."""

    code = "PIPE_INVALID"


class NotFoundError(MaskregError, FileNotFoundError):
    """Something that was asked for is not there."""

    code = "NOT_FOUND"


class PartAbsentError(NotFoundError):
    """The artifact is here, but a part of it that is needed is not."""

    code = "PART_ABSENT"


class UnavailableError(MaskregError, ConnectionError):
    """A remote that does not answer, after retries."""

    code = "UNAVAILABLE"


class CannotCreateError(MaskregError, OSError):
    """An output that cannot be made."""

    code = "CANNOT_CREATE"


class OutputExistsError(CannotCreateError, FileExistsError):
    """An output that exists already and is not to be replaced."""

    code = "OUTPUT_EXISTS"


class NoSpaceError(CannotCreateError):
    """A disk that would fill up; checked before anything is written."""

    code = "NO_SPACE"


class TryAgainError(MaskregError):
    """Somebody else was faster or holds a lock; the same command may work in a moment."""

    code = "TRY_AGAIN"


class ConflictError(TryAgainError):
    """A tag that somebody else moved between reading and writing."""

    code = "CONFLICT"


class NotAllowedError(MaskregError, PermissionError):
    """A store or database that refuses the credentials."""

    code = "DENIED"


class ConfigError(MaskregError):
    """Settings that are missing or wrong, or a schema of another version."""

    code = "CONFIG"
