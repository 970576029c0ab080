"""Losses on logits of completions, where ``logits[row, t]`` predicts ``tokens[row, t]``.

All are means in nats over counted tokens: ``counted`` is bool ``[rows, tokens]``.
Logits are ``[rows, tokens, vocabulary]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

CHUNK = 1 << 22
"""Logits whose probabilities are computed at once: 16 MiB in fp32."""


def reverse_kl(student: torch.Tensor, teacher: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """KL(student || teacher) over the whole vocabulary: what on-policy distillation minimizes (GKD, arXiv 2306.13649).

    Gradients flow into the student's logits only; the tokens are constants. They are computed with the loss, a few rows
    at a time, so that the probabilities of all rows are never in memory.
    """
    apply: Callable[..., torch.Tensor] = _ReverseKL.apply
    return apply(student, teacher.detach(), counted, float(counted.sum()))


def forward_kl(student: torch.Tensor, teacher: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """KL(teacher || student) over the whole vocabulary, without gradients: for evaluation."""
    sums = []
    for ours, theirs in _chunks(student.detach()[counted], teacher.detach()[counted]):
        log_p, log_q = theirs.float().log_softmax(-1), ours.float().log_softmax(-1)
        sums.append((log_p.exp() * (log_p - log_q)).sum(-1).sum())
    return torch.stack(sums).sum() / float(counted.sum())


def cross_entropy(student: torch.Tensor, tokens: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of given tokens: supervised fine-tuning."""
    return -torch.where(counted, log_probabilities(student, tokens), 0.0).sum() / float(counted.sum())


def log_probabilities(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Log-probability of each token, fp32 ``[rows, tokens]``."""
    flat = functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten(), reduction="none")
    return -flat.view(tokens.shape)


class _ReverseKL(torch.autograd.Function):
    """KL(p || q) with its gradient in the logits of p, ``p (log p - log q - KL)``, computed in the forward pass.

    Autograd would keep two fp32 tensors of probabilities per logit for the backward pass; this keeps one tensor of
    gradients in the logits' own dtype. For each chunk of rows::

        gap   = log p - log q
        kl    = sum over the vocabulary of p * gap          # the loss of a row
        slope = p * (gap - kl) / divisor                    # its gradient
    """

    @staticmethod
    def forward(
        ctx: Any, student: torch.Tensor, teacher: torch.Tensor, counted: torch.Tensor, divisor: float
    ) -> torch.Tensor:
        differentiable = ctx.needs_input_grad[0]
        ours, theirs = student[counted], teacher[counted]
        slopes = torch.empty_like(ours) if differentiable else None
        sums, first = [], 0
        for left, right in _chunks(ours, theirs):
            log_p = left.float().log_softmax(-1)
            gap = log_p - right.float().log_softmax(-1)
            p = log_p.exp_()
            kl = (p * gap).sum(-1, keepdim=True)
            sums.append(kl.sum())
            if slopes is not None:
                slopes[first : first + len(left)] = gap.sub_(kl).mul_(p).div_(divisor)
            first += len(left)
        if slopes is not None:
            ctx.save_for_backward(slopes, counted)
            ctx.shape = student.shape
        return torch.stack(sums).sum() / divisor

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        slopes, counted = ctx.saved_tensors
        whole = slopes.new_zeros(ctx.shape)
        whole[counted] = slopes * grads[0].to(slopes.dtype)
        return whole, None, None, None


def _chunks(left: torch.Tensor, right: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rows = max(1, CHUNK // left.shape[-1])
    return list(zip(torch.split(left, rows), torch.split(right, rows), strict=True))
