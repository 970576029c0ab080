"""What every test gets: servers on request, and a home of its own; and which tests run without torch or kernels."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from maskreg.native import available, using
from tests import warm
from tests.demo import demo
from tests.kernels import KERNELS, NAMED, VARIABLE
from tests.native.sanitizing import sanitized
from tests.servers import other_s3_server, postgres, s3_server

__all__ = ["demo", "other_s3_server", "postgres", "s3_server"]

# How long a test takes says nothing here: machines are busy.
settings.register_profile("maskreg", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("maskreg"), max_examples=10)
settings.load_profile("maskreg")

# A shell's background jobs ignore Ctrl-C and hand that down; the commands that tests start must not.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest-xdist gives its workers a terminal of 80 columns; tests have none unless they make one.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

NEED_TORCH = [
    *("live", "train", "cli/retrain", "analysis/test_angles.py", "analysis/test_coverage.py"),
    *("analysis/test_matrix.py", "analysis/test_noise.py", "checkpoint/test_archive.py", "checkpoint/test_dcp.py"),
    *("checkpoint/test_fsdp.py", "checkpoint/test_runs.py", "checkpoint/test_torch_files.py", "cli/test_analyze.py"),
    *("codec/test_triton_decode.py", "e2e/test_retrain.py", "flow/apply/test_crossing.py"),
    *("flow/apply/test_in_memory.py", "flow/apply/test_sharded.py", "flow/apply/test_switching.py"),
    *("flow/geometry/test_analysis.py", "flow/geometry/test_papers.py", "flow/geometry/test_selected.py"),
    "flow/geometry/test_trajectory.py",
]
"""Folders and files that need torch as a whole. In others, single tests do: those are marked with ``torch``."""

HAS_TORCH = find_spec("torch") is not None

NEED_VLLM = ["sync/test_trl.py", "sync/test_verl.py", "sync/test_vllm.py"]
"""Files with servers of vLLM, or with verl, which have an environment of their own: ``scripts/test --with vllm``."""

HAS_VLLM = find_spec("vllm") is not None

collect_ignore = [*([] if HAS_TORCH else NEED_TORCH), *([] if HAS_VLLM else NEED_VLLM)]

_FOREIGN = ("AWS_", "MASKREG_", "XDG_", "HF_", "HUGGINGFACE_", "PG", "BOTO_")


COSTLY = {*("other_s3_server", "postgres", "s3_server"), "sanitized_kernels"}
"""Fixtures that start servers or compile; ``--fast`` leaves out tests that have one or whose parameters name one."""

NAMES_SERVER = re.compile("http|postgres|s3|seaweed")


SLOW = {
    *("cli", "contract", "e2e", "flow", "live", "reports", "service", "train", "workspace"),
    *("catalog/test_concurrency.py", "catalog/test_faults.py", "catalog/test_rebuild.py"),
    *("registry/test_settling.py", "registry/test_meddling.py", "store/test_s3.py", "test_architecture.py"),
    *("test_deployment.py", "test_docs.py", "test_extras.py", "test_site.py"),
}
"""Folders and files whose tests start programs, train, wait, or go through many orders; ``--fast`` leaves them out."""


LONGEST = ("test_docs.py", "e2e/", "codec/test_step2_hostile.py", "cli/retrain/", "train/", "service/")
"""Files whose tests take longest, which begin first."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    name = str(collection_path.relative_to(Path(__file__).parent))
    return True if config.getoption("--fast") and name in {*SLOW, *NEED_TORCH, *NEED_VLLM} else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="a minute of tests: no servers, programs or torch")
    parser.addoption("--update", action="store_true", help="write what commands print now into tests/cli/golden")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fast"):
        settings.load_profile("fast")
    if NAMED and NAMED not in available():
        raise pytest.UsageError(f"{VARIABLE} is {NAMED!r}, but this machine has {', '.join(available())}")


def pytest_report_header() -> list[str]:
    lines = [f"kernels: {', '.join(KERNELS)}"]
    if not HAS_TORCH:
        left_out = ", ".join(f"tests/{name}" for name in NEED_TORCH)
        lines.append(f"torch is not installed: {left_out} and tests marked with torch are not run")
    if not HAS_VLLM:
        left_out = ", ".join(f"tests/{name}" for name in NEED_VLLM)
        lines.append(f"vLLM is not installed: {left_out} are not run; scripts/test --with vllm runs them")
    return lines


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # What is imported stays: searching it for garbage takes a third of the time.
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fast = config.getoption("--fast")
    left_out = {
        item
        for item in items
        if ((fast or not HAS_TORCH) and item.get_closest_marker("torch"))
        or (
            fast
            and (COSTLY & set(getattr(item, "fixturenames", ())) or NAMES_SERVER.search(item.name.partition("[")[2]))
        )
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = sorted((item for item in items if item not in left_out), key=_rank)


def _rank(item: pytest.Item) -> int:
    path = str(item.path.relative_to(Path(__file__).parent))
    return next((rank for rank, first in enumerate(LONGEST) if path.startswith(first)), len(LONGEST))


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # Their numbers are counted here: pytest would list all earlier folders for each test.
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def _own_home(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    # No test reads or writes what the person who runs it has: settings, caches, credentials.
    for name in list(os.environ):
        if name.startswith(_FOREIGN) and name != VARIABLE:
            monkeypatch.delenv(name)
    home = next(_homes)
    home.mkdir()
    places = {
        "HOME": home,
        "XDG_CONFIG_HOME": home / "config",
        "XDG_DATA_HOME": home / "data",
        "XDG_CACHE_HOME": home / "cache",
        "XDG_STATE_HOME": home / "state",
        "MASKREG_HOME": home / "maskreg",
        "MASKREG_CONFIG": home / "maskreg.toml",
        "HF_HOME": home / "huggingface",
        "AWS_CONFIG_FILE": home / "aws-config",
        "AWS_SHARED_CREDENTIALS_FILE": home / "aws-credentials",
    }
    for name, place in places.items():
        monkeypatch.setenv(name, str(place))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


@pytest.fixture(scope="module", params=KERNELS)
def kernels(request: pytest.FixtureRequest) -> str:
    """Run a test once with each build of the kernels that this machine can use.

    Where ``MASKREG_KERNELS`` names one of them, that alone.

    Returns its name, as :func:`maskreg.native.using` takes it. Functions with a kernel are held against something that
    computes the same otherwise, at the edges of vectors and tiles too::

        @given(st.integers(0, 300) | st.sampled_from([1023, 1024, 1025]), st.integers(0, 1 << 32))
        def test_counts_are_those_of_dense_masks(kernels: str, numel: int, seed: int) -> None:

    or, where nothing else computes it, all builds against each other: :func:`tests.kernels.agreed`.
    """
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A folder of commands that start with all that they import, for the front of ``PATH``; None without torch."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with warm.programs(shared / "warm") if HAS_TORCH else nullcontext() as folder:
        yield folder


@pytest.fixture(scope="session")
def sanitized_kernels() -> dict[str, str]:
    """Environment of processes whose kernels end them at the first read or write outside an array."""
    return sanitized(Path(sys.prefix) / "sanitized-kernels")


@pytest.fixture(autouse=True)
def _kernels_of_test(request: pytest.FixtureRequest) -> Iterator[None]:
    # Apart from the fixture above, which only names them: Hypothesis refuses fixtures that are set up for each test,
    # because it runs many examples in one. The kernels stay the same for all.
    named = "kernels" in request.fixturenames
    with using(request.getfixturevalue("kernels")) if named else nullcontext():
        yield
