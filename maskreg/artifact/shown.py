"""What a notebook shows of an open artifact that nobody has named: its figures as one table, without plots."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from maskreg.result import html_table
from maskreg.words import counted, human_bytes, percent, times, whole

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest, Side
    from maskreg.digest import Digest


def html(digest: Digest, manifest: Manifest) -> str:
    """A fragment of HTML without script, style sheet or link; everything that comes from the artifact is escaped.

    Args:
        digest: the artifact's.
        manifest: its manifest.
    """
    totals, ffn = manifest.totals, manifest.totals.ffn
    exact = ", gives the target's bytes exactly" if manifest.kind == "delta" and manifest.exact else ""
    rows = [
        ("digest", str(digest)),
        ("kind", f"{manifest.kind}{exact}"),
        ("rule", manifest.rule),
        ("density", f"{percent(totals.density)}, {whole(totals.nnz)} of {counted(totals.numel, 'coordinate')}"),
        ("FFN share", f"{percent(ffn.mask_share)} of the mask, lift {times(ffn.mask_lift)}"),
        ("source", _side(manifest.source)),
        *([("target", _side(manifest.target))] if manifest.kind != "baseline" else []),
        *((name, human_bytes(part.size)) for name, part in manifest.parts.items()),
        ("size", human_bytes(manifest.size)),
    ]
    by_role = sorted(totals.roles.items(), key=lambda item: -item[1].numel)
    roles = [(role, percent(group.density), f"{whole(group.nnz)} / {whole(group.numel)}") for role, group in by_role]
    plots = f"With its plots: <code>maskreg.show(&quot;{escape(digest.short)}&quot;)</code>"
    return f"{html_table(rows)}{html_table([('role', 'density', 'moved'), *roles])}<p>{plots}</p>"


def _side(side: Side) -> str:
    return f"{side.hub or side.root}, {counted(side.params, 'param')} in {counted(side.tensors, 'tensor')}"
