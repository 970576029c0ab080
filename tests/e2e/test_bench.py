"""The benchmark runs, its figures are consistent, and memory stays bounded."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maskreg.codec import CODECS, DEFAULT_CODEC
from scripts.bench import start
from tests.checkpoints import make_pair

ROOT = Path(__file__).parents[2]
MAX_PEAK_RSS = 1_200_000_000
PLANES = "XOR planes zstd-1"
VIEWS = (
    "codec",
    "commands",
    "start",
    "retrain",
    "bars",
    "page",
)


def bench(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "scripts.bench", *args], cwd=ROOT, capture_output=True, text=True)


def bench_without(*modules: str, args: tuple[str | Path, ...]) -> subprocess.CompletedProcess[str]:
    """The same where these modules are not installed."""
    program = (
        f"import sys, runpy; sys.modules.update(dict.fromkeys({modules})); "
        "runpy.run_module('scripts.bench', run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", program, *args], cwd=ROOT, capture_output=True, text=True)


def figures(path: Path, *args: str | Path) -> Any:
    """What the benchmark wrote with ``--json``."""
    done = bench(*args, "--json", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    return json.loads(path.read_text())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of scripts/bench/run, beside programs that only print how they are run."""
    for name in ("scripts/setup", ".venv/bin/python"):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$0 $*"\n')
        program.chmod(0o755)
    (tmp_path / "scripts/bench").mkdir()
    shutil.copy(ROOT / "scripts/bench/run", tmp_path / "scripts/bench")
    return tmp_path


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """The pairs of the codec view, on small generated checkpoints."""
    path = tmp_path_factory.mktemp("bench") / "codec.json"
    yield figures(path, "codec", "--hidden", "384", "--threads", "1", "2", "--repeat", "1")["pairs"]


def row(pair: dict[str, Any], name: str, threads: int = 1) -> dict[str, Any]:
    (result,) = [row for row in pair["rows"] if row["codec"] == name and row["threads"] == threads]
    assert isinstance(result, dict)
    return result


def test_generated_pairs_move_as_much_as_they_should(codec: list[dict[str, Any]]) -> None:
    densities = {pair["pair"]: pair["density"] for pair in codec}
    expected = {"generated sft": 0.93, "generated opd": 0.48, "generated rlvr": 0.23, "generated sync": 0.01}
    assert densities == pytest.approx(expected, rel=0.05)


def test_every_codec_and_peer_has_a_row(codec: list[dict[str, Any]]) -> None:
    for pair in codec:
        assert {row["codec"] for row in pair["rows"] if row["ours"]} == set(CODECS)
        assert pair["default_codec"] == DEFAULT_CODEC
        peers = " ".join(row["codec"] for row in pair["rows"] if not row["ours"])
        for name in ("planes zstd-1", "planes zstd-3", "Blosc", "gaps", "zipnn", "lmzip"):
            assert name in peers
        assert pair["memcpy_gb_per_s"] > 0


def test_figures_fit_together(codec: list[dict[str, Any]]) -> None:
    for pair in codec:
        limit = pair["limits"]["step"]
        assert 0 < pair["limits"]["mask"] < limit < 16
        for row in pair["rows"]:
            if row["missing"]:
                assert row["bytes"] == 0
                continue
            assert row["bits_per_param"] == pytest.approx(8 * row["bytes"] / pair["params"])
            assert row["over_limit"] == pytest.approx(100 * (row["bits_per_param"] / limit - 1))
            assert row["encode_gb_per_s"] > 0
            assert row["decode_gb_per_s"] > 0


def test_threads_do_not_change_the_size(codec: list[dict[str, Any]]) -> None:
    for pair in codec:
        assert row(pair, DEFAULT_CODEC, threads=2)["bytes"] == row(pair, DEFAULT_CODEC)["bytes"]


def test_the_default_codec_is_never_larger_than_byte_planes(codec: list[dict[str, Any]]) -> None:
    for pair in codec:
        assert row(pair, DEFAULT_CODEC)["bytes"] <= row(pair, PLANES)["bytes"]


def test_a_given_pair(tmp_path: Path) -> None:
    source, target = make_pair(tmp_path, shards=2, fraction=0.2)
    args = ("--pair", source, target, "--threads", "1", "--repeat", "1")
    (pair,) = figures(tmp_path / "given.json", "codec", *args)["pairs"]
    assert pair["pair"] == f"given {target.name}"
    assert 0.15 < pair["density"] < 0.25
    assert 0 < row(pair, DEFAULT_CODEC)["bits_per_param"] < 16


def test_a_peer_that_is_not_there_is_named(tmp_path: Path) -> None:
    args = ("codec", "--hidden", "384", "--threads", "1", "--repeat", "1", "--json", tmp_path / "out.json")
    done = bench_without("zipnn", "lmz", args=args)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("not available: ") == 2 * 4
    for pair in json.loads((tmp_path / "out.json").read_text())["pairs"]:
        missing = [row for row in pair["rows"] if row["missing"]]
        assert [row["codec"] for row in missing] == ["zipnn on XOR", "lmzip on XOR"]


def test_what_pictures_need_is_asked_for_first(tmp_path: Path) -> None:
    done = bench_without("matplotlib", args=("codec", "--plots", tmp_path / "pictures"))
    assert done.returncode == 1
    assert "matplotlib" in done.stderr
    assert "next: scripts/bench/run" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_the_views() -> None:
    done = bench("--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in (*VIEWS, "--pair", "--real", "--gigabytes"))


@pytest.mark.parametrize("args", [["--help"], ["bars", "-h"], ["page", "--help"]], ids=" ".join)
def test_help_is_printed_before_anything_is_set_up(args: list[str], checkout: Path) -> None:
    done = subprocess.run([checkout / "scripts/bench/run", *args], capture_output=True, text=True, check=False)
    assert done.stdout.endswith(f"/.venv/bin/python -m scripts.bench {' '.join(args)}\n")
    assert len(done.stdout.splitlines()) == 1
    done = subprocess.run([checkout / "scripts/bench/run", "codec"], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0] == "scripts/setup "


@pytest.mark.parametrize("args", [[], ["bars"], ["page"]])
def test_help_needs_no_package(args: list[str]) -> None:
    # -S leaves out the folder of installed packages, as does the interpreter of a system.
    command = [sys.executable, "-S", "-m", "scripts.bench", *args, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: scripts/bench/run")


def test_a_view_that_does_not_exist_is_answered_with_those_that_do() -> None:
    done = bench("everything")
    assert done.returncode == 2
    choices = re.findall(r"\w+", done.stderr.partition("choose from")[2])
    assert choices == ["all", *VIEWS]


@pytest.mark.parametrize("view", ["bars", "page"])
def test_a_view_with_options_of_its_own_comes_first(view: str) -> None:
    done = bench("--runs", "1", view)
    assert done.returncode == 2
    assert f"scripts/bench/run {view} --help" in done.stderr


def test_the_cpu_seconds_of_a_command_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "COMMANDS", {name: start.COMMANDS[name] for name in ("list", "apply")})
    results = start.bench(tmp_path / "work", 1)
    for result in results:
        assert 0 < result.best <= min(result.first, result.second)
    assert [line.split()[0] for line in start.table(results).splitlines()[2:]] == ["list", "apply"]
    assert list((tmp_path / "work").iterdir()) == []


def test_a_small_run(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (run,) = figures(tmp_path / "out.json", "commands", "--gigabytes", "0.03", "--dir", work)["runs"]
    assert run["gigabytes"] == 0.03
    assert 0.029e9 < 2 * run["params"] < run["bytes"] < 0.031e9
    assert 0.47 < run["density"] < 0.49
    assert run["codec"] == DEFAULT_CODEC
    assert 1 < run["delta_bits_per_param"] < run["bits_per_param"] < 16
    assert run["copy_seconds"] > 0
    assert run["apply_to_cp_and_sha256"] == pytest.approx(
        run["apply"]["seconds"] / (run["cp_seconds"] + run["sha256_seconds"])
    )
    for command in ("extract", "apply"):
        assert set(run[command]) == {"seconds", "gb_per_s", "of_copy", "peak_rss"}
        assert 0 < run[command]["peak_rss"] < MAX_PEAK_RSS
        assert run[command]["of_copy"] > 0
    assert list(work.iterdir()) == []


@pytest.mark.usefixtures("compiled_kernels")  # the definitions in NumPy take new memory
def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path) -> None:
    args = ("--gigabytes", "0.4", "1.2", "--dir", tmp_path / "work")
    small, large = figures(tmp_path / "out.json", *args)["runs"]
    for command in ("extract", "apply"):
        # The smaller one already fills every buffer and cache; runs of one size differ by some 5 %.
        assert large[command]["peak_rss"] < 1.12 * small[command]["peak_rss"]


def test_a_full_disk_is_noticed_first(tmp_path: Path) -> None:
    done = bench("commands", "--gigabytes", "1e9", "--dir", tmp_path)
    assert done.returncode == 1
    assert "--dir" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.torch
def test_retraining_a_small_model(tmp_path: Path) -> None:
    args = ("retrain", "--layers", "2", "--width", "512", "--threads", "1", "--repeat", "1", "--densities", "0.25")
    found = figures(tmp_path / "out.json", *args)["retrain"]
    assert found["params"] == 2 * 512 * 512
    assert len(found["steps"]) == 2
    for row in found["steps"]:
        fastest = min(row["fused_seconds"], row["foreach_seconds"])
        assert row["of_fastest"] == pytest.approx(row["seconds"] / fastest)
    assert len(found["memory"]) == 2 * (1 + 3)
    for row in found["memory"]:
        weights = 2 if row["dtype"] == "bf16" else 4
        entry = 12 if row["dtype"] == "bf16" else 8
        if row["gradients"] == "AdamW":
            assert row["state"] == pytest.approx(entry, abs=0.01)
        else:
            assert row["state"] == pytest.approx(entry * row["density"] + 3 / 16, rel=0.02)
            assert row["state"] <= row["state_bar"]
        assert row["peak"] > weights + row["state"]
