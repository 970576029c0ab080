"""Pages of the documentation as notebooks, whose cells do what the page tells to type; the tests run the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.pages import Block, commands

PAGES = ("tutorial", *(f"how-to/{name}" for name in ("own-run", "follow", "compare", "merge", "retrain")))
"""Pages that have a notebook beside them."""

UPDATES = """$ maskreg extract demo/source demo/target --name lab/sums-opd:v1 --family sums --method opd --reversible
$ maskreg extract demo/source demo/target-seed1 --name lab/sums-opd:seed1 --family sums --method opd
"""
"""What makes the two updates that pages take for granted."""

_BEGIN = """The page [{}]({}) as a notebook: start it in the root of a clone, where maskreg is installed.
The first two cells make the updates that the others use, in the folder `notebook`."""

_HOME = "export MASKREG_HOME=$PWD/notebook/registry MASKREG_CONFIG=$PWD/notebook/config.toml"

_RUN = re.compile(r"(?<!-->\n)^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RELATIVE = re.compile(r"(?<=\]\()(?!https?:|#)")
_VARIABLE = re.compile(r"(\w+)=\$PWD/(\S+)")


def notebook(markdown: str, address: str) -> str:
    """The document of a notebook: a cell for each block that runs, and the text between them."""
    (title,) = re.findall(r"\A# (.*)", markdown)
    markdown = _RELATIVE.sub(address.rpartition("/")[0] + "/", markdown)
    cells = [new_markdown_cell(_BEGIN.format(title, address))]
    cells += map(new_code_cell, _cells("console", f"$ {_HOME}\n{UPDATES}"))
    start = 0
    for block in _RUN.finditer(markdown):
        cells.append(new_markdown_cell(markdown[start : block.start()].strip()))
        cells += map(new_code_cell, _cells(block[1], block[2]))
        start = block.end()
    cells.append(new_markdown_cell(markdown[start:].strip()))
    for number, cell in enumerate(cells):
        cell.id = str(number)  # random otherwise
    made = new_notebook(cells=cells)
    nbformat.validate(made)
    return str(nbformat.writes(made))


def _cells(kind: str, text: str) -> Iterator[str]:
    if kind == "python":
        yield text.strip()
        return
    typed = [step.command for step in commands(Block(kind, text, ""))]
    for exports, lines in groupby(typed, lambda command: command.startswith("export ")):
        if exports:
            # Each cell has a shell of its own, which inherits from the notebook alone.
            values = (f"{name}=os.path.abspath({value!r})" for name, value in _VARIABLE.findall("\n".join(lines)))
            yield f"import os\n\nos.environ.update({', '.join(values)})"
        else:
            yield "\n".join(["%%bash", *lines])
