"""Signed documents: what is signed, by whom, and that nothing else passes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.document import canonical
from maskreg.errors import ConfigError, FormatError
from maskreg.extras import install_command
from maskreg.signature import PrivateKey, PublicKey, is_signed_by, parse_signatures, signed, statement

ADA, EVE = PrivateKey.generate(), PrivateKey.generate()
ROW = {"schema": "maskreg.example/1", "registry": "lab", "n": 1}


def test_a_signature_is_of_one_key_over_one_document() -> None:
    row = signed(ROW, ADA)
    assert is_signed_by(row, ADA.key)
    assert not is_signed_by(row, EVE.key)
    assert not is_signed_by(ROW, ADA.key)
    for name, value in (("schema", "maskreg.example/2"), ("registry", "nas"), ("n", 2), ("more", True)):
        assert not is_signed_by({**row, name: value}, ADA.key)
    copied = {"signatures": {EVE.key: row["signatures"][ADA.key]}}  # type: ignore[index]
    assert not is_signed_by({**row, **copied}, EVE.key)


def test_the_statement_is_the_document_behind_words_of_its_own() -> None:
    row = signed(ROW, ADA)
    assert statement(row) == statement(ROW) == b"maskreg signed document\n" + canonical(ROW)
    assert statement({**row, "seal": "x"}) == statement(ROW)
    both = signed(row, EVE)
    assert is_signed_by(both, ADA.key) and is_signed_by(both, EVE.key)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_bit_of_a_signature_counts(data: st.DataObject) -> None:
    value = signed(ROW, ADA)["signatures"][ADA.key]  # type: ignore[index]
    raw = bytearray(bytes.fromhex(value))
    raw[data.draw(st.integers(0, 63))] ^= 1 << data.draw(st.integers(0, 7))
    assert not is_signed_by({**ROW, "signatures": {ADA.key: bytes(raw).hex()}}, ADA.key)
    # One spelling each, or the same signature could make several ids.
    assert not is_signed_by({**ROW, "signatures": {ADA.key: value.upper()}}, ADA.key)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:" + "A" * 64, "rsa:" + "a" * 64, "ed25519:" + "a" * 63])
def test_what_is_no_public_key(text: str) -> None:
    with pytest.raises(ValueError, match="ed25519"):
        PublicKey(text)


@pytest.mark.parametrize("value", [[], {"x": "y"}, {ADA.key: "ab"}, {ADA.key: None}, {ADA.key: "A" * 128}])
def test_what_are_no_signatures(value: object) -> None:
    with pytest.raises(FormatError, match=r"^entry: "):
        parse_signatures({"signatures": value}, "entry")


def test_a_private_key_is_a_file_that_openssl_reads(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(ADA.to_pem())
    assert PrivateKey.from_pem(path.read_bytes(), "key.pem").key == ADA.key
    shown = subprocess.run(["openssl", "pkey", "-in", str(path), "-noout", "-text"], capture_output=True, check=True)
    assert ADA.key.hex in shown.stdout.decode().replace(":", "").replace("\n", "").replace(" ", "")


def test_what_is_no_private_key() -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    another = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(FormatError, match=r"^key\.pem: .*ed25519") as caught:
        PrivateKey.from_pem(another, "key.pem")
    assert "openssl genpkey -algorithm ed25519" in caught.value.hint
    for data in (b"", b"ssh-ed25519 AAAA", ADA.to_pem()[:60]):
        with pytest.raises(FormatError, match=r"^key\.pem: .*PEM"):
            PrivateKey.from_pem(data, "key.pem")


def test_without_cryptography_nothing_passes_as_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = signed(ROW, ADA)
    monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
    with pytest.raises(ConfigError, match=" cryptography") as caught:
        is_signed_by(row, ADA.key)
    assert caught.value.hint == install_command("sign")
