"""What a server is deployed with: its commands can be started, and its pods have no more rights than they need.

No container is built or run here: there is no daemon. The commands that containers run are run without one.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import httpx2
import kubernetes_validate
import pytest
import yaml
from maskreg_cli.main import cli

from maskreg.service.app import create_app
from maskreg.service.context import LOOPBACK
from maskreg.version import __version__
from tests.buckets import log_in
from tests.e2e.running import Person
from tests.repository import ROOT, tracked
from tests.servers import Postgres, SeaweedFS
from tests.service.serving import listening, service_in
from tests.service.test_serve import serving

MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
OBJECTS = [
    document
    for path in MANIFESTS
    if path.name != "kustomization.yaml"
    for document in yaml.safe_load_all(path.read_text())
]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
FINAL = DOCKERFILE.rpartition("\nFROM ")[2]
"""The stage that is the image."""


def pods() -> list[dict[str, Any]]:
    return [document["spec"]["template"]["spec"] for document in OBJECTS if "template" in document["spec"]]


@pytest.mark.parametrize("document", OBJECTS, ids=lambda document: document["kind"])
def test_kubernetes_knows_every_field(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.37", strict=True)


def test_every_manifest_is_applied() -> None:
    listed = yaml.safe_load((ROOT / "deploy/kubernetes/kustomization.yaml").read_text())
    assert sorted(listed["resources"]) == [path.name for path in MANIFESTS if path.name != "kustomization.yaml"]
    assert {image["newTag"] for image in listed["images"]} == {__version__}
    assert next(d for d in OBJECTS if d["kind"] == "Job")["metadata"]["name"].endswith(f"-{__version__}")


def test_the_image_is_built_from_what_is_here() -> None:
    names = {str(path) for path in tracked()}
    lines = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    patterns = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in " ".join(lines).split():
        assert source in names or any(name.startswith(f"{source}/") for name in names), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in patterns), source


def test_the_image_has_no_root_and_nothing_to_build_with() -> None:
    assert re.findall(r"^USER (.*)$", FINAL, re.MULTILINE) == ["8470:8470"]
    assert not re.search(r"apt-get|gcc|pip install", FINAL)
    assert "'.[server]'" in DOCKERFILE


def test_the_check_of_health_says_whether_the_server_can_serve(tmp_path: Path) -> None:
    found = re.search(r"HEALTHCHECK.*?CMD (\[.*\])", FINAL)
    assert found
    command = json.loads(found[1])
    with service_in(tmp_path) as service, listening(create_app(service)) as url:

        def status() -> int:
            script = command[2].replace("http://127.0.0.1:8470", url)
            return subprocess.run([sys.executable, "-c", script], capture_output=True).returncode

        assert command[:2] == ["python", "-c"] and "/readyz" in command[2]
        assert status() == 0
        (tmp_path / "maskreg.json").write_text("{}")
        assert status() != 0


def commands() -> list[list[str]]:
    """Every command line of maskreg that something here runs."""
    (image,) = re.findall(r"^CMD (\[.*\])$", FINAL, re.MULTILINE)
    services = [service["command"] for service in COMPOSE["services"].values() if service.get("image") == "maskreg"]
    return [json.loads(image), *services, *(pod["containers"][0]["args"] for pod in pods())]


@pytest.mark.parametrize("args", commands(), ids=shlex.join)
def test_what_containers_run_can_be_typed(args: list[str]) -> None:
    command: click.Command = cli
    rest = list(args)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        inner = command.get_command(click.Context(command), name)
        assert inner is not None, name
        command = inner
    assert command.make_context("maskreg", rest).params


def test_what_compose_runs_serves(
    tmp_path: Path, s3_server: SeaweedFS, postgres: Postgres, programs: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its servers in place of the containers, and any port in place of 8470."""
    services = COMPOSE["services"]
    real = {
        "s3://masks/registry": f"s3://{s3_server.new_bucket()}/registry",
        "postgresql+psycopg://maskreg@db/maskreg": postgres.new_database(),
    }

    def here(command: list[str]) -> list[str]:
        text = "\0".join(command)
        for written, meant in real.items():
            text = text.replace(written, meant)
        return text.split("\0")

    own = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"}
    assert own <= set(services["server"]["environment"])
    log_in(s3_server, monkeypatch)
    person = Person(tmp_path, programs=programs)
    verb, *args = here(services["server"]["command"])
    assert verb == "serve"
    assert "maskreg db upgrade --catalog" in person.run("serve", *args, exit=78)
    person.run(*here(services["upgrade"]["command"]))
    with serving(person, *(arg for arg in args if not arg.startswith("--port"))) as server:
        assert server.said["token"]
        # Its processes might still be starting.
        assert httpx2.get(f"{server.said['url']}/readyz", timeout=60).status_code == 200


def test_compose_publishes_nothing_beyond_this_machine_and_has_no_password() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8470:8470"]
    secrets = re.findall(r"(?:PASSWORD|SECRET\w*): (.*)", (ROOT / "compose.yaml").read_text())
    assert len(secrets) == 4
    assert all(re.fullmatch(r"\$\{\w+:\?put it into \.env\}", secret) for secret in secrets)


def test_pods_have_no_more_rights_than_they_need() -> None:
    for pod in pods():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]


def test_probes_ask_under_a_name_that_the_server_answers_to() -> None:
    probes = [
        probe["httpGet"]
        for pod in pods()
        for container in pod["containers"]
        for name, probe in container.items()
        if name.endswith("Probe")
    ]
    assert [probe["path"] for probe in probes] == ["/livez", "/livez", "/readyz"]
    for probe in probes:
        (header,) = probe["httpHeaders"]
        assert header["name"] == "Host" and header["value"] in LOOPBACK
