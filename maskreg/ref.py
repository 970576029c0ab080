"""References to artifacts, ``[project/]name[:tag][@sha256:...]``, and cards, what people say about them."""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from maskreg.digest import Digest
from maskreg.errors import BadRefError, FormatError, UsageError

DEFAULT_PROJECT = "default"
DEFAULT_TAG = "latest"

WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
"""The grammar of a project, and of a name in it."""

_REF = re.compile(
    rf"(?:(?P<project>{WORD})/)?(?P<name>{WORD})"
    r"(?::(?P<tag>[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SHORT = re.compile(r"(?:(?P<label>[^@]*)@)?sha256:(?P<digits>[0-9a-f]{4,63})")
_BARE = re.compile(r"[0-9a-f]{4,64}")
_WILD = re.compile(r"[*?\[]")
_MAX_CHARS = 255
_SHOWN_CHARS = 80

# Printable by their category, and without a glyph: joiners, fillers, variation selectors, the empty braille pattern.
_NO_GLYPH = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
_WORD_CHARS = 200
_LICENSE = re.compile(r"\(*[\w.+:-]+\)*(?: (?:AND|OR|WITH) \(*[\w.+:-]+\)*)*", re.ASCII)
_DESCRIPTION_CHARS = 4096
_META_CHARS = 1024

README_CHARS = 20_000
"""The longest README of a card."""

_README_UNSEEN = "\n\t\u200c\u200d\ufe0e\ufe0f"  # joiners and selectors spell words of Persian and Hindi, and emoji


def is_pattern(text: str) -> bool:
    """Whether a text stands for several references, or several checkpoints: it has ``*``, ``?`` or ``[`` in it."""
    return bool(_WILD.search(text))


def printable(text: str, *, keep: str = "") -> str:
    """The text with everything escaped that a terminal obeys or does not show.

    That is: control characters, changes of the writing direction, characters of no width, tags and variation selectors,
    lone surrogates, and what this version of Unicode does not know. Characters of ``keep`` stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if _unseen(c) and c not in keep else c for c in text)


def is_utf8(text: str) -> bool:
    """Whether a text was UTF-8 on the command line or in a path, before Python decoded it."""
    return not any("\udc80" <= character <= "\udcff" for character in text)


def _unseen(character: str) -> bool:
    if character in _NO_GLYPH:
        return True
    return not character.isprintable() and unicodedata.category(character) != "Zs"


@dataclass(frozen=True, order=True)
class Ref:
    """A parsed reference.

    Attributes:
        project: namespace; ``default`` when the text had none.
        name: the artifact's name, lower case.
        tag: ``latest`` when the text had none.
        digest: pins the artifact when given; the tag is then only a label.
    """

    project: str
    name: str
    tag: str = DEFAULT_TAG
    digest: Digest | None = None

    @classmethod
    def parse(cls, text: str) -> Ref:
        """Parse ``[project/]name[:tag][@sha256:...]`` (the OCI grammar, one level of project)."""
        if not isinstance(text, str):
            raise UsageError(f"{type(text).__name__} was given; pass text such as 'team/qwen3-8b-opd:v3'")
        match = _REF.fullmatch(text) if len(text) <= _MAX_CHARS + 72 else None
        if match is None or len(match["project"] or "") + len(match["name"]) > _MAX_CHARS:
            raise BadRefError(
                f"{_shown(text)} is not a reference",
                hint="write [project/]name[:tag][@sha256:<64 hex>]; project and name are lower-case "
                "letters and digits, joined by '.', '_' or '-', as in team/qwen3-8b-opd:v3",
            )
        digest = Digest(match["digest"]) if match["digest"] else None
        if match["name"] == "sha256" and (match["project"] or DEFAULT_PROJECT) == DEFAULT_PROJECT:
            raise BadRefError(f"{_shown(text)} reads like a digest, which is not a name", not_a_name=True)
        return cls(match["project"] or DEFAULT_PROJECT, match["name"], match["tag"] or DEFAULT_TAG, digest)

    @property
    def path(self) -> str:
        """``project/name/tag``, the tag's path in a store."""
        return f"{self.project}/{self.name}/{self.tag}"

    def with_tag(self, tag: str) -> Ref:
        """The same name under another tag, unpinned."""
        return Ref.parse(f"{replace(self, tag=DEFAULT_TAG, digest=None)}:{tag}")

    def pinned(self, digest: Digest) -> Ref:
        """The same name and tag, pinned to an artifact."""
        return replace(self, digest=digest)

    def __repr__(self) -> str:
        return f"Ref({str(self)!r})"

    def __str__(self) -> str:
        """The shortest text that parses to this reference."""
        text = self.name if self.project == DEFAULT_PROJECT else f"{self.project}/{self.name}"
        if self.tag != DEFAULT_TAG:
            text += f":{self.tag}"
        return f"{text}@{self.digest}" if self.digest else text


def check_project(name: str) -> str:
    """The name of a project, checked."""
    with suppress(BadRefError):
        if Ref.parse(f"{name}/name").project == name:
            return name
    raise BadRefError(
        f"{_shown(name)} is not a project",
        hint="write lower-case letters and digits, joined by '.', '_' or '-', as in team-a",
    )


@dataclass(frozen=True)
class ShortDigest:
    """The first digits of a digest, for the artifact whose digest alone begins with them.

    Attributes:
        digits: 4 to 64 hex digits.
        label: the name that was written before ``@``; None when there was none.
        name: the name that the text can be as well, when it is digits alone; a name that exists goes first.
    """

    digits: str
    label: Ref | None = None
    name: Ref | None = None

    def __str__(self) -> str:
        """The text that parses to this."""
        if self.name is not None:
            return self.digits
        return f"{self.label}@sha256:{self.digits}" if self.label else f"sha256:{self.digits}"


def parse_artifact(text: str) -> Ref | Digest | ShortDigest:
    """Parse everything that names an artifact: a reference, a digest, or the first digits of one.

    ::

        team/qwen3-8b-opd:v3            Ref
        qwen3-8b-opd@sha256:<64 hex>    Ref with a digest
        sha256:<64 hex>                 Digest
        sha256:4be0                     ShortDigest
        @sha256:4be0                    the same, as it stands behind a name
        qwen3-8b-opd@sha256:4be0        ShortDigest with a label
        4be0                            ShortDigest, or the name 4be0 where there is one
    """
    if isinstance(text, str):
        if _DIGEST.fullmatch(text.removeprefix("@")):
            return Digest(text.removeprefix("@"))
        if match := _SHORT.fullmatch(text):
            label = match["label"]
            return ShortDigest(match["digits"], Ref.parse(label) if label else None)
        if _BARE.fullmatch(text):
            return ShortDigest(text, name=Ref.parse(text))
    try:
        return Ref.parse(text)
    except BadRefError as error:
        if isinstance(text, str) and "sha256:" in text:
            raise BadRefError(
                f"{_shown(text)} is not a digest: sha256: and 4 to 64 of the digits 0-9 and a-f", digits=True
            ) from error
        raise


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}..."


_TEXTS = ("family", "method", "license", "description", "readme")


@dataclass(frozen=True)
class Card:
    """What people say about an artifact; stored with a ref, not covered by the artifact's digest.

    Attributes:
        family: model family, such as ``qwen3-8b``.
        method: how the target was trained: ``opd``, ``rlvr``, ``sft`` or another word.
        license: SPDX identifier, such as ``apache-2.0``.
        description: one paragraph.
        meta: run metadata, arbitrary keys and values.
        readme: a page of Markdown.
    """

    family: str = ""
    method: str = ""
    license: str = ""
    description: str = ""
    meta: dict[str, str] = field(default_factory=dict)
    readme: str = ""

    def checked(self) -> Card:
        """This card, if it can be written."""
        texts = [(k, getattr(self, k), _WORD_CHARS) for k in ("family", "method", "license")]
        texts.append(("description", self.description, _DESCRIPTION_CHARS))
        for key, value in self.meta.items():
            if not key:
                raise UsageError("a key of meta is empty", hint="name it, as in seed=17")
            texts += [("a key of meta", key, _META_CHARS), (f"meta {_shown(key)}", value, _META_CHARS)]
        texts.append(("the README", self.readme, README_CHARS))
        for name, text, limit in texts:
            if len(text) > limit:
                raise UsageError(f"{name} has {len(text):,} characters; the limit is {limit:,}")
            kept = _README_UNSEEN if name == "the README" else ""
            if at := [i for i, character in enumerate(text) if _unseen(character) and character not in kept]:
                raise UsageError(f"{name} holds {text[at[0]]!a} at {at[0]}, a control or invisible character")
        if self.license and not _LICENSE.fullmatch(self.license):
            raise UsageError(
                f"license: {_shown(self.license)} is not an SPDX expression",
                hint="write an identifier of spdx.org/licenses, such as apache-2.0, or LicenseRef-NAME for another one",
            )
        if (start := self.meta.get("start", "unknown")) not in ("yes", "no", "unknown"):
            raise UsageError(f"meta start is {_shown(start)}", hint="write start=yes, start=no or start=unknown")
        return self

    def to_json(self) -> dict[str, object]:
        """The card as a JSON object; empty fields are left out."""
        fields = {k: getattr(self, k) for k in (*_TEXTS, "meta")}
        return {k: v for k, v in fields.items() if v}

    @classmethod
    def from_json(cls, value: object) -> Card:
        """Parse a card; unknown keys are ignored."""
        if not isinstance(value, dict):
            raise FormatError("card: a JSON object was expected")
        texts = {k: value.get(k, "") for k in _TEXTS}
        meta = value.get("meta", {})
        if not all(isinstance(v, str) for v in texts.values()) or not isinstance(meta, dict):
            raise FormatError(f"card: {', '.join(_TEXTS)} must be texts, meta an object")
        if not all(isinstance(v, str) for v in meta.values()):
            raise FormatError("card: the values of meta must be texts")
        return cls(**texts, meta=dict(meta))


_ANY = "*"
_MARKS = frozenset("/:@*?[")
_DIGITS = re.compile(r"sha256:([0-9a-f]{1,64})")


@dataclass(frozen=True)
class Pattern:
    """What a reference has to be; ``*``, ``?`` and ``[...]`` as in file names.

    Attributes:
        project, name, tag: patterns of the parts.
        digits: what the digest has to begin with.
    """

    project: str = _ANY
    name: str = _ANY
    tag: str = _ANY
    digits: str = ""

    @classmethod
    def parse(cls, word: str) -> Pattern | None:
        """The pattern that a word is; None for a word that is searched for in texts.

        ::

            team/        every name of the project team
            team/opd     every tag of team/opd
            opd:v1       the tag v1 of opd, in any project
            't/*'        every name of t
            sha256:4be0  each artifact with such a digest
        """
        if not _MARKS & set(word):
            return None
        label, at, digest = ("", "@", word) if word.startswith("sha256:") else word.partition("@")
        match = _DIGITS.fullmatch(digest) if at else None
        if at and match is None:
            raise UsageError(f"{digest!r} is not the beginning of a digest, such as sha256:4be0", names="")
        project, _, rest = label.rpartition("/")
        name, _, tag = rest.partition(":")
        return cls(project or _ANY, name or _ANY, tag or _ANY, match[1] if match else "")

    def matches(self, ref: Ref, digest: Digest | None) -> bool:
        """Whether a tag, which points to the artifact ``digest``, is meant; an unknown digest matches no digits."""
        parts = ((ref.project, self.project), (ref.name, self.name), (ref.tag, self.tag))
        has_digits = not self.digits or (digest is not None and digest.hex.startswith(self.digits))
        return has_digits and all(fnmatchcase(part, pattern) for part, pattern in parts)

    @property
    def fixed(self) -> dict[str, str]:
        """The parts that are no patterns but have one value, for a query."""
        parts = {"project": self.project, "tag": self.tag}
        return {key: part for key, part in parts.items() if not is_pattern(part)}


def patterns_in(text: str) -> tuple[list[Pattern], str]:
    """The patterns among the words of a search text, and the other words."""
    words = text.split()
    patterns = [Pattern.parse(word) for word in words]
    rest = [word for word, pattern in zip(words, patterns, strict=True) if pattern is None]
    return [pattern for pattern in patterns if pattern is not None], " ".join(rest)
