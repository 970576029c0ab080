"""The server as its OpenAPI document describes it, with requests that are made from that document.

``MASKREG_FUZZ_EXAMPLES=500 pytest tests/service/test_openapi.py`` sends more of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from maskreg.service.app import create_app
from maskreg.service.middleware import HEADERS
from maskreg.service.problems import REQUESTS
from tests.service.labs import fill
from tests.service.serving import ADMIN, headers, listening, service_in

EXAMPLES = int(os.environ.get("MASKREG_FUZZ_EXAMPLES", "4"))
"""Requests for each operation."""

CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    schemathesis.checks.not_a_server_error,
]


@dataclass(frozen=True)
class Described:
    """A server that listens, and its document."""

    schema: schemathesis.BaseSchema
    real: dict[str, list[str]]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    folder = tmp_path_factory.mktemp("described")
    with service_in(folder / "home") as service:
        digest = str(fill(service.workspace, folder)["opd"])
        key = f"artifacts/{digest.replace(':', '/')}/manifest.json"
        real = {"project": ["team"], "name": ["opd"], "tag": ["v1"], "digest": [digest], "key": [key, "maskreg.json"]}
        with listening(create_app(service)) as url:
            yield Described(schemathesis.openapi.from_url(f"{url}/openapi.json"), real)


def test_any_request_is_answered_as_the_document_says(described: Described) -> None:
    count = 0
    for result in described.schema.get_all_operations():
        operation = cast("Any", result).ok()
        _send(operation, GenerationMode.POSITIVE, described.real)
        # Where nothing is read of a request, nothing can be malformed.
        with suppress(Unsatisfiable):
            _send(operation, GenerationMode.NEGATIVE, described.real)
        count += 1
    assert count > 30


def _send(operation: Any, mode: GenerationMode, real: dict[str, list[str]]) -> None:
    # Values that name what the server has as often as those that do not: the others end at "not found".
    named = {name: values for name, values in real.items() if f"{{{name}}}" in operation.path}

    @settings(
        max_examples=max(1, EXAMPLES // 2),
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), names=st.one_of(st.none(), _chosen(named)))
    def answer_is_as_described(case: schemathesis.Case[Any], names: dict[str, str] | None) -> None:
        # Longer addresses than 64 KiB are no HTTP to the server: it closes the connection.
        assume(all(len(quote(str(value))) < 16_000 for value in (case.query or {}).values()))
        case.path_parameters = {**(case.path_parameters or {}), **(names or {})}
        response = case.call(headers=headers(ADMIN), timeout=60)
        case.validate_response(response, checks=CHECKS)
        assert {name.lower() for name in HEADERS} <= set(response.headers)

    answer_is_as_described()


def _chosen(named: dict[str, list[str]]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({name: st.sampled_from(values) for name, values in named.items()})


def test_next_steps_name_requests_that_exist(described: Described) -> None:
    routes = [re.sub(r"{[^}]*}", "[^/]+", path) for path in described.schema.raw_schema["paths"]]
    rows = [row for by_fact in REQUESTS.values() for row in by_fact.values()]
    requests = [found[1] for row in rows if (found := re.search(r"GET (/[^ ?]*)", row))]
    assert len(requests) == len(rows)
    assert [path for path in requests if not any(re.fullmatch(route, path) for route in routes)] == []
