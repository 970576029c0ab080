"""From Python: a name in, an artifact of the local registry out."""

from __future__ import annotations

from maskreg.artifact.reader import Artifact
from maskreg.digest import Digest
from maskreg.errors import UnavailableError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.transfer import DEFAULT_PARTS
from maskreg.registry.transfer import pull as transfer
from maskreg.settings import Settings


def load(ref: str | Digest) -> Artifact:
    """Open an artifact of the local registry, wherever the settings say that is.

    Args:
        ref: ``[project/]name[:tag][@sha256:...]``, or the digest of what was just made.

    Raises:
        BadRefError: ``ref`` does not follow the grammar.
        NotFoundError: there is no such artifact here.
        DataError: it is damaged.
    """
    with Registry.local(Settings.load()) as here:
        digest = ref if isinstance(ref, Digest) else here.resolve(Ref.parse(ref)).digest
        return here.artifact(digest)


def pull(
    ref: str, *, remote: str | None = None, parts: tuple[str, ...] = DEFAULT_PARTS, progress: Progress = SILENT
) -> Artifact:
    """Bring an artifact into the local registry, or find it there.

    What the settings say decides where the local registry is and which remote is asked, as on the command line.

    Args:
        ref: ``[project/]name[:tag][@sha256:...]``.
        remote: name of a remote; the default one when left out, none when there is none or offline is set.
        parts: what to bring.
        progress: told about bytes that are read.

    Raises:
        BadRefError: ``ref`` does not follow the grammar.
        NotFoundError: there is no such artifact, or no such part of it.
        ConfigError: there is no such remote, or several and no default.
        UnavailableError: the remote does not answer, and the artifact is not here.
        CorruptError: the remote's objects are damaged; nothing of them became visible.
    """
    wanted = Ref.parse(ref)
    settings = Settings.load()
    if remote is not None and settings.offline:
        raise UnavailableError(
            f"remote {remote} is not asked while offline is set", hint="maskreg config show --origin says where"
        )
    with Registry.local(settings) as here:
        if remote is None and (settings.offline or not settings.remotes):
            return transfer(here, None, wanted, parts=parts, progress=progress, jobs=settings.jobs).artifact
        with Registry.remote(settings.remote(remote)) as there:
            return transfer(here, there, wanted, parts=parts, progress=progress, jobs=settings.jobs).artifact
