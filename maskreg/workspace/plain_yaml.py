"""YAML that a person wrote, as plain texts, lists and mappings; everything that means more in YAML is refused.

Scalars stay texts, whatever they look like: ``no``, ``1e-3`` and ``2026-01-02`` mean different things to different
readers of YAML, and who uses a value knows what it has to be. Aliases are refused, because a page of them stands for
more than any memory holds; so are tags, which name classes, and keys that appear twice, of which one would be lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maskreg.errors import FormatError, LimitError, NotFoundError
from maskreg.extras import requiring
from maskreg.limits import LIMITS, Limits


def read_yaml(path: Path, purpose: str, *, hint: str, limits: Limits = LIMITS) -> Any:
    """The document in a file: texts, lists, and mappings by text.

    Args:
        path: a file, or a pipe.
        purpose: what it is, for messages, such as ``recipe``.
        hint: what it should look like.
        limits: bounds on its size and depth.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it cannot be read, or is not such a document.
        LimitError: it is too large.
        ConfigError: the package for YAML is missing.
    """
    with requiring(f"a {purpose} in YAML"):
        import yaml
    try:
        with path.open("rb") as file:
            # Also of what has no end, such as a device.
            data = file.read(limits.manifest_bytes + 1)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such {purpose}") from error
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}") from error
    if len(data) > limits.manifest_bytes:
        raise LimitError(f"{path}: more than {limits.manifest_bytes} bytes, which is the limit of a {purpose}")
    try:
        nodes = yaml.compose(data, _loader(limits.json_depth))
        return None if nodes is None else _plain(nodes)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not YAML: {' '.join(str(error).split())}", hint=hint) from error
    except FormatError as error:
        raise FormatError(f"{path}: {error.message}", hint=hint) from error


def _loader(depth: int) -> Any:
    import yaml

    class Loader(yaml.BaseLoader):
        """Composes nodes, and refuses while they are parsed what would be costly to have."""

        left = depth

        def compose_node(self, parent: Any, index: Any) -> Any:
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                raise FormatError(f"line {line}: an alias (*{event.anchor}); write it out")
            if getattr(event, "tag", None) is not None:
                raise FormatError(f"line {line}: a tag ({event.tag}); leave it out")
            if not self.left:
                raise FormatError(f"line {line}: nested more than {depth} levels deep")
            self.left -= 1
            node = super().compose_node(parent, index)
            self.left += 1
            return node

    return Loader


def _plain(node: Any) -> Any:
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [_plain(item) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    values: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise FormatError(f"line {line}: a key that is no text")
        if key.value in values:
            raise FormatError(f"line {line}: the key {key.value!r} appears twice")
        values[key.value] = _plain(value)
    return values
