"""Figures of an analysis in the form that a paper prints: each a function of the document."""

from __future__ import annotations

from collections.abc import Callable, Collection

from maskreg.analysis.papers.base import Document, Ours

Figure = Callable[[Document], Ours]

PERCENT = 100.0


def sparsity(rule: str, roles: Collection[str] = ()) -> Figure:
    """Share of coordinates that did not move, in percent, all coordinates counted alike.

    Args:
        rule: what counts as moved.
        roles: of the tensors that count; empty for all.
    """

    def ours(document: Document) -> Ours:
        groups = [document["roles"][role] for role in roles if role in document["roles"]] or [document["total"]]
        if roles and groups == [document["total"]]:
            return Ours(reason=f"the update has no tensor of {' or '.join(roles)}")
        numel = sum(group["numel"] for group in groups)
        sides = {}
        for side in ("value", "null"):
            shares = [group["sparsity"].get(rule, {}).get(side) for group in groups]
            if None in shares or not numel:
                return Ours(reason=f"density under {rule} was not measured")
            sides[side] = sum(share * group["numel"] for share, group in zip(shares, groups, strict=True)) / numel
        return Ours(sides["value"], sides["null"]).times(PERCENT)

    return ours


def density(rule: str, roles: Collection[str] = ()) -> Figure:
    """Share of coordinates that moved, in percent; see :func:`sparsity`."""

    def ours(document: Document) -> Ours:
        still = sparsity(rule, roles)(document)
        if still.value is None or still.null is None:
            return still
        return Ours(PERCENT - still.value, PERCENT - still.null)

    return ours


def relative_norm(document: Document) -> Ours:
    """Norm of the update over the norm of the weights, all tensors together, in percent."""
    norm = document["total"]["relative_norm"]
    if norm["value"] is None:
        return Ours(reason="the weights have no norm")
    return Ours(norm["value"], norm["null"]).times(PERCENT)


def mean(figure: str, group: str, factor: float = 1.0, role: str = "", *, key: str = "mean") -> Figure:
    """The unweighted mean of a figure over matrices, or its median.

    Args:
        figure: its name in an analysis.
        group: the metrics that it belongs to, for the next step where it is missing.
        factor: what it is multiplied by.
        role: of the matrices; empty for all that have it.
        key: ``mean`` or ``median``.
    """

    def ours(document: Document) -> Ours:
        if role and role not in document["roles"]:
            return Ours(reason=f"the update has no tensor of {role}")
        summary = document["roles"][role] if role else document["total"]
        values = summary["figures"].get(figure)
        if values is None and group not in document["recipe"]["metrics"]:
            return Ours(reason=f"{figure} was not measured: analyze with --metrics {group}")
        if values is None:
            return Ours(
                reason=f"no matrix has {figure}: they are too small, or it was analyzed with another --preset or --rank"
            )
        if values[key] is None:
            return Ours(reason=f"{figure} is undefined for every matrix: they are too small, or did not move")
        return Ours(values[key], values.get(f"null_{key}")).times(factor)

    return ours


def energy_share(*roles: str) -> Figure:
    """Share of the update's energy that lies in tensors of some roles, in percent."""

    def ours(document: Document) -> Ours:
        shares = [document["roles"][role]["energy_share"] for role in roles if role in document["roles"]]
        if not shares:
            return Ours(reason=f"the update has no tensor of {' or '.join(roles)}; a tied head is the embedding")
        sides = [[share[side] for share in shares] for side in ("value", "null")]
        value, null = (None if None in side else sum(side) for side in sides)
        return Ours(value, null, "" if value is not None else "nothing moved").times(PERCENT)

    return ours


def unavailable(reason: str) -> Figure:
    """A figure that no analysis of one update gives.

    Args:
        reason: why, with the command that gives it if there is one.
    """
    return lambda _: Ours(reason=reason)
