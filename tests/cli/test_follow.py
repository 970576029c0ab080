"""Following a run with a folder, through the command."""

from __future__ import annotations

import signal
from pathlib import Path

import maskreg
from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors
from tests.e2e.running import Person
from tests.workspace.conftest import contents


def published(folder: Path, pair: tuple[Path, Path], steps: int) -> list[Path]:
    """What a run published as ``toy/run`` in the local registry: the source, and each state."""
    paths, state = [pair[0]], tensors()
    for step in range(1, steps + 1):
        state = {n: moved(t, 0.05, 100 * step + i) for i, (n, t) in enumerate(state.items())}
        paths.append(make_checkpoint(folder / f"step-{step}", state))
        maskreg.publish(paths[-1], "toy/run", source=pair[0], meta={"step": str(step)})
    return paths


def test_a_folder_is_brought_up_to_date(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    line = ("follow", "toy/run", "--source", pair[0], "-o", tmp_path / "served", "--once")
    run(*line, status=66)
    steps = published(tmp_path, pair, 2)
    done = run(*line)
    path = Path(done.out.strip())
    assert path == (tmp_path / "served" / "current").resolve()
    assert contents(path) == contents(steps[2])
    assert ", step 2: 2 links" in done.err
    record = run(*line, "--json").json
    assert (record["links"], record["card"]["meta"]) == (0, {"step": "2"})
    assert record["out"] == str(tmp_path / "served/current")


def test_it_waits_for_the_tag_to_move(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    person = Person(tmp_path / "home")
    settings = maskreg.Settings(home=person.registry, config_path=tmp_path / "config.toml")
    process = person.start(
        *("follow", "toy/run", "--source", pair[0], "-o", tmp_path / "served", "--every", "0.05"), bufsize=0
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert b"waiting: there is no toy/run" in process.stderr.readline()
        state = tensors()
        with (
            maskreg.Workspace(settings) as workspace,
            maskreg.Publisher("toy/run", source=pair[0], workspace=workspace) as publisher,
        ):
            for step in range(3):
                state = {n: moved(t, 0.05, 100 * step + i) for i, (n, t) in enumerate(state.items())}
                target = make_checkpoint(tmp_path / f"step-{step}", state)
                publisher.publish(target)
                path = Path(process.stdout.readline().decode().strip())
                assert contents(path) == contents(target)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
