from __future__ import annotations

import psycopg

from tests.servers import Postgres, S3Server


def test_s3_server_gives_fresh_buckets(s3_server: S3Server) -> None:
    assert s3_server.new_bucket() != s3_server.new_bucket()
    assert s3_server.env()["AWS_ENDPOINT_URL"] == s3_server.endpoint


def test_postgres_gives_fresh_databases(postgres: Postgres) -> None:
    first, second = postgres.new_database(), postgres.new_database()
    assert first != second
    with psycopg.connect(first.replace("+psycopg", "")) as connection:
        row = connection.execute("SELECT 1").fetchone()
    assert row == (1,)
