from __future__ import annotations

import psycopg

from tests.servers import Postgres, S3Server


def test_s3_servers_give_fresh_buckets(s3_server: S3Server, other_s3_server: S3Server) -> None:
    for server in (s3_server, other_s3_server):
        assert server.new_bucket() != server.new_bucket()
        assert server.env()["AWS_ENDPOINT_URL"] == server.endpoint
    assert type(s3_server) is not type(other_s3_server)


def test_postgres_gives_fresh_databases(postgres: Postgres) -> None:
    first, second = postgres.new_database(), postgres.new_database()
    assert first != second
    with psycopg.connect(first.replace("+psycopg", "")) as connection:
        row = connection.execute("SELECT 1").fetchone()
    assert row == (1,)
