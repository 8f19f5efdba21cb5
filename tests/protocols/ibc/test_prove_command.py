"""Command ``causeway prove``: every kind of proof verifies, and altered proofs fail ``causeway verify``.

Also its readable output, and one line for each invalid request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.documents.trust import parse_trust_object
from causeway_proofs.documents.verification import build_document, verify_document
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ics23.proof_specs import PROOF_SPECS
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.ics23.verify import verify_membership

from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.protocols import registry
from causeway.protocols.ibc.keys import KeyPart, QueueKey, QueuePurpose, index_key, parse_key
from causeway.protocols.ibc.packets import decode_packet, decode_receipt
from causeway.protocols.ibc.program_inputs import ReceiptCode
from causeway.proving.ibc import store as pushed
from causeway.proving.ibc.documents import (
    absence_document,
    existence_document,
    header_document,
    run_document,
    trust_document,
)
from causeway.proving.ibc.store import open_store
from causeway.storage.lake import LakeDamaged
from tests.support.common.command_line import Result, Run, command_line
from tests.support.ibc.ibc_lake import TICKS, make_lake

HEIGHT = 5
"""At this height queues of every kind hold something: entries sent lately, receipts old and new, a gap."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_lake(tmp_path_factory.mktemp("ordered"))


@pytest.fixture(scope="module")
def opened_lake(lake: str) -> OpenedLake:
    return open_lake(lake)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Create a function that runs the command line in its own folder."""
    yield from command_line(capsys, tmp_path, monkeypatch)


@pytest.fixture
def prove(cli: Run, lake: str) -> Run:
    """Create a function that proves entries of ``B`` at ``HEIGHT`` unless its arguments differ."""

    def run(*arguments: object) -> Result:
        given = [*arguments]
        for name, value in (("--chain", "B"), ("--counterparty", "A"), ("--queue", "receipt"), ("--height", HEIGHT)):
            if name not in given:
                given += [name, value]
        return cli("prove", lake, *given)

    return run


# ---- proofs that verify --------------------------------------------------------------------------

KINDS: dict[str, tuple[list[object], str]] = {
    "packet": (["--chain", "A", "--counterparty", "B", "--queue", "send", "--index", 6], "ibc:B:send/6 is stored"),
    "receipt": (["--index", 3], "ibc:A:receipt/3 is stored"),
    "late receipt": (["--index", 0], "ibc:A:receipt/0 is stored"),
    "receipt at the end": (["--index", 12, "--height", TICKS + 4], "ibc:A:receipt/12 is stored"),
    "head": (["--chain", "A", "--counterparty", "B", "--queue", "send", "--head"], "ibc:B:send/head is 4"),
    "tail": (["--tail"], "ibc:A:receipt/tail is 16"),
    "absent after the end": (["--index", 16, "--absent"], "no value is stored under ibc:A:receipt/16"),
    "absent in a gap": (["--index", 8, "--absent"], "no value is stored under ibc:A:receipt/8"),
    "absent in an empty queue": (
        ["--queue", "send", "--index", 0, "--absent"],
        "no value is stored under ibc:A:send/0",
    ),
    "run": (["--indices", "9:12"], "entries 9 to 11 of ibc:A:receipt are stored"),
    "run of one": (["--indices", "0:1"], "entries 0 to 0 of ibc:A:receipt are stored"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_proved_values_verify_and_altered_ones_fail(cli: Run, prove: Run, kind: str) -> None:
    arguments, told = KINDS[kind]
    code, out, err = prove(*arguments, "--out", "proof.json", "--trust-out", "trust.json")
    assert (code, err) == (0, "")
    assert told in out
    assert "signed by 4 validators" in out
    assert "Next: causeway verify proof.json --trust trust.json\n" in out
    code, out, _ = cli("verify", "proof.json", "--trust", "trust.json")
    assert (code, out.splitlines()[0]) == (0, "proof.json: true")
    proof = json.loads(Path("proof.json").read_text())
    for place in range(0, len(proof["proof"]), 14):
        digit = "1" if proof["proof"][place] == "0" else "0"
        altered = {**proof, "proof": proof["proof"][:place] + digit + proof["proof"][place + 1 :]}
        trust = parse_trust_object(json.loads(Path("trust.json").read_text()), "trust")
        assert not verify_document(build_document(altered, "altered"), trust, strict=True).valid, f"digit {place}"
    Path("altered.json").write_text(json.dumps(altered))
    assert cli("verify", "altered.json", "--trust", "trust.json")[0] in (1, 2)


def test_proof_is_printed_as_written(prove: Run) -> None:
    code, out, _ = prove("--index", 3, "--json", "--out", "proof.json")
    assert code == 0
    document = json.loads(out)
    assert document == json.loads(Path("proof.json").read_text())
    assert set(document) == {"kind", "root", "spec", "key", "value", "proof"}
    assert document["key"] == b"ibc:A:receipt".hex() + f"{3:016x}"


def test_nothing_is_written_without_a_file(prove: Run) -> None:
    code, out, _ = prove("--head")
    assert (code, list(Path().iterdir())) == (0, [])
    assert "The proof was not written: --out FILE writes it, --json prints it." in out


def test_signed_header_makes_the_root_trusted(cli: Run, prove: Run) -> None:
    prove("--tail", "--header-out", "header.json", "--trust-out", "trust.json")
    prove("--tail", "--height", HEIGHT - 1, "--trust-out", "before.json")
    assert cli("verify", "header.json", "--self-consistent")[0] == 0
    assert cli("verify", "header.json", "--trust", "before.json")[0] == 0
    header, trust = (json.loads(Path(name).read_text()) for name in ("header.json", "trust.json"))
    assert header["app_hash"] == trust["root"]
    assert (header["height"], header["now"]) == (HEIGHT, HEIGHT * 6_000_000_000)
    Path("header.json").write_text(json.dumps({**header, "app_hash": "00" * 32}))
    assert cli("verify", "header.json", "--self-consistent")[0] == 1


def test_packet_and_its_receipt_are_described(prove: Run) -> None:
    _, out, _ = prove(*KINDS["packet"][0])
    told = "packet of type ask, 50 bytes of data: caller calls ask of echo, payload of 6 bytes"
    assert told in out
    _, out, _ = prove("--chain", "A", "--counterparty", "B", "--queue", "send", "--index", 4)
    assert "calls ask of late, payload of 6 bytes, 7 units" in out
    _, out, _ = prove("--index", 3)
    assert "receipt with code 0 (success), 22 bytes of result: answer of 6 bytes" in out
    _, out, _ = prove("--indices", "0:12", "--height", TICKS + 4)
    assert "\n  ... and 4 more\n" in out


def test_packet_limits_are_reported(cli: Run, tmp_path: Path) -> None:
    place = make_lake(tmp_path, options=OPTIONS["limited"], until=2)
    _, out, err = cli("prove", place, "--chain", "A", "--counterparty", "B", "--queue", "send", "--index", 0)
    assert "packet of type ask with limits height 3 and time 606,000,000,000 ns, 50 bytes" in out, err


# ---- the store -----------------------------------------------------------------------------------


OPTIONS = {
    "plain": "",
    "unordered": 'order = "unordered"',
    "limited": 'timeouts = "on"\ntimeout_blocks = 3\ntimeout_seconds = 600.0\ncleanup = "on"',
}


@pytest.mark.parametrize(
    "options",
    [pytest.param("plain", marks=pytest.mark.slow), pytest.param("unordered", marks=pytest.mark.slow), "limited"],
)
def test_every_store_at_every_height_matches_its_entries(tmp_path: Path, options: str) -> None:
    opened = open_lake(make_lake(tmp_path, options=OPTIONS[options]))
    for height in opened.lake.heights()[:: 2 if options == "plain" else 4]:
        for chain in "ABC":
            store = open_store(opened, chain, height)
            entries = store.entries_at(np.arange(len(store)))
            known = SimpleStore.of(entries.keys, entries.values)
            assert known.root == store.root == opened.header(chain, height)[0]
            keys = entries.keys.to_pylist()
            places, there = store.locate(entries.keys)
            assert there.all()
            assert places.tolist() == list(range(len(store)))
            near = [key + b"\0" for key in keys] + [key[:-1] for key in keys] + [key[:-1] + b"\xff" for key in keys]
            asked = pa.array(sorted({b"a", b"z", b"ibc:A:zend", *near} - set(keys)), pa.binary())
            for one, other in zip(store.locate(asked), known.locate(asked), strict=True):
                assert one.tolist() == other.tolist()
            some = np.array([len(store) - 1, 0, len(store) // 2, 0])
            assert store.existence_proofs(some).equals(known.existence_proofs(some))
            assert store.absence_proofs(asked[:5]).equals(known.absence_proofs(asked[:5]))


def test_entries_match_sent_and_answered_messages(opened_lake: OpenedLake) -> None:
    packets = open_store(opened_lake, "A", 2)
    queue = packets.queue("B", QueuePurpose.SEND)
    values = [packets.value(index_key("B", QueuePurpose.SEND, index)) for index in queue.indices.tolist()]
    data = [decode_packet(value).data for value in values if value is not None]
    assert [text[-6:] for text in data] == [b"tick 0"] * 4 + [b"tick 1"] * 4
    receipts = open_store(opened_lake, "B")
    for index in receipts.queue("A", QueuePurpose.RECEIPT).indices.tolist():
        receipt = decode_receipt(receipts.value(index_key("A", QueuePurpose.RECEIPT, index)) or b"")
        assert receipt.code == ReceiptCode.SUCCESS
        assert receipt.result[16:] == f"tick {index // 4}".encode()
    assert receipts.value(b"app/trust") is not None
    assert receipts.value(b"app/nothing") is None


def test_one_state_read_serves_many_proofs(opened_lake: OpenedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(opened_lake, "B")
    monkeypatch.setattr(OpenedLake, "state_rows", None)
    known = {
        index_key("A", QueuePurpose.RECEIPT, 47),
        QueueKey("C", QueuePurpose.SEND, KeyPart.TAIL).encode(),
        b"app/relayers",
    }
    for key in known:
        value, proof = store.proved(key)
        verify_membership(PROOF_SPECS["tendermint"], store.root, proof, key, value)


def test_late_receipt_is_found_at_its_height(opened_lake: OpenedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    first = pushed.PushedEntries._first_with_entry

    def noted(self: pushed.PushedEntries, remote: int, substream: int, index: int, since: int) -> int:
        searched.append((index, first(self, remote, substream, index, since)))
        return searched[-1][1]

    monkeypatch.setattr(pushed.PushedEntries, "_first_with_entry", noted)
    store = open_store(opened_lake, "B")
    store.run("A", QueuePurpose.RECEIPT, 0, 48)
    assert searched, "the runs of early receipts are forgotten by the end"
    assert all(index % 4 == 0 for index, _ in searched), "only the program that asks others answers late"
    for index, height in searched:
        before, then = (
            open_store(opened_lake, "B", at).queue("A", QueuePurpose.RECEIPT) for at in (height - 1, height)
        )
        assert index not in before.indices
        assert index in then.indices


def test_documents_of_the_api(opened_lake: OpenedLake) -> None:
    store = open_store(opened_lake, "A", 1)
    trust = parse_trust_object(trust_document(store), "trust")
    key = index_key("B", QueuePurpose.SEND, 0)
    documents = [
        existence_document(store, key),
        absence_document(store, key + b"."),
        run_document(store, "B", QueuePurpose.SEND, 0, 4),
    ]
    assert all(verify_document(build_document(document, "it"), trust).valid for document in documents)
    for base in (None, 0):
        assert verify_document(build_document(header_document(store, base), "it"), self_consistent=True).valid
    later = open_store(opened_lake, "A", 9)
    for base in range(9):
        header = header_document(later, base)
        own = parse_trust_object(trust_document(open_store(opened_lake, "A", base)), "it") if base else None
        assert verify_document(build_document(header, "it"), own, self_consistent=True).valid
    with pytest.raises(InvalidInput, match="trusted height: 9: allowed are 0 to 8"):
        header_document(later, 9)


def test_height_0_has_an_unsigned_root(opened_lake: OpenedLake) -> None:
    store = open_store(opened_lake, "A", 0)
    assert store.signed is None
    assert trust_document(store) == {"kind": "root", "root": store.root.hex()}
    document = existence_document(store, QueueKey("B", QueuePurpose.SEND, KeyPart.TAIL).encode())
    assert verify_document(build_document(document, "it"), self_consistent=True).valid
    with pytest.raises(InvalidInput, match="is not signed"):
        header_document(store)


def test_keys_are_those_of_the_reference(opened_lake: OpenedLake) -> None:
    store = open_store(opened_lake, "B")
    keys = [key for key in store.entries_at(np.arange(len(store))).keys.to_pylist() if not key.startswith(b"app/")]
    parsed = [parse_key(key) for key in keys]
    assert {(key.remote, key.purpose) for key in parsed} == {
        (queue.counterparty, queue.purpose) for queue in store.queues()
    }


def test_proof_too_large_for_verifiers_is_rejected(opened_lake: OpenedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(opened_lake, "B")
    monkeypatch.setattr("causeway.proving.ibc.store.PIECE", 7)
    entries, proof = store.run("A", QueuePurpose.RECEIPT, 0, 48)
    assert len(entries) == 48
    for limit in (len(proof) - 1, 1_000):
        monkeypatch.setattr("causeway.proving.ibc.store.MAX_PROOF_BYTES", limit)
        with pytest.raises(InvalidInput, match=f"a proof has at most {limit} bytes"):
            store.run("A", QueuePurpose.RECEIPT, 0, 48)


# ---- errors --------------------------------------------------------------------------------------

WRONG: dict[str, tuple[list[object], str]] = {
    "chain": (["--chain", "E", "--tail"], 'chain: "E": no such chain; there are 4: A, B, C, D'),
    "chain of another lake": (["--chain", "D", "--tail"], 'chain: "D": is run by another lake, which has its store'),
    "near chain": (["--chain", "b", "--tail"], 'chain: "b"'),
    "counterparty": (["--counterparty", "E", "--tail"], 'counterparty: "E": B keeps no queue for it; it does for A, C'),
    "no connection": (
        ["--counterparty", "D", "--tail"],
        'counterparty: "D": B keeps no queue for it; it does for A, C',
    ),
    "itself": (["--counterparty", "B", "--tail"], 'counterparty: "B": B keeps no queue for it; it does for A, C'),
    "queue": (["--queue", "post", "--tail"], "'post' is not one of 'send', 'receipt'"),
    "index": (
        ["--index", 16],
        "--index: 16: does not exist (--absent proves that); at height 5 the receipt queue for A holds 0 to 15, 14 of",
    ),
    "empty queue": (["--queue", "send", "--index", 0], "the send queue for A is empty (head 0, tail 0)"),
    "there": (["--index", 3, "--absent"], "--index: 3: exists; remove --absent"),
    "negative": (["--index", -1], "--index: -1: allowed are 0 to 9151314442816847871"),
    "huge": (["--index", 2**70, "--absent"], "allowed are 0 to 9151314442816847871"),
    "gap": (["--indices", "7:10"], "indices: 7:10: not all of them are there; the receipt queue for A holds 0 to 15"),
    "beyond": (["--indices", "9:17"], "indices: 9:17: not all of them are there"),
    "no bounds": (["--indices", "9"], "--indices: 9: write M:N, two whole numbers"),
    "signs": (["--indices", "-1:4"], "--indices: -1:4: write M:N"),
    "backwards": (["--indices", "4:4"], "--indices: 4:4: M must be below N"),
    "enormous": (["--indices", f"0:{10**30}"], "not all of them are there"),
    "nothing": ([], "selection: allowed: exactly one of --index N, --indices M:N, --head, --tail"),
    "two things": (["--head", "--tail"], "selection: allowed: exactly one of"),
    "absent alone": (["--tail", "--absent"], "--absent: say which index"),
    "height": (["--tail", "--height", 99], "height: 99 is not committed; committed are 0 to 16"),
    "negative height": (["--tail", "--height", -1], "height: -1 is not committed"),
    "one file": (["--tail", "--out", "a", "--trust-out", "a"], "--out, --trust-out: give each a different file"),
    "no folder": (
        ["--tail", "--out", "none/a.json"],
        "--out none/a.json: cannot be written: No such file",
    ),
    "unsigned": (["--tail", "--height", 0, "--header-out", "h"], "height: 0: its header is not signed"),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_arguments_are_reported_in_one_line(prove: Run, case: str) -> None:
    arguments, told = WRONG[case]
    code, out, err = prove(*arguments)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"causeway: .+\n", err)
    assert told in err


def test_lakes_of_other_protocols_have_no_such_proofs(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ic.toml").write_text('[network]\nexecutor = "in_process"\n[[chains]]\ncount = 2\nprefix = "s"\n')
    network = LakeNetwork.from_scenario(tmp_path / "ic.toml", lake=str(tmp_path / "ic"))
    network.close()
    place = ("--chain", "s0", "--counterparty", "s1", "--queue", "send", "--tail")
    assert cli("prove", "ic", *place) == (2, "", "causeway: --queue: no option for lakes of ic\n")
    assert cli("prove", "none", *place) == (2, "", "causeway: lake: none holds no lake (no lake.json)\n")
    monkeypatch.setitem(registry._PROTOCOLS, "ic", replace(registry.find_protocol("ic"), prover=None))
    assert cli("prove", "ic", *place) == (
        2,
        "",
        "causeway: lake: ic is of the protocol ic; proofs can be taken only from lakes of ibc, icmp, xdm\n",
    )


def _rewrite_proof(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    pq.write_table(change(table), path)


def _replace_value(table: pa.Table, name: str, value: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array([value] * len(table), table.schema.types[place]))


def test_tampered_lake_proves_nothing(cli: Run, tmp_path: Path) -> None:
    lake = tmp_path / "tampered"
    lake.mkdir()
    place = make_lake(lake, until=2)
    opened = open_lake(place)
    outbound = opened.manifest(2).log["outbound"][opened.bucket(0)]
    _rewrite_proof(Path(place) / outbound, lambda table: _replace_value(table, "payload", b"other"))
    store = open_store(opened, "A", 2)
    with pytest.raises(LakeDamaged, match=r"outbound-.* bytes where .* were written; last verified height 1"):
        store.prove(index_key("B", QueuePurpose.SEND, 5))
    (queues,) = opened.manifest(2).state["queues"][opened.bucket(0)].files
    _rewrite_proof(Path(place) / queues, lambda table: _replace_value(table, "next_index", 9))
    code, _, err = cli(
        "prove", place, "--chain", "A", "--counterparty", "B", "--queue", "send", "--tail", "--height", 2
    )
    assert code == 2
    assert "is damaged: heights/0000000002/queues-" in err and err.count("\n") == 1


# ---- the page -------------------------------------------------------------------------------------

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "prove-and-verify.md").read_text()


def without_digests(text: str) -> str:
    """Remove the digests of a text, which change with the layout of a zone's state."""
    return re.sub(r"(0x)?[0-9a-f]{16,}(…[0-9a-f]{4}|\.\.\.)?", "#", text)


def test_examples_of_the_page_match_their_output(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "two-zones.toml").write_text(re.findall(r"^```toml\n(.*?)```$", PAGE, re.S | re.M)[0])
    network = LakeNetwork.from_scenario("two-zones.toml", lake="my-lake")
    network.run()
    network.close()
    commands = re.findall(r"^```\n\$ causeway (.*?)\n(.*?)```$", PAGE, re.S | re.M)
    assert len(commands) == 7
    for arguments, output in commands:
        _, out, err = cli(*arguments.split())
        assert without_digests(out + err) == without_digests(output)
    python = re.findall(r"^```python\n(.*?)```$", PAGE, re.S | re.M)[0]
    exec(compile(python, "prove-and-verify.md", "exec"), {})
