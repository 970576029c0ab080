"""Results as Markdown and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.reproduce.arms import ARMS
from scripts.reproduce.origins import ORIGINS
from scripts.reproduce.setting import Setting
from scripts.reproduce.statistics import ENDPOINTS, Comparison, Estimate, Results
from scripts.reproduce.tuning import Tuning

READING = """\
How to read it. A full run, too, leaves the coordinates outside the OPD mask without a visible change when its \
forward pass reads bf16 weights. That training on the mask comes close to full training is therefore expected, and \
says little. Two controls are informative: `exponent-matched`, whose coordinates change visibly as easily, and \
`random, as visible`, which ends with as many visibly changed coordinates. All arms of a training seed use the same \
prompts and random numbers, and controls are drawn anew for each. Intervals are 95 %, each by itself; where there are \
several masks, they include the variance of the mask, and where there is one, they hold for that mask only. All hold \
for these held-out problems. `sd` is the standard deviation of share over runs, in percentage points. p is corrected \
for the comparisons of the table on both endpoints together (Holm)."""


def markdown(results: Results, tuning: Tuning, setting: Setting) -> str:
    """Two tables, and how to read them."""
    fall, spread = results.gain()
    source, teacher = results.source["held_out"], results.teacher["held_out"]
    conditions = [
        *_conditions(results, tuning, setting),
        "Held out: the source has KL "
        f"{source['kl']:.4f} and P(answer) {source['p']:.4f} and answers {source['accuracy']:.1%} of problems; the "
        f"teacher has P {teacher['p']:.4f} and answers {teacher['accuracy']:.1%}.",
        f"Full against source: KL falls by {fall:.4f}, with a standard deviation over seeds of {spread:.4f}.",
        "After five steps the full arm's weights equal torch.optim.AdamW's on fp32 copies, bit for bit.",
    ]
    text = [
        *(f"- {line}" for line in conditions),
        "",
        _rows(
            "arm | masks, seeds | density | visible | norm / full | visible norm / full | KL | P(answer) | "
            "KL - full | P - full | share of full's KL gain | sd | KL on own samples | greedy | "
            "optimizer",
            [_arm(results, arm) for arm in results.runs],
        ),
        "",
        _rows(
            "comparison | masks, seeds | visible | KL | p | P(answer) | p | share of full's KL gain",
            [_comparison(comparison) for comparison in results.comparisons()],
        ),
        "",
        READING,
    ]
    return "\n".join(text) + "\n"


def _conditions(results: Results, tuning: Tuning, setting: Setting) -> list[str]:
    """What was run, one sentence a line."""
    lines = [
        f"{setting.steps} steps of {setting.batch} prompts, AdamW at {setting.lr:g}; training seeds "
        f"{', '.join(map(str, setting.seeds))}; mask seeds {', '.join(map(str, setting.mask_seeds))}, "
        "one for each of them."
    ]
    finished = sum(map(len, results.runs.values()))
    if finished < results.planned:
        lines.append(f"{finished} of {results.planned} runs are finished; rows say how many masks and seeds they have.")
    used = [origin for origin in ORIGINS if any(ARMS[arm].origin == origin for arm in results.runs)]
    lines += [f"{origin}: {ORIGINS[origin].description}." for origin in used]
    if tuning.visible:
        matched = ", ".join(f"{density:.3f} for the {origin}" for origin, density in tuning.visible.items())
        lines.append(f"Density of random masks that are to be as visible: {matched}.")
    return lines


def data(results: Results, tuning: Tuning, setting: Setting) -> dict[str, Any]:
    """Everything in the tables, and every run."""
    return {
        "setting": setting.to_json(),
        "tuning": tuning._asdict(),
        "learned": results.learned(),
        "source": results.source,
        "teacher": results.teacher,
        "differences_to_full": {
            arm: {endpoint: results.difference(arm, "full", endpoint).to_json() for endpoint in ENDPOINTS}
            for arm in results.runs
        },
        "share_of_gain": {arm: results.share(arm).to_json() for arm in results.runs},
        "comparisons": [
            {
                "first": comparison.first,
                "second": comparison.second,
                "visible": comparison.visible,
                **{
                    endpoint: {**estimate.to_json(), "p_corrected": comparison.corrected.get(endpoint)}
                    for endpoint, estimate in comparison.differences.items()
                },
                "share_of_gain": comparison.share.to_json(),
            }
            for comparison in results.comparisons()
        ],
        "runs": results.runs,
    }


def signed(estimate: Estimate, digits: int = 4, scale: float = 1.0) -> str:
    """Mean and interval with signs."""
    center = scale * estimate.mean
    if estimate.half is None:
        return f"{center:+.{digits}f}"
    low, high = center - scale * estimate.half, center + scale * estimate.half
    return f"{center:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _arm(results: Results, arm: str) -> str:
    norms = [results.average(arm, field) / max(results.average("full", field), 1e-30) for field in NORMS]
    share = results.share(arm)
    full = arm == "full"
    cells = [
        arm,
        _counts(share),
        f"{results.average(arm, 'density'):.3f}",
        f"{results.average(arm, 'visible_density'):.3f}",
        *(f"{norm:.2f}" for norm in norms),
        f"{_mean(results, arm, 'kl'):.4f}",
        f"{_mean(results, arm, 'p'):.4f}",
        "" if full else signed(results.difference(arm, "full", "kl")),
        "" if full else signed(results.difference(arm, "full", "p")),
        f"{share.mean:.1%}" + (f" ± {100 * share.half:.1f}" if share.half is not None and not full else ""),
        "" if full or share.sd is None else f"{100 * share.sd:.2f}",
        f"{_mean(results, arm, 'kl_samples'):.4f}",
        f"{_mean(results, arm, 'accuracy'):.1%}",
        f"{results.average(arm, 'optimizer_bytes') / 1e6:.1f} MB",
    ]
    return " | ".join(cells)


def _comparison(comparison: Comparison) -> str:
    cells = [f"{comparison.first} - {comparison.second}", _counts(comparison.differences["kl"])]
    cells.append(" - ".join(f"{visible:.3f}" for visible in comparison.visible))
    for endpoint in ENDPOINTS:
        p = comparison.corrected.get(endpoint)
        cells += [signed(comparison.differences[endpoint]), "" if p is None else f"{p:.2g}"]
    cells.append(f"{signed(comparison.share, 1, 100)} pp")
    return " | ".join(cells)


def _counts(estimate: Estimate) -> str:
    return f"{estimate.masks}, {estimate.seeds}"


def _mean(results: Results, arm: str, endpoint: str) -> float:
    values = results.values(arm, endpoint)
    return sum(values) / len(values)


NORMS = ("master_norm", "visible_norm")


def _rows(head: str, rows: Sequence[str]) -> str:
    columns = head.count("|") + 1
    return "\n".join(f"| {row} |" for row in (head, " | ".join(["---", *["---:"] * (columns - 1)]), *rows))
