"""``maskreg survey``: the table, the document, and what it refuses."""

from __future__ import annotations

from maskreg.words import percent
from tests.cli.conftest import Run


def test_a_line_on_every_mask(run: Run, masks: tuple[str, str, str]) -> None:
    done = run("survey", *masks[:3])
    document = run("survey", *masks[:3], "--json").json
    assert done.out.startswith("The overlap of 3 pairs takes ")
    for number, row in enumerate(document["masks"]):
        (line,) = (line for line in done.out.splitlines() if line.startswith(row["ref"]))
        assert percent(document["sizes"][number] / document["numel"]) in line
        if number:
            assert percent(document["headrooms"][number][number - 1]) in line
    compared = run("compare", *masks[:3], "--json").json
    assert document["both"][0][1] == compared["pairs"][0]["whole"]["nnz_both"]


def test_a_pattern_stands_for_many(run: Run, masks: tuple[str, str, str]) -> None:
    for tag in ("step-10", "step-9"):
        run("tag", masks[0], f"team/run:{tag}")
    document = run("survey", "team/run:step-*", masks[1], "--json").json
    assert [row["ref"] for row in document["masks"]][:2] == ["team/run:step-9", "team/run:step-10"]
    assert document["jaccard"][0][1] == 1
