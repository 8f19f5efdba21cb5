"""Parse signed headers and validator sets from the JSON of a node's RPC interface."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from causeway_proofs.errors import MalformedProof, OverLimit
from causeway_proofs.tendermint import header
from causeway_proofs.tendermint.commit import Commit, CommitSignature, SignedHeader, flag_from_number
from causeway_proofs.tendermint.header import DIGESTS, BlockId, Header
from causeway_proofs.tendermint.validators import MAX_VALIDATORS, KeyType, PublicKey, Validator, ValidatorSet

_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,18})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEY_TYPES = {
    "tendermint/PubKeyEd25519": KeyType.ED25519,
    "tendermint/PubKeySecp256k1": KeyType.SECP256K1,
}


def signed_header_from_json(value: Any) -> SignedHeader:
    """Parse a signed header: ``signed_header`` of the answer to ``/commit``.

    Numbers may be JSON numbers or texts; hashes and addresses are hexadecimal, signatures base64, times RFC 3339.

    Args:
        value: the JSON value.

    Returns:
        The signed header.

    Raises:
        MalformedProof: a field is missing or malformed.
    """
    return SignedHeader(header_from_json(_part(value, "header")), commit_from_json(_part(value, "commit")))


def header_from_json(value: Any) -> Header:
    """Parse a header.

    Raises:
        MalformedProof: a field is missing or malformed.
    """
    version = _part(value, "version")
    last = value.get("last_block_id")
    return Header(
        chain_id=_text(value, "chain_id"),
        height=_number(value, "height"),
        time=_time(value, "time"),
        last_block_id=BlockId() if last is None else _block_id(last),
        version_block=_number(version, "block", maximum=2**64 - 1),
        version_app=_number(version, "app", maximum=2**64 - 1) if version.get("app") is not None else 0,
        **{name: _hex(value, name) for name in DIGESTS},
    )


def commit_from_json(value: Any) -> Commit:
    """Parse a commit.

    Raises:
        MalformedProof: a field is missing or malformed.
    """
    signatures = [
        CommitSignature(
            flag_from_number(_number(entry, "block_id_flag")),
            _hex(entry, "validator_address"),
            _time(entry, "timestamp"),
            _base64(entry, "signature"),
        )
        for entry in _parts(value, "signatures")
    ]
    return Commit(
        _number(value, "height"), _number(value, "round"), _block_id(_part(value, "block_id")), tuple(signatures)
    )


def validators_from_json(value: Any) -> ValidatorSet:
    """Parse a validator set: the list ``validators`` of the answer to ``/validators``.

    Args:
        value: the JSON value.

    Returns:
        The validator set.

    Raises:
        MalformedProof: a field is missing or malformed, or an address does not match its key.
    """
    validators = []
    for entry in _parts({"validators": value}, "validators"):
        key = _part(entry, "pub_key")
        kind = _KEY_TYPES.get(_text(key, "type"))
        if kind is None:
            raise MalformedProof(f"type of a validator's key is {key['type'][:64]!r}, allowed: {', '.join(_KEY_TYPES)}")
        priority = _number(entry, "proposer_priority") if "proposer_priority" in entry else 0
        validator = Validator(PublicKey(_base64(key, "value"), kind), _number(entry, "voting_power"), priority)
        if _hex(entry, "address") != validator.address:
            raise MalformedProof(f"address of a validator is not that of its key, {validator.address.hex()}")
        validators.append(validator)
    return ValidatorSet(tuple(validators))


def time_from_text(text: str, noun: str) -> int:
    """Parse an RFC 3339 time in UTC with at most nine decimals to nanoseconds since 1970.

    Raises:
        MalformedProof: it is not a time; ``noun`` names it.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise MalformedProof(f"{noun} is no time of the form 2019-11-02T15:04:10.123456789Z")
    try:
        moment = datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError as error:
        raise MalformedProof(f"{noun} is no time in the calendar") from error
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * header.SECOND + int((match[2] or "").ljust(9, "0"))


def _block_id(value: Any) -> BlockId:
    # Old nodes use "parts".
    name = "parts" if isinstance(value, Mapping) and "parts" in value else "part_set_header"
    parts = _part(value, name)
    return BlockId(_hex(value, "hash"), _number(parts, "total", maximum=2**32 - 1), _hex(parts, "hash"))


def _field(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping) or name not in value:
        raise MalformedProof(f"{name} is missing in the JSON of a signed header or validator set")
    return value[name]


def _part(value: Any, name: str) -> Mapping[str, Any]:
    found = _field(value, name)
    if not isinstance(found, Mapping):
        raise MalformedProof(f"{name} is no JSON object")
    return found


def _parts(value: Any, name: str) -> list[Any]:
    found = _field(value, name)
    if not isinstance(found, list):
        raise MalformedProof(f"{name} is no JSON list")
    if len(found) > MAX_VALIDATORS:
        raise OverLimit(f"{name} has {len(found)} entries, at most {MAX_VALIDATORS} are read")
    return found


def _text(value: Any, name: str) -> str:
    found = _field(value, name)
    if not isinstance(found, str):
        raise MalformedProof(f"{name} is no text")
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise MalformedProof(f"{name} is no text in Unicode") from error
    return found


def _number(value: Any, name: str, maximum: int = 2**63 - 1) -> int:
    found = _field(value, name)
    if isinstance(found, str) and _NUMBER.fullmatch(found):
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool) or not -(2**63) <= found <= maximum:
        raise MalformedProof(f"{name} is no whole number of at most {maximum}")
    return found


def _time(value: Any, name: str) -> int:
    return time_from_text(_text(value, name), name)


def _hex(value: Any, name: str) -> bytes:
    found = _field(value, name)
    if found is None:
        return b""
    if not isinstance(found, str):
        raise MalformedProof(f"{name} is not hexadecimal")
    try:
        # Rejects spaces, unlike bytes.fromhex, without the memory of a regular expression.
        return binascii.unhexlify(found)
    except ValueError as error:
        raise MalformedProof(f"{name} is not hexadecimal") from error


def _base64(value: Any, name: str) -> bytes:
    found = _field(value, name)
    if found is None:
        return b""
    try:
        data = base64.b64decode(_text(value, name), validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedProof(f"{name} is not base64") from error
    if base64.b64encode(data).decode() != found:
        raise MalformedProof(f"{name} is not in the canonical form of base64")
    return data
