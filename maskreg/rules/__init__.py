"""Rules: what counts as moved between two bf16 codes."""

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
"""Parser of the parameter, by the word before the colon."""


def parse_rule(text: str) -> Rule:
    """The rule named ``exact``, ``abs:TAU`` or ``rel:ETA``.

    Raises:
        BadRuleError: an unknown rule, or an invalid parameter.
    """
    word, _, parameter = text.partition(":")
    if word not in RULES:
        raise BadRuleError(
            f"{text!r} is not a rule", hint="use exact, abs:TAU (as in abs:1e-5) or rel:ETA (as in rel:1e-3)"
        )
    return RULES[word](parameter)


__all__ = ["RULES", "Rule", "parse_rule"]
