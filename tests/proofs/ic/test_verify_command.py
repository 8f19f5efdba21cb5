"""``causeway verify``: true and false proofs of every kind, trust, drawings, one-line errors."""

from __future__ import annotations

import base64
import copy
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.documents.trust import IC_MAINNET_KEY, TRUST_KINDS
from causeway_proofs.documents.validation import MAX_DOCUMENT_BYTES
from causeway_proofs.documents.verification import KINDS, build_document, verify_document
from causeway_proofs.ic.bls import public_key_to_der
from causeway_proofs.ic.cbor_reader import MAP, SELF_DESCRIBED, cbor_bytes, cbor_head, cbor_text
from causeway_proofs.ic.certification import derive_root_subnet
from causeway_proofs.substrate.byte_columns import encode_compact
from causeway_proofs.tendermint.light_client import decode_consensus_state
from causeway_proofs.wire.ibc_merkle_proof_pb2 import MerkleProof
from causeway_proofs.wire.ics23_pb2 import CommitmentProof

from tests.oracles.ics23.smt import SmtStore
from tests.proofs.tendermint.test_tendermint_rpc import as_json
from tests.support.common.command_line import Run, command_line
from tests.support.common.proof_documents import (
    OTHER,
    ROOT_KEY,
    SUBNET_KEY,
    Document,
    canister,
    documents,
    ic_certificate,
    ic_key,
    ics23,
    ics23_chained,
    mmr_leaf,
    root,
    substrate_storage,
    tendermint_update,
)
from tests.support.common.tendermint_chain import Chain, steady

DOCUMENTS = documents()
NAMES = list(DOCUMENTS)


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Return a function that runs ``causeway verify`` in its own folder; non-text arguments become files there.

    Without trust it asks whether the file is consistent; ``None`` among the arguments: not even that.
    """

    def placing(run: Run) -> Run:
        def placed(*given: Any) -> Any:
            own = () if "--trust" in given or None in given else ("--self-consistent",)
            kept = [argument for argument in given if argument is not None]
            return run(*(_placed(f"{place}.json", argument) for place, argument in enumerate(kept)), *own)

        return placed

    yield from (placing(run) for run in command_line(capsys, tmp_path, monkeypatch, "verify"))


def _placed(name: str, argument: Any) -> str:
    if isinstance(argument, str):
        return argument
    Path(name).write_bytes(argument if isinstance(argument, bytes) else json.dumps(argument).encode())
    return name


def change_document(name: str, *steps: str | int, to: Any) -> Document:
    """Return the document of a name with another value at a place."""
    document = copy.deepcopy(DOCUMENTS[name])
    node: Any = document
    for step in steps[:-1]:
        node = node[step]
    node[steps[-1]] = to
    return document


def without(name: str, field: str) -> Document:
    return {key: value for key, value in DOCUMENTS[name].items() if key != field}


# ---- true ----------------------------------------------------------------------------------------


def test_every_kind_is_tested_here() -> None:
    assert {name.split()[0] for name in NAMES} == set(KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_true_under_the_trust_in_the_file(verify: Run, name: str) -> None:
    code, out, err = verify(DOCUMENTS[name])
    assert (code, err) == (0, "")
    first, claimed, *listed, under = out.splitlines()
    assert all(line.startswith(" " * 11) for line in listed)
    assert first == "0.json: true"
    assert claimed.startswith("  claimed: ") and under.startswith("  under:   the ")
    assert under.endswith(", named by the file itself, under which it is true")


@pytest.mark.parametrize("name", NAMES)
def test_untrusted_if_only_the_file_names_the_trust(verify: Run, name: str) -> None:
    code, out, err = verify(DOCUMENTS[name], None)
    assert (code, err) == (2, "")
    said = "0.json: UNTRUSTED - use --trust, or --self-consistent to check it against its own root"
    assert out.splitlines()[0] == said
    verdict = json.loads(verify(DOCUMENTS[name], None, "--json")[1])
    assert (verdict["answer"], verdict["valid"], verdict["self_consistent"]) == ("untrusted", False, True)
    other = {**DOCUMENTS[name], "trust": other_trust(DOCUMENTS[name]["trust"])}
    code, out, _ = verify(other, None)
    assert code == 2 and re.match(r"0\.json: (UNTRUSTED|refused) - [A-Z]\w+: .", out)
    verdict = json.loads(verify(other, None, "--json")[1])
    assert (verdict["valid"], verdict["self_consistent"]) == (False, False)


@pytest.mark.parametrize("name", NAMES)
def test_true_under_external_trust(verify: Run, name: str) -> None:
    document = copy.deepcopy(DOCUMENTS[name])
    trust = document.pop("trust")
    code, out, _ = verify(document, "--trust", trust, "--json")
    verdict = json.loads(out)
    assert code == 0 and verdict["valid"] is True and verdict["error"] is None
    assert verdict["answer"] == "true" and verdict["self_consistent"] is None
    assert verdict["kind"] == document["kind"] and verdict["trust"]["named_by_document"] is False
    assert verdict["steps"]
    for place in {step["track"] for step in verdict["steps"]}:
        last = [step for step in verdict["steps"] if step["track"] == place][-1]["result"]
        # Stores of a chain lead to the root of the next one, everything else to the trusted root.
        if trust["kind"] == "root" and document["kind"] != "ics23_chained":
            assert last == trust["root"]
        if trust["kind"] == "ic_public_key":
            assert last == trust["key"]


@pytest.mark.parametrize("name", NAMES)
def test_proof_without_trust_names_the_required_trust(verify: Run, name: str) -> None:
    code, out, err = verify(without(name, "trust"), None)
    assert (code, err) == (2, "")
    said = out.splitlines()[0]
    assert (
        said.startswith("0.json: UNTRUSTED - InvalidInput: trust: missing; a proof of the kind ")
        and '{"kind": ' in said
    )
    verdict = json.loads(verify(without(name, "trust"), "--json")[1])
    assert (verdict["answer"], verdict["valid"], verdict["trust"]) == ("untrusted", False, None)


# ---- false ---------------------------------------------------------------------------------------


def other_trust(trust: Document) -> Document:
    if trust["kind"] == "root":
        return {**trust, "root": "11" * 32}
    if trust["kind"] == "ic_public_key":
        return {**trust, "key": IC_MAINNET_KEY.hex()}
    return {**trust, "chain_id": "zone-2"}


@pytest.mark.parametrize("name", NAMES)
def test_false_under_another_trust_that_overrides_the_file(verify: Run, name: str) -> None:
    document = DOCUMENTS[name]
    code, out, err = verify(document, "--trust", other_trust(document["trust"]), "--explain")
    assert (code, err) == (1, "")
    assert re.match(r"0\.json: false - [A-Z]\w+: .", out)
    (under,) = (line for line in out.splitlines() if line.startswith("  under: "))
    assert under.endswith("(--trust)")
    assert re.search(r"^✗ (after these steps|before any step): [A-Z]\w+$", out, re.M)


def proofs(document: Document) -> Iterator[tuple[str | int, ...]]:
    """Yield the positions of hexadecimal texts in a document's proof."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [(("proof",), document.get("proof"))]
    while stack:
        place, value = stack.pop()
        if isinstance(value, str):
            yield place
        elif isinstance(value, dict):
            stack += [((*place, key), below) for key, below in value.items()]
        elif isinstance(value, list):
            stack += [((*place, at), below) for at, below in enumerate(value)]


@pytest.mark.parametrize("name", NAMES)
def test_no_flipped_bit_of_a_proof_goes_undetected(name: str) -> None:
    for place in proofs(DOCUMENTS[name]):
        value: Any = DOCUMENTS[name]
        for step in place:
            value = value[step]
        for at in range(0, len(value) // 2, max(1, len(value) // 12)):
            data = bytearray(bytes.fromhex(value))
            data[at] ^= 1 << at % 8
            reading = build_document(change_document(name, *place, to=data.hex()), name)
            verdict = verify_document(reading, strict=True, self_consistent=True)
            assert verdict.error is not None, (place, at)


FALSE = {
    "another value": ("ic_certificate", ("paths", 0, "value"), "text:steady", "ClaimMismatch", 'claimed is "steady"'),
    "absent, and it is there": (
        "ic_certificate",
        ("paths", 0),
        {"path": ["canister", "0x" + canister(101).hex(), "certified_data"], "absent": True},
        "PathNotProven",
        "it is there",
    ),
    "pruned away": (
        "ic_certificate",
        ("paths", 0, "path", 1),
        "0x" + canister(103).hex(),
        "PathNotProven",
        "pruned away",
    ),
    "too old": ("ic_certificate", ("freshness", "max_age"), "10s", "CertificateTooOld", "280000000000 ns ago"),
    "another time": ("ic_certificate", ("time",), 5, "ClaimMismatch", "1970-01-01T00:00:00.000000005Z"),
    "another subnet": ("ic_certificate", ("subnet_id",), "aaaaa-aa", "WrongSubnet", "has signed"),
    "a canister of another subnet": (
        "ic_certificate delegated",
        ("paths", 0),
        {"path": ["canister", "0x" + canister(500).hex(), "certified_data"], "value": "text:ready"},
        "CanisterOutOfRange",
        canister(500).hex(),
    ),
    "an absent canister of another subnet": (
        "ic_certificate delegated",
        ("paths", 1),
        {"path": ["canister", "0x" + canister(501).hex()], "absent": True},
        "CanisterOutOfRange",
        canister(501).hex(),
    ),
    "another source": ("ic_stream_slice", ("source",), OTHER.hex(), "WrongSubnet", "the key is of subnet fscpm"),
    "another destination": ("ic_stream_slice", ("destination",), "aaaaa-aa", "InvalidDestination", "leads to subnet"),
    "another header": ("ic_stream_slice", ("header", "end"), 7, "ClaimMismatch", "header: end is 6 in the slice"),
    "other messages": ("ic_stream_slice", ("messages", "begin"), 3, "ClaimMismatch", "messages: begin is 4"),
    "stored with another value": ("ics23 iavl", ("value",), "text:21", "ValueMismatch", "provided value"),
    "stored under another key": ("ics23 smt", ("key",), "text:bib", "KeyMismatch", "provided key"),
    "another spec": ("ics23 iavl", ("spec",), "tendermint", "SpecMismatch", ""),
    "absent, and the proof shows it": ("ics23 iavl", ("value",), None, "NoProofForKey", "one of existence"),
    "there, and the proof shows its absence": ("ics23 smt absent", ("value",), "01", "NoProofForKey", "non-existence"),
    "another value in a batch": ("ics23_batch", ("items", 0, "value"), "00", "ValueMismatch", ""),
    "not in the batch": ("ics23_batch", ("items", 1, "key"), "text:cora", "NoProofForKey", ""),
    "another path": ("ics23_chained", ("path", 0), "ibc", "KeyMismatch", "proof 1"),
    "too few specs": ("ics23_chained", ("specs",), ["iavl"], "ChainMismatch", "1 specs, 2 proofs"),
    "one entry less": ("ics23_range", ("entries",), [{"key": "00", "value": "00"}], "ClaimMismatch", "2 entries"),
    "another entry": ("ics23_range", ("entries", 1, "value"), "00", "ClaimMismatch", "entry 1 of the proof says"),
    "not the beginning": ("ics23_range", ("begins_store",), True, "ClaimMismatch", "shows false, claimed is true"),
    "another height": ("tendermint_update", ("height",), 8, "ClaimMismatch", "has height 9"),
    "another root": ("tendermint_update", ("app_hash",), "00", "ClaimMismatch", "app_hash is 0909"),
    "trusted too long ago": ("tendermint_update", ("now",), "2024-01-01T00:00:00Z", "ClientExpired", "ns old"),
    "from the future": ("tendermint_update", ("now",), "2023-11-14T22:13:00Z", "InvalidHeader", "ns ahead"),
    "another value in the trie": ("substrate_storage", ("entries", 2, "value"), "08", "NotProven", "4 bytes is"),
    "absent in the trie": ("substrate_storage", ("entries", 1, "value"), "08", "MissingValue", "no value is stored"),
    "hashed in layout V0": ("substrate_storage", ("state_version",), 0, "InvalidProof", "layout V0"),
    "a node too many": ("substrate_storage", ("proof",), ["00"], "InvalidProof", "not enough nodes"),
    "one value less": ("substrate_ordered_root", ("values",), [], "RootMismatch", "0 messages"),
    "another block": ("hrmp_queue", ("messages", 0, "sent_at"), 2, "HeadMismatch", "2 messages lead"),
    "another head before": ("hrmp_queue", ("previous",), "11" * 32, "HeadMismatch", ""),
    "another leaf": ("mmr_leaf", ("leaves", 0, "data"), "05", "RootMismatch", "the proof leads to the root"),
    "another count": ("mmr_leaf", ("trust", "leaf_count"), 8, "RootMismatch", "range of 7 leaves"),
    "another index": ("mmr_leaf", ("proof", "leaf_indices"), [7], "CorruptedProof", "leaf index 7"),
    "another beginning": ("mmr_ancestry", ("prev_root",), "11" * 32, "RootMismatch", ""),
    "no peaks": ("mmr_ancestry", ("proof", "prev_peaks"), [], "CorruptedProof", "0 peaks"),
    "one leaf less": ("mmr", ("leaves",), ["11" * 32], "RootMismatch", "leads to the root"),
    "another number of leaves": ("mmr", ("trust", "leaf_count"), 4, "RootMismatch", "the range has 4"),
    "from another domain": (
        "xdm_message",
        ("source",),
        8,
        "ClaimMismatch",
        "envelope names domain 7, claimed is domain 8",
    ),
    "to another domain": ("xdm_message", ("destination",), 8, "ClaimMismatch", "names consensus, claimed is domain 8"),
    "in another channel": ("xdm_message", ("channel_id",), 1, "ClaimMismatch", "channel_id: the envelope names 3689"),
    "another nonce": ("xdm_message plain", ("nonce",), 4, "ClaimMismatch", "nonce: the envelope names 3"),
    "a response, and it is a request": ("xdm_message", ("response",), True, "MissingValue", ""),
    "another message": ("xdm_message response", ("message",), "00", "ClaimMismatch", "claimed is 0x00"),
    "under another consensus block": ("xdm_message", ("consensus_block", "number"), 4, "ClaimMismatch", "names 3"),
    "under another fork": ("xdm_message", ("consensus_block", "hash"), "11" * 32, "ClaimMismatch", "claimed is 1111"),
    "in a range of more leaves": ("xdm_message", ("trust", "leaf_count"), 4, "BadProof", "range of 3 leaves"),
    "of another parachain": ("icmp_message", ("source",), 2, "MissingValue", "queues to 5 of 1, 3, 4, none of 2"),
    "of a neighbour's queue": ("icmp_message", ("source",), 4, "InvalidProof", "not enough nodes"),
    "to another parachain": ("icmp_message", ("destination",), 4, "MissingValue", "no value is stored"),
    "of a block that posted less": ("icmp_message", ("block",), 8, "MissingValue", "no value is stored"),
    "another place in the queue": ("icmp_message", ("index",), 2, "InvalidProof", "not enough nodes"),
    "behind the queue's end": ("icmp_message", ("index",), 64, "MissingValue", "which should have a value"),
    "another message in the queue": ("icmp_message", ("message",), "00", "NotProven", "another one should be"),
    "no proof at all": ("ics23 iavl", ("proof",), "00ff", "MalformedProof", "no protobuf message"),
}


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(DOCUMENTS[name].get("proof"), str)])
def test_malformed_proof_is_refused(verify: Run, name: str) -> None:
    document = {**DOCUMENTS[name], "proof": "ff" * 40}
    verdict = json.loads(verify(document, "--json", None)[1])
    assert (verdict["answer"], verdict["valid"], verdict["kind"]) == ("refused", False, document["kind"])
    code, out, err = verify(document, None)
    assert (code, err) == (2, "") and out.startswith(f"0.json: refused - {verdict['error']['name']}: ")


REFUSED = {"ClientExpired", "CorruptedProof", "MalformedProof"}
"""Errors that leave the claim undecided."""


@pytest.mark.parametrize("case", FALSE)
def test_false_proof_has_the_name_of_its_error(verify: Run, case: str) -> None:
    name, place, value, error, text = FALSE[case]
    document = change_document(name, *place, to=value)
    code, out, err = verify(document, "--json")
    verdict = json.loads(out)
    answer, expected = ("refused", 2) if error in REFUSED else ("false", 1)
    assert (code, err) == (expected, "")
    assert (verdict["answer"], verdict["valid"], verdict["error"]["name"]) == (answer, False, error)
    assert text in verdict["error"]["text"]
    code, out, _ = verify(document)
    assert code == expected and out.startswith(f"0.json: {answer} - {error}: ")


def test_steps_of_a_false_proof_are_the_computable_ones(verify: Run) -> None:
    _, out, _ = verify(change_document("ics23 tendermint", "trust", "root", to="11" * 32), "--json")
    steps = json.loads(out)["steps"]
    assert [step["operation"] for step in steps] == ["leaf", "inner", "inner", "inner"]
    assert steps[-1]["result"] == DOCUMENTS["ics23 tendermint"]["trust"]["root"]
    _, out, _ = verify(change_document("hrmp_queue", "messages", 1, "data", to="ff"), "--json")
    assert [step["operation"] for step in json.loads(out)["steps"]] == ["link", "link"]
    _, out, _ = verify(change_document("substrate_storage", "entries", 2, "value", to="08"), "--json")
    titles = list(dict.fromkeys(step["title"] for step in json.loads(out)["steps"]))
    assert [title.rpartition(" (in the proof: ")[2] for title in titles] == ["value)", "absent)", "value)"]
    _, out, _ = verify(change_document("ics23 iavl", "proof", to="00"), "--explain")
    assert out.splitlines()[-1] == "✗ before any step: MalformedProof"


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("mmr_leaf", ["leaf", "inner", "bag", "bag", "root"]),
        ("mmr_leaf encoded", ["leaf", "inner", "bag", "bag", "root"]),
        ("mmr_ancestry", ["bag", "root", "inner", "inner", "bag", "root"]),
        ("mmr", ["peak", "peak", "root"]),
        ("ics23_range", ["leaf", "inner", "inner", "inner"]),
        (
            "xdm_message",
            ["message", "value", "leaf", "receipt", "value", "leaf", "state", "leaf", "inner", "bag", "root"],
        ),
        ("xdm_message plain", ["message", "value", "leaf", "state", "leaf", "inner", "bag", "root"]),
    ],
)
def test_false_proof_is_followed_to_its_root(verify: Run, name: str, operations: list[str]) -> None:
    right = DOCUMENTS[name]["trust"]["root"]
    _, out, _ = verify(change_document(name, "trust", "root", to="11" * 32), "--json")
    steps = json.loads(out)["steps"]
    assert [step["operation"] for step in steps] == operations
    assert steps[-1]["result"] == right


@pytest.mark.parametrize(
    ("name", "place", "operations"),
    [
        # Another item leads to another root; an item too few, to none.
        ("mmr_leaf", ("proof", "items", 0), ["leaf", "inner", "bag", "bag", "root"]),
        ("mmr_leaf", ("proof", "items"), ["leaf"]),
        ("mmr_ancestry", ("proof", "items", 0, "hash"), ["bag", "root", "inner", "inner", "bag", "root"]),
        ("mmr_ancestry", ("proof", "items"), ["root"]),
    ],
)
def test_altered_proof_is_followed_up_to_the_alteration(
    verify: Run, name: str, place: tuple[str | int, ...], operations: list[str]
) -> None:
    _, out, _ = verify(change_document(name, *place, to=[] if place[-1] == "items" else "22" * 32), "--json")
    found = json.loads(out)
    assert found["valid"] is False
    assert [step["operation"] for step in found["steps"]] == operations
    assert found["steps"][-1]["result"] != DOCUMENTS[name]["trust"]["root"]


def test_carrier_without_its_message_is_followed_from_its_block(verify: Run) -> None:
    _, out, _ = verify(change_document("xdm_message", "response", to=True), "--json")
    assert [step["operation"] for step in json.loads(out)["steps"]] == ["state", "leaf", "inner", "bag", "root"]


def test_claim_may_omit_parts_of_a_message(verify: Run) -> None:
    document = without("xdm_message", "message")
    del document["consensus_block"], document["response"], document["trust"]["leaf_count"]
    code, out, _ = verify(document)
    assert code == 0
    assert "from domain 7 to consensus in channel 36893488147419103232 with nonce 3 was made" in out


# ---- drawing -------------------------------------------------------------------------------------


def test_path_is_drawn_from_the_leaf_to_the_trusted_root(verify: Run) -> None:
    document = ics23("tendermint")
    _, out, _ = verify(document, "--explain")
    lines = out.splitlines()[3:]
    digest = document["trust"]["root"]
    short = f"{digest[:16]}…{digest[-4:]}"
    assert lines[0] == '● "20" is stored under "bob"'
    assert re.match(r"│ leaf       key 626f62, value of 2 bytes +[0-9a-f]{16}…[0-9a-f]{4}$", lines[1])
    assert re.match(r"│ inner      layer 1, sibling on the left \([0-9a-f]{16}\.\.\.\) ", lines[2])
    assert lines[4].endswith(short)
    assert lines[5:] == [f"╰ = root {short}, trusted"]


def test_drawing_shows_the_end_of_a_false_proof(verify: Run) -> None:
    _, out, _ = verify(change_document("ics23 tendermint", "trust", "root", to="11" * 32), "--explain")
    assert out.splitlines()[-2:] == [
        "╰ ≠ root 1111111111111111…1111, trusted",
        "✗ after these steps: RootMismatch",
    ]


def test_long_batch_is_drawn_in_part(verify: Run) -> None:
    document = change_document("hrmp_queue", "messages", to=[])
    assert verify(document, "--trust", "00" * 32)[0] == 0
    batch = copy.deepcopy(DOCUMENTS["substrate_storage"])
    batch["entries"] += [{"key": f"ff{number:02x}", "value": None} for number in range(30)]
    code, out, _ = verify(batch, "--explain")
    assert code == 0 and out.count("●") == 20
    assert out.splitlines()[-1] == "... and 13 more paths; --json has all of them"
    assert "2 values are stored, 31 keys are absent" in out


def test_proof_content_cannot_control_the_terminal(verify: Run) -> None:
    document = ics23_chained()
    document["path"] = ["bank\x1b[2J", "[red]bob"]
    code, out, _ = verify(document, "--explain")
    assert code == 1
    assert "\x1b" not in out and "\\x1b[2J" in out and "[red]bob" in out


# ---- forms of files ------------------------------------------------------------------------------


def test_bytes_are_written_in_several_notations(verify: Run) -> None:
    document = ics23()
    proof = bytes.fromhex(document["proof"])
    for value in ("0x" + document["proof"].upper(), "base64:" + base64.b64encode(proof).decode()):
        assert verify({**document, "proof": value.replace("0X", "0x"), "key": "0x626f62"})[0] == 0
    chained = ics23_chained()
    assert verify({**chained, "path": ["0x" + b"bank".hex(), "text:bob"], "value": "base64:MjA="})[0] == 0


def test_binary_certificate_is_recognized_by_its_tag(verify: Run) -> None:
    document = ic_certificate()
    proof = bytes.fromhex(document["proof"])
    code, out, _ = verify(proof, "--trust", ic_key(ROOT_KEY))
    assert code == 0 and "claimed: a state is certified" in out
    paths = json.dumps(document["paths"])
    code, out, _ = verify(proof, "--trust", ic_key(ROOT_KEY), "--claim", f"paths={paths}", "--claim", "time=1")
    assert code == 1 and "ClaimMismatch" in out
    assert verify(proof)[0] == 2
    answer = SELF_DESCRIBED + cbor_head(MAP, 1) + cbor_text("certificate") + cbor_bytes(proof)
    assert verify(answer, "--trust", ic_key(ROOT_KEY))[0] == 0
    code, out, _ = verify(answer + b"\x00", "--trust", ic_key(ROOT_KEY))
    assert code == 2 and "refused - MalformedCertificate" in out


def test_other_binary_proofs_need_their_kind(verify: Run) -> None:
    document = ics23("smt")
    proof = bytes.fromhex(document["proof"])
    given = ("--kind", "ics23", "--spec", "smt", "--claim", "key=text:bob", "--claim", "value=text:20")
    assert verify(proof, *given, "--trust", document["trust"]["root"])[0] == 0
    assert verify(proof, *given[:-1], "value=null", "--trust", document["trust"]["root"])[0] == 1
    code, out, _ = verify(proof, "--trust", document["trust"]["root"])
    assert code == 2 and "kind: missing (it is no JSON: name it with --kind): must be one of ic_certificate" in out
    storage = substrate_storage()
    nodes = [bytes.fromhex(node) for node in storage["proof"]]
    encoded = encode_compact(len(nodes)) + b"".join(encode_compact(len(node)) + node for node in nodes)
    Path("nodes.scale").write_bytes(encoded)
    assert verify({**{k: v for k, v in storage.items() if k != "proof"}, "proof_file": "nodes.scale"})[0] == 0


@pytest.mark.parametrize("field", ["substrate_storage proof", "icmp_message proof", "icmp_message queue_proof"])
def test_repeated_node_is_noted_and_refused_if_strict(verify: Run, field: str) -> None:
    kind, proof = field.split()
    name = next(name for name in NAMES if name.split()[0] == kind)
    nodes = DOCUMENTS[name][proof]
    note = f"1 of the {len(nodes) + 1} nodes of the proof repeat another one"
    document = change_document(name, proof, to=[*nodes, nodes[0]])
    code, out, _ = verify(document)
    assert (code, out.splitlines()[0]) == (0, "0.json: true") and f"  note:    {note}" in out.splitlines()
    verdict = json.loads(verify(document, "--json")[1])
    assert verdict["valid"] and verdict["notes"][-1] == note
    code, out, _ = verify(document, "--strict")
    assert (code, out.splitlines()[0]) == (2, f"0.json: refused - UnusedNodesInTheProof: {note}")
    assert verify(DOCUMENTS[name], "--strict")[0] == 0


def test_document_may_name_the_binary_proof_beside_it(verify: Run, tmp_path: Path) -> None:
    document = ics23()
    (tmp_path / "proofs").mkdir()
    (tmp_path / "proofs" / "bob.bin").write_bytes(bytes.fromhex(document.pop("proof")))
    assert verify({**document, "proof_file": "proofs/bob.bin"})[0] == 0
    for name in ("/etc/hostname", "../bob.bin", "", 5):
        code, out, _ = verify({**document, "proof_file": name})
        assert code == 2 and "must be the name of a file beside the document" in out
    assert verify({**document, "proof_file": "absent.bin"})[1].endswith("InvalidInput: absent.bin: no such file\n")
    code, out, _ = verify({**document, "proof_file": "bob.bin", "proof": "00"})
    assert code == 2 and "does not go together with proof" in out


def test_form_of_the_public_vectors(verify: Run) -> None:
    document = ics23("iavl", absent=True)
    upstream = {"key": b"bill".hex(), "value": "", "root": document["trust"]["root"], "proof": document["proof"]}
    code, out, _ = verify(upstream, "--kind", "ics23", "--spec", "iavl")
    assert code == 0 and 'no value is stored under "bill"' in out and "named by the file itself" in out
    code, out, _ = verify({**upstream, "kind": "mmr"}, "--kind", "ics23", "--spec", "iavl")
    assert (code, out) == (2, '0.json: refused - InvalidInput: kind: is "mmr", asked for is "ics23"\n')
    code, out, _ = verify({**upstream, "trust": document["trust"]}, "--kind", "ics23", "--spec", "iavl")
    assert code == 2 and "root: does not go together with trust" in out


def test_query_proofs_may_come_as_a_list(verify: Run) -> None:
    document = ics23_chained()
    proofs = [
        proof.SerializeToString(deterministic=True)
        for proof in MerkleProof.FromString(bytes.fromhex(document["proof"])).proofs
    ]
    listed = ["base64:" + base64.b64encode(proof).decode() for proof in proofs]
    assert verify({**document, "proof": listed})[0] == 0
    assert verify({**document, "proof": listed[::-1]})[0] == 1


def test_keys_in_der_and_pem(verify: Run, tmp_path: Path) -> None:
    document = without("ic_certificate", "trust")
    der = public_key_to_der(ROOT_KEY.public_key())
    assert verify(document, "--trust", der)[0] == 0
    body = base64.encodebytes(der).decode()
    pem = f"-----BEGIN PUBLIC KEY-----\n{body}-----END PUBLIC KEY-----\n".encode()
    assert verify(document, "--trust", pem)[0] == 0
    assert verify(document, "--trust", {"kind": "ic_public_key", "key": der.hex()})[0] == 0
    assert verify(document, "--trust", "ic-mainnet")[0] == 1
    assert "the root key of the Internet Computer" in verify(document, "--trust", "ic-mainnet")[1]
    assert verify({**document, "trust": "ic-mainnet"})[0] == 1
    for broken, text in (
        (der[:-1], "133 bytes"),
        (der[:-1] + bytes([der[-1] ^ 1]), "no point"),
        (b"\xff", "must be a"),
    ):
        code, _, err = verify(document, "--trust", broken)
        assert code == 2 and text in err


def test_key_belongs_to_its_derived_or_the_named_subnet(verify: Run) -> None:
    document = without("ic_stream_slice", "trust")
    key = ic_key(SUBNET_KEY)
    assert verify(document, "--trust", key)[0] == 1
    derived = derive_root_subnet(SUBNET_KEY.public_key())
    assert verify({**document, "source": derived.hex()}, "--trust", key)[0] == 0


def test_roots_in_files_and_on_the_command_line(verify: Run, tmp_path: Path) -> None:
    document = ics23()
    digest = document.pop("trust")["root"]
    assert verify(document, "--trust", digest)[0] == 0
    (tmp_path / "root.txt").write_text(f"0x{digest}\n")
    assert verify(document, "--trust", "root.txt")[0] == 0
    code, _, err = verify(document, "--trust", "absent.json")
    assert code == 2 and "absent.json: no such file, and neither ic-mainnet nor a root" in err


RPC_HEADER = {
    "version": {"block": "11"},
    "chain_id": "zone-1",
    "height": "7",
    "time": "2023-11-14T22:13:20Z",
    "last_block_id": {"hash": "", "parts": {"total": 0, "hash": ""}},
    "last_commit_hash": "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
    "data_hash": "",
    "consensus_hash": "",
    "last_results_hash": "",
    "evidence_hash": "",
    "validators_hash": "",
    "next_validators_hash": "",
    "app_hash": "07" * 32,
    "proposer_address": "00" * 20,
}


def test_forms_of_a_trusted_header(verify: Run) -> None:
    document = tendermint_update()
    trust = document.pop("trust")
    trusted = decode_consensus_state(bytes.fromhex(trust.pop("consensus_state")), 7)
    validators = trusted.next_validators_hash.hex()
    fields = {"time": trusted.time, "root": trusted.root.hex(), "next_validators_hash": validators}
    assert verify(document, "--trust", {**trust, **fields})[0] == 0
    reference = {key: value for key, value in trust.items() if key != "trust_level"} | {"rule": "reference"}
    assert verify(document, "--trust", {**reference, **fields, "validators_hash": validators})[0] == 0
    header = {**RPC_HEADER, "validators_hash": validators, "next_validators_hash": validators}
    answer = {"jsonrpc": "2.0", "result": {"signed_header": {"header": header, "commit": {}}}}
    assert verify(document, "--trust", answer)[0] == 0
    code, out, _ = verify(
        document, "--trust", {**answer, "result": {"signed_header": {"header": {**header, "height": 8}}}}
    )
    assert code == 1 and "InvalidHeader: header builds on height 1-7, the trusted one is 1-8" in out


def test_trusted_header_is_a_root_for_proofs_of_its_state(verify: Run) -> None:
    document = ics23_chained()
    digest = document.pop("trust")["root"]
    trust = {
        "kind": "tendermint_trust",
        "chain_id": "zone-1",
        "height": 9,
        "time": 1,
        "root": digest,
        "next_validators_hash": "00" * 32,
    }
    code, out, _ = verify(document, "--trust", trust)
    assert code == 0 and "under:   the header 9 of zone-1 (--trust)" in out


# ---- bad input -----------------------------------------------------------------------------------

BAD = {
    "no JSON": (b"{", (), "not valid JSON"),
    "a number that is too long": (b'{"kind": ' + b"9" * 5_000 + b"}", (), "a number has 5,000 digits; allowed: 1,000"),
    "a list": (b"[]", (), "kind: missing"),
    "no text": (b'{"kind": "\xff"}', (), "not UTF-8 text (byte 10)"),
    "a key twice": (b'{"kind": "mmr", "kind": "mmr"}', (), '"kind" stands twice in one object'),
    "nested": (b'{"a":' * 100_000, (), "is nested too deeply"),
    "many fields": (json.dumps({str(at): at for at in range(65)}).encode(), (), "an object has 65 fields, at most 64"),
    "many faults": (
        change_document("mmr", "leaves", to=["x"] * 100_000),
        (),
        'leaves[0]: "x": must be hexadecimal digits',
    ),
    "a fraction": (b'{"kind": 1.5}', (), "1.5 is not a whole number"),
    "no kind": ({}, (), "kind: missing (name it in the file or with --kind): must be one of ic_certificate, "),
    "another kind": ({"kind": "ics24"}, (), 'kind: "ics24": must be one of ic_certificate, '),
    "a kind that is none": ({"kind": ["ics23"]}, (), 'kind: ["ics23"]: must be one of'),
    "a field missing": (without("ics23 iavl", "key"), (), "key: missing"),
    "a field too many": (change_document("mmr", "colour", to=1), (), "colour: no such field; there are kind, leaves"),
    "a field too many below": (
        change_document("ic_certificate", "paths", 0, "x", to=1),
        (),
        "paths[0].x: no such field",
    ),
    "no digits": (
        change_document("ics23 iavl", "key", to="bob"),
        (),
        'key: "bob": must be hexadecimal digits, two a byte',
    ),
    "digits apart": (change_document("ics23 iavl", "key", to="12 34"), (), 'key: "12 34": must be hexadecimal digits'),
    "odd digits": (change_document("ics23 iavl", "key", to="123"), (), 'key: "123": must be hexadecimal digits'),
    "a number for bytes": (change_document("ics23 iavl", "key", to=12), (), "key: 12: must be hexadecimal digits"),
    "no base64": (change_document("ics23 iavl", "key", to="base64:?"), (), "is not base64 behind base64:"),
    "no Unicode": (
        b'{"kind": "ics23_chained", "path": ["\\ud800"], "value": "", "proof": "", "root": ""}',
        (),
        "root: ",
    ),
    "half a letter": (
        change_document("ics23_chained", "path", to=["\ud800"]),
        (),
        'path[0]: "\\ud800": is no text in Unicode',
    ),
    "half a letter in a name": (
        change_document("substrate_storage", "entries", 0, "storage", "item", to="\ud800"),
        (),
        'entries[0].storage.item: "\\ud800": is no text in Unicode',
    ),
    "no id": (change_document("ic_certificate", "canister_id", to="aaaaa-ab"), (), 'canister_id: "aaaaa-ab": is no id'),
    "a long id": (change_document("ic_certificate", "canister_id", to="00" * 30), (), "at most 29 bytes"),
    "no spec": (
        change_document("ics23 iavl", "spec", to="patricia"),
        (),
        "spec: \"patricia\": must be 'iavl', 'tendermint' or",
    ),
    "a spec of a list": (change_document("ics23_chained", "specs", 1, to="x"), (), 'specs[1]: "x": must be'),
    "a path without claim": (
        change_document("ic_certificate", "paths", 0, to={"path": ["time"]}),
        (),
        "paths[0]: give either",
    ),
    "a path with two claims": (
        change_document("ic_certificate", "paths", 0, "absent", to=True),
        (),
        "paths[0]: give either a value, or absent",
    ),
    "a request without its canister": (
        change_document("ic_certificate", "paths", 0, "path", to=["request_status", "0x00"]),
        (),
        "canister_id: missing; /request_status in paths[0]",
    ),
    "no time": (
        change_document("tendermint_update", "now", to="now"),
        (),
        'now: "now": must be nanoseconds since 1970',
    ),
    "before 1970": (
        change_document("tendermint_update", "now", to="1969-01-01T00:00:00Z"),
        (),
        "must not be before 1970",
    ),
    "no duration": (
        change_document("ic_certificate", "freshness", "max_age", to="5 min"),
        (),
        'freshness.max_age: "5 min"',
    ),
    "a negative number": (
        change_document("hrmp_queue", "messages", 0, "sent_at", to=-1),
        (),
        "messages[0].sent_at: -1: must be",
    ),
    "no block number": (
        change_document("hrmp_queue", "messages", 0, "sent_at", to=2**32),
        (),
        "must be at most 4294967295",
    ),
    "no version": (change_document("ic_stream_slice", "version", to=7), (), "version: 7: must be from 19 to 26"),
    "signals of messages": (
        change_document("ic_stream_slice", "messages", "signals_end", to=7),
        (),
        "only a header has it",
    ),
    "a truth for a state version": (
        change_document("substrate_storage", "state_version", to=True),
        (),
        "state_version: true: must be 0 or 1",
    ),
    "no state version": (
        change_document("substrate_storage", "state_version", to=2),
        (),
        "state_version: 2: must be 0 or 1",
    ),
    "no hasher": (
        change_document("substrate_storage", "entries", 0, "storage", "keys", 0, "hasher", to="md5"),
        (),
        "entries[0].storage.keys[0].hasher: \"md5\": must be 'Identity'",
    ),
    "neither key nor item": (
        change_document("substrate_storage", "entries", 0, to={"value": None}),
        (),
        "entries[0]: give eith",
    ),
    "a key twice in the claims": (
        change_document("ics23_batch", "items", 1, "key", to="text:bob"),
        (),
        'items[1]: no value is stored under "bob", but before: "20" is stored under "bob"',
    ),
    "nothing claimed": (
        change_document("ics23_batch", "items", to=[]),
        (),
        "items: []: List should have at least 1 item",
    ),
    "no leaf": (change_document("mmr_leaf", "leaves", 0, to="00"), (), 'leaves[0]: "00": has 1 bytes, must have 32'),
    "another leaf form": (
        change_document("mmr", "leaves", 0, to={"hash": ""}),
        (),
        'or {"data": ...} with the encoded leaf',
    ),
    "an unknown part of a proof": (change_document("mmr_leaf", "proof", "x", to=1), (), "proof.x: no such field"),
    "a trust that is none": (change_document("mmr", "trust", to=5), (), "trust: 5: must be a JSON object with a kind"),
    "a trust of no kind": (
        change_document("mmr", "trust", to={}),
        (),
        "trust: kind: missing: must be one of root, icmp_head, ic_public_key",
    ),
    "a short root": (
        change_document("mmr", "trust", "root", to="00"),
        (),
        'trust: root: "00": has 1 bytes, must have 32',
    ),
    "a key for a root": (DOCUMENTS["mmr"], ("--trust", "ic-mainnet"), "trust: is of the kind ic_public_key; for this"),
    "a root for a key": (
        DOCUMENTS["ic_certificate"],
        ("--trust", "00" * 32),
        "is of the kind root; for this proof give",
    ),
    "leaves of no range": (
        change_document("ics23 iavl", "trust", "leaf_count", to=1),
        (),
        "only the root of a mountain range",
    ),
    "an identity for a key": (
        change_document("ic_certificate", "trust", "key", to="c0" + "00" * 95),
        (),
        "trust: c0000000",
    ),
    "two forms of a header": (
        change_document("tendermint_update", "trust", "time", to=1),
        (),
        "time: does not go together with",
    ),
    "a header without chain": (
        change_document("tendermint_update", "trust", "chain_id", to=None),
        (),
        "trust: chain_id: missing",
    ),
    "a trust level that is none": (
        change_document("tendermint_update", "trust", "trust_level", to="1/4"),
        (),
        "trust level is 1/4, 1/3 to 1 is allowed",
    ),
    "a fraction that is none": (
        change_document("tendermint_update", "trust", "trust_level", to="half"),
        (),
        '"half": must be',
    ),
    "a chain that is none": (
        change_document("xdm_message", "source", to="moon"),
        (),
        'source: "moon": must be "consensus" or',
    ),
    "a domain of more bits": (
        change_document("xdm_message", "source", to=2**32),
        (),
        "the number of a domain, from 0 to 2**32",
    ),
    "a channel that is none": (
        change_document("xdm_message", "channel_id", to="1e3"),
        (),
        "must be a whole number from 0 to",
    ),
    "a nonce of more bits": (
        change_document("xdm_message", "nonce", to=str(2**256)),
        (),
        "whole number from 0 to 2**256 - 1",
    ),
    "a message under a header": (
        {**without("xdm_message", "trust"), "trust": DOCUMENTS["tendermint_update"]["trust"]},
        (),
        "for this proof give",
    ),
    "a claim that is none": (DOCUMENTS["mmr"], ("--claim", "x"), "--claim x: write KEY=VALUE"),
    "a claim of no JSON": (DOCUMENTS["mmr"], ("--claim", "leaves=["), "--claim leaves: not valid JSON"),
    "a proof twice": (bytes.fromhex(ic_certificate()["proof"]), ("--claim", "proof=00"), "given a second time"),
    "a proof that has none": (b"\x00", ("--kind", "mmr"), "proof: no such field; there are kind, leaves"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_reported_in_one_line(verify: Run, case: str) -> None:
    document, arguments, text = BAD[case]
    code, out, err = verify(document, *arguments)
    assert code == 2, out
    if arguments[:1] == ("--claim",) and not out:
        assert err.startswith("causeway: --claim ") and err.count("\n") == 1 and text in err
        return
    assert err == "" and out.startswith("0.json: refused - InvalidInput: ") and text in out.splitlines()[0]
    code, out, err = verify(document, *arguments, "--json")
    verdict = json.loads(out)
    assert (code, err, verdict["answer"], verdict["error"]["name"]) == (2, "", "refused", "InvalidInput")
    assert text in verdict["error"]["text"]


def test_only_files_of_bounded_length_are_read(verify: Run, tmp_path: Path) -> None:
    assert verify(".")[2] == "causeway: .: is no file\n"
    os.mkfifo(tmp_path / "pipe")
    assert verify("pipe")[2] == "causeway: pipe: is no file\n"
    with (tmp_path / "long").open("wb") as file:
        file.truncate((24 << 20) + 1)
    assert verify("long") == (2, "", "causeway: long: is longer than 25165824 bytes, more are not read\n")
    assert "InvalidInput: has 9437184 bytes, of a binary" in verify(bytes(9 << 20), "--kind", "ics23")[1]
    assert verify("absent")[2] == "causeway: absent: no such file\n"
    assert (
        verify(mmr_leaf(), "--trust", "long")[2] == "causeway: long: is longer than 1048576 bytes, more are not read\n"
    )
    assert root(bytes(32))["kind"] == "root"


# ---- options beside a file ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ics23_batch", "substrate_storage"])
def test_repeated_claim_is_shown_once(verify: Run, name: str) -> None:
    field = "items" if name == "ics23_batch" else "entries"
    claims = DOCUMENTS[name][field]
    code, _, err = verify(change_document(name, field, to=[*claims, claims[0]]))
    assert (code, err) == (0, "")


def test_file_and_trust_may_come_from_standard_input(verify: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    document = DOCUMENTS["ics23 iavl"]
    pipe(json.dumps(document).encode())
    code, out, _ = verify("-")
    assert code == 0 and out.startswith("standard input: true\n")
    pipe(f"{document['trust']['root']}\n".encode())
    assert verify(document, "--trust", "-")[0] == 0
    assert verify("-", "--trust", "-")[2] == "causeway: --trust -: standard input is the proof already\n"
    pipe(b'{"kind": "ics23", "proof_file": "passwords"}')
    assert "only a document in a file may name another one" in verify("-")[1]
    pipe(b" " * (MAX_DOCUMENT_BYTES + 1))
    assert "standard input: refused - InvalidInput: is longer than" in verify("-")[1]


def test_trust_must_fit_the_kind_and_itself(verify: Run) -> None:
    trust = DOCUMENTS["tendermint_update"]["trust"]
    code, out, _ = verify(DOCUMENTS["substrate_storage"], "--trust", trust)
    assert code == 2 and "refused - InvalidInput: trust: is of the kind tendermint_trust; for this proof give" in out
    header = {**RPC_HEADER, "validators_hash": "00" * 32, "next_validators_hash": "00" * 32}
    named = {"kind": "tendermint_trust", "header": header, "chain_id": "zone-2"}
    _, _, err = verify(DOCUMENTS["ics23 iavl"], "--trust", named)
    assert 'chain_id: is "zone-2", the header is of "zone-1"' in err


def test_verdict_describes_the_subject_without_a_claim(verify: Run) -> None:
    document = without("tendermint_update", "height")
    document.pop("header_hash", None)
    (note,) = json.loads(verify(document, "--json")[1])["notes"]
    assert note.startswith("it is the header of height 9, with the hash ")
    bare = {key: DOCUMENTS["ic_certificate"][key] for key in ("kind", "trust", "proof")}
    (note,) = json.loads(verify(bare, "--json")[1])["notes"]
    assert note == "its time is 2023-11-14T22:13:20Z, and nothing is claimed of its age"


def test_keys_in_one_gap_are_proved_absent_by_one_proof(verify: Run) -> None:
    """A path of no store is not followed, which could take for ever."""
    batch = copy.deepcopy(DOCUMENTS["ics23_batch"])
    batch["items"] = [{"key": f"text:carl{number}", "value": None} for number in range(50)]
    found = json.loads(verify(batch, "--json")[1])
    assert found["valid"] and len({step["track"] for step in found["steps"]}) == 2
    proof = CommitmentProof.FromString(bytes.fromhex(DOCUMENTS["ics23_batch"]["proof"]))
    proof.compressed.entries[0].exist.path.extend([0] * 1000)
    found = json.loads(verify({**DOCUMENTS["ics23_batch"], "proof": proof.SerializeToString().hex()}, "--json")[1])
    assert (found["answer"], found["error"]["name"], found["steps"]) == ("false", "SpecMismatch", [])


def test_absence_in_a_sparse_store_of_a_chain_is_not_remarked_on(verify: Run) -> None:
    store = SmtStore(*(pa.array(column, pa.binary()) for column in ([b"a", b"b"], [b"1", b"2"])))
    document = {"kind": "ics23_chained", "specs": ["smt"], "path": ["zz"], "value": None}
    proof = MerkleProof(proofs=[CommitmentProof.FromString(store.prove(b"zz"))]).SerializeToString()
    code, out, _ = verify({**document, "proof": proof.hex()}, "--trust", store.root.hex(), "--strict")
    assert code == 0 and "note:" not in out


def test_claim_is_given_once_and_empty_input_is_no_document(verify: Run) -> None:
    claims = ("--claim", "value=00", "--claim", "value=01")
    assert verify(DOCUMENTS["ics23 iavl"], *claims)[2] == "causeway: --claim: value is given twice\n"
    assert verify(b" \n")[1] == "0.json: refused - InvalidInput: is empty\n"


def test_trust_of_any_length_is_reported_in_one_line(verify: Run) -> None:
    code, _, err = verify(DOCUMENTS["ics23 iavl"], "--trust", "a" * 5_000)
    assert code == 2 and err.count("\n") == 1 and len(err) < 200 and "no such file" in err


def test_file_that_names_another_root_is_noted(verify: Run) -> None:
    document = change_document("ics23 iavl", "trust", "root", to="11" * 32)
    true_root = DOCUMENTS["ics23 iavl"]["trust"]["root"]
    code, out, _ = verify(document, "--trust", true_root)
    assert code == 0 and out.splitlines()[-1] == f"  note:    the file itself names another: the root {'1' * 16}…1111"
    _, out, _ = verify(document, "--trust", true_root, "--json")
    assert json.loads(out)["trust"]["named_instead"] == f"root {'11' * 32}"
    _, out, _ = verify(DOCUMENTS["ics23 iavl"], "--trust", true_root, "--json")
    assert json.loads(out)["trust"]["named_instead"] is None


def test_responses_of_a_node_are_a_proof(verify: Run) -> None:
    chain = steady(4)
    (commit, validators), (earlier, _) = (as_json(chain.signed[at], chain.sets[at]) for at in (3, 1))
    for name, content in {
        "commit.json": {"jsonrpc": "2.0", "id": -1, "result": {"signed_header": commit, "canonical": True}},
        "trusted.json": {"result": {"signed_header": earlier}},
        "all.json": {"result": {"block_height": "3", "validators": validators, "total": str(len(validators))}},
        "first.json": {"result": {"block_height": "3", "validators": validators[:1], "total": str(len(validators))}},
        "rest.json": {"result": {"block_height": "3", "validators": validators[1:], "total": str(len(validators))}},
        "later.json": {"result": {"block_height": "4", "validators": validators[1:]}},
    }.items():
        Path(name).write_text(json.dumps(content))
    now = f"now={chain.time(4)}"
    given = ("commit.json", "--trust", "trusted.json", "--claim", now)
    assert verify(*given, "--validators", "all.json")[0] == 0
    pages = ("--validators", "first.json", "--validators", "rest.json")
    assert verify(*given, *pages, "--trusted-validators", "all.json")[0] == 0
    code, out, _ = verify(*given, "--validators", "first.json")
    assert code == 2 and f"1 of {len(validators)} validators are given: ask /validators for every page" in out
    code, out, _ = verify(*given, "--validators", "first.json", "--validators", "later.json")
    assert code == 2 and "of several heights: 3, 4" in out
    assert "validators: missing; commit needs" in verify(*given)[1]
    both = ("--claim", "proof=00", "--validators", "all.json")
    assert "commit: does not go together with proof" in verify(*given, *both)[1]
    changed_since = {**earlier["header"], "next_validators_hash": "11" * 32}
    Path("changed.json").write_text(json.dumps({"result": {"signed_header": {"header": changed_since}}}))
    code, out, _ = verify("commit.json", "--trust", "changed.json", "--claim", now, "--validators", "all.json")
    missing = "the validators changed since the trusted header: give a node's answer to /validators?height=3"
    assert code == 2 and f"refused - InvalidInput: trusted_validators: missing; {missing} (--trusted-validators)" in out
    Path("other.json").write_text(json.dumps({"validators": as_json(chain.signed[1], Chain([{9: 1}]).sets[0])[1]}))
    code, out, _ = verify("commit.json", "--trust", "changed.json", "--claim", now, "--validators", "other.json")
    assert code == 1 and "false - InvalidHeader: header names the validators" in out
    Path("changed.json").write_text(
        json.dumps({"signed_header": {"header": changed_since, "commit": earlier["commit"]}})
    )
    _, _, err = verify("commit.json", "--trust", "changed.json", "--claim", now, "--validators", "all.json")
    assert "changed.json: commit: block_id: hash: " in err and ": the header's is " in err
    commit["commit"]["signatures"][0]["signature"] = commit["commit"]["signatures"][1]["signature"]
    Path("commit.json").write_text(json.dumps({"signed_header": commit}))
    assert verify(*given, "--validators", "all.json")[0] == 1


# ---- the page ------------------------------------------------------------------------------------

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "verify-a-proof.md").read_text()
EXAMPLES = dict(re.findall(r"^`([\w-]+\.json)`:\n\n```json\n(.*?)```$", PAGE, re.S | re.M))
COMMANDS = re.findall(r"^```\n\$ causeway verify (.*?)\n(.*?)```$", PAGE, re.S | re.M)


def test_page_has_an_example_of_every_kind_and_every_field() -> None:
    assert {json.loads(example)["kind"] for example in EXAMPLES.values()} == set(KINDS)
    assert {arguments.split()[0] for arguments, _ in COMMANDS} == set(EXAMPLES)
    assert re.findall(r"^### `(.+)`$", PAGE, re.M) == list(KINDS)
    for model in (*KINDS.values(), *TRUST_KINDS.values()):
        for field in model.model_fields:
            assert f"`{field}`" in PAGE or f'"{field}"' in PAGE, field


@pytest.mark.parametrize(("arguments", "output"), COMMANDS, ids=lambda text: text.split()[0])
def test_examples_of_the_page_print_the_shown_output(verify: Run, arguments: str, output: str) -> None:
    for name, example in EXAMPLES.items():
        Path(name).write_text(example)
    code, out, err = verify(*arguments.split(), None)
    assert (out, err) == (output, "")
    assert code == (2 if ": refused - " in out else 0)
