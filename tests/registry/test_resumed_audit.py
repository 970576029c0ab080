"""An audit of everything that is killed goes on where it was, and believes nothing that changed since."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.audit import marks as room
from maskreg.registry.audit.marks import Marks
from maskreg.registry.audit.verify import Verified, verify
from maskreg.registry.tags import tag
from maskreg.store.entry import entry_key
from tests.artifact.making import pair, write
from tests.registry.conftest import Heard
from tests.registry.steps import Killed, Steps
from tests.store.wrapped import Wrapped

closed = Marks.close
SECOND = Ref.parse("team/second")


@pytest.fixture(autouse=True)
def kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit that is killed keeps nothing at its end; but whatever it wrote before is in the file."""
    monkeypatch.setattr(room, "_COMMIT_S", -1.0)
    monkeypatch.setattr(Marks, "close", killed)


def killed(marks: Marks) -> None:
    if marks._is_over:
        closed(marks)
    else:
        marks._file.rollback()
        marks._file.close()


@pytest.fixture
def second(local: Registry, digest: Digest) -> Digest:
    """Another artifact, with a name."""
    assert local.root is not None
    second = write(local.root, pair(1), parts=("mask",))
    local.publish(SECOND, second, card=Card())
    tag(local, SECOND, Ref.parse("team/third"))
    return second


class Reading(Wrapped):
    """Counts what is read."""

    gets = 0

    def get(self, key: str, *, max_bytes: int) -> bytes:
        self.gets += 1
        return super().get(key, max_bytes=max_bytes)


def over(local: Registry, store: Wrapped | Steps) -> Registry:
    # Without its catalog, and as a remote: the folder is not looked at past the store.
    return Registry(store, name="lab")


def cut(local: Registry, marks: Path, at: int) -> None:
    with pytest.raises(Killed):
        verify(over(local, Steps(local.store, at=at, dies=True)), marks=marks, jobs=1)


def counts(report: Verified) -> tuple[int, ...]:
    return report.tags, report.entries, report.artifacts, report.objects, report.bytes


def steps(local: Registry) -> int:
    counting = Steps(local.store)
    verify(over(local, counting), jobs=1)
    return counting.done


def test_it_reports_the_same_wherever_it_died_and_reads_less(local: Registry, second: Digest, tmp_path: Path) -> None:
    whole = Reading(local.store)
    expected = verify(over(local, whole), jobs=1)
    assert expected.ok
    marks = tmp_path / "audits" / "audit.db"
    taken = []
    for at in range(2, steps(local), 5):
        cut(local, marks, at)
        again = Reading(local.store)
        report = verify(over(local, again), marks=marks, jobs=1)
        assert report.ok
        assert counts(report) == counts(expected)
        assert (again.gets < whole.gets) == (report.resumed > 0)
        assert not marks.parent.exists()
        taken.append(report.resumed)
    # Both artifacts and all three tags, in the end.
    assert (min(taken), max(taken)) == (0, 5)


def test_what_changed_since_is_verified_again(local: Registry, second: Digest, tmp_path: Path) -> None:
    marks = tmp_path / "audit.db"
    cut(local, marks, steps(local) - 1)
    key = artifact_prefix(second) + "tensors.json"
    local.store.put(key, b"shorter")
    local.store.put(entry_key(SECOND, 1), b"{}")
    report = verify(over(local, Wrapped(local.store)), marks=marks)
    assert {key, entry_key(SECOND, 1)} <= {damage.key for damage in report.damaged}
    assert report.resumed == 3


def test_damage_is_found_again(local: Registry, second: Digest, tmp_path: Path) -> None:
    local.store.put(artifact_prefix(second) + "tensors.json", b"shorter")
    local.store.put(entry_key(SECOND, 1), b"{}")
    expected = verify(over(local, Wrapped(local.store)))
    marks = tmp_path / "audit.db"
    cut(local, marks, steps(local) - 1)
    report = verify(over(local, Wrapped(local.store)), marks=marks)
    assert report.damaged == expected.damaged
    assert report.resumed == 3


def test_what_is_gone_since_is_missed(local: Registry, second: Digest, tmp_path: Path) -> None:
    marks = tmp_path / "audit.db"
    cut(local, marks, steps(local) - 1)
    local.store.delete([info.key for info in local.store.list(artifact_prefix(second))])
    report = verify(over(local, Wrapped(local.store)), marks=marks)
    assert [damage.key for damage in report.damaged] == [artifact_prefix(second) + MANIFEST]
    assert counts(report)[:3] == (3, 3, 2)


def test_after_a_day_all_is_verified_again(
    local: Registry, second: Digest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "audit.db"
    cut(local, marks, steps(local) - 1)
    monkeypatch.setattr(room, "LIFE", -60.0)
    assert verify(over(local, Wrapped(local.store)), marks=marks).resumed == 0


def test_a_damaged_file_is_begun_anew(local: Registry, second: Digest, tmp_path: Path) -> None:
    marks = tmp_path / "audit.db"
    marks.write_bytes(b"no database" * 1_000)
    report = verify(over(local, Wrapped(local.store)), marks=marks)
    assert (report.ok, report.resumed) == (True, 0)


def test_where_nothing_can_be_written_all_is_verified(local: Registry, second: Digest, tmp_path: Path) -> None:
    (tmp_path / "audits").write_text("no folder")
    report = verify(over(local, Wrapped(local.store)), marks=tmp_path / "audits" / "audit.db")
    assert (report.ok, report.resumed) == (True, 0)
    assert not verify(over(local, Wrapped(local.store)), marks=tmp_path / "none" / "audits" / "audit.db").damaged
    assert not (tmp_path / "none").exists()


def test_two_at_the_same_time_do_not_share_a_file(local: Registry, second: Digest, tmp_path: Path) -> None:
    marks = tmp_path / "audit.db"
    with Marks(marks) as first:
        first.put_tag("refs/a/b/c", b"", 1, None, is_sound=True)
        report = verify(over(local, Wrapped(local.store)), marks=marks)
        assert report.ok
        assert report.tags == 3
    assert marks.exists()


def test_progress_counts_artifacts(local: Registry, second: Digest) -> None:
    heard = Heard()
    assert verify(local, progress=heard).ok
    assert [label for label in heard.labels if label.startswith("verify")] == [
        "verify artifact 1 of 2",
        "verify artifact 2 of 2",
    ]
    assert {"read tags", "list artifacts", "read back references", "compare the catalog"} <= set(heard.labels)
