"""References and cards: the grammar, its edges, and what is refused."""

from __future__ import annotations

import string
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.digest import Digest
from maskreg.document import canonical, parse_object
from maskreg.errors import BadRefError, FormatError, UsageError
from maskreg.ref import DEFAULT_PROJECT, DEFAULT_TAG, Card, Ref, printable

DIGEST = "sha256:" + "ab" * 32

words = st.from_regex(r"[a-z0-9]+((\.|_|__|-{1,3})[a-z0-9]+){0,3}", fullmatch=True).filter(lambda w: len(w) < 100)
tags = st.from_regex(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}", fullmatch=True)
digests = st.binary(max_size=8).map(Digest.of)
refs = st.builds(Ref, words, words, tags, st.none() | digests)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ("default", "a", "latest", None)),
        ("qwen3-8b-opd", ("default", "qwen3-8b-opd", "latest", None)),
        ("team/qwen3.8b_opd:v1.2", ("team", "qwen3.8b_opd", "v1.2", None)),
        ("a__b/c---d:_X", ("a__b", "c---d", "_X", None)),
        (f"a@{DIGEST}", ("default", "a", "latest", DIGEST)),
        (f"team/a:v1@{DIGEST}", ("team", "a", "v1", DIGEST)),
        ("default/a:latest", ("default", "a", "latest", None)),
        ("a" * 248 + ":" + "t" * 70, ("default", "a" * 248, "t" * 70, None)),
    ],
)
def test_the_grammar(text: str, parts: tuple[str, str, str, str | None]) -> None:
    ref = Ref.parse(text)
    assert (ref.project, ref.name, ref.tag, ref.digest) == parts


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "/", ":", "@", "a/", "/a", "a:", "a@", "a b", " a", "a ", "a\n", "a\0", "\ta"),
        *("A", "Team/a", "a/B", "-a", "a-", ".a", "a.", "_a", "a_", "a..b", "a___b", "a._b", "a.-b"),
        *("a/b/c", "../a", "a/..", "./a", "a//b", "\\a", "a\\b", "~", "a?b", "a#b", "a%2fb", "a*"),
        *("a:b:c", "a:.b", "a:-b", "a:b c", "a:b/c", "a:" + "t" * 129, "é", "a:é", "٣", "a:٣", "ａ"),
        *("a@sha256:", "a@" + "ab" * 32, "a@sha256:" + "AB" * 32, "a@sha256:" + "ab" * 31, "a@md5:" + "ab" * 16),
        *("a@" + DIGEST + "0", "a@" + DIGEST + "@" + DIGEST, "@" + DIGEST, DIGEST + "\n"),
        *("sha256", "sha256:abc", DIGEST, "default/" + DIGEST, DIGEST + "@" + DIGEST),
        *("a" * 256, "a" * 128 + "/" + "b" * 128, "a" * 100_000, "a-" * 100_000),
    ],
)
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(BadRefError) as caught:
        Ref.parse(text)
    assert caught.value.code == "NAME_INVALID"
    assert caught.value.hint or caught.value.facts


@given(refs)
def test_text_and_back(ref: Ref) -> None:
    assert Ref.parse(str(ref)) == ref


@given(refs)
def test_a_path_stays_below_its_prefix_and_is_unique(ref: Ref) -> None:
    segments = ref.path.split("/")
    assert segments == [ref.project, ref.name, ref.tag]
    assert not any(s in ("", ".", "..") for s in segments)


@given(refs, tags)
def test_another_tag_is_unpinned(ref: Ref, tag: str) -> None:
    assert ref.with_tag(tag) == Ref(ref.project, ref.name, tag)


@given(st.text(max_size=40))
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    try:
        ref = Ref.parse(text)
    except BadRefError:
        return
    assert Ref.parse(str(ref)) == ref
    assert set(text) <= set(string.ascii_letters + string.digits + "._-:/@")


def test_the_shortest_text() -> None:
    assert str(Ref(DEFAULT_PROJECT, "a", DEFAULT_TAG)) == "a"
    assert str(replace(Ref.parse("team/a"), digest=Digest(DIGEST))) == f"team/a@{DIGEST}"


FILLERS = [*"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0", *map(chr, (*range(0xFE00, 0xFE10), 0xE0100, 0xE01EF))]


def test_all_that_a_terminal_obeys_or_hides_is_escaped_and_refused() -> None:
    unseen = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    for character in (*unseen, *FILLERS):
        assert printable(f"a{character}b") == f"a{ascii(character)[1:-1]}b"
        with pytest.raises(UsageError, match=r"^description .* at 1,"):
            Card(description=f"a{character}b").checked()
    assert printable("a\tb\n\u200b", keep="\n\t") == "a\tb\n\\u200b"
    for character in "\u200b\u202e\r\0\U000e0041":
        with pytest.raises(UsageError):
            Card(readme=character).checked()
    spelled = "\N{WARNING SIGN}\ufe0f\n\t\N{MAN}\u200d\N{WOMAN} \u0645\u06cc\u200c\u062e"
    assert Card(readme=spelled).checked().readme == spelled
    seen = "grüße, 漢字\u3000と é\N{COMBINING ACUTE ACCENT} \N{PILE OF POO} \N{NO-BREAK SPACE}"
    assert printable(seen) == seen
    assert Card(description=seen).checked().description == seen


@pytest.mark.parametrize(
    "card",
    [
        *(Card(family="x" * 201), Card(method="x" * 201), Card(license="x" * 201)),
        *(Card(description="x" * 4097), Card(meta={"x" * 1025: "y"}), Card(meta={"y": "x" * 1025})),
        *(Card(family="a\x1b[2J"), Card(meta={"a": "b\r"}), Card(meta={"a\x1b": "b"})),
    ],
    ids=range(9),
)
def test_words_that_are_too_long_or_would_be_obeyed_are_refused(card: Card) -> None:
    with pytest.raises(UsageError):
        card.checked()


texts = st.text(max_size=30).filter(lambda t: t.isprintable())
cards = st.builds(Card, texts, texts, texts, texts, st.dictionaries(texts, texts, max_size=3))


@given(cards)
def test_a_card_through_json_and_back(card: Card) -> None:
    document = parse_object(canonical(card.to_json()), "card", max_bytes=1 << 20)
    assert Card.from_json(document) == card
    assert all(document.values())


def test_an_empty_card_is_an_empty_object() -> None:
    assert Card().to_json() == {}
    assert Card.from_json({"color": "red", "later": {"a": 1}}) == Card()


@pytest.mark.parametrize(
    "value",
    [
        *(None, [], "text", 3, {"family": 3}, {"method": None}, {"license": []}, {"description": {}}),
        *({"meta": []}, {"meta": {"a": 1}}, {"meta": {"a": None}}, {"meta": "a"}),
    ],
)
def test_what_is_no_card(value: object) -> None:
    with pytest.raises(FormatError):
        Card.from_json(value)
