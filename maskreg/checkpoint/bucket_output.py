"""Outputs in a bucket: every part is sent before anything is visible, and the index comes last.

A bucket has no rename. But an upload in parts is invisible until it is completed, and without its index, or its only
weight file, a checkpoint is none::

    begin     nothing may have the prefix, unless it is replaced
    write     parts of all shards are sent; small files wait in memory
    commit    create the claim                       other runs that come to their commit stop here, with 75
              replaced: delete its index             readers find no checkpoint
              complete the shards, put small files   still none
              put the index                          the checkpoint, whole
              compare every ETag with one's own      or delete the index, where a service ignores conditions
    discard   delete the claim

    killed before commit     nothing, and parts that maskreg doctor finds
    killed within commit     a claim, which maskreg doctor finds, and files without an index: no checkpoint; after
                             that, writing again with --force replaces them
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch

from maskreg.bucket import BucketPath
from maskreg.bucket.uploads import CLAIM, COMPLETING, Upload, Uploads, check_output
from maskreg.checkpoint.output import PendingOutput, is_of_a_model
from maskreg.errors import CannotCreateError, MaskregError, OutputExistsError, TryAgainError
from maskreg.parallel import each


@dataclass
class BucketOutput(PendingOutput):
    """An output that is being written to a bucket.

    Attributes:
        index: the file without which readers find no checkpoint; of one object, that.
    """

    path: BucketPath
    index: str = ""
    _uploads: Uploads | None = field(default=None, init=False)
    _files: dict[str, Upload] = field(default_factory=dict, init=False)
    _claim: Upload | None = field(default=None, init=False)

    def begin(self, needed_bytes: int) -> None:
        """Check that the output may appear; a bucket is never full."""
        check_output(self.path)
        self._check()
        self._uploads = Uploads(self.path.parent if self.is_file else self.path)

    def create(self, name: str, size: int) -> Upload:
        """A new object of the output."""
        assert self._uploads is not None
        path = self.path if self.is_file else self.path / name
        self._files[name] = upload = Upload(self._uploads, path, size)
        return upload

    def commit(self) -> None:
        """Make all objects visible, the index last, while no other run does so at this path."""
        assert self._uploads is not None
        nonce = secrets.token_hex(16).encode()
        self._claim = Upload(self._uploads, self._claim_path, len(nonce))
        self._claim.write_at(0, memoryview(nonce))
        try:
            self._claim.complete(only_new=True)
        except OutputExistsError as error:
            raise self._claimed() from error
        replaced = self._check(has_claim=True)
        if not self.is_file:
            self.kept = tuple(sorted(replaced - self.names))
            for name in sorted(filter(self._is_an_index, replaced)):
                self._uploads.delete(self.path / name)
        others = [upload for name, upload in self._files.items() if name != self.index]
        # Large models have hundreds of shards, and the service takes its time for each.
        each(others, Upload.complete, jobs=COMPLETING)
        self._files[self.index].complete(only_new=not replaced)
        now = BucketPath.of(str(self.path), self.path.bucket.options)
        for name, upload in self._files.items():
            if not upload.is_at(now if self.is_file else now / name):
                if not self.is_file:
                    self._uploads.delete(self.path / self.index)  # files of two runs are no checkpoint
                raise TryAgainError(
                    f"{upload.path}: another run replaced it in the meantime",
                    hint="when no other run writes there, run the same command with --force",
                )
        self._files.clear()

    def discard(self) -> str:
        """Drop what was sent; does nothing after a commit."""
        if self._uploads is None:
            return ""
        uploads, files = self._uploads, list(self._files.values())
        self._uploads = None
        self._files.clear()
        try:
            is_dropped = uploads.abort(files) and not any(upload.is_unsure for upload in files)
            if is_dropped and self._claim is not None:
                # Not before the uploads are dropped: they could still be completed. An output that is
                # complete does not fail because its claim stays.
                with suppress(MaskregError):
                    self._claim.delete_own()
        finally:
            uploads.close()
        if is_dropped:
            return ""
        return f"parts of it may be left, which the doctor of {self.path} removes after an hour"

    @property
    def _claim_path(self) -> BucketPath:
        return self.path.parent / f"{self.path.name}{CLAIM}" if self.is_file else self.path / CLAIM

    def _claimed(self) -> TryAgainError:
        return TryAgainError(
            f"{self.path}: another run is putting its output there, or was killed while it did",
            hint="run the same command again in a moment; "
            f"the doctor of {self.path} removes what a killed run left, after an hour",
        )

    def _check(self, *, has_claim: bool = False) -> frozenset[str]:
        """Names of what is there already and may be replaced."""
        now = BucketPath.of(str(self.path), self.path.bucket.options)
        if not has_claim and BucketPath(now.bucket, self._claim_path.key).is_file():
            raise self._claimed()
        names = frozenset() if now.is_file() else frozenset(entry.name for entry in now.iterdir()) - {CLAIM}
        if not names and not now.is_file():
            return frozenset()
        if not self.force:
            raise OutputExistsError(self.path)
        for source in self.sources:
            inside = str(self.path), f"{self.path}/"
            if str(source) == inside[0] or str(source).startswith(inside[1]):
                raise CannotCreateError(
                    f"{self.path}: replacing it would destroy the source {source}", hint="choose another -o"
                )
        if reason := self._foreign(now, names):
            raise CannotCreateError(
                f"{self.path}: {reason}, so --force will not replace it",
                hint=f"see what is there ({self.path.listing}), or choose another -o",
            )
        return frozenset({self.path.name}) if self.is_file else names

    def _foreign(self, now: BucketPath, names: frozenset[str]) -> str:
        """Why what is there cannot be an earlier output; empty when it can."""
        if self.is_file:
            return "" if now.is_file() else "not an object"
        if now.is_file():
            return "not a prefix"
        if folders := sorted(name for name in names if (now / name).is_dir()):
            return f"a prefix with others inside ({', '.join(folders[:3])})"
        # A commit that was killed leaves files of this output alone, perhaps no weights.
        if not names <= self.names and not any(fnmatch(name, self.weights) for name in names):
            return f"a prefix of files without {self.weights}"
        if strays := sorted(name for name in names - self.names if is_of_a_model(name)):
            return f"files of another checkpoint would stay beside the new one ({', '.join(strays[:3])})"
        return ""

    def _is_an_index(self, name: str) -> bool:
        """Whether readers may find a checkpoint by a file of an earlier output, or of this one."""
        return name == self.index or fnmatch(name, "*.index.json") or fnmatch(name, self.weights)
