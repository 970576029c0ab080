"""``--json`` and Python say the same: every key is an attribute of the result, with the same value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import maskreg
from tests.conftest import HAS_TORCH

from .conftest import Run

REF, OTHER = "toy-opd:v1", "other:v1"

Case = tuple[list[str], Callable[[], Any]]


def cases(folder: Path) -> dict[str, Case]:
    """For each command, its arguments and the same in Python; both can be run one after another."""
    source = str(folder / "source")
    return {
        "extract": (
            ["extract", source, str(folder / "target"), "--name", REF],
            lambda: maskreg.extract(source, folder / "target", REF),
        ),
        "apply": (
            ["apply", REF, "--source", source, "-o", str(folder / "out"), "--force"],
            lambda: maskreg.apply(REF, source, folder / "out", force=True),
        ),
        "baseline": (
            ["baseline", REF, "--kind", "random-global", "--name", "drawn"],
            lambda: maskreg.baseline(REF, "random-global", "drawn"),
        ),
        "combine": (
            ["combine", REF, OTHER, "--how", "and", "--name", "both"],
            lambda: maskreg.combine([REF, OTHER], "both", how="and"),
        ),
        "merge": (
            ["merge", REF, "--method", "scale", "--set", "factor=0.5", "--source", source, "--dry-run"],
            lambda: maskreg.merge([REF], method="scale", settings={"factor": 0.5}, source=source, dry_run=True),
        ),
        "convert": (
            ["convert", REF, "--to", "slime", "--source", source, "-o", str(folder / "step"), "--force"],
            lambda: maskreg.convert_to(REF, "slime", folder / "step", source=source, force=True),
        ),
        "compare": (["compare", REF, OTHER, "--source", source], lambda: maskreg.compare(REF, OTHER, source=source)),
        "analyze": (
            ["analyze", REF, "--source", source, "--name", "figures"],
            lambda: maskreg.analyze(REF, source, name="figures"),
        ),
        "report": (
            ["report", REF, "--source", source, "-o", str(folder / "page.html"), "--force"],
            lambda: maskreg.report(REF, folder / "page.html", source=source, force=True),
        ),
        "push": (["push", OTHER], lambda: [maskreg.push(OTHER)]),
        "list": (["list", "toy"], lambda: maskreg.list("toy")),
        "show": (["show", REF], lambda: maskreg.show(REF)),
        "log": (["log", REF], lambda: maskreg.log(REF)),
        "tag": (["tag", REF, "v2"], lambda: maskreg.tag(REF, "v2")),
        "annotate": (["annotate", REF, "--license", "mit"], lambda: maskreg.annotate(REF, license="mit")),
        "verify": (["verify", REF], lambda: maskreg.verify(REF)),
        "gc": (["gc", "--dry-run"], lambda: maskreg.gc(dry_run=True)),
        "doctor": (["doctor"], maskreg.doctor),
        "db upgrade": (["db", "upgrade"], maskreg.db.upgrade),
        "db check": (["db", "check"], maskreg.db.check),
        "db rebuild": (["db", "rebuild"], maskreg.db.rebuild),
        "config show": (["config", "show"], maskreg.config.show),
        "config set": (["config", "set", "jobs", "3"], lambda: maskreg.config.set("jobs", 3)),
        "remote list": (["remote", "list"], maskreg.remotes.list),
        "remote check": (["remote", "check"], maskreg.remotes.check),
    }


@pytest.fixture
def registry(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> Path:
    """Two artifacts, and a remote that has one of them."""
    source, target = pair
    run("extract", target, source, "--name", "back")
    run("baseline", REF, "--kind", "random-global", "--seed", "5", "--name", OTHER)
    maskreg.remotes.add("team", tmp_path / "team")
    maskreg.push(OTHER)
    return tmp_path


def test_every_key_is_an_attribute_with_that_value(run: Run, registry: Path) -> None:
    for command, (arguments, function) in cases(registry).items():
        if command == "analyze" and not HAS_TORCH:
            continue
        document = run(*arguments, "--json").json
        result = function()
        rows = list(zip(document, result, strict=True)) if isinstance(document, list) else [(document, result)]
        assert rows, command
        for row, value in rows:
            # What to type is the command line's own.
            row.pop("hint", None)
            assert row == {key: told for key, told in value.to_json().items() if key != "hint"}, command
            assert all(hasattr(value, key) for key in row), command
