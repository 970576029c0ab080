"""The small files of a result: what the artifact brings, and its code only on request."""

from pathlib import Path

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.extract.extraction import extract
from maskreg.store.file import FileStore
from tests.checkpoints import make_pair


def test_code_of_the_artifact_is_written_only_on_request(tmp_path: Path) -> None:
    source, target = make_pair(tmp_path)
    (source / "own.py").write_text("own = 1")
    (target / "own.py").write_text("own = 1")
    (source / "modeling_x.py").write_text("old = 1")
    (target / "modeling_x.py").write_text("new = 1")
    (target / "added.py").write_text("added = 1")
    (target / "chat_template.jinja").write_text("{{ messages }}")
    (source / "README.txt").write_text("kept")
    (target / "config.json").write_text('{"auto_map": {"AutoModel": "eve/code--added.X"}}')
    digest = extract(
        open_checkpoint(source), open_checkpoint(target), tmp_path / "root", reversible=True, with_code=True
    ).digest
    artifact = Artifact.open(FileStore(tmp_path / "root"), digest)
    done = apply(artifact, open_checkpoint(source), tmp_path / "out")
    assert done.code_left_out == ("added.py", "config.json", "modeling_x.py")
    assert done.code_files == ("modeling_x.py", "own.py")
    assert (tmp_path / "out" / "modeling_x.py").read_text() == "old = 1"
    assert (tmp_path / "out" / "config.json").read_bytes() == (source / "config.json").read_bytes()
    assert not (tmp_path / "out" / "added.py").exists()
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == "{{ messages }}"
    assert [note.partition(" can run code")[0] for note in done.notes] == [
        "not written: added.py, config.json, modeling_x.py of the artifact",
        "modeling_x.py, own.py, copied from the source,",
    ]
    done = apply(artifact, open_checkpoint(source), tmp_path / "whole", with_code=True)
    assert (done.code_left_out, done.code_files) == ((), ("added.py", "config.json", "modeling_x.py", "own.py"))
    (target / "README.txt").write_text("kept")
    apply(artifact, open_checkpoint(tmp_path / "whole"), tmp_path / "back", revert=True, with_code=True)
    for made, expected in (("whole", target), ("back", source)):
        assert {p.name: p.read_bytes() for p in (tmp_path / made).iterdir()} == {
            p.name: p.read_bytes() for p in expected.iterdir()
        }
