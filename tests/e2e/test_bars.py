"""The bars: measured in one run, judged from its figures alone, and shown on a page that cannot disagree with them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskreg.codec import DEFAULT_CODEC
from maskreg.errors import FormatError
from maskreg.flow.extract.comparing import compare
from maskreg.mask import packed_bytes
from maskreg.native import library
from scripts.bench.bars import figures, pictures
from scripts.bench.bars.figures import Coding, Installed, Pair, Run, Sample, Size, Start, Step, Threads, Whole
from scripts.bench.bars.kernels import REST, shares
from scripts.bench.bars.page import digest_of, page
from scripts.bench.bars.parts import DIRECT, Parts, spans
from scripts.bench.bars.profiles import shares_of
from scripts.bench.bars.table import OPD, REAL, REAL_STEP, SYNC, Row, rows, text
from scripts.bench.codec import BASE
from scripts.bench.commands import make_pair
from scripts.bench.limits import Limits
from tests.checkpoints import make_pair as make_real_pair

ROOT = Path(__file__).parents[2]


def bench(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "scripts.bench", *args], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str, Path]:
    """A run on tiny data with a real pair, what it printed, and the folder with its page."""
    folder = tmp_path_factory.mktemp("bars")
    source, target = make_real_pair(folder, shards=1, fraction=0.2)
    (folder / "page").mkdir()
    work = folder / "work"
    done = bench("bars", "--quick", "--pair", source, target, "--dir", work, "--page", folder / "page")
    assert done.returncode == 0, done.stderr
    assert list(work.iterdir()) == []
    return figures.load(folder / "page" / "benchmarks.json"), done.stdout, folder / "page"


@pytest.mark.torch
def test_everything_is_measured_but_what_needs_more_than_a_minute(quick: tuple[Run, str, Path]) -> None:
    run, printed, _ = quick
    absent = {row.subject for row in rows(run) if row.met is None}
    assert absent == {
        "decode, one thread: real pairs with tensors above 1 M",
        "first command after installing: CPU seconds above the second",
        "an installation, without torch",
        "size of one step of a real run",
    }
    assert printed == text(rows(run)) + "\n"
    assert [pair.kind for pair in run.pairs] == ["generated"] * 4 + [REAL]
    for pair in run.pairs:
        own = pair.coding(DEFAULT_CODEC)
        assert own is not None
        assert own.encode is not None
        assert pair.coding(BASE) is not None
        assert pair.coding(DEFAULT_CODEC, threads=2) is not None
        assert sum(pair.decode_shares.values()) > 0
    assert [size.gigabytes for size in run.sizes] == [0.01, 0.02]
    for size in run.sizes:
        for whole in size.wholes:
            assert 0 < sum(part.least for part in whole.parts.values()) < whole.sample.least
            shares = shares_of(whole)
            # What is written in two ways counts once.
            once = sum(shares.values()) - (shares["copy out"] if DIRECT in shares else 0)
            assert once == pytest.approx(1)


@pytest.mark.torch
def test_the_figures_say_where_they_come_from(quick: tuple[Run, str, Path]) -> None:
    conditions = quick[0].conditions
    assert conditions.quick
    assert set(conditions.machine) == {"processor", "cores", "kernels", "memory", "disk", "system"}
    assert all(conditions.machine.values())
    assert {"maskreg", "Python", "numpy", "torch"} <= set(conditions.software)
    assert len(conditions.commit) == 40
    assert conditions.seconds > 0
    if sys.platform == "linux":
        assert conditions.cores_of_others is not None


@pytest.mark.torch
def test_the_page_and_its_pictures_are_those_of_the_figures(quick: tuple[Run, str, Path]) -> None:
    run, _, folder = quick
    shown = (folder / "benchmarks.md").read_text()
    assert shown == page(run, "benchmarks.json")
    assert "A trial on tiny data" in shown
    assert str(folder) not in shown + (folder / "benchmarks.json").read_text()
    for row in rows(run):
        assert f"| {row.subject} | {row.bar} | {row.measured} |" in shown
    assert len(pictures.drawn(run)) == 3
    for name in pictures.drawn(run):
        assert f"({name})" in shown
        assert digest_of(folder / "benchmarks.json") in (folder / name).read_text()


def test_json_gives_back_what_was_written(tmp_path: Path) -> None:
    run = figures.rounded(everything())
    figures.dump(run, tmp_path / "run.json")
    assert figures.load(tmp_path / "run.json") == run


def test_figures_of_another_schema_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    figures.dump(everything(), path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 0}))
    with pytest.raises(FormatError, match="schema 0"):
        figures.load(path)


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (None, 66, "no such file"),
        ("# Benchmarks", 65, "is not JSON"),
        ("[]", 65, "schema None"),
        (f'{{"schema": {figures.SCHEMA}}}', 65, "is not what `bars` wrote"),
    ],
    ids=["absent", "page", "list", "incomplete"],
)
def test_a_page_of_no_figures_is_refused(content: str | None, status: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    done = bench("page", path)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"error: {path}")
    assert message in done.stderr
    assert done.stderr.endswith("\n  next: scripts/bench/run bars --json FILE\n")
    assert not path.with_suffix(".md").exists()


def test_a_folder_that_is_not_there_is_noticed_before_anything_is_measured(tmp_path: Path) -> None:
    done = bench("bars", "--quick", "--page", tmp_path / "docs")
    assert (done.returncode, done.stdout) == (66, "")
    assert f"error: {tmp_path / 'docs'}: no such folder\n  next: mkdir -p {tmp_path / 'docs'}\n" == done.stderr


def test_threads_have_a_heading_of_their_own() -> None:
    shown = page(everything(), "run.json")
    heading, table = shown.index("\n## Two threads beside one\n"), shown.index("\n|  | s, one thread |")
    assert "\n## " not in shown[heading + 1 : table]


def sample(seconds: float) -> Sample:
    """Two repetitions, of which the better took that long."""
    return Sample((2 * seconds, seconds), (2 * seconds, seconds))


def pair_of(name: str, kind: str, gb_per_s: float, size: int) -> Pair:
    """A pair that the default codec decodes and encodes at that speed, and zstd at a tenth of it."""
    params = 5_000_000
    seconds, middling = (sample(factor * params / gb_per_s / 1e9) for factor in (2, 3))
    slow = sample(20 * params / gb_per_s / 1e9)
    codings = [Coding(DEFAULT_CODEC, True, "", 1, size, seconds, seconds)]
    codings.append(Coding(DEFAULT_CODEC, True, "avx2", 1, size, middling, middling))
    codings.append(Coding(DEFAULT_CODEC, True, "", 2, size, sample(seconds.least / 2), sample(seconds.least / 2)))
    codings.append(Coding(BASE, False, "", 1, 2 * size, slow, slow))
    kernels = {"decode": 0.9, REST: 0.1}
    return Pair(
        name,
        "origin",
        kind,
        params,
        2_000_000,
        0.5,
        Limits(0.1, 0.2),
        1.0,
        sample(0.1),
        tuple(codings),
        kernels,
        kernels,
    )


def everything() -> Run:
    """A run that meets every bar."""
    parts = {
        "apply": {name: sample(1.0) for name in ("copy in", "xxh3 twice", "decode", "copy out")},
        "extract": {name: sample(2.0) for name in ("copy in", "xxh3 twice", "encode", "copy out")},
    }
    wholes = tuple(
        Whole(name, sample(1.3 * sum(part.least for part in own.values())), own, {}) for name, own in parts.items()
    )
    size = Size(4.0, 4 * 10**9, 2 * 10**9, 0.48, 10**9, 5 * 10**8, wholes, sample(5.0), sample(5.2 / 2.5))
    conditions = figures.Conditions(
        {"cores": "2"}, {"maskreg": "0"}, "c" * 40, False, "2026-01-01T00:00Z", 600.0, 0.1, 1.0, 0.1, False
    )
    return Run(
        figures.SCHEMA,
        conditions,
        DEFAULT_CODEC,
        pairs=(
            pair_of(OPD, "generated", 3.0, 1_300_000),
            pair_of(SYNC, "generated", 8.0, 40_000),
            pair_of("run", REAL, 2.0, 900_000),
            pair_of("step", REAL_STEP, 2.0, 81_875),
        ),
        sizes=(size,),
        threads=tuple(Threads(work, sample(1.8), sample(1.0)) for work in ("extract", "apply")),
        interpreter=sample(0.02),
        starts=tuple(
            Start(name, sample(seconds), sample(seconds))
            for name, seconds in (("list", 0.35), ("show", 0.4), ("apply", 0.7), ("compare", 0.9))
        ),
        steps=(Step(0.48, 1, 10**6, sample(1.0), sample(1.0), sample(1.0), {"adamw": 0.9, REST: 0.1}),),
        installed=Installed(249_999_999, {"numpy": 249_999_999}, Sample((0.95, 0.7, 0.8), (0.95, 0.7, 0.8))),
    )


def test_figures_that_are_just_good_enough_meet_every_bar() -> None:
    table = rows(everything())
    assert [row.subject for row in table if not row.met] == []
    assert text(table).endswith(f"  {len(table)} bars: 0 missed, 0 not measured")
    assert "Nothing that was measured misses its bar." in page(everything(), "run.json")


def slower(run: Run) -> Run:
    """The same with everything that takes time taking a tenth more, but what it is compared with."""

    def times(data: Any, factor: float) -> Any:
        return Sample(tuple(factor * s for s in data.cpu), tuple(factor * s for s in data.wall))

    wholes = [replace(whole, sample=times(whole.sample, 1.1)) for whole in run.sizes[0].wholes]
    pairs = tuple(
        replace(
            pair,
            codings=tuple(
                # With two threads it is slower still, and the peer is fast.
                replace(row, encode=times(row.encode, factor), decode=times(row.decode, factor), bytes=row.bytes + 1000)
                for row in pair.codings
                for factor in [0.05 if row.codec == BASE else 1.3 if row.threads == 2 else 1.1]
            ),
        )
        for pair in run.pairs
    )
    assert run.installed is not None
    return replace(
        run,
        pairs=tuple(
            # Speeds of encoding have more room.
            replace(pair, codings=tuple(replace(row, encode=times(row.encode, 4)) for row in pair.codings))
            for pair in pairs
        ),
        sizes=(replace(run.sizes[0], wholes=tuple(wholes), loop=sample(2.0)),),
        threads=tuple(replace(threads, double=times(threads.double, 1.1)) for threads in run.threads),
        starts=tuple(Start(s.command, times(s.first, 2.5), times(s.second, 1.1)) for s in run.starts),
        steps=tuple(replace(step, masked=times(step.masked, 1.1)) for step in run.steps),
        installed=replace(run.installed, bytes=250_000_000, runs=Sample((1.2, 0.7), (1.2, 0.7))),
    )


def test_figures_that_are_a_little_worse_miss_every_bar_and_say_why() -> None:
    table = rows(slower(everything()))
    assert [row.subject for row in table if row.met is not False] == []
    shown = page(slower(everything()), "run.json")
    for words in (
        "copy in 17 %",
        "Of decode's CPU seconds",
        "cores on average",
        "numpy 250 MB",
        "an interpreter that",
        "adamw 90 %",
    ):
        assert words in shown


def test_a_command_that_writes_in_another_way_than_its_parts_is_also_beside_parts_that_do_so() -> None:
    run = slower(everything())
    words = "beside parts that do so too"
    assert words not in page(run, "run.json")
    wholes = tuple(
        replace(whole, sample=sample(4.0), besides={DIRECT: sample(0.2)}) if whole.command == "apply" else whole
        for whole in run.sizes[0].wholes
    )
    shown = page(replace(run, sizes=(replace(run.sizes[0], wholes=wholes),)), "run.json")
    # Three parts of a second each, and .2: the command copies out in one way only.
    assert f"`apply` writes past the page cache; {words}, it takes 1.25 x." in shown
    assert "| apply: rest |  |  | 20 % |" in shown


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    empty = Run(figures.SCHEMA, everything().conditions, DEFAULT_CODEC)
    table = rows(empty)
    assert {row.met for row in table} == {None}
    # Real pairs have a line each, or one that says that there are none.
    subjects = {row.bar for row in rows(everything())}
    assert {row.bar for row in table} == subjects
    assert "not measured" in page(empty, "run.json")


@pytest.mark.parametrize(
    "change",
    [{"cores_of_others": 0.7}, {"load_before": 3.0, "cores_of_others": None}],
    ids=["others", "load"],
)
def test_a_busy_machine_is_named_on_the_page(change: Mapping[str, Any]) -> None:
    run = everything()
    assert "The machine was busy" not in page(run, "run.json")
    busy = replace(run, conditions=replace(run.conditions, **change))
    assert "The machine was busy" in page(busy, "run.json")


def test_the_worst_pair_decides_whether_the_codec_is_faster() -> None:
    run = everything()
    fast = [replace(row, decode=sample(0.001)) if row.codec == BASE else row for row in run.pairs[2].codings]
    slow = replace(run.pairs[2], codings=tuple(fast))
    worse = replace(run, pairs=(*run.pairs[:2], slow, run.pairs[3]))
    (row,) = (row for row in rows(worse) if row.subject.startswith("decode: speed / XOR"))
    assert (row.met, row.about) == (False, "run")
    assert "run, the least of 4; 1 too slow" in row.measured


@pytest.mark.usefixtures("compiled_kernels")
def test_kernels_are_clocked_and_put_back() -> None:
    compiled = library()
    assert compiled is not None
    lib = compiled.lib
    codes = np.arange(1 << 16, dtype=np.uint16)
    packed = np.empty(packed_bytes(codes.size), np.uint8)
    seconds = shares(lambda: compare(codes, codes[::-1].copy(), packed))
    assert set(seconds) == {"compare", REST}
    assert compiled.lib is lib
    assert all(value >= 0 for value in seconds.values())


def test_parts_go_over_every_byte_once(tmp_path: Path) -> None:
    make_pair(tmp_path / "source", tmp_path / "target", 0.005)
    covered: dict[str, int] = {}
    for span in spans(tmp_path / "source"):
        covered[span.file] = covered.get(span.file, 0) + 2 * (span.stop - span.start)
    for path in (tmp_path / "source").glob("*.safetensors"):
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        assert covered[path.name] == path.stat().st_size - 8 - header
    (tmp_path / "artifact").mkdir()
    parts = Parts(tmp_path / "source", tmp_path / "target", tmp_path / "artifact", tmp_path / "scratch")
    assert {"copy in", "xxh3 twice", "encode", "copy out"} <= set(parts.extract())
    assert {"copy in", "xxh3 twice", "decode", "copy out"} <= set(parts.apply())
    # What was decoded is what stands in the target's files.
    written = (tmp_path / "scratch").read_bytes()
    expected = b"".join(
        path.read_bytes()[8 + int.from_bytes(path.read_bytes()[:8], "little") :]
        for path in sorted((tmp_path / "target").glob("*.safetensors"))
    )
    assert written == expected


def test_a_row_of_the_table_is_one_line() -> None:
    table = [Row("subject", "≤ 1 x", "2 x", False, "apply"), Row("another", "≤ 1 s", "–", None, "start")]
    assert text(table).splitlines() == [
        "  subject  ≤ 1 x  2 x  MISSED",
        "  another  ≤ 1 s  –    not measured",
        "  2 bars: 1 missed, 1 not measured",
    ]


def test_the_page_in_the_docs_is_that_of_its_figures() -> None:
    path = ROOT / "docs" / "benchmarks.json"
    run = figures.load(path)
    assert path.with_suffix(".md").read_text() == page(run, path.name), f"scripts/bench/run page docs/{path.name}"
    assert not run.conditions.quick
    for name in pictures.drawn(run):
        assert digest_of(path) in path.with_name(name).read_text(), f"{name} is of another run"
