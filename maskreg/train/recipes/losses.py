"""Losses of masked retraining, on logits of completions: ``logits[row, t]`` predicts ``tokens[row, t]``.

All are means in nats over the counted tokens of all rows. If a batch is split, ``total`` is the number of counted
tokens of the whole batch, so that the losses of the parts add up to the batch's::

    loss(rows 0-3) = sum over 10 tokens / 16
    loss(rows 4-7) = sum over  6 tokens / 16        together: the mean over 16 tokens
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from maskreg.errors import UsageError

CHUNK = 1 << 22
"""Logits whose probabilities are computed at once: 16 MiB in fp32."""


def reverse_kl(
    student: torch.Tensor, teacher: torch.Tensor, counted: torch.Tensor, *, total: float | None = None
) -> torch.Tensor:
    """KL(student || teacher) over the whole vocabulary: what on-policy distillation minimizes (GKD, arXiv 2306.13649).

    Gradients flow into the student's logits only; the tokens are constants. They are computed with the loss, a few rows
    at a time, so that the probabilities of all rows are never in memory.

    Args:
        student: logits ``[rows, tokens, vocabulary]``.
        teacher: logits of the same shape.
        counted: bool ``[rows, tokens]``, which tokens count.
        total: divisor; by default the number of counted tokens.
    """
    _check(student, teacher.shape, counted)
    apply: Callable[..., torch.Tensor] = _ReverseKL.apply
    return apply(student, teacher.detach(), counted, _divisor(counted, total))


def forward_kl(
    student: torch.Tensor, teacher: torch.Tensor, counted: torch.Tensor, *, total: float | None = None
) -> torch.Tensor:
    """KL(teacher || student) over the whole vocabulary, without gradients: for evaluation.

    Args and errors: see :func:`reverse_kl`.
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
    ``sg`` stopping gradients. Its value is the k1 estimate of reverse KL, and its expected gradient equals reverse
    KL's. Differentiating the estimate ``mean(log student - log teacher)`` itself would give an expected gradient of 0:
    the teacher's term is a constant, and the expectation of ``grad log student`` under the student vanishes.

    Args:
        student: logits ``[rows, tokens, vocabulary]``.
        teacher: logits of the same shape.
        tokens: int64 ``[rows, tokens]``, sampled by the student.
        counted: bool ``[rows, tokens]``, which tokens count.
        sampled_at: log-probabilities ``[rows, tokens]`` of the tokens under the student that sampled them; by default
            the student has not changed since.
        total: divisor; by default the number of counted tokens.
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
        total: divisor; by default the number of counted tokens.
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
            log_p = _wide(left).log_softmax(-1)
            gap = log_p - _wide(right).log_softmax(-1)
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


def _divergence(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """KL(left || right) of each row of logits."""
    log_p, log_q = _wide(left).log_softmax(-1), _wide(right).log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _chunks(left: torch.Tensor, right: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rows = max(1, CHUNK // left.shape[-1])
    return list(zip(torch.split(left, rows), torch.split(right, rows), strict=True))


def _wide(logits: torch.Tensor) -> torch.Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _check(student: torch.Tensor, teacher_shape: torch.Size, counted: torch.Tensor) -> None:
    if student.shape != teacher_shape:
        raise UsageError(
            f"the student's logits are {list(student.shape)} and the teacher's {list(teacher_shape)}",
            hint="choose a teacher with the student's vocabulary",
        )
    if counted.shape != student.shape[:-1] or counted.dtype != torch.bool:
        raise UsageError(f"counted is {counted.dtype} {list(counted.shape)}, not torch.bool {list(student.shape[:-1])}")


def _divisor(counted: torch.Tensor, total: float | None) -> float:
    divisor = float(counted.sum()) if total is None else total
    if not divisor > 0 or math.isinf(divisor):
        raise UsageError("no token is counted", hint="give completions of at least one token")
    return divisor


def _mean(values: torch.Tensor, counted: torch.Tensor, total: float | None) -> torch.Tensor:
    return torch.where(counted, values, 0.0).sum() / _divisor(counted, total)
