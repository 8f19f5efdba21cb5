"""Deployed libraries read and write texts as documented, and packets as we do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.proofs.native import CARGO_FAST, GO_BUILD, Native, Toolchain
from causeway.ledger.ingest.row_sections import parse_go_literal
from causeway.programs.bundled.tokens import PacketDialect, TokenPacket, decode_packet
from tests.texts_page import column, texts
from tests.tiers import sized
from tests.verifiers.conftest import RUN_SECONDS, Build, Node

HERE = Path(__file__).parent / "native"
GO_COMMAND = (*GO_BUILD[0][:2], "-mod=mod", *GO_BUILD[0][2:]), GO_BUILD[1]
"""Go adds the checksums of some hundred modules itself."""
TOOLCHAINS = (
    Toolchain(HERE / "texts-go", "ibc-go", ("go.mod", "github.com/cosmos/ibc-go/v10 v"), *GO_COMMAND),
    Toolchain(HERE / "texts-rust", "ibc-rs", ("Cargo.toml", 'transfer-types = { version = "='), *CARGO_FAST),
)
PACKETS = sized(300, 20_000)
LITERALS = sized(3_000, 300_000)

Readings = dict[str, list[Any]]


@pytest.fixture(scope="module")
def libraries(native_build: Build) -> list[Native]:
    return native_build(TOOLCHAINS)


def ask(library: Native, given: Readings) -> Readings:
    done = subprocess.run(
        [library.program], input=json.dumps(given), capture_output=True, text=True, timeout=RUN_SECONDS, check=True
    )
    found: Readings = json.loads(done.stdout)
    return found


def cells(heading: str, read: list[Any]) -> dict[str, str]:
    """Return the read texts of a table, as cells of the page."""
    return dict(zip(texts(heading), ["refused" if each is None else each for each in read], strict=True))


def denom(found: dict[str, Any] | None) -> str | None:
    if found is None:
        return None
    return f"{found['base']} by {'/'.join(found['hops'])}" if found["hops"] else "native"


def height(found: list[Any] | None) -> str | None:
    return None if found is None else "-".join(map(str, found)) or "none"


def test_ibc_go_and_ibc_rs_read_texts_as_documented(libraries: list[Native]) -> None:
    given = {
        "amounts": texts("Amounts"), "denoms": texts("Denominations"), "heights": texts("Heights"),
        "principals": texts("Principals"), "payloads": [text.encode().hex() for text in texts("Packet data")],
    }  # fmt: skip
    for library in libraries:
        read, name = ask(library, given), f"{library.name} {library.version}"
        amounts = "cosmossdk.io/math 1.5.3" if library.name == "ibc-go" else name
        assert cells("Amounts", read["amounts"]) == column("Amounts", amounts)
        assert cells("Denominations", [*map(denom, read["denoms"])]) == column("Denominations", name)
        assert cells("Heights", [*map(height, read["heights"])]) == column("Heights", name)
        packets = [None if found is None else found[1] for found in read["payloads"]]
        assert cells("Packet data", packets) == column("Packet data", name)
    principals = [None if found is None else "read" for found in read["principals"]]
    assert cells("Principals", principals) == column("Principals", "ic_principal")


def test_javascript_libraries_read_texts_as_documented(node: Node) -> None:
    values = {"packet_data": "data", "packet_ack": "ack", "packet_data_hex": "64617461", "packet_ack_hex": "61636b"}
    events = [[each.strip("`") for each in names.split(", ")] for names in column("Events of packets", "attributes")]
    given = {
        "amounts": texts("Amounts"), "heights": texts("Heights"), "principals": texts("Principals"),
        "events": [{"packet_sequence": "1", **{name: values[name] for name in names}} for names in events],
    }  # fmt: skip
    read = node("texts.mjs", given)
    assert cells("Amounts", read["coin"]) == column("Amounts", "coin")
    assert cells("Amounts", read["BigInt"]) == column("Amounts", "BigInt")
    assert cells("Heights", [*map(height, read["timeout"])]) == column("Heights", "@confio/relayer")
    principals = [None if found is None else "read" for found in read["principal"]]
    assert cells("Principals", principals) == column("Principals", "@icp-sdk/core")
    taken = [{"": "empty", "64617461/61636b": "read"}["/".join(found).strip("/")] for found in zip(
        read["packet"], read["acknowledgement"], strict=True)]  # fmt: skip
    assert taken == [*column("Events of packets", "@confio/relayer").values()]


def test_packets_have_the_bytes_of_ibc_go_and_ibc_rs(libraries: list[Native]) -> None:
    random = Random(20)
    odd = '<>&\u2028\u2029"\\/\b\f\n\r\t\x00\x1f\x7f\x80é\ufeff\uffff\U0001f600 {}'
    packets = []
    for _ in range(PACKETS):
        sender, receiver = ("".join(random.choices(odd + "ab1", k=random.randint(1, 9))) for _ in range(2))
        memo = "".join(random.choices(odd + "ab1", k=random.randint(0, 20)))
        packets.append(TokenPacket("transfer/channel-1/uatom", random.randint(1, 2**256 - 1), sender, receiver, memo))
    given = {"packets": [[each.denom, str(each.amount), each.sender, each.receiver, each.memo] for each in packets]}
    for library, dialect in zip(libraries, (PacketDialect.IBC_GO_10, PacketDialect.IBC_RS), strict=True):
        written = [bytes.fromhex(digits) for digits in ask(library, given)["packets"]]
        assert written == [packet.encode(dialect) for packet in packets]
        assert [decode_packet(payload) for payload in written] == packets


def test_go_reads_literals_like_a_mapping_with_base_go(libraries: list[Native]) -> None:
    random = Random(21)
    literals = ["".join(random.choices("00117789_xXbBoOaF+-", k=random.randint(1, 7))) for _ in range(LITERALS)]
    read = ask(libraries[0], {"amounts": literals})["amounts"]
    assert sum(each is not None for each in read) > LITERALS // 20
    for text, value in zip(literals, read, strict=True):
        own = parse_go_literal(text)
        # The sign of a zero is retained here: no amount has one.
        assert ("0" if own == "-0" else own) == ("?" if value is None else value), text
