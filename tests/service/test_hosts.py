"""The names that a server answers to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from maskreg.errors import UsageError
from maskreg.service.app import create_app
from maskreg.service.start import Options, open_service
from tests.service.serving import service_in


@pytest.mark.parametrize(
    ("names", "host", "is_known"),
    [
        (("masks.example",), "MASKS.example:8470", True),
        (("[::1]",), "[::1]:8470", True),
        (("*.masks.example",), "a.masks.example", True),
        (("*.masks.example",), "masks.example", False),
        (("*.masks.example",), "evilmasks.example", False),
        (("masks.example",), "masks.example@evil.example", False),
        (("masks.example",), "evil.example", False),
        (("www.masks.example",), "masks.example", False),
        (("masks.example",), "", False),
        (("*",), "anything", True),
    ],
)
def test_other_names_are_refused(names: tuple[str, ...], host: str, is_known: bool, tmp_path: Path) -> None:
    app = create_app(replace(service_in(tmp_path), hosts=names))
    assert TestClient(app).get("/livez", headers={"Host": host}).status_code == (200 if is_known else 400)


@pytest.mark.parametrize("name", ["", "http://masks.example", "masks.example:8470", "a b", "a/b", "*x.example", "::1"])
def test_what_is_no_name_cannot_be_allowed(name: str) -> None:
    with pytest.raises(UsageError):
        open_service(Options(hosts=("*.masks.example", name)))
