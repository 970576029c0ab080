"""torchrun for a run: ``python -m maskreg.train.runs.launcher FOLDER [OPTIONS]``, which leaves there why it failed."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import config_from_args, parse_args, run

from maskreg.errors import MaskregError, UsageError
from maskreg.train.runs.endings import Ended, ended_early, first_to_end
from maskreg.train.runs.folder import RunFolder

_WORKER = "maskreg.train.runs.worker"


def main(path: str, options: Sequence[str]) -> int:
    """Start the processes of a run and wait for them."""
    folder = RunFolder(Path(path))
    try:
        run(_parsed([*options, "-m", _WORKER, path]))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        rank = first_to_end(error.failures)
        folder.record_failure(_failure(rank, error.failures[rank], folder))
        return 1
    except SignalException as error:
        folder.record_failure(ended_early("torchrun", -int(error.sigval), "", folder.log))
        return 1
    except UsageError as error:
        folder.record_failure(error)
        return 2
    return 0


def _parsed(arguments: list[str]) -> argparse.Namespace:
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            parsed: argparse.Namespace = parse_args(arguments)  # type: ignore[no-untyped-call]
            processes = config_from_args(parsed)[0].nproc_per_node
    # It exits instead of raising, with 0 too after --help.
    except SystemExit as error:
        lines = printed.getvalue().strip().splitlines()
        reason = lines[-1].partition("error: ")[2] if lines and error.code else "they ask for help, not for a run"
        raise UsageError(f"torchrun's options: {reason}", hint="torchrun --help") from error
    except (ValueError, AssertionError) as error:
        raise UsageError(f"torchrun's options: {error}", hint="torchrun --help") from error
    if processes < 1:
        raise UsageError(f"torchrun's options: {processes} processes", hint="torchrun --help")
    return parsed


def _failure(rank: int, failure: Ended, folder: RunFolder) -> MaskregError:
    message: Any = failure.message
    reason = str(message.get("message", "")) if isinstance(message, dict) else ""
    return ended_early(f"rank {rank} (pid {failure.pid})", failure.exitcode, reason, folder.log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
