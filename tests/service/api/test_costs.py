"""What a request costs where it matters, with many users: messages to the database, and reads of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, event

import maskreg
from maskreg.catalog.models import METADATA
from maskreg.catalog.schema import upgrade
from maskreg.ref import Ref
from maskreg.registry.push import push
from maskreg.service.app import create_app
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import Base
from maskreg.service.auth.roles import Role
from maskreg.service.auth.tokens import Scope
from maskreg.service.context import Service
from maskreg.settings import Remote, Settings
from maskreg.store import FileStore
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.servers import Postgres
from tests.service.serving import ROOT, accounts_in, headers

OPD = Ref("team", "opd", "v1")


@dataclass
class Costs:
    """What was sent and read since the last request.

    Attributes:
        statements: SQL.
        keys: what was read of the store, by object or prefix.
    """

    statements: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


@dataclass
class Team:
    """A server over a folder and PostgreSQL, with one artifact.

    Attributes:
        client: a reader of the project.
        costs: of its requests.
        digest: of the artifact.
        service: the server's parts.
        catalog: URL of the database.
    """

    client: TestClient
    costs: Costs
    digest: str
    service: Service
    catalog: str

    def get(self, path: str) -> Costs:
        """The costs of a request, which has to be answered; the one before it filled what is remembered."""
        for _ in range(2):
            self.costs.statements.clear()
            self.costs.keys.clear()
            answer = self.client.get(f"/api/v1{path}")
            assert answer.status_code == 200, answer.text
        return self.costs


@pytest.fixture(scope="module")
def team(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    url = postgres.new_database()
    upgrade(url, METADATA, Base.metadata)
    source = {"model.layers.0.mlp.up_proj.weight": bf16((64, 16), 1)}
    target = {name: moved(tensor, 0.5, 2) for name, tensor in source.items()}
    pair = make_checkpoint(folder / "source", source), make_checkpoint(folder / "target", target)
    remote = Remote("lab", (folder / "store").as_uri(), url)
    (folder / "store").mkdir()
    settings = Settings(home=folder / "home", config_path=folder / "config.toml")
    settings = replace(settings, remotes={"lab": remote}, default_remote="lab")
    with maskreg.Workspace(settings) as space:
        digest = maskreg.extract(*pair, OPD, workspace=space).digest
        push(space.local, space.remote("lab"), OPD)
        service = Service(space, "lab", accounts_in(url), ("*",))
        with counted() as costs:
            yield Team(TestClient(create_app(service), headers=headers("reader-token")), costs, digest, service, url)
        service.accounts.close()


@contextmanager
def counted() -> Iterator[Costs]:
    """Count what engines send and folders are asked for, in this process."""
    costs = Costs()

    def sent(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        costs.statements.append(statement)

    def reading(name: str) -> None:
        method = getattr(FileStore, name)

        def read(store: FileStore, key: str, **named: object) -> object:
            costs.keys.append(key)
            return method(store, key, **named)

        patch.setattr(FileStore, name, read)

    event.listen(Engine, "before_cursor_execute", sent)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        stack.callback(event.remove, Engine, "before_cursor_execute", sent)
        for name in ("get", "head", "list"):
            reading(name)
        yield costs


@pytest.mark.parametrize(
    ("path", "statements"),
    [
        pytest.param("/whoami", 1, id="who is asking"),
        pytest.param("/artifacts", 2, id="the newest"),
        pytest.param("/artifacts?text=opd&family=&sort=name:asc", 2, id="search"),
        pytest.param("/artifacts?text=opd+latest", 2, id="several words"),
    ],
)
def test_who_sends_a_request_costs_one_statement_and_a_search_one_more(team: Team, path: str, statements: int) -> None:
    costs = team.get(path)
    assert len(costs.statements) == statements
    assert costs.keys == []


@pytest.mark.parametrize("path", ["", "/history"])
def test_a_tag_is_read_once(team: Team, path: str) -> None:
    costs = team.get(f"/projects/team/refs/opd/v1{path}")
    assert len(costs.statements) == 1
    log = f"refs/{OPD.path}/"
    assert [key for key in costs.keys if key.startswith("refs/")] == [log, f"{log}{1:020d}.json"]
    # What this server has seen of the tag: one listing, one record.
    assert len(costs.keys) == 4


def test_an_artifact_is_shown_without_reading_its_tensor_table_again(team: Team) -> None:
    costs = team.get(f"/artifacts/{team.digest}")
    assert len(costs.statements) == 5
    prefix = f"artifacts/sha256/{team.digest.removeprefix('sha256:')}/"
    assert costs.keys == [f"{prefix}manifest.json", prefix]


def test_a_token_that_another_process_revoked_is_refused_by_the_next_request(team: Team) -> None:
    token = team.service.accounts.tokens.create("carl", Scope("team", Role.READER), ROOT)
    request = partial(team.client.get, "/api/v1/whoami", headers=headers(token.token))
    assert request().status_code == 200
    with closing(Accounts.open(team.catalog)) as elsewhere:
        elsewhere.tokens.revoke(token.id, ROOT)
    assert request().status_code == 401
