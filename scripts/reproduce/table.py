"""Results as Markdown and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.reproduce.arms import Tuning
from scripts.reproduce.setting import Setting
from scripts.reproduce.statistics import ENDPOINTS, Estimate, Results

PUBLISHED = {"full": 35.52, "OPD mask": 35.10, "RLVR mask": 34.69, "random": 32.92}
"""Peak mean@16 of AIME24/25 in percent: DeepSeek-R1-Distill-Qwen-1.5B, one run each (DSSU)."""

READING = """\
How to read it. A full run, too, leaves the coordinates outside the OPD mask without a visible change when its \
forward pass reads bf16 weights. That training on the mask comes close to full training is therefore expected, and \
says little. Two comparisons are informative: `OPD mask` with `exponent-matched`, whose coordinates change visibly \
as easily, and `OPD mask, thinned` with `random`, which end with as many visibly changed coordinates. All arms of a \
seed use the same prompts and random numbers. Random masks are drawn anew for each seed; there is only one OPD mask. \
Intervals are for the mean over seeds (paired t), without correction for multiple comparisons."""


def markdown(results: Results, tuning: Tuning, setting: Setting) -> str:
    """Two tables, and how to read them."""
    fall, spread = results.gain()
    source, teacher = results.source["held_out"], results.teacher["held_out"]
    text = [
        f"{len(results.runs['full'])} seeds, {setting.steps} steps of {setting.batch} prompts, AdamW at "
        f"{setting.lr:g}, random with matched norm at {tuning.matched_rate:.3g}, SGD at {tuning.sgd_rate:g}.",
        "Held out: the source has KL "
        f"{source['kl']:.4f} and P(answer) {source['p']:.4f} and answers {source['accuracy']:.1%} of problems; the "
        f"teacher has P {teacher['p']:.4f} and answers {teacher['accuracy']:.1%}.",
        f"Full against source: KL falls by {fall:.4f}, with a standard deviation over seeds of {spread:.4f}.",
        "After five steps the full arm's weights are, bit for bit, those of torch.optim.AdamW on fp32 copies.",
        "",
        _rows(
            "arm | density | visible | norm / full | visible norm / full | KL | P(answer) | KL - full | P - full | "
            "share of full's KL gain | KL on own samples | greedy | optimizer | its step",
            [_arm(results, arm) for arm in results.runs],
        ),
        "",
        _rows(
            "comparison | KL | P(answer)",
            [
                f"{first} - {second} | {signed(results.difference(first, second, 'kl'))} | "
                f"{signed(results.difference(first, second, 'p'))}"
                for first, second in results.comparisons()
            ],
        ),
        "",
        READING,
    ]
    return "\n".join(text) + "\n"


def data(results: Results, tuning: Tuning, setting: Setting) -> dict[str, Any]:
    """Everything in the tables, and every run."""
    return {
        "setting": setting.to_json(),
        "tuning": vars(tuning),
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
                "first": first,
                "second": second,
                **{endpoint: results.difference(first, second, endpoint).to_json() for endpoint in ENDPOINTS},
            }
            for first, second in results.comparisons()
        ],
        "runs": results.runs,
    }


def signed(estimate: Estimate, digits: int = 4) -> str:
    """Mean and interval with signs."""
    if estimate.half is None:
        return f"{estimate.mean:+.{digits}f}"
    low, high = estimate.mean - estimate.half, estimate.mean + estimate.half
    return f"{estimate.mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _arm(results: Results, arm: str) -> str:
    norms = [results.average(arm, field) / max(results.average("full", field), 1e-30) for field in NORMS]
    share = results.share(arm)
    full = arm == "full"
    cells = [
        arm,
        f"{results.average(arm, 'density'):.3f}",
        f"{results.average(arm, 'visible_density'):.3f}",
        *(f"{norm:.2f}" for norm in norms),
        f"{Estimate.of(results.values(arm, 'kl')).mean:.4f}",
        f"{Estimate.of(results.values(arm, 'p')).mean:.4f}",
        "" if full else signed(results.difference(arm, "full", "kl")),
        "" if full else signed(results.difference(arm, "full", "p")),
        f"{share.mean:.1%}" + (f" ± {100 * share.half:.1f}" if share.half is not None and not full else ""),
        f"{Estimate.of(results.values(arm, 'kl_samples')).mean:.4f}",
        f"{Estimate.of(results.values(arm, 'accuracy')).mean:.1%}",
        f"{results.average(arm, 'optimizer_bytes') / 1e6:.1f} MB",
        f"{1e3 * results.average(arm, 'step_seconds'):.0f} ms",
    ]
    return " | ".join(cells)


NORMS = ("master_norm", "visible_norm")


def _rows(head: str, rows: Sequence[str]) -> str:
    columns = head.count("|") + 1
    return "\n".join(f"| {row} |" for row in (head, " | ".join(["---", *["---:"] * (columns - 1)]), *rows))
