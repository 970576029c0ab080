"""A registry that pages show: two runs of one source, a baseline, a combination, and a name hidden from visitors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.service.app import create_app
from maskreg.service.jobs.config import JobConfig
from maskreg.service.jobs.queue import NewJob
from tests.browser import browser
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.service.serving import listening, service_in

__all__ = ["browser"]

EVIL = "<script>document.title='owned'</script>&\"'<img src=x onerror=alert(1)>"
"""What must come out as text wherever it is shown."""

README = f"""# What it is for

A run on **sums**, {EVIL}

| seed | accuracy |
|-----:|---------:|
| 0    | 0.97     |

```python
maskreg.apply("lab/sums-opd")
```
"""

MODULES = ("self_attn.q_proj", "mlp.up_proj", f"mlp.{EVIL}")

LAYERS = 26  # more than a screen shows as a table


def tensors() -> dict[str, Tensor]:
    """A small model, with a tensor name as bad as those in a checkpoint can be."""
    model = {"model.embed_tokens.weight": bf16((64, 16), 1)}
    for layer in range(LAYERS):
        for number, module in enumerate(MODULES):
            model[f"model.layers.{layer}.{module}.weight"] = bf16((32, 16), 3 + 3 * layer + number)
    return model


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a filled registry."""
    folder = tmp_path_factory.mktemp("pages")
    source = tensors()
    paths = {"source": make_checkpoint(folder / "source", source)}
    for seed, name in enumerate(("opd", "rlvr", "later"), start=1):
        target = {key: moved(tensor, 0.2 * seed, 100 * seed + at) for at, (key, tensor) in enumerate(source.items())}
        paths[name] = make_checkpoint(folder / name, target)
    settings = maskreg.Settings(home=folder / "home", config_path=folder / "config.toml")
    with maskreg.Workspace(settings) as space:
        for name, method in (("team/toy-opd:v1", "opd"), ("team/toy-rlvr:v1", "rlvr"), ("secret/plan:v1", "opd")):
            maskreg.extract(paths["source"], paths[method], name, family="toy", method=method, workspace=space)
        maskreg.baseline("secret/plan:v1", kind="random-global", seed=2, name="secret/drawn:v1", workspace=space)
        for other in ("team/toy-rlvr:v1", "secret/drawn:v1"):
            maskreg.compare("team/toy-opd:v1", other, record=True, workspace=space)
        maskreg.annotate(
            "team/toy-opd:v1",
            description=f"Made **on purpose**: [recipe](https://example.org/a), [bad](javascript:alert(1)) {EVIL}",
            meta={"seed": "0", EVIL: EVIL},
            readme=README,
            workspace=space,
        )
        maskreg.combine(["team/toy-opd:v1", "team/toy-rlvr:v1"], "team/both", how="and", workspace=space)
        keep = maskreg.Retention(anchor_every=2)
        with maskreg.Publisher("team/run", source=paths["source"], retention=keep, workspace=space) as publisher:
            for step, name in enumerate(("opd", "later"), start=1):
                publisher.publish(paths[name], meta={"step": str(step), "note": EVIL})
        maskreg.baseline("team/toy-opd:v1", kind="random-global", seed=1, name="team/toy-random", workspace=space)
    return settings.home


@pytest.fixture(scope="module")
def client(home: Path) -> TestClient:
    """A client of a server where visitors can read the project team."""
    return TestClient(
        create_app(service_in(home, frozenset({"team"}))), "http://localhost", headers={"Accept": "text/html"}
    )


@pytest.fixture(scope="module")
def served(home: Path) -> Iterator[str]:
    """The URL of that server, on a port; a job waits there."""
    service = service_in(home, frozenset({"team"}))
    if not service.queue.list():
        service.queue.submit(NewJob("extract", "team", EVIL, "team/extracted:v1", {"rule": "exact"}))
    url = f"sqlite:///{home / 'service.db'}"
    jobs = JobConfig(service.workspace.settings, None, url, (), home / "outputs")
    with listening(create_app(replace(service, jobs=jobs))) as address:
        yield address
