"""Losses: their values and gradients against written-out ones on small vocabularies."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskreg.errors import UsageError
from maskreg.train.recipes import losses
from maskreg.train.recipes.losses import cross_entropy, forward_kl, log_probabilities, reverse_kl, sampled_reverse_kl


def logits(seed: int, rows: int = 3, tokens: int = 4, words: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, tokens, words, generator=generator, dtype=torch.float64) * 2


def some(seed: int, rows: int = 3, tokens: int = 4) -> torch.Tensor:
    counted = torch.rand(rows, tokens, generator=torch.Generator().manual_seed(seed)) < 0.6
    counted[0, 0] = True
    return counted


def written_out(one: torch.Tensor, other: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    p, q = one.softmax(-1), other.softmax(-1)
    return (p * (p / q).log()).sum(-1)[counted].mean()


@given(st.integers(0, 1000))
def test_kl_divergences_and_their_gradients_are_those_written_out(seed: int) -> None:
    ours, theirs, counted = logits(seed).requires_grad_(), logits(seed + 1), some(seed)
    loss = reverse_kl(ours, theirs, counted)
    wanted = written_out(ours, theirs, counted)
    assert loss.item() == pytest.approx(wanted.item(), abs=1e-12)
    (found,) = torch.autograd.grad(loss * 3, ours)
    (true,) = torch.autograd.grad(wanted * 3, ours)
    assert torch.allclose(found, true, atol=1e-12)
    assert (found[~counted] == 0).all()
    assert forward_kl(ours, theirs, counted).item() == pytest.approx(written_out(theirs, ours, counted).item())


def test_chunks_do_not_change_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs, counted = logits(1).requires_grad_(), logits(2), some(3)
    whole = reverse_kl(ours, theirs, counted)
    whole.backward()  # type: ignore[no-untyped-call]
    monkeypatch.setattr(losses, "CHUNK", 10)
    again = ours.detach().clone().requires_grad_()
    parts = reverse_kl(again, theirs, counted)
    parts.backward()  # type: ignore[no-untyped-call]
    assert parts.item() == pytest.approx(whole.item(), rel=1e-12)
    assert ours.grad is not None and again.grad is not None
    assert torch.allclose(ours.grad, again.grad, atol=1e-14)
    assert forward_kl(again, theirs, counted).item() == pytest.approx(forward_kl(ours, theirs, counted).item())


def test_parts_of_a_batch_add_up_to_it() -> None:
    ours, theirs, tokens, counted = logits(4), logits(5), torch.zeros(3, 4, dtype=torch.int64), some(6)
    total = float(counted.sum())
    rows = [slice(0, 1), slice(1, 3)]
    for whole, parts in (
        (reverse_kl(ours, theirs, counted), [reverse_kl(ours[r], theirs[r], counted[r], total=total) for r in rows]),
        (
            cross_entropy(ours, tokens, counted),
            [cross_entropy(ours[r], tokens[r], counted[r], total=total) for r in rows],
        ),
    ):
        assert sum(part.item() for part in parts) == pytest.approx(whole.item())


@given(st.integers(0, 1000))
def test_the_sampled_loss_has_the_gradient_of_reverse_kl_in_expectation(seed: int) -> None:
    words, one = 6, torch.ones(1, 1, dtype=torch.bool)
    ours, theirs = logits(seed, 1, 1, words).requires_grad_(), logits(seed + 1, 1, 1, words)
    p = ours.detach().softmax(-1)[0, 0]
    gradient, value, naive = torch.zeros_like(ours), 0.0, torch.zeros_like(ours)
    for word in range(words):
        token = torch.tensor([[word]])
        loss = sampled_reverse_kl(ours, theirs, token, one)
        gradient += p[word] * torch.autograd.grad(loss, ours)[0]
        value += p[word].item() * loss.item()
        k1 = (log_probabilities(ours, token) - log_probabilities(theirs, token)).sum()
        naive += p[word] * torch.autograd.grad(k1, ours)[0]
    exact = reverse_kl(ours, theirs, one)
    (true,) = torch.autograd.grad(exact, ours)
    assert value == pytest.approx(exact.item())
    assert torch.allclose(gradient, true, atol=1e-12)
    assert torch.allclose(naive, torch.zeros_like(naive), atol=1e-12), "back-propagating k1 teaches nothing"
    assert true.abs().max() > 1e-6 or exact.item() < 1e-9


def test_a_student_that_has_moved_on_is_weighted_by_its_ratio() -> None:
    ours, theirs, tokens, counted = logits(7).requires_grad_(), logits(8), torch.ones(3, 4, dtype=torch.int64), some(9)
    before = log_probabilities(logits(10), tokens)
    now = log_probabilities(ours, tokens)
    wanted = -((now - before).exp() * (log_probabilities(theirs, tokens) - before))[counted].mean()
    loss = sampled_reverse_kl(ours, theirs, tokens, counted, sampled_at=before)
    assert loss.item() == pytest.approx(wanted.item())


def test_a_teacher_that_is_the_student_teaches_nothing() -> None:
    ours, tokens, counted = logits(11).float().requires_grad_(), torch.ones(3, 4, dtype=torch.int64), some(12)
    for loss in (
        reverse_kl(ours, ours, counted),
        sampled_reverse_kl(ours, ours, tokens, counted),
    ):
        assert abs(loss.item()) < 1e-6
        (gradient,) = torch.autograd.grad(loss, ours)
        assert gradient.abs().max() < 1e-6
    assert abs(forward_kl(ours, ours, counted).item()) < 1e-6


def test_bf16_logits_are_widened() -> None:
    ours, theirs, counted = logits(13).bfloat16().requires_grad_(), logits(14).bfloat16(), some(15)
    loss = reverse_kl(ours, theirs, counted)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(written_out(ours.double(), theirs.double(), counted).item(), rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert ours.grad is not None and ours.grad.dtype == torch.bfloat16
    assert ours.grad.abs().sum() > 0


def test_cross_entropy_is_of_counted_tokens() -> None:
    ours, counted = logits(16), some(17)
    tokens = torch.randint(0, 5, (3, 4), generator=torch.Generator().manual_seed(18))
    wanted = -ours.log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)[counted].mean()
    assert cross_entropy(ours, tokens, counted).item() == pytest.approx(wanted.item())


def test_what_cannot_be_compared_is_refused() -> None:
    counted = some(19)
    with pytest.raises(UsageError, match="the student's logits are"):
        reverse_kl(logits(1), logits(1, words=6), counted)
    with pytest.raises(UsageError, match="counted is"):
        reverse_kl(logits(1), logits(2), counted[:, :2])
    with pytest.raises(UsageError, match="no token is counted"):
        reverse_kl(logits(1), logits(2), torch.zeros_like(counted))
