"""The two lines of the README that start a server and open its page; then two people who share through it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.checkpoints import bf16, make_checkpoint, moved
from tests.e2e.running import Person
from tests.pages import blocks
from tests.repository import ROOT
from tests.service.test_serve import serving


def test_two_lines_start_a_server_and_open_its_page(tmp_path: Path, programs: Path | None) -> None:
    lines = [
        shlex.split(line, comments=True)
        for block in blocks((ROOT / "README.md").read_text())
        for line in block.text.splitlines()
        if block.kind == "sh" and re.match("maskreg serve|python -m webbrowser", line)
    ]
    assert [line[:2] for line in lines] == [["maskreg", "serve"], ["python", "-m"]]
    (program, *args), (*_, page) = lines
    assert (program, args, page) == ("maskreg", ["serve"], "http://127.0.0.1:8470")
    host = Person(tmp_path / "host")
    with serving(host) as server:
        answer = server.get("/", None)
        if answer.status_code in (302, 303):
            answer = server.get(answer.headers["location"], None)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/html")
        share(str(server.said["url"]), str(server.said["token"]), tmp_path, programs)


def share(url: str, token: str, folder: Path, programs: Path | None) -> None:
    """Push from one home and pull into another, each with a token of its own."""
    admin = Person(folder / "ada", {"MASKREG_TOKEN": token}, programs)
    reader = Person(folder / "bob", programs=programs)
    tensors = {"model.layers.0.mlp.up_proj.weight": bf16((64, 64), 1)}
    source = make_checkpoint(folder / "source", tensors)
    target = make_checkpoint(folder / "target", {name: moved(tensor, 0.4, 2) for name, tensor in tensors.items()})
    admin.run("remote", "add", "team", url, "--default")
    made = admin.json("extract", source, target, "--name", "lab/opd")
    admin.run("push", "lab/opd")
    given = admin.json("token", "create", "--project", "lab", "--role", "reader", "--name", "bob", "--expires", "1d")
    reader.env["MASKREG_TOKEN"] = given["token"]
    reader.run("remote", "add", "team", url, "--default")
    reader.run("pull", "lab/opd")
    assert reader.json("show", "lab/opd")["digest"] == made["digest"]
    reader.run("tag", "lab/opd", "mine")
    assert "role writer" in reader.run("push", "lab/opd:mine", exit=77)
