"""What building the documentation adds: references of commands and of Python, links to the glossary and to other files.

MkDocs calls the functions named ``on_`` for each page (``hooks`` in ``mkdocs.yml``). The first use of a term on a page
becomes a link whose tooltip defines it. Files of the repository that are no pages are linked where it is hosted. The
button of a ``console`` block copies its commands, without prompts and outputs.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from maskreg_cli.main import SECTIONS

from maskreg.glossary import ENTRIES
from scripts import commands, notebooks, reference
from scripts.glossary import anchor

_AS_WRITTEN = (
    *("back reference", "baseline", "bf16 code", "card", "catalog", "checkpoint", "codec", "coordinate"),
    *("delta", "density", "digest", "energy", "exponent-matched", "fingerprint", "headroom", "leaf", "lift"),
    *("local registry", "manifest", "mask", "overlap", "ref log", "registry", "remote", "reversible"),
    *("source", "target", "ULP step", "verdict"),
)

TERMS = dict(zip(_AS_WRITTEN, _AS_WRITTEN, strict=True)) | {
    "artifacts": "artifact",
    "leaves": "leaf",
    "odds ratio": "odds_ratio",
    "rounding null": "rounding-null",
    "source checkpoint": "source",
}
"""Words to link, and the entry of the glossary that each leads to. Its plural leads there too."""

WITHOUT_TERMS = {"benchmarks.md", "changes.md", "format.md", "glossary.md", "python.md", "refs.md"}
"""Pages that define terms themselves, or are made from something else; so are commands."""

_CONSOLE = re.compile(r'<div class="language-console highlight">(.*?)</div>', re.DOTALL)
_TYPED = re.compile(r"^(?:\$|>) (.*)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_PROTECTED = re.compile(
    r"(^(?:#|\|| {4})[^\n]*$|<!--.*?-->|<[^>]+>|`[^`]*`|!?\[[^\]]*\]\([^)]*\))", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)")


def on_config(config: Any) -> Any:
    """The navigation, with a page for each command."""
    (reference_,) = [part["Reference"] for part in config["nav"] if "Reference" in part]
    by_title = [{title: [{n: f"commands/{n}.md"} for n in names]} for title, names in SECTIONS.items()]
    reference_[0] = {"Commands": ["commands/index.md", *by_title]}
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """The pages of ``docs/`` and what is made from docstrings and help: the reference of Python, and the commands."""
    from mkdocs.structure.files import File

    for path, text in {"python.md": reference.page(), **commands.pages()}.items():
        files.append(File.generated(config, path, content=text))
    for name in notebooks.PAGES:
        page = files.get_file_from_path(f"{name}.md")
        text = notebooks.notebook(page.content_string, f"{config['extra']['repository']}/blob/main/docs/{name}.md")
        files.append(File.generated(config, f"{name}.ipynb", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """A page's text with its links."""
    path: str = page.file.src_uri
    repository = f"{config['extra']['repository']}/blob/main/"

    def outside(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(path), link[1]))
        return link[1] if target.startswith("docs/") else repository + target

    if path.removesuffix(".md") in notebooks.PAGES:
        markdown += f"\n\nThis page as a [notebook]({posixpath.basename(path)[:-3]}.ipynb), to run in a clone.\n"
    text = "".join(part if kept else _LINK.sub(outside, part) for part, kept in _split(markdown, _FENCE))
    return (
        text
        if path in WITHOUT_TERMS or path.startswith("commands/")
        else with_terms(text, posixpath.relpath("glossary.md", posixpath.dirname(path)))
    )


def on_page_content(content: str, **_: Any) -> str:
    """A page's HTML, in which ``console`` blocks say what the theme's button copies."""

    def with_commands(block: re.Match[str]) -> str:
        lines = _TYPED.findall(html.unescape(re.sub(r"<[^>]+>", "", block[1])))
        copied = html.escape("\n".join(lines)).replace("\n", "&#10;")
        return f'<div class="language-console highlight" data-copy="{copied}">{block[1]}</div>'

    return _CONSOLE.sub(with_commands, content)


def with_terms(markdown: str, glossary: str) -> str:
    """A text in which the first use of each term is a link to the glossary.

    Headings, tables, code, quotations of code and links stay as they are.
    """
    left = dict(TERMS)

    def link(match: re.Match[str]) -> str:
        word = re.sub(r"\s+", " ", match[1]).lower()
        name = left.get(word) or left.get(word.removesuffix("s"))
        if name is None:
            return match[0]
        for other in [term for term, entry in left.items() if entry == name]:
            del left[other]
        entry = ENTRIES[name]
        brief = entry.brief.replace('"', "'")
        return f'[{match[0]}]({glossary}#{anchor(entry)} "{brief}")'

    longest = sorted(TERMS, key=len, reverse=True)
    alternatives = "|".join(term.replace(" ", r"\s+") for term in longest)
    words = re.compile(rf"\b({alternatives})s?\b", re.IGNORECASE)
    result = []
    for block, is_code in _split(markdown, _FENCE):
        for part, is_kept in [(block, True)] if is_code else _split(block, _PROTECTED):
            result.append(part if is_kept else words.sub(link, part))
    return "".join(result)


def _split(text: str, kept: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    # The text in pieces, each with whether it matches.
    start = 0
    for match in kept.finditer(text):
        yield text[start : match.start()], False
        yield match[0], True
        start = match.end()
    yield text[start:], False
