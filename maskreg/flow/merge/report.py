"""What a merge did: how many coordinates moved before and after, and where artifacts were at odds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any


@dataclass(frozen=True)
class RoleFigures:
    """Counts over the tensors of one role.

    Attributes:
        numel: coordinates.
        before: of them moved, in each artifact.
        union: moved in any artifact.
        conflicts: moved in several artifacts.
        disagreements: moved up in one and down in another.
        after: moved in the result.
    """

    numel: int
    before: tuple[int, ...]
    union: int
    conflicts: int
    disagreements: int
    after: int

    def plus(self, more: RoleFigures) -> RoleFigures:
        """The sum."""
        before = tuple(a + b for a, b in zip(self.before, more.before, strict=True))
        rest = {f.name: getattr(self, f.name) + getattr(more, f.name) for f in fields(self) if f.name != "before"}
        return RoleFigures(before=before, **rest)

    def to_json(self) -> dict[str, Any]:
        """Counts and densities."""
        counts = {**vars(self), "before": list(self.before)}
        share = self.numel or 1
        return {
            **counts,
            "density_before": [count / share for count in self.before],
            "density_after": self.after / share,
        }


@dataclass(frozen=True)
class Report:
    """What a merge did.

    Attributes:
        roles: by role.
    """

    roles: Mapping[str, RoleFigures]

    @property
    def whole(self) -> RoleFigures:
        """Over all roles."""
        return reduce(RoleFigures.plus, self.roles.values())

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {
            "whole": self.whole.to_json(),
            "roles": {role: figures.to_json() for role, figures in self.roles.items()},
        }
