"""One process of a run: ``torchrun ... -m maskreg.train.runs.worker FOLDER``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import record

from maskreg.errors import MaskregError
from maskreg.train.runs.engine import train
from maskreg.train.runs.folder import RunFolder
from maskreg.train.runs.parallel import end_process


class SilentSteps:
    """A listener that ignores steps, for processes whose steps are read from ``metrics.jsonl``."""

    def begin(self, done: int, steps: int) -> None:
        """Ignore."""

    def step(self, metrics: Mapping[str, Any]) -> None:
        """Ignore."""


@record  # an exception of another kind is left for torchrun
def main(path: str) -> int:
    """Train this process's share of a run."""
    folder = RunFolder(Path(path))
    try:
        train(folder, folder.setup(), folder.paths(), SilentSteps())
    except MaskregError as error:
        folder.record_failure(error)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    end_process(main(sys.argv[1]) or 0)
