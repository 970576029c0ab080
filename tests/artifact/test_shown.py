"""What a notebook shows of an open artifact."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.flow.extract.extraction import extract
from maskreg.store import FileStore
from tests.checkpoints import bf16, make_checkpoint, moved


class Cells(HTMLParser):
    """The rows of all tables of a fragment, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1].append(data)


def test_an_open_artifact_shows_its_figures(tmp_path: Path) -> None:
    source = {"model.layers.0.mlp.up_proj.weight": bf16((32, 16), 1), "lm_head.weight": bf16((16, 16), 2)}
    target = {name: moved(tensor, 0.5, 3) for name, tensor in source.items()}
    before, after = (
        open_checkpoint(make_checkpoint(tmp_path / name, it)) for name, it in (("s", source), ("t", target))
    )
    digest = extract(before, after, tmp_path / "home").digest
    artifact = Artifact.open(FileStore(tmp_path / "home"), digest)
    cells = Cells()
    cells.feed(artifact._repr_html_())
    rows = {row[0]: row[1:] for row in cells.rows}
    assert rows["digest"] == [str(digest)]
    assert rows["kind"] == ["delta, gives the target's bytes exactly"]
    assert rows["ffn"][0].endswith(" %")
    assert {"rule", "density", "FFN share", "source", "target", "mask", "delta", "size", "lm_head"} <= set(rows)
    assert cells.tags == {"table", "tr", "td", "p", "code"}
    assert f"maskreg.show(&quot;{digest.short}&quot;)" in artifact._repr_html_()
