"""That no path of the server leaves it."""

from __future__ import annotations

import pytest

from maskreg.service.problems import without_paths


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/srv/models/qwen3-8b: tensor w: leaf 3 differs", "qwen3-8b: tensor w: leaf 3 differs"),
        ("there is no team/opd in local (file:///srv/my-home)", "there is no team/opd in local (my-home)"),
        ("'/srv/a/b' and \"/srv/c/\", then /d", "'b' and \"c\", then d"),
        ("maskreg apply team/opd:v1 --source ./x", "maskreg apply team/opd:v1 --source ./x"),
        ("see https://example.org/docs/serve", "see https://example.org/docs/serve"),
        ("s3://bucket/prefix/key holds 3/4", "s3://bucket/prefix/key holds 3/4"),
        ("root=/srv/a", "root=a"),
        ("postgresql+psycopg://a@db:5432/x: no lock", "the database: no lock"),
        ("postgresql://[::1]/x?sslmode=require.", "the database."),
        ("a / b", "a / b"),
    ],
)
def test_of_an_absolute_path_only_the_last_name_is_shown(text: str, left: str) -> None:
    assert without_paths(text) == left
