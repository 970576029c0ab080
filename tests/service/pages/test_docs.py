"""The pages of the API: every request is there, and its examples are requests that the server understands."""

from __future__ import annotations

import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.service.labs import Lab
from tests.service.serving import ADMIN, listening


def test_every_request_is_described_and_its_examples_are_understood(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKREG_TOKEN", ADMIN)
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_bytes(b"{}")
    client, paths = lab.client(""), lab.app.openapi()["paths"]
    assert client.get("/docs/nothing").status_code == 404
    linked = re.findall(r'href="/docs/(\w+)#([^"]+)">(/[^<]+)<', client.get("/docs").text)
    assert sorted(path for *_, path in linked) == sorted(path for path in paths for _ in paths[path])
    with listening(lab.app) as url:
        for topic in {topic for topic, *_ in linked}:
            text = client.get(f"/docs/{topic}", headers={"Host": url.removeprefix("http://")}).text
            ids = set(re.findall(r'id="([^"]+)"', text))
            assert {anchor for each, anchor, _ in linked if each == topic} <= ids
            assert set(re.findall(r'href="#([^"]+)"', text)) <= ids
            examples = [unescape(each) for each in re.findall(r"<pre[^>]*><code>(.*?)</code>", text, re.DOTALL)]
            assert len(examples) == 2 * len([each for each, *_ in linked if each == topic])
            for curl, python in zip(examples[::2], examples[1::2], strict=True):
                line = curl.replace("curl ", "curl -sS -w '\n%{http_code}' ", 1)
                done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
                answer, _, status = done.stdout.rpartition("\n")
                names: dict[str, Any] = {}
                exec(python, names)
                for number, said in ((int(status), answer), (names["answer"].status_code, names["answer"].text)):
                    # What is malformed, or leads nowhere, is answered with where requests are described.
                    assert 200 <= number < 500 and "described at /docs" not in said, (python, number, said)
