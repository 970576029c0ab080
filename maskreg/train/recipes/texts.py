"""Tokenizing records."""

from __future__ import annotations

from typing import Any, NamedTuple

from maskreg.errors import DataError, FormatError
from maskreg.train.recipes.records import Record


class Example(NamedTuple):
    """Tokens of a prompt, and of the completion that is trained on."""

    prompt: list[int]
    completion: list[int]


def prompt_of(record: Record, tokenizer: Any) -> list[int]:
    """Tokens of ``prompt``, or of ``messages`` up to the assistant's last turn."""
    if "messages" not in record.fields:
        prompt = _tokens(tokenizer, record.text("prompt"))
    else:
        messages = _messages(record, tokenizer)
        answered = messages[-1].get("role") == "assistant"
        prompt = _chat(tokenizer, messages[:-1] if answered else messages, record, open_turn=True)
    if not prompt:
        raise FormatError(f"{record.location}: an empty prompt", hint="leave the record out")
    return prompt


def example_of(record: Record, tokenizer: Any) -> Example:
    """Tokens of ``prompt`` and ``completion``, of ``messages`` that end with the assistant's, or of ``text``.

    The completion or the last message is trained on; of a text, everything after its first token.
    """
    if "messages" in record.fields:
        messages = _messages(record, tokenizer)
        if messages[-1].get("role") != "assistant":
            raise FormatError(f"{record.location}: the last message is not the assistant's")
        prompt = _chat(tokenizer, messages[:-1], record, open_turn=True)
        ids = _chat(tokenizer, messages, record, open_turn=False)
        if ids[: len(prompt)] != prompt:
            raise FormatError(f"{record.location}: the chat template changes the prompt when an answer follows")
        return _example(prompt, ids[len(prompt) :], record)
    if "text" in record.fields:
        text = [*_tokens(tokenizer, record.text("text")), *_end(tokenizer)]
        return _example(text[:1], text[1:], record)
    prompt = _tokens(tokenizer, record.text("prompt"))
    answer = tokenizer(record.text("completion"), add_special_tokens=False).input_ids
    return _example(prompt, [*answer, *_end(tokenizer)], record)


def pad_of(tokenizer: Any) -> int:
    """The padding token, else the end token; attention masks it anyway."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


def ends_of(model: Any, tokenizer: Any) -> list[int]:
    """Tokens that end a completion, by the model's configuration and the tokenizer."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    tokens = configured if isinstance(configured, list) else [configured]
    return sorted({int(token) for token in (*tokens, tokenizer.eos_token_id) if token is not None})


def too_long(record: Record, tokens: int, limit: int, formula: str) -> DataError:
    """The error for a record with too many tokens."""
    return DataError(
        f"{record.location}: the prompt has {tokens:,} tokens, more than {limit:,} ({formula})",
        hint=f"leave it out, or raise --max-length by {tokens - limit:,}",
    )


def _example(prompt: list[int], completion: list[int], record: Record) -> Example:
    if not prompt or not completion:
        raise FormatError(
            f"{record.location}: {'nothing to train on' if prompt else 'an empty prompt'}", hint="leave the record out"
        )
    return Example(prompt, completion)


def _tokens(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(
        text, verbose=False
    ).input_ids  # transformers would warn about lengths that are checked here
    return ids


def _end(tokenizer: Any) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]


def _messages(record: Record, tokenizer: Any) -> list[dict[str, Any]]:
    messages = record.fields["messages"]
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise FormatError(f'{record.location}: \'messages\' is not a list of {{"role": ..., "content": ...}}')
    if not tokenizer.chat_template:
        raise FormatError(
            f"{record.location}: the source's tokenizer has no chat template for messages",
            hint="use prompts instead of messages, or add chat_template.jinja to the source",
        )
    return messages


def _chat(tokenizer: Any, messages: list[dict[str, Any]], record: Record, *, open_turn: bool) -> list[int]:
    from jinja2.exceptions import TemplateError

    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=open_turn, tokenize=False)
    except TemplateError as error:
        raise FormatError(f"{record.location}: the chat template rejects these messages ({error})") from error
    # The template contains the special tokens.
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return ids
