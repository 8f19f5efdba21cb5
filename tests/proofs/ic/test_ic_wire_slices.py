"""Wire slices as columns: valid ones are read, altered ones refused by cause."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.certification import VerifiedRoots, verify_certifications
from causeway_proofs.ic.messages import (
    Data,
    RejectContext,
    RequestMetadata,
    StreamMessage,
    StreamRefund,
    StreamRejectCode,
    StreamRequest,
    StreamResponse,
    encode_stream_message,
)
from causeway_proofs.ic.primitives import CURRENT
from causeway_proofs.ic.slice import CertifiedStreamSlice, encode_certified_stream_slice, read_certification
from causeway_proofs.ic.stream_columns import encode_stream_messages
from causeway_proofs.ic.stream_header import RejectReason
from causeway_proofs.ic.witness import Witness, WitnessFork, WitnessNode, WitnessPruned
from causeway_proofs.wire import xnet_pb2

from causeway.protocols.ic.ids import canister_id
from causeway.protocols.ic.streams.remote_slices import (
    MORE_THAN_ONE,
    SliceReader,
    _decoded,
    _row,
    slice_message_columns,
)
from causeway.protocols.shared.messages import MESSAGE_COLUMNS
from tests.support.ic.ic_streams import BEGIN, END, HEIGHT, KEY, OTHER, OWN, REMOTE, certified

IDS = [OWN, REMOTE, OTHER]
READER = SliceReader({REMOTE: KEY.public_key(), OTHER: SecretKey.derive(b"another").public_key()})


def whole_slice(**asked: int) -> CertifiedStreamSlice:
    return certified().encode_certified_stream_slice(OWN, **asked)


def test_valid_slices_are_read_into_message_columns() -> None:
    first = whole_slice(msg_begin=BEGIN, msg_limit=4)
    second = certified().encode_certified_stream_slice(OTHER, msg_begin=BEGIN + 4)
    parts = [encode_certified_stream_slice(part) for part in (first, second)]
    found = READER.read([(1, 0, parts[0]), (1, 0, b"no slice"), (1, 2, parts[1]), (1, 0, parts[0])], IDS)
    assert [(one.row, one.source, one.destination, one.cause) for one in found.refused] == [
        (1, 1, 0, "MalformedProof"),
        (3, 1, 0, MORE_THAN_ONE),
    ]
    slices, messages, rejects = found.slices, found.messages, found.rejects
    assert slices["row"].tolist() == [0, 2] and slices["number"].tolist() == [HEIGHT, HEIGHT]
    assert slices["message_begin"].tolist() == [BEGIN, BEGIN + 4]
    assert slices["message_end"].tolist() == [BEGIN + 4, END]
    for name, value in (("begin", BEGIN), ("end", END), ("signals_end", 9), ("source", 1)):
        assert slices[name].tolist() == [value, value]
    assert slices["header"].to_pylist() == [first.payload.header_bytes] * 2
    certification = xnet_pb2.Certification.FromString(slices["certification"][0].as_py())
    assert read_certification(certification) == first.certification
    assert messages["index"].tolist() == list(range(BEGIN, END)) and set(messages["source"].tolist()) == {1}
    assert messages["destination"].tolist() == [0] * 4 + [2] * (END - BEGIN - 4)
    again = encode_stream_messages({name: messages[name] for name in MESSAGE_COLUMNS})
    assert again.to_pylist() == [*first.payload.messages, *second.payload.messages]
    assert [rejects[name].tolist() for name in ("slice", "index", "destination", "source")] == [
        [0, 1], [5, 5], [1, 1], [0, 2],
    ]  # fmt: skip
    assert set(rejects["reason"].tolist()) == {int(RejectReason.QueueFull)}


def test_header_alone_has_no_messages() -> None:
    found = READER.read([(1, 0, encode_certified_stream_slice(whole_slice(msg_begin=END)))], IDS)
    assert (found.slices["message_begin"][0], found.slices["message_end"][0], len(found.messages)) == (END, END, 0)


def test_empty_input_has_the_columns() -> None:
    found, some = READER.read([], IDS), READER.read([(1, 0, encode_certified_stream_slice(whole_slice()))], IDS)
    for name in ("slices", "messages", "rejects"):
        empty, full = getattr(found, name), getattr(some, name)
        assert len(empty) == 0 and empty.names == full.names
        assert all(np.asarray(empty[column]).dtype == np.asarray(full[column]).dtype for column in ("source",))


def _other_sibling(witness: Witness) -> Witness:
    match witness:
        case WitnessPruned(digest):
            return WitnessPruned(bytes([digest[0] ^ 1]) + digest[1:])
        case WitnessFork(left, right):
            changed = _other_sibling(right)
            return WitnessFork(_other_sibling(left), right) if changed == right else WitnessFork(left, changed)
        case WitnessNode(label, below):
            return WitnessNode(label, _other_sibling(below))
        case _:
            return witness


def _altered_slices() -> dict[str, tuple[CertifiedStreamSlice, str]]:
    one = whole_slice()
    payload, certification = one.payload, one.certification
    message = payload.messages[0]
    return {
        "message": (
            replace(one, payload=replace(payload, messages=(message[:-1] + b"q", *payload.messages[1:]))),
            "RootHashMismatch",
        ),
        "sibling": (replace(one, witness=_other_sibling(one.witness)), "RootHashMismatch"),
        "signature": (
            replace(one, certification=replace(certification, signature=KEY.sign(b"something else"))),
            "InvalidSignature",
        ),
        "no signature": (replace(one, certification=replace(certification, signature=b"")), "MalformedSignature"),
        "height": (replace(one, certification=replace(certification, height=HEIGHT + 1)), "RootHashMismatch"),
        "no height": (replace(one, certification=replace(certification, height_witness=None)), "DecodeFailed"),
        "destination": (certified().encode_certified_stream_slice(OTHER), "InvalidDestination"),
        "relabelled": (replace(one, payload=replace(payload, subnet_id=OTHER)), "InvalidDestination"),
        "dropped": (replace(one, payload=replace(payload, messages=payload.messages[:-1])), "WitnessPruningFailed"),
    }


@pytest.mark.parametrize("what", _altered_slices())
def test_altered_slices_are_refused_by_name(what: str) -> None:
    altered, cause = _altered_slices()[what]
    found = READER.read([(1, 0, encode_certified_stream_slice(altered))], IDS)
    assert [one.cause for one in found.refused] == [cause]
    assert len(found.slices) == len(found.messages) == len(found.rejects) == 0


def test_key_is_that_of_the_declared_source_subnet() -> None:
    data = encode_certified_stream_slice(whole_slice())
    assert [one.cause for one in READER.read([(2, 0, data), (0, 0, data)], IDS).refused] == [
        "InvalidSignature",
        "DecodeFailed",
    ]


def test_signature_is_verified_once_per_root_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    # Verifications of other tests are not cached here.
    known = partial(verify_certifications, verified=VerifiedRoots())
    monkeypatch.setattr("causeway.protocols.ic.streams.remote_slices.verify_certifications", known)
    verify = "causeway_proofs.ic.certification.verify_state_root"
    monkeypatch.setattr(verify, lambda *arguments: calls.append(arguments))
    reader = SliceReader({REMOTE: KEY.public_key()})
    for begin in (BEGIN, BEGIN + 1, BEGIN + 2):
        reader.verify(OWN, REMOTE, whole_slice(msg_begin=begin))
    assert len(calls) == 1
    reader.verify(OWN, REMOTE, certified(signals=10).encode_certified_stream_slice(OWN))
    assert len(calls) == 2


def _strange(number: int) -> tuple[bytes, ...]:
    """Return messages of one slice, some without a row in columns."""
    drawn = random.Random(number)
    id_of = canister_id(7)
    kinds: list[Callable[[], StreamMessage]] = [
        lambda: StreamRequest(
            id_of, canister_id(9), drawn.randrange(2**64), drawn.randrange(2**128), "méthode", b"p", None
        ),
        lambda: StreamRequest(id_of, id_of, 1, 2, "m", b"", RequestMetadata(3, None)),
        lambda: StreamResponse(id_of, canister_id(drawn.randrange(2**64)), 1, 2, Data(drawn.randbytes(9))),
        lambda: StreamResponse(id_of, id_of, 5, 0, RejectContext(StreamRejectCode(2), "because")),
        lambda: StreamRequest(id_of, id_of, 1, 2, "m", b"", RequestMetadata(3, 4), 5),
        lambda: StreamResponse(id_of, id_of, 5, 0, Data(b""), 6),
        lambda: StreamRefund(id_of, 3),
        lambda: StreamRequest(b"\x01", id_of, 1, 2, "m", b"", RequestMetadata(3, 4)),
        lambda: StreamResponse(id_of, b"\x04", 5, 0, Data(b"")),
    ]
    most = len(kinds) if number % 3 == 0 else 4
    made = [encode_stream_message(kinds[drawn.randrange(most)]()) for _ in range(drawn.randrange(6))]
    if number % 7 == 6:
        made.insert(drawn.randrange(len(made) + 1), drawn.choice([b"", b"\xa0", made[0][:-1] if made else b"\x00"]))
    return tuple(made)


def test_column_verdicts_equal_those_of_one_by_one() -> None:
    verdicts: Counter[str] = Counter()
    for number in range(200):
        one = whole_slice(msg_begin=BEGIN)
        held = replace(one, payload=replace(one.payload, messages=_strange(number)))

        def one_by_one(held: CertifiedStreamSlice = held) -> list[tuple[object, ...]]:
            return [_row(index, message) for index, message in held.decode_messages(CURRENT).messages]

        def in_columns(held: CertifiedStreamSlice = held) -> list[tuple[object, ...]]:
            found = slice_message_columns(held.payload, _decoded(held.payload, CURRENT), CURRENT)
            return list(zip(*(column_values(found[name]) for name in MESSAGE_COLUMNS), strict=True))

        expected, found = verdict_of(one_by_one), verdict_of(in_columns)
        assert found == expected, number
        verdicts["refused" if isinstance(expected, str) else "read"] += 1
    assert min(verdicts.values()) > 40


def column_values(column: Any) -> list[object]:
    """Return the values of a column."""
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    return list(column.to_pylist())


def verdict_of(read: Callable[[], list[tuple[object, ...]]]) -> list[tuple[object, ...]] | str:
    """Return the read value, or the name and text of the error."""
    try:
        return read()
    except ProofError as error:
        return f"{type(error).__name__}: {error}"
