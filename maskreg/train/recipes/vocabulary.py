"""Whether two models read and write the same tokens, without which a KL divergence between them means nothing."""

from __future__ import annotations

from typing import Any

from maskreg.errors import PairMismatchError


def check_vocabularies(student: Any, teacher: Any, student_tokenizer: Any, teacher_tokenizer: Any) -> None:
    """Refuse a teacher whose token ids mean something else than the student's.

    Sizes are those of the models' outputs, which are often larger than their tokenizers.

    Args:
        student: the model's configuration, of transformers; or the model.
        teacher: likewise.
        student_tokenizer: of transformers.
        teacher_tokenizer: likewise.

    Raises:
        PairMismatchError: sizes of the vocabularies, or tokens in them, differ.
    """
    ours, theirs = _size(student), _size(teacher)
    hint = "a teacher of the student's family; distillation across tokenizers is something else"
    if ours != theirs:
        raise PairMismatchError(f"the student's vocabulary has {ours:,} entries, the teacher's {theirs:,}", hint=hint)
    mine, others = student_tokenizer.get_vocab(), teacher_tokenizer.get_vocab()
    if mine != others:
        different = sorted(mine.items() ^ others.items(), key=lambda entry: (entry[1], entry[0]))
        token, index = different[0]
        who = "student" if mine.get(token) == index else "teacher"
        raise PairMismatchError(
            f"{len(different):,} entries differ between the tokenizers: token {index} is {token!r} for the {who} only",
            hint=hint,
        )


def _size(model: Any) -> int:
    config = getattr(model, "config", model)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return int(text.vocab_size)
