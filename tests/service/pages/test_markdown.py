"""Markdown that tries to do harm."""

from __future__ import annotations

import re

import pytest

from maskreg.ref import README_CHARS
from maskreg.service.pages.rendering import rendered

HARMFUL = [
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>", "`<script>`"),
    *(f"[a]({address})" for address in ("javascript:alert(1)", "JaVaScRiPt:alert(1)", "&#106;avascript:alert(1)")),
    *(f"[a]({address})" for address in ("java&Tab;script:alert(1)", "vbscript:x", "//evil.example")),
    *("[a](data:text/html;base64,PHNjcmlwdD4=)", "[a]: javascript:alert(1)\n\n[a]", "<javascript:alert(1)>"),
    *(f"![x]({address})" for address in ("https://evil.example/who-reads-this.png", "javascript:alert(1)")),
    *("[a](https://x.example 'title\" onmouseover=alert(1) x=\"')", '```x" onload="alert(1)\nx\n```'),
    *("<a href='javascript:alert(1)'>x</a>", "<iframe src=https://evil.example></iframe>"),
    *("```html\n<script>alert(1)</script>\n```", "<style>*{display:none}</style>"),
    *("<form action=https://evil.example><input name=token></form>", "<base href=https://evil.example>"),
    '<math><mi//xlink:href="data:x,<script>alert(4)</script>">',
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
    "\u202e[a](javascript:alert(1))",
]

TAG = re.compile(r"<(/?[a-z0-9]+)((?: [^<>]*)?)>")


@pytest.mark.parametrize("text", HARMFUL)
def test_no_markup_of_the_writer_s_comes_through(text: str) -> None:
    html = str(rendered(text))
    for name, attributes in TAG.findall(html):
        assert name.strip("/") in {"a", "p", "pre", "code"}
        assert re.fullmatch(r'( href="(https://|mailto:)[^"]*"| rel="[a-z ]*")*', attributes), attributes
    # All else that looks like a tag is text.
    assert "<" not in TAG.sub("", html)


def test_what_people_write_is_rendered() -> None:
    html = rendered("# Title\n\nA **bold** [link](https://example.org).\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert "<h3>Title</h3>" in html
    assert "<strong>bold</strong>" in html
    assert '<a href="https://example.org" rel="nofollow noopener noreferrer">link</a>' in html
    assert "<td>1</td>" in html


def test_a_text_without_end_is_cut() -> None:
    assert len(rendered("a" * (2 * README_CHARS))) < README_CHARS + 20
    assert rendered("> " * 5000 + "x")
    assert len(rendered("[a]: https://x/" + "y" * 4000 + "\n\n" + "[a] " * 3990)) < README_CHARS + 20
    assert rendered("[" * 5000 + "](" * 5000)
