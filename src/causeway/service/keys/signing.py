"""Signed messages to a served lake, bound to one sender, one lake and one nonce.

The signed bytes are a domain tag (``DOMAIN``), then each field with a length prefix of four bytes,
big-endian: the lake's identity, the kind (``MESSAGE``, ``TRANSACTION``), the chain (empty for a message to a
program), the sender's public key, the nonce (eight bytes, big-endian), and the content as canonical JSON:
keys ascending by code points, no spaces, UTF-8, no floats. The SHA-256 digest of the same bytes is the
message's name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from causeway_proofs.errors import CausewayError, InvalidInput
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from causeway.service.keys.key_files import AccountKey, is_weak

DOMAIN = b"causeway/signed/v1\0"

MESSAGE = "message"
"""Kind of a user's message to a program."""

TRANSACTION = "transaction"
"""Kind of a carrier's transaction for a chain."""

MAX_NONCE = 2**63 - 1


class NotSigned(CausewayError):
    """Invalid signature of a message."""


@dataclass(frozen=True)
class SignedMessage:
    """Signed message; ``content`` is a JSON object, ``sender`` a public key."""

    lake: str
    kind: str
    chain: str
    sender: bytes
    nonce: int
    content: Mapping[str, Any]
    signature: bytes = b""

    @cached_property
    def encoded(self) -> bytes:
        """The signed bytes.

        Raises:
            InvalidInput: The content has no canonical form.
        """
        fields = (
            self.lake.encode(),
            self.kind.encode(),
            self.chain.encode(),
            self.sender,
            self.nonce.to_bytes(8, "big"),
            canonical_json(self.content),
        )
        return DOMAIN + b"".join(len(field).to_bytes(4, "big") + field for field in fields)

    @cached_property
    def hash(self) -> str:
        """Name of the message, 64 hexadecimal digits."""
        return hashlib.sha256(self.encoded).hexdigest()

    def body(self) -> dict[str, Any]:
        """Return the request body; kind and chain follow from its address."""
        sender, signature = self.sender.hex(), self.signature.hex()
        content = dict(self.content)
        return {"lake": self.lake, "sender": sender, "nonce": self.nonce, "content": content, "signature": signature}

    def verify(self) -> None:
        """Verify the signature.

        Raises:
            NotSigned: The signature is invalid, or the key is weak.
        """
        if is_weak(self.sender):
            raise NotSigned(f"sender: {self.sender.hex()}: a point of small order is nobody's key")
        try:
            Ed25519PublicKey.from_public_bytes(self.sender).verify(self.signature, self.encoded)
        except (InvalidSignature, ValueError):  # ValueError: the bytes are no curve point
            text = "is not the sender's on this lake, kind, chain, nonce and content"
            raise NotSigned(f"signature: {text}") from None


def sign_message(
    key: AccountKey, lake: str, kind: str, chain: str, nonce: int, content: Mapping[str, Any]
) -> SignedMessage:
    """Create a signed message.

    Args:
        key: Key of the sender.
        lake: Identity of the lake.
        kind: ``MESSAGE`` or ``TRANSACTION``.
        chain: Name of the chain; empty for a message.
        nonce: Nonce of the sender.
        content: The content.

    Raises:
        InvalidInput: The content has no canonical form.
    """
    bare = SignedMessage(lake, kind, chain, key.public, nonce, content)
    return SignedMessage(lake, kind, chain, key.public, nonce, content, key.sign(bare.encoded))


def canonical_json(content: Any) -> bytes:
    """Encode a JSON value canonically.

    Args:
        content: The value.

    Raises:
        InvalidInput: The value has a float or a lone surrogate, or is nested too deeply.
    """
    try:
        _refuse_floats(content)
        return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidInput("content: half of a surrogate pair is no text") from None
    except (RecursionError, TypeError, ValueError):
        raise InvalidInput("content: cannot be signed: it is nested too deeply, or no JSON") from None


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise InvalidInput(f"content: {value!r}: only whole numbers can be signed")
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)


def sender_number(public: bytes) -> int:
    """Return the number of a key holder for programs: 64 bits of the public key's digest."""
    return int.from_bytes(hashlib.sha256(b"causeway/sender/v1\0" + public).digest()[:8], "big")


def carrier_number(public: bytes) -> int:
    """Return the account number of a carrier: the upper 31 bits of the sender number."""
    return sender_number(public) >> 33
