"""What a request costs where it matters, with many users: messages to the database, and reads of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from sqlalchemy import Engine, event

from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import Role
from maskreg.service.auth.tokens import Scope
from maskreg.store import FileStore
from tests.service.labs import Lab
from tests.service.serving import ROOT


@dataclass
class Costs:
    """What was sent to databases and read of the store, by object or prefix, since the last request."""

    lab: Lab
    statements: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def get(self, path: str) -> None:
        for _ in range(2):
            self.statements.clear()
            self.keys.clear()
            self.lab.get(path)


@pytest.fixture
def costs(shared: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Costs]:
    costs = Costs(shared)

    def sent(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith(("PRAGMA", "BEGIN")):
            costs.statements.append(statement)

    for name in ("get", "head", "list"):
        method = getattr(FileStore, name)

        def read(store: FileStore, key: str, method: object = method, **named: object) -> object:
            costs.keys.append(key)
            return method(store, key, **named)  # type: ignore[operator]

        monkeypatch.setattr(FileStore, name, read)
    event.listen(Engine, "before_cursor_execute", sent)
    yield costs
    event.remove(Engine, "before_cursor_execute", sent)


@pytest.mark.parametrize(
    ("path", "statements"), [("/whoami", 2), ("/artifacts", 3), ("/artifacts?text=opd+latest&family=&sort=name:asc", 3)]
)
def test_who_sends_a_request_costs_two_statements_and_a_search_one_more(
    costs: Costs, path: str, statements: int
) -> None:
    costs.get(path)
    assert (len(costs.statements), costs.keys) == (statements, [])


@pytest.mark.parametrize("path", ["", "/history"])
def test_a_tag_is_read_once(costs: Costs, path: str) -> None:
    costs.get(f"/projects/team/refs/opd/v1{path}")
    assert len(costs.statements) == 2
    log = "refs/team/opd/v1/"
    assert [key for key in costs.keys if key.startswith("refs/")] == [log, f"{log}{1:020d}.json"]


def test_an_artifact_is_shown_without_reading_its_tensor_table_again(costs: Costs) -> None:
    digest = costs.lab.digests["opd"]
    costs.get(f"/artifacts/{digest}")
    assert len(costs.statements) == 5
    prefix = f"artifacts/sha256/{digest.hex}/"
    assert costs.keys == [f"{prefix}manifest.json", prefix]


def test_a_token_that_another_process_revoked_is_refused_by_the_next_request(shared: Lab) -> None:
    token = shared.service.accounts.tokens.create("carl", Scope("team", Role.READER), ROOT)
    client = shared.client(token.token)
    assert client.get("/api/v1/whoami").status_code == 200
    with closing(Accounts.open(f"sqlite:///{shared.workspace.root / 'service.db'}")) as elsewhere:
        elsewhere.tokens.revoke(token.id, ROOT)
    assert client.get("/api/v1/whoami").status_code == 401
