"""Rules for "moved": what counts as a visible difference between two bf16 codes."""

from __future__ import annotations

from collections.abc import Callable

from maskreg.errors import BadRuleError
from maskreg.rules.absolute import Absolute
from maskreg.rules.base import Rule
from maskreg.rules.exact import Exact
from maskreg.rules.relative import Relative

RULES: dict[str, Callable[[str], Rule]] = {
    "exact": Exact.parse,
    "abs": Absolute.parse,
    "rel": Relative.parse,
}
"""Word before the colon to the parser of what comes after it."""


def parse_rule(text: str) -> Rule:
    """The rule that ``exact``, ``abs:TAU`` or ``rel:ETA`` names.

    Raises:
        BadRuleError: unknown, or a parameter that makes no sense.
    """
    word, _, parameter = text.partition(":")
    if word not in RULES:
        raise BadRuleError(
            f"{text!r} is not a rule", hint="use exact, abs:TAU (as in abs:1e-5) or rel:ETA (as in rel:1e-3)"
        )
    return RULES[word](parameter)


__all__ = ["RULES", "Rule", "parse_rule"]
