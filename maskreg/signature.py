r"""Documents that carry ed25519 signatures: a writer of a store cannot sign for the holder of a key.

What is signed, the *statement*, is the document itself but for its signatures and its seal, behind words that no other
use of a key begins with. Its ``schema`` tells kinds of documents apart, its ``registry`` one registry from another::

    document    {"schema": ..., "registry": <uuid>, ..., "signatures": {<public key>: <signature>}, "seal": ...}
    statement   b"maskreg signed document\n" + canonical({"schema": ..., "registry": <uuid>, ...})

The signatures are inside the document, and the seal is over them. So one create-only write stores both, no reader sees
one without the other, and an id that is the seal fixes who signed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maskreg.digest import SEAL
from maskreg.document import canonical
from maskreg.errors import FormatError
from maskreg.extras import requiring

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURES = "signatures"
"""Key of a document's signatures, by public key."""

_DOMAIN = b"maskreg signed document\n"
_KEY = re.compile(r"ed25519:[0-9a-f]{64}")
# Hexadecimal, which has one spelling; of base64 the last digit has several.
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_SHORT = 20


class PublicKey(str):
    """A public key, ``ed25519:`` and 64 lower-case hex digits."""

    __slots__ = ()

    def __new__(cls, text: str) -> PublicKey:
        """Validate ``text``."""
        if not _KEY.fullmatch(text):
            raise ValueError(f"not an ed25519 public key: {text!r}")
        return super().__new__(cls, text)

    @property
    def hex(self) -> str:
        """The 64 hex digits alone."""
        return self[8:]

    @property
    def short(self) -> str:
        """Enough of the key for people to tell keys apart (``ed25519:`` and 12 digits)."""
        return self[:_SHORT]


_MAKE = "openssl genpkey -algorithm ed25519 -out FILE makes one"


class PrivateKey:
    """A private key in memory."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        """Wrap a key of ``cryptography``; :meth:`generate` and :meth:`from_pem` are the usual constructors."""
        self._key = key
        self.key = PublicKey(f"ed25519:{key.public_key().public_bytes_raw().hex()}")

    @classmethod
    def generate(cls) -> PrivateKey:
        """A new key, from the system's random numbers."""
        with requiring("a signing key"):
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, data: bytes, name: str) -> PrivateKey:
        """Read an unencrypted PKCS #8 private key in PEM, as :meth:`to_pem` and ``openssl genpkey`` write it."""
        with requiring("a signing key"):
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        try:
            key = load_pem_private_key(data, None)
        except (TypeError, ValueError, UnsupportedAlgorithm) as error:
            raise FormatError(f"{name}: not an unencrypted private key in PEM", hint=_MAKE) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise FormatError(f"{name}: a private key of another kind than ed25519", hint=_MAKE)
        return cls(key)

    def to_pem(self) -> bytes:
        """The private key as unencrypted PKCS #8 in PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, statement: bytes) -> bytes:
        """The 64 bytes of the ed25519 signature over ``statement``."""
        return self._key.sign(statement)


def statement(row: Mapping[str, object]) -> bytes:
    """What the signatures of a document are over: all of it but them and the seal."""
    return _DOMAIN + canonical({key: value for key, value in row.items() if key not in (SIGNATURES, SEAL)})


def signed(row: Mapping[str, object], *signers: PrivateKey) -> dict[str, object]:
    """A document with a signature of each signer beside those that it has."""
    data = statement(row)
    present = row.get(SIGNATURES)
    signatures = dict(present) if isinstance(present, Mapping) else {}
    return {**row, SIGNATURES: {**signatures, **{signer.key: signer.sign(data).hex() for signer in signers}}}


def require_checking() -> None:
    """Refuse work whose result this machine could not check."""
    with requiring("checking a signature"):
        from cryptography.exceptions import InvalidSignature  # noqa: F401


def is_signed_by(row: Mapping[str, object], key: PublicKey) -> bool:
    """Whether a document carries a valid signature by a key."""
    signatures = row.get(SIGNATURES)
    value = signatures.get(key) if isinstance(signatures, Mapping) else None
    if not isinstance(value, str) or not _SIGNATURE.fullmatch(value):
        return False
    with requiring("checking a signature"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.hex)).verify(bytes.fromhex(value), statement(row))
    except (InvalidSignature, ValueError):
        return False
    return True


def parse_signatures(row: Mapping[str, Any], where: str) -> dict[PublicKey, str]:
    """The signatures of a document by public key; not checked yet, and none where it has no such key."""
    value = row.get(SIGNATURES, {})
    if not isinstance(value, dict):
        raise FormatError(f"{where}: {SIGNATURES} is not an object")
    try:
        signatures = {PublicKey(key): text for key, text in value.items()}
    except ValueError as error:
        raise FormatError(f"{where}: {SIGNATURES}: {error}") from error
    for text in signatures.values():
        if not isinstance(text, str) or not _SIGNATURE.fullmatch(text):
            raise FormatError(f"{where}: {SIGNATURES}: not 128 lower-case hex digits")
    return signatures
