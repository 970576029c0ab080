from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from maskreg.catalog import open_catalog
from maskreg.catalog.engine import SILENCE, make_engine, parse_address
from maskreg.catalog.schema import current, upgrade
from maskreg.errors import ConfigError
from tests.servers import Postgres

PLACES = ["plain.db", "with space.db", "50%20.db", "a?mode=ro.db", "a#b.db", "grüße.db"]


@pytest.mark.parametrize("name", PLACES)
def test_a_path_is_taken_as_it_stands(tmp_path: Path, name: str) -> None:
    open_catalog(f"sqlite:///{tmp_path / name}").close()
    assert (tmp_path / name).stat().st_size > 0
    assert all(path.name.startswith(name) for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://ada:hunter2@db.example/maskreg",
        "postgresql://ada:hunter2@db.example/maskreg",
        "postgresql+psycopg://ada@db.example/maskreg?password=hunter2",
        "postgresql+psycopg://ada@db.example/maskreg?sslpassword=hunter2",
        "postgresql+psycopg://ada@db.example/maskreg?options=password%3Dhunter2",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_shown(url: str) -> None:
    for attempt in (open_catalog, upgrade, current):
        with pytest.raises(ConfigError, match=r"postgresql\S*://ada@db\.example/maskreg") as caught:
            attempt(url)
        assert "~/.pgpass" in caught.value.hint
        assert "PGPASSWORD" in caught.value.hint
        assert "hunter2" not in repr(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    "url", ["", "catalog.db", "mysql://ada:hunter2@db/maskreg", "postgresql+psycopg2://db/x", "://ada:hunter2@x"]
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_catalog(url)
    assert "postgresql+psycopg://" in caught.value.hint
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("query", ["", "?tcp_user_timeout=5000&keepalives_idle=7"], ids=["as it is", "as the URL says"])
def test_a_server_that_goes_silent_is_given_up(postgres: Postgres, query: str) -> None:
    url = make_url(postgres.new_database() + query)
    connections = make_engine(parse_address(url.render_as_string()))
    with connections.connect() as connection:
        driver: Any = connection.connection.driver_connection
        known = driver.info.get_parameters()
    connections.dispose()
    expected = {name: str(value) for name, value in SILENCE.items()} | {"connect_timeout": "10"} | dict(url.query)
    assert {name: known[name] for name in expected} == expected
