"""Key files: Ed25519 keys of users, relayers and validators, BLS12-381 keys of chains.

Only its owner can read a key file.

A file is one JSON object: ``{"type": "causeway-key", "version": 1, "algorithm": "ed25519", "public": "...",
"secret": "..."}``, both keys as 64 hexadecimal digits; ``secret`` is the seed of RFC 8032. For a chain's
key the algorithm is ``bls12-381``, the public key has 192 digits, and the secret one is a big-endian number.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.bls import SecretKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES = 32

TYPE = "causeway-key"
VERSION = 1
ALGORITHM = "ed25519"
CHAIN_ALGORITHM = "bls12-381"

_P = 2**255 - 19
_Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
WEAK = frozenset({0, 1, _P - 1, _P, _P + 1, _Y, _P - _Y})
"""The y coordinates, also unreduced, of the eight points of small order.

Anyone can sign for them as public keys; RFC 8032 accepts them.
"""

MAX_FILE_BYTES = 4096
"""Maximum size of a key file in bytes."""


class WeakKey(InvalidInput):
    """Public key for which anyone can sign."""


@dataclass(frozen=True)
class AccountKey:
    """Secret key, hidden from ``repr``; ``seed`` is the 32 bytes of RFC 8032."""

    seed: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> AccountKey:
        """Generate a key from the system's randomness."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public(self) -> bytes:
        """Public key, 32 bytes."""
        return self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Sign a message; the signature has 64 bytes."""
        return self._private.sign(message)


@dataclass(frozen=True)
class ChainKey:
    """Secret key of a certifying chain, hidden from ``repr``."""

    secret: SecretKey = field(repr=False)

    @classmethod
    def generate(cls) -> ChainKey:
        """Generate a key from the system's randomness."""
        return cls(SecretKey.generate())

    @property
    def seed(self) -> bytes:
        """Secret key, 32 bytes."""
        return self.secret.to_bytes()

    @cached_property
    def public(self) -> bytes:
        """Public key, 96 bytes."""
        return self.secret.public_key()


def write_key(path: Path, key: AccountKey | ChainKey) -> None:
    """Write a key to a new file that only its owner can read.

    Args:
        path: The file.
        key: The key.

    Raises:
        InvalidInput: The file exists, or cannot be written.
    """
    algorithm = ALGORITHM if isinstance(key, AccountKey) else CHAIN_ALGORITHM
    content = {"type": TYPE, "version": VERSION, "algorithm": algorithm}
    text = json.dumps({**content, "public": key.public.hex(), "secret": key.seed.hex()}) + "\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidInput(f"{path}: exists already; a key is never written over, name another file") from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror}") from None
    with open(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_key(path: Path) -> AccountKey:
    """Read the key of a user, relayer or validator.

    Args:
        path: The file.

    Raises:
        InvalidInput: The file is unusable (``read_any_key``), or holds a chain's key.
    """
    key = read_any_key(path)
    if not isinstance(key, AccountKey):
        raise InvalidInput(f"{path}: holds the key of a chain; make another one with: causeway key new FILE")
    return key


def read_chain_key(path: Path) -> ChainKey:
    """Read the key of a chain.

    Args:
        path: The file.

    Raises:
        InvalidInput: The file is unusable (``read_any_key``), or holds another kind of key.
    """
    key = read_any_key(path)
    if not isinstance(key, ChainKey):
        raise InvalidInput(f"{path}: holds no key of a chain; make one with: causeway key new --chain FILE")
    return key


def read_any_key(path: Path) -> AccountKey | ChainKey:
    """Read a key of any kind.

    Args:
        path: The file.

    Raises:
        InvalidInput: The file is missing, readable by others, or holds no valid key.
    """
    text = read_secret(path)
    try:
        content = json.loads(text)
        kind = (content["type"], content["version"], content["algorithm"])
        seed, public = bytes.fromhex(content["secret"]), bytes.fromhex(content["public"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidInput(f"{path}: holds no key; make one with: causeway key new FILE") from None
    if kind not in ((TYPE, VERSION, ALGORITHM), (TYPE, VERSION, CHAIN_ALGORITHM)):
        known = f"{TYPE!r}, version {VERSION}, {ALGORITHM!r} or {CHAIN_ALGORITHM!r}"
        raise InvalidInput(f"{path}: type, version, algorithm are {kind!r}; allowed: {known}")
    if len(seed) != KEY_BYTES:
        raise InvalidInput(f"{path}: secret: {len(seed)} bytes; allowed: {KEY_BYTES}")
    try:
        key = AccountKey(seed) if kind[2] == ALGORITHM else ChainKey(SecretKey.from_bytes(seed))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: secret: {error}") from None
    if key.public != public:
        raise InvalidInput(f"{path}: public is not the public key of secret: the file is damaged")
    return key


def read_secret(path: Path) -> str:
    """Read the text of a secret file.

    Args:
        path: The file.

    Raises:
        InvalidInput: The file is missing, too long, or readable by others.
    """
    try:
        with open(path, "rb") as file:
            refuse_readable(path)
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(f"{path}: more than {MAX_FILE_BYTES} bytes; a key file is shorter")
    return data.decode(errors="replace")


def refuse_readable(path: Path) -> None:
    """Verify that only the owner can read or change a file.

    Args:
        path: The file.

    Raises:
        InvalidInput: Others can, or the file is missing.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        text = f"others than its owner can read or change it (mode {stat.S_IMODE(mode):04o})"
        raise InvalidInput(f"{path}: {text}; run: chmod 600 {path}")


def public_key(text: str, what: str) -> bytes:
    """Parse a public key of 64 hexadecimal digits.

    Args:
        text: The digits.
        what: Name of the value, for the error.

    Raises:
        InvalidInput: The text is no public key.
        WeakKey: The key is a point of small order.
    """
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) != KEY_BYTES or len(text) != 2 * KEY_BYTES:
        raise InvalidInput(f"{what}: {text[:80]!r}; allowed: a public key, {2 * KEY_BYTES} hexadecimal digits")
    if is_weak(data):
        raise WeakKey(f"{what}: {text}: a point of small order is nobody's key, anybody can sign for it")
    return data


def is_weak(public: bytes) -> bool:
    """Return True if a public key is a point of small order."""
    return int.from_bytes(public, "little") % 2**255 in WEAK
