"""Markdown from outside, as markup that cannot do harm.

Two fences, either of which suffices: the parser takes no HTML, and the sanitizer keeps text, lists, tables, code and
links to ``http``, ``https`` and ``mailto`` alone. Pictures are dropped: they would tell others who reads a page.
"""

from __future__ import annotations

from functools import cache

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup

MAX_TEXT = 20_000
"""Characters that are rendered; the rest of a longer text is left out."""

_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "strong"),
    *("table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_TOP = 3
"""Level of the largest heading: the page has the ones above."""


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


def _whole_address(_: str, attribute: str, value: str) -> str | None:
    # A relative link would lead to a page of this server, or with // to another one.
    return value if attribute != "href" or value.startswith(("http://", "https://", "mailto:")) else None


def rendered(text: str) -> Markup:
    """Markdown as markup."""
    tokens = _parser().parse(text[:MAX_TEXT])
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + _TOP - 1)}"
    html = _parser().renderer.render(tokens, _parser().options, {})
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes={"*": set(), "a": {"href"}},
        attribute_filter=_whole_address,
        url_schemes={"http", "https", "mailto"},
        link_rel="nofollow noopener noreferrer",
    )
    # Sanitized above; tests try what people have slipped past sanitizers.
    return Markup(clean)
