"""Losses on logits of completions, where ``logits[row, t]`` predicts ``tokens[row, t]``.

All are means in nats over counted tokens: ``counted`` is bool ``[rows, tokens]``.
Logits are ``[rows, tokens, vocabulary]``.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def kl(first: torch.Tensor, second: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """KL(first || second) over the whole vocabulary; of student and teacher, what on-policy distillation minimizes
    (GKD, arXiv 2306.13649)."""
    log_p, log_q = (logits[counted].float().log_softmax(-1) for logits in (first, second))
    return functional.kl_div(log_q, log_p, log_target=True, reduction="sum") / float(counted.sum())


def log_probabilities(logits: torch.Tensor, tokens: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Log-probability of each token, fp32 ``[rows, tokens]``; 0 where it does not count."""
    flat = functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten(), reduction="none")
    return torch.where(counted, -flat.view(tokens.shape), 0.0)
