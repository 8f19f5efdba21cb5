"""Signed messages to a served lake: who sent what, to which lake, once.

What is signed is a sequence of bytes that says what it is for (``DOMAIN``), then each field with its length in front,
four bytes, the highest first: the lake's identity, what it is (``MESSAGE``, ``TRANSACTION``), the chain (empty for a
message to a program), the sender's public key, the nonce (eight bytes, the highest first), and the content as canonical
JSON: keys ascending by code points, no spaces, UTF-8, no floats. So a signature is good for one lake, one sender, one
nonce and one content. The SHA-256 digest of the same bytes is the message's name.
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
"""A user's message to a program."""

TRANSACTION = "transaction"
"""What somebody carries to a chain."""

MAX_NONCE = 2**63 - 1


class NotSigned(CausewayError):
    """A message's signature is not that of its sender on it."""


@dataclass(frozen=True)
class SignedMessage:
    """A signed message. ``content``: as JSON has it; ``sender``: a public key."""

    lake: str
    kind: str
    chain: str
    sender: bytes
    nonce: int
    content: Mapping[str, Any]
    signature: bytes = b""

    @cached_property
    def encoded(self) -> bytes:
        """Return what is signed. Raises ``InvalidInput`` when the content has no canonical form."""
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
        """Return the message's name: 64 hexadecimal digits."""
        return hashlib.sha256(self.encoded).hexdigest()

    def body(self) -> dict[str, Any]:
        """Return what is posted: kind and chain follow from where it is posted to."""
        sender, signature = self.sender.hex(), self.signature.hex()
        content = dict(self.content)
        return {"lake": self.lake, "sender": sender, "nonce": self.nonce, "content": content, "signature": signature}

    def verify(self) -> None:
        """Raise ``NotSigned`` unless the signature is the sender's on this message."""
        if is_weak(self.sender):
            raise NotSigned(f"sender: {self.sender.hex()}: a point of small order is nobody's key")
        try:
            Ed25519PublicKey.from_public_bytes(self.sender).verify(self.signature, self.encoded)
        except (InvalidSignature, ValueError):  # a ValueError: the bytes are no point of the curve
            text = "is not the sender's on this lake, kind, chain, nonce and content"
            raise NotSigned(f"signature: {text}") from None


def sign_message(
    key: AccountKey, lake: str, kind: str, chain: str, nonce: int, content: Mapping[str, Any]
) -> SignedMessage:
    """Return a message with the signature of a key."""
    bare = SignedMessage(lake, kind, chain, key.public, nonce, content)
    return SignedMessage(lake, kind, chain, key.public, nonce, content, key.sign(bare.encoded))


def canonical_json(content: Any) -> bytes:
    """Return the one form in bytes of a JSON value.

    Raises:
        InvalidInput: it has none: a float, half of a surrogate pair, too deep.
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
    """Return the number under which a chain's programs know the holder of a public key: 64 bits of its digest."""
    return int.from_bytes(hashlib.sha256(b"causeway/sender/v1\0" + public).digest()[:8], "big")


def carrier_number(public: bytes) -> int:
    """Return the number under which what the holder of a public key carries is accounted: 31 bits of the same."""
    return sender_number(public) >> 33
