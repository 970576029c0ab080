"""Results as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scripts.reproduce.arms import DIRECTIONS, EARLY_SHARE, FULL, PAIRS, RANDOM_DIRECTIONS, RANK
from scripts.reproduce.statistics import Comparison, Estimate, Results, comparisons

ENDPOINTS = {"kl": "KL", "nll": "-log P(answer)", "p": "P(answer)"}

READING = f"""\
# Retraining, all figures

- Runs for masks have the seeds {", ".join(map(str, PAIRS.values()))}, the runs on them {", ".join(map(str, PAIRS))}.
- *Same bits*: coordinates that end with the bf16 code of the full run with the same seed; in brackets, of the ones that
  it changed. `full, other seed` is the run that gave the mask.
- *Random, as visible* is a random mask, dense enough to change as many coordinates visibly as the mask.
- `exponent-matched`, `low-magnitude`, `principal`, `safe` and `complement` are kinds of `maskreg baseline`. The last
  two have densities of their own. *Random, as dense as safe* is a random mask of that density.
- The external mask is one, of another trainer. The early mask is what the first {EARLY_SHARE:.0%} of the steps change.
- *{DIRECTIONS}* (GEO, arXiv 2606.07082): everything is trained, but the gradient of each matrix becomes g V Vᵀ. V
  holds the {RANK} leading right singular vectors of what another full run changes in the matrix, in bf16, in its first
  {EARLY_SHARE:.0%} of the steps. *{RANDOM_DIRECTIONS}* come from a random matrix. The embedding, also the head, is a
  matrix; vectors keep their gradients. Clipping and AdamW come afterwards, and AdamW, which scales each coordinate by
  itself, leaves the directions.
- Late OPD starts from the end of an OPD run with another seed, and so do the runs that give its masks.
- Arms of one training seed get the same problems in the same order, and generators in the same state. As their weights
  part, so do the completions that they sample.
- Intervals are 95 %, paired over seeds, each by itself. p is corrected for all comparisons of this page (Holm), each
  of which was fixed before its runs."""


def markdown(results: Mapping[str, Results]) -> str:
    """Two tables for each family, and how to read them."""
    parts = [READING]
    for (name, one), compared in zip(results.items(), comparisons(results).values(), strict=True):
        family, gain = one.family, one.gain()
        endpoint, also = ENDPOINTS[family.endpoint], family.endpoint != "p"
        parts += [
            f"## {name}",
            f"{family.steps} steps of {family.batch} records. The start has {endpoint} {one.start[family.endpoint]:.4f}"
            + (f" and P(answer) {one.start['p']:.4f}" if also else "")
            + f"; it answers {one.start['accuracy']:.1%} greedily. A full run changes {endpoint} by {_signed(gain)}.",
            _rows(
                f"trained on | density | visibly changed | same bits as full | {endpoint} | share of full's gain, % | "
                + ("P(answer) | greedy" if also else "greedy"),
                [_arm(one, arm) for arm in one.runs],
            ),
            _energy(one),
            _rows(f"compared | {endpoint} | share of full's gain, points | p", [_comparison(row) for row in compared]),
        ]
    return "\n\n".join(parts) + "\n"


def _arm(results: Results, arm: str) -> str:
    share = Estimate.of(results.shares(arm))
    figures = {name: results.average(arm, name) for name in results.start.keys() | {"density", "visible"}}
    same, of_changed = results.average(arm, "same"), results.average(arm, "same_of_changed")
    cells = [
        arm,
        f"{figures['density']:.3f}",
        f"{figures['visible']:.3f}",
        "" if arm == FULL else f"{same:.1%} ({of_changed:.1%})",
        f"{figures[results.family.endpoint]:.4f}",
        "100" if arm == FULL else f"{share.mean:.1f}" + (f" ± {share.half:.1f}" if share.half is not None else ""),
        *([f"{figures['p']:.4f}"] if results.family.endpoint != "p" else []),
        f"{figures['accuracy']:.1%}",
    ]
    return " | ".join(cells)


def _energy(results: Results) -> str:
    told = []
    for arm in (DIRECTIONS, RANDOM_DIRECTIONS):
        own, full = (f"{results.average(arm, name):.0%}" for name in ("inside", "full_inside"))
        told.append(f"{own} lies in the {arm} if gradients do, {full} after a full run")
    return f"Of the energy of what changes in matrices, {'; '.join(told)}."


def _comparison(row: Comparison) -> str:
    p = "" if row.corrected is None else f"{row.corrected:.2g}"
    return f"{row.first} - {row.second} | {_signed(row.difference)} | {_signed(row.share, 1)} | {p}"


def _signed(estimate: Estimate, digits: int = 4) -> str:
    """Mean and interval with signs."""
    if estimate.half is None:
        return f"{estimate.mean:+.{digits}f}"
    low, high = estimate.mean - estimate.half, estimate.mean + estimate.half
    return f"{estimate.mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _rows(head: str, rows: Sequence[str]) -> str:
    rule = " | ".join(["---", *["--:"] * head.count("|")])
    return "\n".join(f"| {row} |" for row in (head, rule, *rows))
