"""The pages of the API: every request by topic, with what it takes, what it answers, and examples to copy.

They are made from the OpenAPI document of the server itself, which programs read at ``/openapi.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from maskreg.errors import NotFoundError
from maskreg.service.access import Visitor
from maskreg.service.pages.rendering import page

router = APIRouter(prefix="/docs", tags=["pages"], default_response_class=HTMLResponse)

Schema = Mapping[str, Any]

SAMPLES: Mapping[str, Any] = {
    "project": "team", "name": "opd", "tag": "v1", "artifact": "team/opd:v1", "artifacts": ["team/opd:v1"],
    "source": "base", "target": "tuned", "key": "maskreg.json", "text": "opd", "limit": 10, "role": "reader",
    "digest": f"sha256:{'4be0' * 16}", "sha256": f"sha256:{'4be0' * 16}", "number": "4be0" * 8, "id": "4be0" * 4,
    "token": "4be0" * 4, "max_bytes": 50 << 30, "If-None-Match": "*", "If-Match": '"ETAG"', "Repr-Digest": "DIGEST",
}  # fmt: skip
"""Values of examples by the name of a parameter or field, where the document has none that says more."""


@router.get("")
def index(request: Request, principal: Visitor) -> HTMLResponse:
    """Every request by topic."""
    return page(request, principal, "docs.html.j2", topics=_topics(request), anchor=anchor)


@router.get("/{topic}")
def topic(request: Request, topic: str, principal: Visitor) -> HTMLResponse:
    """The requests of one topic, and the objects that they take and answer."""
    routes = _topics(request).get(topic)
    if routes is None:
        raise NotFoundError(f"the API has no topic {topic}", hint="/docs lists all")
    schemas = request.app.openapi()["components"]["schemas"]
    lines = partial(examples, str(request.base_url).rstrip("/"), schemas=schemas)
    used = {name: schemas[name] for name in _used(routes, schemas)}
    values = {"topic": topic, "routes": routes, "schemas": used}
    calls = {"examples": lines, "anchor": anchor, "type_of": type_of}
    return page(request, principal, "docs-topic.html.j2", status=200, **values, **calls)


def _topics(request: Request) -> dict[str, list[tuple[str, str, Schema]]]:
    topics: dict[str, list[tuple[str, str, Schema]]] = {}
    for path, routes in request.app.openapi()["paths"].items():
        for method, route in routes.items():
            topics.setdefault(route["tags"][0], []).append((method.upper(), path, route))
    return dict(sorted(topics.items(), key=lambda item: item[0] == "health"))


def anchor(method: str, path: str) -> str:
    """The identifier of a request on its page."""
    return re.sub(r"\W+", "-", f"{method.lower()}{path}").strip("-")


def type_of(schema: Schema) -> Markup:
    """The type of a value, with a link to each object."""
    match schema:
        case {"$ref": ref}:
            name = ref.rpartition("/")[2]
            return Markup('<a href="#{}">{}</a>').format(name, name.replace("_", " ").strip())
        case {"anyOf": kinds} | {"oneOf": kinds}:
            return Markup(" or ").join(map(type_of, kinds))
        case {"const": value}:
            return Markup("<code>{}</code>").format(json.dumps(value))
        case {"enum": values}:
            return Markup(" or ").join(Markup("<code>{}</code>").format(json.dumps(value)) for value in values)
        case {"type": "array", "items": kind}:
            return Markup("list of {}").format(type_of(kind))
        case {"additionalProperties": dict() as kind} if kind:
            return Markup("names with {}").format(type_of(kind))
    return Markup("{}").format({"date-time": "time"}.get(schema.get("format", ""), schema.get("type", "any")))


def sample(name: str, schema: Schema, schemas: Schema) -> Any:
    """A value of a schema, for an example."""
    if "const" in schema or schema.get("examples"):
        return schema.get("const") or schema["examples"][0]
    if name in SAMPLES:
        return SAMPLES[name]
    match schema:
        case {"$ref": ref}:
            return sample(name, schemas[ref.rpartition("/")[2]], schemas)
        case {"anyOf": [kind, *_]} | {"oneOf": [kind, *_]}:
            return sample(name, kind, schemas)
        case {"properties": fields}:
            shown = schema.get("required") or [*fields][:1]
            return {field: sample(field, fields[field], schemas) for field in shown}
        case {"enum": [value, *_]}:
            return value
        case {"type": "integer" | "number"}:
            return int(schema.get("minimum", 1)) or 1
    return {"array": [], "boolean": True}.get(schema.get("type", ""), "text")


def examples(base: str, method: str, path: str, route: Schema, schemas: Schema) -> dict[str, str]:
    """A request as a line for a shell, and in Python."""
    parts: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
    for each in route.get("parameters", ()):
        if each["required"] or each["name"] in ("text", "limit") or each["in"] == "header":
            parts[each["in"]][each["name"]] = sample(each["name"], each["schema"], schemas)
    if "If-None-Match" in parts["header"]:
        del parts["header"]["If-Match"]  # a tag that is not set yet has no ETag
    query = f"?{urlencode(parts['query'])}" if parts["query"] else ""
    address, sent = base + path.format_map(parts["path"]) + query, route.get("requestBody", {}).get("content", {})
    shell = [f"curl {'--head' if method == 'HEAD' else f'-X {method}'} '{address}'".replace("-X GET ", "")]
    headers, code = [f"{name!r}: {text!r}" for name, text in parts["header"].items()], [f"{address!r}"]
    if "security" in route:
        shell.append('-H "Authorization: Bearer $MASKREG_TOKEN"')
        headers.insert(0, """'Authorization': f"Bearer {os.environ['MASKREG_TOKEN']}\"""")
    shell += [f"-H '{name}: {text}'" for name, text in parts["header"].items()]
    code += [f"headers={{{', '.join(headers)}}}"] * bool(headers)
    for kind, content in sent.items():
        body = sample("", content["schema"], schemas)
        is_json = kind == "application/json"
        shell.append(f"-H 'Content-Type: {kind}' " + (f"-d '{json.dumps(body)}'" if is_json else "--data-binary @FILE"))
        code.append(f"json={body!r}" if is_json else "data=pathlib.Path('FILE').read_bytes()")
    called = f"answer = requests.{method.lower()}(\n    " + ",\n    ".join(code) + ",\n)"
    shown = "answer.headers" if method == "HEAD" else "answer.text"
    imports = "".join(f"import {name}\n" for name in ("os", "pathlib", "requests") if f"{name}." in called)
    return {"curl": " \\\n  ".join(shell), "Python": f"{imports}\n{called}\nprint(answer.status_code, {shown})"}


def _used(routes: list[tuple[str, str, Schema]], schemas: Schema) -> Iterator[str]:
    """The objects that requests and answers are made of, problems left out, each once."""
    waiting, seen = [json.dumps(route) for *_, route in routes], {"Problem"}
    while waiting:
        for name in re.findall(r'"#/components/schemas/(\w+)"', waiting.pop(0)):
            if name not in seen:
                seen.add(name)
                waiting.append(json.dumps(schemas[name]))
                yield name
