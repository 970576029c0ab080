"""Whether two models share a vocabulary, without which a KL divergence between them is meaningless."""

from __future__ import annotations

from typing import Any

from maskreg.errors import PairMismatchError


def check_vocabularies(student: Any, teacher: Any, student_tokenizer: Any, teacher_tokenizer: Any) -> None:
    """Reject a teacher whose token ids mean other tokens than the student's.

    Sizes are the models' output sizes, which are often padded beyond their tokenizers.
    """
    student_size, teacher_size = _size(student), _size(teacher)
    hint = "choose a teacher of the student's family; distillation across tokenizers is not supported"
    if student_size != teacher_size:
        raise PairMismatchError(
            f"the student's vocabulary has {student_size:,} entries, the teacher's {teacher_size:,}", hint=hint
        )
    left, right = student_tokenizer.get_vocab(), teacher_tokenizer.get_vocab()
    if left != right:
        different = sorted(left.items() ^ right.items(), key=lambda entry: (entry[1], entry[0]))
        token, index = different[0]
        who = "student" if left.get(token) == index else "teacher"
        raise PairMismatchError(
            f"{len(different):,} entries differ between the tokenizers: token {index} is {token!r} for the {who} only",
            hint=hint,
        )


def _size(model: Any) -> int:
    config = getattr(model, "config", model)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return int(text.vocab_size)
