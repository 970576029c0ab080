"""The templates of pages: numbers in their one form, and words with their definition."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from itertools import count
from typing import Any

import jinja2
from markupsafe import Markup

from maskreg.analysis.comparison import ONLY_OF_SIX
from maskreg.analysis.evidence import STRATA
from maskreg.analysis.verdict import null_label
from maskreg.glossary import ENTRIES
from maskreg.reports import upset
from maskreg.reports.modules import CIVIDIS
from maskreg.words import ago, human_bytes, interval, percent, three_digits, times, whole

_UNBROKEN = "\N{NO-BREAK SPACE}%"


def render(template: str, **values: Any) -> str:
    """A template with these values in it. What is not markup is escaped."""
    return environment("maskreg.reports").get_template(template).render(values).lstrip()


class Definitions:
    """Marks words up with their definition: it shows on hover and on focus, and opens on a tap, without any script."""

    def __init__(self, glossary: str = "") -> None:
        """Begin a page; each definition has an identifier of its own."""
        self._numbers = count(1)
        self._glossary = glossary

    def __call__(self, name: str, label: str) -> Markup:
        """A word with its definition beside it, and a link to the whole of it."""
        number = next(self._numbers)
        return Markup(
            '<span class="term"><button type="button" popovertarget="tip-{0}">{1}</button>'
            '<span class="tip" id="tip-{0}" popover>{2} <a href="{3}#{4}">More</a></span></span>'
        ).format(number, label, ENTRIES[name].brief, self._glossary, name.replace(" ", "-"))


def together(text: str) -> str:
    """A text whose percent signs stay on the line of their number."""
    return text.replace(" %", _UNBROKEN)


@cache
def environment(package: str) -> jinja2.Environment:
    """The templates of a package, which can include this one's; text is escaped."""
    packages = dict.fromkeys((package, "maskreg.reports"))

    def load(name: str) -> str | None:
        paths = (files(origin) / name for origin in packages)
        return next((path.read_text(encoding="utf-8") for path in paths if path.is_file()), None)

    templates = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FunctionLoader(load),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    filters: dict[str, Callable[[Any], str]] = {
        "breakable": lambda name: Markup(".<wbr>").join(name.split(".")),
        "count": whole,
        "number": lambda value: f"{value:,}" if isinstance(value, int) else three_digits(value),
        "interval": lambda ends: together(interval(ends)),
        "percent": lambda share: together(percent(share)),
        # A capital only for a word: names are case-sensitive.
        "sentence": lambda text: (
            (text[:1].upper() if text.split(" ")[0].isalpha() else text[:1]) + text[1:].rstrip(".") + "."
        ),
        "size": lambda count: human_bytes(count).replace(" ", "\N{NO-BREAK SPACE}"),
        "times": times,
        "together": together,
    }
    templates.filters |= filters
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    templates.globals |= {"strata": STRATA, "null_label": null_label, "upset": upset, "ONLY_OF_SIX": ONLY_OF_SIX}
    templates.globals |= {"CIVIDIS": CIVIDIS, "ago": ago}
    return templates
