"""The tables and the picture of ``docs/plan.md``, made from simulated schedules."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from scripts.pictures import STYLE
from scripts.plan.inputs import MODELS, NODE, NODES, RESULT_SECONDS, S3, Rates, measured_rates
from scripts.plan.schedule import Plan, Schedule, simulate

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE, PICTURE = DOCS / "plan.md", DOCS / "plan.svg"

_STATIONS = ("cores", "network of the nodes", "requests", "thread of the driver", "storing threads", "commit")
_LEFT, _STEP = 184, 92

HALF, STEP = "half of the weights moved", "2 % of the weights moved"

planned = lru_cache(maxsize=256)(simulate)
"""Schedules, each simulated once."""


def tables() -> dict[str, Callable[[], str]]:
    """What makes the tables of the page, by name."""
    return {"rates": rates_table, "plan": plan_table, "changes": changes_table}


def rendered(page: str) -> str:
    """The page with its tables made anew, between comments that name them."""
    for name, table in tables().items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise ValueError(f"the page needs one part {begin.strip()} ... {end}")
        body = f"{begin}{table()}{end}"
        page = pattern.sub(lambda _, body=body: body, page)  # type: ignore[misc]
    return page


def rates_table() -> str:
    """What was measured."""
    meanings = {
        "diff": "compare, code and hash, on the cores",
        "take": "take results and fill shards, on the driver's thread",
        "store": "sum, hash and write shards, on its storing threads",
        "apply": "apply, on the cores",
        "fetch": "fetch from a bucket rather than a disk, for each GB fetched",
        "send": "send to a bucket rather than a disk",
    }
    kinds = measured_rates()
    lines = [f"| CPU s for each GB of a checkpoint | {' | '.join(kinds)} |", "|---|" + "--:|" * len(kinds)]
    for name, meaning in meanings.items():
        lines.append(f"| {meaning} | {' | '.join(f'{getattr(rates, name):.2f}' for rates in kinds.values())} |")
    sizes = " | ".join(f"{100 * rates.stored:.1f} %" for rates in kinds.values())
    lines.append(f"| size of the artifact, of the checkpoint's | {sizes} |")
    return "\n".join(lines) + "\n"


def rows() -> dict[str, Callable[[float, int], Plan]]:
    """What is planned, by what the table calls it."""
    kinds = measured_rates()

    def extract(rates: Rates) -> Callable[[float, int], Plan]:
        return lambda parameters, nodes: Plan("extract", parameters, nodes, rates)

    return {
        f"extract, {HALF}": extract(kinds[HALF]),
        f"extract, {STEP}": extract(kinds[STEP]),
        f"apply, {HALF}": lambda parameters, nodes: Plan("apply", parameters, nodes, kinds[HALF]),
    }


def plan_table() -> str:
    """Every command on every model and number of nodes."""
    lines = [
        f"| model | command | {' | '.join(f'{nodes} nodes' for nodes in NODES)} | works most |",
        "|---|---|" + "--:|" * len(NODES) + "---|",
    ]
    for model, parameters in MODELS.items():
        for name, plan in rows().items():
            schedules = [planned(plan(parameters, nodes)) for nodes in NODES]
            times = " | ".join(duration(schedule.seconds) for schedule in schedules)
            busiest = ", then ".join(dict.fromkeys(schedule.bound for schedule in schedules))
            lines.append(f"| {model} | {name} | {times} | {busiest} |")
    return "\n".join(lines) + "\n"


def changes() -> dict[str, Plan]:
    """What changes the time of one command, by its description."""
    base = Plan("extract", MODELS["671 B"], 64, measured_rates()[HALF])
    return {
        "as above": base,
        "one storing thread": replace(base, storers=1),
        "results that cost the driver a tenth": replace(base, result_seconds=RESULT_SECONDS / 10),
        "four prefixes for each checkpoint": replace(base, prefixes=4),
        "one node in eight three times as slow": replace(base, slow=1 / 8),
        "each node on the files that it holds": replace(base, in_place=True),
        "12 requests at a time and node": replace(base, node=replace(NODE, connections=12)),
        "without a limit of requests": replace(base, service=replace(S3, gets=1e9, puts=1e9)),
    }


def changes_table() -> str:
    """One command, and what changes its time."""
    lines = ["| extract of 671 B on 64 nodes, half moved | time | works most |", "|---|--:|---|"]
    for name, plan in changes().items():
        schedule = planned(plan)
        lines.append(f"| {name} | {duration(schedule.seconds)} | {_busiest(schedule)} |")
    return "\n".join(lines) + "\n"


def duration(seconds: float) -> str:
    """As in ``95 s`` or ``14 min``."""
    return f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"


def _busiest(schedule: Schedule) -> str:
    return f"{schedule.bound}, {100 * schedule.busy[schedule.bound]:.0f} %"


def picture() -> str:
    """How busy each station is, for 671 B on every number of nodes."""
    labels = [f"extract, {HALF}", f"extract, {STEP}", f"apply, {HALF}"]
    parts, y = list[str](), 48.0
    for column, station in enumerate(_STATIONS):
        for line, words in enumerate(station.split(" ", 1)):
            parts.append(_text(_LEFT + _STEP * column, 20 + 15 * line, words, "small soft"))
    for label in labels:
        parts.append(_text(12, y + 14, label, "bold"))
        y += 24
        for nodes in NODES:
            schedule = planned(rows()[label](MODELS["671 B"], nodes))
            parts.append(_text(24, y + 13, f"{nodes} nodes, {duration(schedule.seconds)}", "small"))
            for column, station in enumerate(_STATIONS):
                parts += _bar(_LEFT + _STEP * column, y, schedule, station)
            y += 22
        y += 12
    height = round(y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 {height}" role="img" '
        'aria-label="How busy each station of a schedule is">\n'
        f'<style>{STYLE}</style>\n<rect class="ground" width="740" height="{height}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _bar(x: float, y: float, schedule: Schedule, station: str) -> Sequence[str]:
    share = schedule.busy.get(station, 0.0)
    kind = "hot" if station == schedule.bound else "ours"
    return (
        f'<rect class="box" x="{x}" y="{y}" width="84" height="16"/>',
        f'<rect class="{kind}" x="{x}" y="{y}" width="{84 * min(share, 1):.1f}" height="16"/>',
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{text}</text>'
