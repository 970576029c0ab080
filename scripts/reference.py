"""The reference of the Python API as one page of the site; ``python -m scripts.reference`` prints it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Any

import maskreg
from maskreg.progress import SILENT
from maskreg.workspace import verbs

SECTIONS: dict[str, tuple[str, ...]] = {
    "Making": ("extract", "baseline", "combine", "merge", "convert_from", "convert_to"),
    "Training": ("retrain", "extract_result"),
    "Sharing": ("push", "pull", "load", "tag", "mv", "annotate", "remove", "restore"),
    "Applying": ("apply", "apply_", "switch_"),
    "Following a run": (
        "publish",
        "Publisher",
        "Retention",
        "Published",
        "squash",
        "follow",
        "follow_folder",
        "Follower",
        "Followed",
        "replicas",
    ),
    "Evidence": ("compare", "analyze", "trajectory", "report"),
    "Looking things up": ("search", "list", "show", "log"),
    "Maintenance": ("verify", "gc", "doctor", "remotes", "keys", "jobs", "config", "db"),
    "Values": (
        *("Workspace", "Settings", "Registry", "Ref", "Digest", "Card"),
        *("Artifact", "Mask", "TensorMask", "BaselineSpec", "Checkpoint", "open_checkpoint"),
    ),
    "Errors": (
        *("errors", "MaskregError", "UsageError", "DataError", "NotFoundError", "UnavailableError"),
        *("CannotCreateError", "TryAgainError", "NotAllowedError", "ConfigError"),
    ),
}
"""Every public name, in the order of the page."""

INTRODUCTION = """# Python API

Everything the command line does, from `import maskreg`. Where a function takes an artifact, it accepts a reference
(`"team/qwen3-8b-opd:v3"`), a digest (`"sha256:…"`), an open artifact, or the result of an earlier call; where it takes
a checkpoint, a path, a hub id or an open checkpoint. Results are frozen dataclasses; their `to_json()` is what the
command prints with `--json`. Every function works in the local registry and the remotes of the settings; pass
`workspace` to use others, or to keep connections open over several calls. Each raises, beside what it names itself:

{raises}
This page is made from the docstrings when the site is built.
"""

_WIDTH = 100
_HEADING = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
_ITEM = re.compile(r"^(\*{0,2}[\w, .]+?): (.*)$")
_SENTENCE = re.compile(r".*?\.(?= |$)|.*")
_CLASS = re.compile(r"(?<!\[)`([A-Z]\w+)`(?!\])")
_BUILTINS = {"list": "search"}
"""Public names that are other names of the same thing."""


@dataclass
class Docstring:
    """A docstring in Google style.

    Attributes:
        text: everything before the first section.
        sections: items of each section: a name and what is said of it.
    """

    text: str = ""
    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object) -> Docstring:
        """Parse the docstring of a value; empty when it has none of its own."""
        parsed, lines, section = cls(), [], ""
        for line in (inspect.cleandoc(getattr(value, "__doc__", None) or "")).splitlines():
            if match := _HEADING.match(line):
                section = match[1]
                parsed.sections[section] = []
            elif not section:
                lines.append(line)
            elif line.strip():
                parsed._add(section, line)
        parsed.text = _markdown("\n".join(lines).strip())
        return parsed

    def _add(self, section: str, line: str) -> None:
        items, text = self.sections[section], _markdown(line.strip())
        match = None if line.startswith("     ") or section in {"Returns", "Yields"} else _ITEM.match(text)
        if match:
            items.append((match[1], match[2]))
        elif items:
            items[-1] = (items[-1][0], f"{items[-1][1]} {text}")
        else:
            items.append(("", text))


def arguments(function: Callable[..., Any]) -> dict[str, str]:
    """What is said of each argument of a use case: by itself, by its options, or for all use cases."""
    own = {name.lstrip("*"): text for name, text in Docstring.of(function).sections.get("Args", ())}
    shared = dict(Docstring.of(verbs).sections["Args"])
    said: dict[str, str] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        options = options_of(function, parameter)
        if options is not None:
            texts = shared | dict(_attributes(options))
            said |= {key: texts[key] for key in options.__annotations__}
        elif text := own.get(name) or shared.get(name):
            said[name] = text
    return said


def options_of(function: Callable[..., Any], parameter: inspect.Parameter) -> type | None:
    """The options that a use case takes as keywords: the TypedDict that ``**options`` unpacks."""
    match = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
    return getattr(inspect.getmodule(function), match[1]) if match else None


def page() -> str:
    """The whole page."""
    raises = "\n".join(f"- `{name}`: {text}" for name, text in Docstring.of(verbs).sections["Raises"])
    parts = [INTRODUCTION.format(raises=f"{raises}\n")]
    results: dict[str, type] = {}
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts.append("| name | in one sentence |\n|---|---|")
        parts += [f"| [`{name}`](#{name.lower()}) | {_sentence(name, getattr(maskreg, name))} |" for name in names]
        parts.append("")
        for name in names:
            parts += _entry(name, getattr(maskreg, name), results)
    parts.append("## Results\n")
    for name in sorted(results):
        parts += _result(name, results[name])
    entries = {name for names in SECTIONS.values() for name in names} | set(results)
    return _linked("\n".join(parts).rstrip() + "\n", {name for name in entries if name[0].isupper()})


def _sentence(name: str, value: Any) -> str:
    if name in _BUILTINS:
        return f"Another name of `{_BUILTINS[name]}`."
    if name == "errors":
        return "Every error, as a tree."
    if name == "Mask":
        return "The mask of each tensor, by name."
    text = Docstring.of(value).text.partition("\n\n")[0].replace("\n", " ")
    return _SENTENCE.match(text)[0].replace("|", "\\|")  # type: ignore[index]


def _linked(page: str, entries: Set[str]) -> str:
    """The page with a link wherever it names a class that it has an entry for; other errors lead to their tree."""
    lines, fenced = [], False
    for line in page.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        lines.append(line if fenced or line.startswith("#") else _CLASS.sub(partial(_link, entries), line))
    return "".join(lines)


def _link(entries: Set[str], match: re.Match[str]) -> str:
    name = match[1]
    if name in entries:
        return f"[`{name}`](#{_anchor(name)})"
    return f"[`{name}`](#errors)" if hasattr(maskreg.errors, name) else match[0]


def _entry(name: str, value: Any, results: dict[str, type]) -> Iterator[str]:
    yield f"### {name}\n"
    if name in _BUILTINS:
        yield f"Another name of `{_BUILTINS[name]}`.\n"
    elif isinstance(value, ModuleType):
        yield from _module(name, value, results)
    elif inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isfunction(value):
        yield from _function(f"maskreg.{name}", value, results)
    else:
        yield "`Mapping[str, TensorMask]`: the mask of each tensor, by name.\n"


def _module(name: str, module: ModuleType, results: dict[str, type]) -> Iterator[str]:
    yield f"{Docstring.of(module).text}\n" if name != "errors" else "Every error, as a tree:\n"
    if name == "errors":
        yield f"```text\n{_tree(module)}\n```\n"
        return
    for function_name, function in vars(module).items():
        own = inspect.isfunction(function) and function.__module__ == module.__name__ and _is_public(function_name)
        if own and "workspace" in inspect.signature(function).parameters:
            yield from _function(f"maskreg.{name}.{function_name}", function, results)


def _tree(module: ModuleType) -> str:
    text = inspect.cleandoc(module.__doc__ or "")
    return "\n".join(line for line in text.splitlines() if line.startswith(("MaskregError", "├", "│", "└")))


def _function(name: str, function: Callable[..., Any], results: dict[str, type]) -> Iterator[str]:
    documented = Docstring.of(function)
    signature = inspect.signature(function)
    yield f"```python\n{_signature(name, function)}\n```\n"
    yield f"{documented.text}\n"
    yield from _items("Arguments", list(arguments(function).items()))
    returned = _result_of(function, signature, results)
    said = " ".join(text for _, text in documented.sections.get("Returns", ()))
    if returned or said:
        kind = f"`{returned}`" if returned else ""
        yield f"**Returns** {': '.join(part for part in (kind, said) if part)}\n"
    yield from _items("Raises", documented.sections.get("Raises", ()))


def _class(name: str, value: type) -> Iterator[str]:
    documented = Docstring.of(value)
    yield f"{documented.text}\n"
    if not issubclass(value, maskreg.MaskregError) or value is maskreg.MaskregError:
        yield from _items("Attributes", _attributes(value))
    methods = list(_methods(value))
    if methods:
        yield "**Methods**\n"
        yield "\n".join(f"- `{signature}`: {summary}" for signature, summary in methods) + "\n"
    if issubclass(value, maskreg.MaskregError):
        # Rooms that only a server has, such as its jobs, add kinds of their own when they are imported.
        kinds = (leaf for leaf in value.__subclasses__() if leaf.__module__ == value.__module__)
        leaves = ", ".join(f"`{leaf.__name__}`" for leaf in kinds)
        if leaves and value is not maskreg.MaskregError:
            yield f"Kinds: {leaves}.\n"


def _result(name: str, value: type) -> Iterator[str]:
    if name.lower() in maskreg.__all__:
        yield f'<a id="{_anchor(name)}"></a>\n'
    yield f"### {name}\n"
    yield f"{Docstring.of(value).text}\n"
    yield from _items("Attributes", _attributes(value))


def _attributes(value: type) -> list[tuple[str, str]]:
    items: dict[str, str] = {}
    for base in reversed(value.__mro__):
        if base.__module__.startswith("maskreg") and "__doc__" in vars(base):
            items |= dict(Docstring.of(base).sections.get("Attributes", ()))
            for name, member in vars(base).items():
                if isinstance(member, property | cached_property) and _is_public(name):
                    items[name] = Docstring.of(member).text.partition("\n")[0]
    shared = dict(Docstring.of(verbs).sections["Attributes"])
    own = fields(value) if is_dataclass(value) else ()
    return list(({each.name: shared[each.name] for each in own if each.name in shared} | items).items())


def _methods(value: type) -> Iterator[tuple[str, str]]:
    for name, member in vars(value).items():
        function = member.__func__ if isinstance(member, classmethod) else member
        if inspect.isfunction(function) and _is_public(name) and function.__doc__:
            parameters = [p for p in inspect.signature(function).parameters if p not in {"self", "cls"}]
            prefix = f"{value.__name__}." if isinstance(member, classmethod) else ""
            summary = Docstring.of(function).text.partition("\n\n")[0].replace("\n", " ")
            yield f"{prefix}{name}({', '.join(parameters)})", summary


def _anchor(name: str) -> str:
    # Headings that differ only in case would have one anchor: `report` returns a `Report`.
    return f"{name.lower()}-value" if name[0].isupper() and name.lower() in maskreg.__all__ else name.lower()


def _result_of(function: Callable[..., Any], signature: inspect.Signature, results: dict[str, type]) -> str:
    # The first dataclass in the return annotation, as the function's module knows it.
    words: list[str] = re.findall(r"\w+", str(signature.return_annotation))
    for word in words:
        value = getattr(inspect.getmodule(function), word, None)
        if inspect.isclass(value) and is_dataclass(value) and word not in maskreg.__all__:
            results[word] = value
            return word
    return ""


def _signature(name: str, function: Callable[..., Any]) -> str:
    signature, parts = inspect.signature(function), list[str]()
    for parameter in signature.parameters.values():
        if (options := options_of(function, parameter)) is None:
            parts.append(_parameter(parameter))
        else:
            parts += [f"{key}: {form.__forward_arg__} = ..." for key, form in options.__annotations__.items()]
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = str(signature.return_annotation).replace("'", "")
    line = f"{name}({', '.join(parts)}) -> {returned}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f") -> {returned}"


def _parameter(parameter: inspect.Parameter) -> str:
    prefix = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""
    prefix = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else prefix
    text = f"{prefix}{parameter.name}: {parameter.annotation}"
    default = parameter.default
    if default is inspect.Parameter.empty:
        return text
    if default is SILENT:
        return f"{text} = SILENT"
    if is_dataclass(default):
        return f"{text} = {type(default).__name__}()"
    return f"{text} = {json.dumps(default) if isinstance(default, str) else repr(default)}"


def _items(title: str, items: Sequence[tuple[str, str]]) -> Iterator[str]:
    if items:
        yield f"**{title}**\n"
        yield "\n".join(f"- `{name}`: {text}" if name else f"- {text}" for name, text in items) + "\n"


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _markdown(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


if __name__ == "__main__":
    print(page(), end="")
