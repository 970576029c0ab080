"""References, the way people name artifacts: ``[project/]name[:tag][@sha256:...]``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from maskreg.digest import Digest
from maskreg.errors import BadRefError, FormatError

DEFAULT_PROJECT = "default"
DEFAULT_TAG = "latest"

_WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REF = re.compile(
    rf"(?:(?P<project>{_WORD})/)?(?P<name>{_WORD})"
    r"(?::(?P<tag>[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_MAX_CHARS = 255


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
        """Parse ``[project/]name[:tag][@sha256:...]`` (the OCI grammar, one level of project).

        Raises:
            BadRefError: the text does not follow the grammar.
        """
        match = _REF.fullmatch(text) if len(text) <= _MAX_CHARS + 72 else None
        if match is None or len(match["project"] or "") + len(match["name"]) > _MAX_CHARS:
            raise BadRefError(
                f"{text!r} is not a reference",
                hint="write [project/]name[:tag][@sha256:<64 hex>]; project and name are lower-case "
                "letters and digits, joined by '.', '_' or '-', as in team/qwen3-8b-opd:v3",
            )
        digest = Digest(match["digest"]) if match["digest"] else None
        return cls(match["project"] or DEFAULT_PROJECT, match["name"], match["tag"] or DEFAULT_TAG, digest)

    @property
    def path(self) -> str:
        """``project/name/tag``, the place of the tag in a store."""
        return f"{self.project}/{self.name}/{self.tag}"

    def with_tag(self, tag: str) -> Ref:
        """The same name under another tag, unpinned.

        Raises:
            BadRefError: ``tag`` is not a tag.
        """
        return Ref.parse(f"{replace(self, tag=DEFAULT_TAG, digest=None)}:{tag}")

    def __str__(self) -> str:
        """The shortest text that parses to this reference."""
        text = self.name if self.project == DEFAULT_PROJECT else f"{self.project}/{self.name}"
        if self.tag != DEFAULT_TAG:
            text += f":{self.tag}"
        return f"{text}@{self.digest}" if self.digest else text


@dataclass(frozen=True)
class Card:
    """What people say about an artifact; it lives with a ref, never in the digest.

    Attributes:
        family: model family, such as ``qwen3-8b``.
        method: how the target was trained: ``opd``, ``rlvr``, ``sft`` or another word.
        licence: SPDX identifier, such as ``apache-2.0``.
        description: one paragraph for people.
        meta: run metadata, free key and value.
    """

    family: str = ""
    method: str = ""
    licence: str = ""
    description: str = ""
    meta: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The card as a JSON object; empty fields are left out."""
        fields = {k: getattr(self, k) for k in ("family", "method", "licence", "description", "meta")}
        return {k: v for k, v in fields.items() if v}

    @classmethod
    def from_json(cls, value: object) -> Card:
        """Parse a card; unknown keys are ignored.

        Raises:
            FormatError: a known field is not text, or ``meta`` not an object of texts.
        """
        if not isinstance(value, dict):
            raise FormatError("card: a JSON object was expected")
        texts = {k: value.get(k, "") for k in ("family", "method", "licence", "description")}
        meta = value.get("meta", {})
        if not all(isinstance(v, str) for v in texts.values()) or not isinstance(meta, dict):
            raise FormatError("card: family, method, licence and description are texts, meta an object")
        if not all(isinstance(v, str) for v in meta.values()):
            raise FormatError("card: the values of meta are texts")
        return cls(**texts, meta=dict(meta))
