"""Losses of masked retraining, on logits of completions: ``logits[row, t]`` is what a model says of ``tokens[row, t]``.

All are means over the tokens that count, of whatever rows they are, in nats. Where a batch is worked on in parts,
``total`` is the number of its tokens that count, and the parts' losses add up to the batch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from maskreg.errors import UsageError

CHUNK = 1 << 22
"""Logits whose probabilities are worked out at once: 16 MiB in fp32."""


def reverse_kl(
    student: torch.Tensor, teacher: torch.Tensor, counted: torch.Tensor, *, total: float | None = None
) -> torch.Tensor:
    """KL(student || teacher) over the whole vocabulary: what on-policy distillation minimises (GKD, arXiv 2306.13649).

    Gradients flow into the student's logits alone: the tokens are taken as given. They are worked out beside the loss,
    a few rows at a time, so that probabilities of all rows are never in memory.

    Args:
        student: logits ``[rows, tokens, vocabulary]``.
        teacher: logits of the same shape.
        counted: bool ``[rows, tokens]``, which tokens count.
        total: tokens to divide by; those that count here by default.

    Raises:
        UsageError: shapes differ, or no token counts.
    """
    _check(student, teacher.shape, counted)
    apply: Callable[..., torch.Tensor] = _ReverseKL.apply
    return apply(student, teacher.detach(), counted, _divisor(counted, total))


def forward_kl(
    student: torch.Tensor, teacher: torch.Tensor, counted: torch.Tensor, *, total: float | None = None
) -> torch.Tensor:
    """KL(teacher || student) over the whole vocabulary, without gradients: for evaluation.

    Args and errors are those of :func:`reverse_kl`.
    """
    _check(student, teacher.shape, counted)
    sums = [
        _divergence(theirs, ours).sum()
        for ours, theirs in _chunks(student.detach()[counted], teacher.detach()[counted])
    ]
    return torch.stack(sums).sum() / _divisor(counted, total)


def sampled_reverse_kl(
    student: torch.Tensor,
    teacher: torch.Tensor,
    tokens: torch.Tensor,
    counted: torch.Tensor,
    *,
    sampled_at: torch.Tensor | None = None,
    total: float | None = None,
) -> torch.Tensor:
    """Reverse KL from the sampled tokens alone, as a policy gradient (Thinking Machines; verl's k1 estimator).

    ``-mean(ratio * sg(log teacher - log sampled_at))``, with ``ratio = student / sampled_at`` at the sampled token and
    ``sg`` stopping gradients. Its value is the k1 estimate of reverse KL, and its gradient is, in expectation, that of
    reverse KL; the gradient of the estimate itself would be 0 in expectation, without a word from the teacher.

    Args:
        student: logits ``[rows, tokens, vocabulary]``.
        teacher: logits of the same shape.
        tokens: int64 ``[rows, tokens]``, what the student sampled.
        counted: bool ``[rows, tokens]``, which tokens count.
        sampled_at: log-probabilities ``[rows, tokens]`` of the tokens in the student that sampled them; by default
            the student is still that one.
        total: tokens to divide by; those that count here by default.

    Raises:
        UsageError: shapes differ, or no token counts.
    """
    _check(student, teacher.shape, counted)
    now = log_probabilities(student, tokens)
    then = now.detach() if sampled_at is None else sampled_at.detach()
    advantage = log_probabilities(teacher.detach(), tokens) - then
    return -_mean((now - then).exp() * advantage, counted, total)


def cross_entropy(
    student: torch.Tensor, tokens: torch.Tensor, counted: torch.Tensor, *, total: float | None = None
) -> torch.Tensor:
    """Negative log-likelihood of given tokens: supervised fine-tuning.

    Args:
        student: logits ``[rows, tokens, vocabulary]``.
        tokens: int64 ``[rows, tokens]``.
        counted: bool ``[rows, tokens]``, which tokens count.
        total: tokens to divide by; those that count here by default.

    Raises:
        UsageError: shapes differ, or no token counts.
    """
    _check(student, student.shape, counted)
    return -_mean(log_probabilities(student, tokens), counted, total)


def log_probabilities(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Log-probability of each token, fp32 (fp64 of fp64 logits) ``[rows, tokens]``.

    Args:
        logits: ``[rows, tokens, vocabulary]``.
        tokens: int64 ``[rows, tokens]``.
    """
    flat = functional.cross_entropy(_wide(logits.flatten(0, 1)), tokens.flatten(), reduction="none")
    return -flat.view(tokens.shape)


class _ReverseKL(torch.autograd.Function):
    """The gradient of KL(p || q) in the logits of p is ``p (log p - log q - KL)``."""

    @staticmethod
    def forward(
        ctx: Any, student: torch.Tensor, teacher: torch.Tensor, counted: torch.Tensor, divisor: float
    ) -> torch.Tensor:
        wanted = ctx.needs_input_grad[0]
        ours, theirs = student[counted], teacher[counted]
        slopes = torch.empty_like(ours) if wanted else None
        sums, first = [], 0
        for mine, other in _chunks(ours, theirs):
            log_p = _wide(mine).log_softmax(-1)
            gap = log_p - _wide(other).log_softmax(-1)
            weighted = log_p.exp_()
            each = (weighted * gap).sum(-1, keepdim=True)
            sums.append(each.sum())
            if slopes is not None:
                slopes[first : first + len(mine)] = gap.sub_(each).mul_(weighted).div_(divisor)
            first += len(mine)
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


def _divergence(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """KL(one || other) of each row of logits."""
    log_p, log_q = _wide(one).log_softmax(-1), _wide(other).log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _chunks(one: torch.Tensor, other: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rows = max(1, CHUNK // one.shape[-1])
    return list(zip(torch.split(one, rows), torch.split(other, rows), strict=True))


def _wide(logits: torch.Tensor) -> torch.Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _check(student: torch.Tensor, other: torch.Size, counted: torch.Tensor) -> None:
    if student.shape != other:
        raise UsageError(
            f"the student's logits are {list(student.shape)} and the teacher's {list(other)}",
            hint="a teacher with the student's vocabulary",
        )
    if counted.shape != student.shape[:-1] or counted.dtype != torch.bool:
        raise UsageError(f"which tokens count is {counted.dtype} {list(counted.shape)}, for {list(student.shape)}")


def _divisor(counted: torch.Tensor, total: float | None) -> float:
    divisor = float(counted.sum()) if total is None else total
    if not divisor > 0 or math.isinf(divisor):
        raise UsageError("no token counts", hint="completions of at least one token")
    return divisor


def _mean(values: torch.Tensor, counted: torch.Tensor, total: float | None) -> torch.Tensor:
    return torch.where(counted, values, 0.0).sum() / _divisor(counted, total)
