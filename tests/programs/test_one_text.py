"""Parsing of texts that deployed libraries read differently, as documented, by Causeway and Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causeway_proofs.ic.primitives import principal_from_text

from causeway.programs.bundled.tokens import Refused, decode_packet, parse_amount, require_denom, split_denom
from tests.ledger.ingest.test_ingest import ingest_content, rows_of, why
from tests.ledger.ingest.test_ingest_fields import mapping, read_records
from tests.texts_page import column, texts


def reader_result(reader: Callable[[str], Any], text: str) -> str:
    """Return a reader's result for a text, as a cell of the page."""
    try:
        return str(reader(text))
    except (Refused, ValueError):
        return "refused"


def ingest_text(field: str, text: str) -> str:
    found = read_records(mapping({field: "v"}), f"n,v\n1,{text}\n")
    if why(found):
        return why(found)[0][1]
    (row,) = rows_of(found)
    if field == "amount":
        return str(row["amount_0"]) if row["amount_0"] is not None else "none"
    revision, height = row["timeout_revision"], row["timeout_height"]
    return "none" if height is None else f"{height}" if revision is None else f"{revision}-{height}"


def packet_denom(text: str) -> str:
    require_denom(text)
    peers, home = split_denom(text)
    return f"{home} by {'/'.join(f'transfer/channel-{peer}' for peer in peers)}" if peers else "native"


def principal(text: str) -> str:
    assert principal_from_text(text).hex() == "00000000000000000101"
    return "read"


def test_amounts_are_parsed_as_documented() -> None:
    assert {text: reader_result(int, text) for text in texts("Amounts")} == column("Amounts", "`int` of Python")
    assert {text: ingest_text("amount", text) for text in texts("Amounts")} == column("Amounts", "ingest")
    assert {text: reader_result(parse_amount, text) for text in texts("Amounts")} == column("Amounts", "transfer")


def test_denominations_are_parsed_as_documented() -> None:
    read = {text: reader_result(packet_denom, text) for text in texts("Denominations")}
    assert read == column("Denominations", "transfer")


def test_heights_are_parsed_as_documented() -> None:
    read = {text: ingest_text("timeout_height", text) for text in texts("Heights")}
    assert read == column("Heights", "causeway ingest")


def test_packet_data_is_parsed_as_documented() -> None:
    read = {
        text: reader_result(lambda given: decode_packet(given.encode()).amount, text) for text in texts("Packet data")
    }
    assert read == column("Packet data", "transfer")


def test_principals_are_parsed_as_documented() -> None:
    assert {text: reader_result(principal, text) for text in texts("Principals")} == column("Principals", "Causeway")


def test_events_are_parsed_in_every_form() -> None:
    values = {"packet_data": '{"a":1}', "packet_ack": '{"error":"x"}'}
    values |= {f"{name}_hex": text.encode().hex() for name, text in values.items()}
    for names, cell in column("Events of packets", "ingest").items():
        named = {name: values[name] for name in names.replace("`", "").split(", ")}
        head = f"event,chain,channel,sequence,height,{','.join(named)}"
        quoted = ",".join('"' + text.replace('"', '""') + '"' for text in named.values())
        lines = [f"{event},a,channel-0,1,5,{quoted}" for event in ("send_packet", "write_acknowledgement")]
        sent, answered = rows_of(ingest_content("\n".join([head, *lines]), "ibc-events"))
        assert cell == "read" and sent["payload_hash"] is not None and answered["event"] == "failed"
