"""Documents with arbitrary values: true, false by name, or bad input in one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from causeway_proofs.documents.trust import parse_trust_object
from causeway_proofs.documents.validation import parse_object
from causeway_proofs.documents.values import (
    format_time,
    parse_bytes,
    parse_duration,
    parse_label,
    parse_principal,
    parse_time,
)
from causeway_proofs.documents.verification import build_document, verify_document
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.primitives import principal_from_text, principal_to_text
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.common.proof_documents import Document, documents
from tests.tiers import sized

DOCUMENTS = documents()
ODD: list[Any] = [
    *(None, True, 0, 1, 3, 7, -1, 2**32, 2**63, 2**64 - 1, 2**64, 10**40),
    *("", "00", "0x", "text:", "base64:AA==", "principal:aaaaa-aa", "aaaaa-aa", "11" * 32, "c0" + "00" * 95, "\ud800"),
    *("1/3", "1d", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "iavl", "smt", "ic-mainnet"),
    *([], {}, [[]], ["00"], [7, 8], {"data": "00"}, {"kind": "root"}),
]

Place = tuple[str | int, ...]


def places(node: Any, place: Place = ()) -> Iterator[Place]:
    if place:
        yield place
    if isinstance(node, dict):
        for key, below in node.items():
            yield from places(below, (*place, key))
    elif isinstance(node, list):
        for at, below in enumerate(node):
            yield from places(below, (*place, at))


PLACES = [(name, place) for name, document in DOCUMENTS.items() for place in places(document)]


def with_change(document: Document, place: Place, value: Any, how: str) -> Document:
    node: Any = document
    for step in place[:-1]:
        node = node[step]
    if how == "delete":
        del node[place[-1]]
    elif how == "repeat" and isinstance(node, list):
        node.append(copy.deepcopy(node[int(place[-1])]))
    else:
        node[place[-1]] = value
    return document


@settings(deadline=None, derandomize=True, max_examples=sized(360, 4000))
@given(st.sampled_from(PLACES), st.sampled_from(ODD), st.sampled_from(["put", "put", "put", "delete", "repeat"]))
def test_any_document_is_judged_or_refused_in_one_line(spot: tuple[str, Place], value: Any, how: str) -> None:
    name, place = spot
    document = with_change(copy.deepcopy(DOCUMENTS[name]), place, copy.deepcopy(value), how)
    try:
        reading = build_document(parse_object(json.dumps(document).encode(), name), name)
        verdict = verify_document(reading, self_consistent=True)
    except InvalidInput as error:
        told = str(error)
    else:
        shown = json.loads(json.dumps(verdict.as_json()))
        assert shown["valid"] is (shown["error"] is None) is (shown["answer"] == "true")
        assert shown["error"] is None or shown["error"]["text"].isprintable()
        return
    assert told.startswith(f"{name}: ") and told.isascii() and told.isprintable()


@settings(deadline=None, derandomize=True)
@given(st.recursive(st.none() | st.integers() | st.text() | st.booleans(), lambda x: st.lists(x, max_size=3)))
def test_any_value_raises_at_most_a_value_error(value: object) -> None:
    for read in (parse_bytes, parse_label, parse_principal, parse_time, parse_duration):
        try:
            found = read(value)
        except UnicodeError:
            raise
        except ValueError:
            continue
        assert isinstance(found, bytes | int)


@settings(deadline=None, derandomize=True)
@given(st.binary(max_size=29))
def test_ids_round_trip_through_text(principal: bytes) -> None:
    text = principal_to_text(principal)
    assert principal_from_text(text) == parse_principal(text if "-" in text else principal.hex()) == principal
    assert parse_bytes(f"principal:{text}") == parse_label(f"principal:{text}") == principal
    digits = principal.hex()
    assert parse_bytes(digits) == parse_bytes(f"0x{digits}") == parse_label(f"0x{digits}") == principal


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 2**63 - 1))
def test_times_round_trip_through_text(time: int) -> None:
    assert parse_time(format_time(time)) == parse_time(time) == parse_time(str(time)) == time


def test_well_known_ids() -> None:
    assert principal_to_text(b"") == "aaaaa-aa"
    assert principal_from_text("2vxsx-fae") == b"\x04"
    assert principal_from_text("rwlgt-iiaaa-aaaaa-aaaaa-cai").hex() == "00000000000000000101"


def test_trust_document_defines_its_root() -> None:
    trust = parse_trust_object({"kind": "root", "root": "0x" + "AB" * 32}, "here")
    assert trust.target == b"\xab" * 32 and trust.subject == f"root {'ab' * 32}"
