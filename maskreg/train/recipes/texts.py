"""From records to tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

from maskreg.errors import DataError, FormatError
from maskreg.train.recipes.records import Record


class Example(NamedTuple):
    """Tokens that are given, and those that are trained on."""

    prompt: list[int]
    completion: list[int]


def prompt_of(record: Record, tokenizer: Any) -> list[int]:
    """Tokens of ``prompt``, or of ``messages`` up to where the model speaks.

    Raises:
        FormatError: the record has neither, or an empty one, or the tokenizer no chat template.
    """
    if "messages" not in record.fields:
        prompt = _tokens(tokenizer, record.text("prompt"))
    else:
        messages = _messages(record, tokenizer)
        answered = messages[-1].get("role") == "assistant"
        prompt = _chat(tokenizer, messages[:-1] if answered else messages, record, ask=True)
    if not prompt:
        raise FormatError(f"{record.place}: an empty prompt", hint="leave the record out")
    return prompt


def example_of(record: Record, tokenizer: Any) -> Example:
    """Tokens of ``prompt`` and ``completion``, of ``messages`` whose last is the model's, or of ``text``.

    The last of the first two kinds is what is trained on; of a text, all but its first token.

    Raises:
        FormatError: the record has none of these, or the tokenizer no chat template.
    """
    if "messages" in record.fields:
        messages = _messages(record, tokenizer)
        if messages[-1].get("role") != "assistant":
            raise FormatError(f"{record.place}: the last of the messages is not the assistant's")
        given = _chat(tokenizer, messages[:-1], record, ask=True)
        ids = _chat(tokenizer, messages, record, ask=False)
        if ids[: len(given)] != given:
            raise FormatError(f"{record.place}: the chat template writes the prompt otherwise once it is answered")
        return _example(given, ids[len(given) :], record)
    if "text" in record.fields:
        text = [*_tokens(tokenizer, record.text("text")), *_end(tokenizer)]
        return _example(text[:1], text[1:], record)
    given = _tokens(tokenizer, record.text("prompt"))
    answer = tokenizer(record.text("completion"), add_special_tokens=False).input_ids
    return _example(given, [*answer, *_end(tokenizer)], record)


def pad_of(tokenizer: Any) -> int:
    """What fills rows up: the padding token, else that of the end; attention leaves it out anyway."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


def ends_of(model: Any, tokenizer: Any) -> list[int]:
    """Tokens that end a completion."""
    generation = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    named = generation if isinstance(generation, list) else [generation]
    return sorted({int(token) for token in (*named, tokenizer.eos_token_id) if token is not None})


def too_long(record: Record, tokens: int, limit: int, what: str) -> DataError:
    """The error for a record with too many tokens."""
    return DataError(
        f"{record.place}: the prompt has {tokens:,} tokens, and {limit:,} is the most: {what}",
        hint=f"leave it out, or raise --max-length by {tokens - limit:,}",
    )


def _example(prompt: list[int], completion: list[int], record: Record) -> Example:
    if not prompt or not completion:
        raise FormatError(
            f"{record.place}: {'nothing to train on' if prompt else 'an empty prompt'}", hint="leave the record out"
        )
    return Example(prompt, completion)


def _tokens(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, verbose=False).input_ids  # what is too long is dealt with here
    return ids


def _end(tokenizer: Any) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]


def _messages(record: Record, tokenizer: Any) -> list[dict[str, Any]]:
    messages = record.fields["messages"]
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise FormatError(f'{record.place}: \'messages\' is no list of {{"role": ..., "content": ...}}')
    if not tokenizer.chat_template:
        raise FormatError(
            f"{record.place}: the source's tokenizer has no chat template to write messages with",
            hint="give records a prompt instead, or add chat_template.jinja to the source",
        )
    return messages


def _chat(tokenizer: Any, messages: list[dict[str, Any]], record: Record, *, ask: bool) -> list[int]:
    from jinja2.exceptions import TemplateError

    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=ask, tokenize=False)
    except TemplateError as error:
        raise FormatError(f"{record.place}: the chat template does not take these messages ({error})") from error
    # The template writes special tokens itself.
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return ids
