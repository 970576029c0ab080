"""The README's first command: an update travels from one person to another, and is judged."""

from pathlib import Path

from scripts.tour import SHIPPED, SUMS, digests, sealed
from tests.demo import BINARIES, run_demo
from tests.repository import tracked


def test_the_shipped_files_are_those_that_were_trained() -> None:
    files = {path.relative_to("demo").as_posix() for path in tracked() if path.parts[0] == "demo"}
    assert sealed(SHIPPED) == digests(SHIPPED)
    assert files == {*sealed(SHIPPED), SUMS, "README.md"}
    assert sum((SHIPPED / name).stat().st_size for name in files) < 9_000_000


def test_the_colleague_holds_the_same_bytes_and_the_home_nothing(demo: tuple[Path, str]) -> None:
    folder, output = demo
    names = sorted(path.name for path in (folder / "target").iterdir())
    assert sorted(path.name for path in (folder / "patched").iterdir()) == names
    for name in names:
        assert (folder / "patched" / name).read_bytes() == (SHIPPED / "target" / name).read_bytes()
    assert any((folder / "source" / name).read_bytes() != (folder / "target" / name).read_bytes() for name in names)
    assert "\nidentical\n" in output
    assert list((folder.parent / "home").iterdir()) == []


def test_it_stops_at_the_step_that_fails(tmp_path: Path) -> None:
    script = f'#!/bin/sh\n[ "$1" != push ] || {{ echo "no team today"; exit 69; }}\nexec {BINARIES}/maskreg "$@"\n'
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "maskreg").write_text(script)
    (tmp_path / "bin" / "maskreg").chmod(0o755)
    done = run_demo(tmp_path / "demo", "--maskreg", tmp_path / "bin")
    assert done.returncode == 69
    assert "no team today\n" in done.stdout and "69: maskreg push sums-opd\n" in done.stdout
    assert not (tmp_path / "demo" / "patched").exists()
