"""Tensors that are measured already, kept until all are, so that an interrupted measurement resumes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskreg.disk import make_folder, replacing
from maskreg.document import canonical, parse_object
from maskreg.errors import DataError
from maskreg.limits import LIMITS

WORK = "analysis"
"""Folder of a local registry for the finished tensors of measurements in progress."""


class FinishedTensors:
    """Finished tensors of one measurement, one file each, in a folder named after everything that decides the figures.

    ::

        analysis/<sha256 of what decides>/000000.json    {"name": "model.embed_tokens.weight", ...}
    """

    def __init__(self, root: Path, decides: object) -> None:
        """Those of a measurement.

        Args:
            root: folder of the local registry.
            decides: everything that decides the figures, as JSON values.
        """
        self._folder = root / WORK / hashlib.sha256(canonical(decides)).hexdigest()[:32]

    def load(self, number: int, name: str) -> Mapping[str, Any] | None:
        """The figures of a tensor; None where it was not finished.

        Args:
            number: of the tensor, in the order of the measurement.
            name: of the tensor.
        """
        path = self._path(number)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            row = parse_object(data, path.name, max_bytes=LIMITS.analysis_bytes, max_values=LIMITS.analysis_values)
        except DataError:
            # Cut short by a crash: measured again.
            return None
        return row if row.get("name") == name else None

    def keep(self, number: int, row: Mapping[str, Any]) -> None:
        """Keep the figures of a tensor.

        Args:
            number: of the tensor.
            row: its figures as JSON values, with its ``name``.
        """
        make_folder(self._folder)
        with replacing(self._path(number), sync=False) as file:
            file.write(canonical(row))

    def remove(self) -> None:
        """Forget them, because all are finished."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.json"
