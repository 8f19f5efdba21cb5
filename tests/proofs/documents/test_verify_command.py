"""Public vectors of every family through ``causeway verify``, in their published forms."""

from __future__ import annotations

import base64
import copy
import json
import logging
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.documents.trust import parse_trust
from causeway_proofs.documents.verification import parse_document, verify_document
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import keccak256

from causeway.cli import main
from tests.vectors import load_vectors

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Return a function that runs ``causeway verify`` on files, bytes or JSON, and returns exit code and verdict."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: Any) -> tuple[int, dict[str, Any]]:
        given = []
        for place, argument in enumerate(arguments):
            if isinstance(argument, str | Path):
                given.append(str(argument))
                continue
            path = Path(f"{place}.file")
            path.write_bytes(argument if isinstance(argument, bytes) else json.dumps(argument).encode())
            given.append(path.name)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["verify", *given, "--json", *(() if "--trust" in given else ("--self-consistent",))])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int) and not err, err
        return ended.value.code, json.loads(out)

    yield run
    logging.disable(logging.NOTSET)


def test_certificates(verify: Run) -> None:
    vectors = load_vectors("ic_certificates")
    assert len(vectors["certificates"]) == 10
    checks = 0
    for case in vectors["certificates"]:
        key = bytes.fromhex(vectors["root_keys"][case["root_key"]])
        trust = "ic-mainnet" if case["root_key"] == "mainnet" else key
        certificate = bytes.fromhex(case["certificate"])
        given = ("--kind", "ic_certificate", "--trust", trust, "--claim")
        code, verdict = verify(certificate, *given, f"time={case['time']}")
        assert code == 0, case["name"]
        assert verdict["steps"][0]["result"] == case["root"]
        for check in case["canisters"]:
            code, verdict = verify(certificate, *given, f"canister_id={check['canister']}")
            checks += 1
            assert code == (0 if check["in_range"] else 1), case["name"]
            assert check["in_range"] or verdict["error"]["name"] in ("CanisterOutOfRange", "CanisterRangesNotProven")
    assert checks == 9


def test_certified_value(verify: Run) -> None:
    vectors = load_vectors("ic_certificates")
    case = vectors["certificates"][0]
    (lookup,), (canister,) = case["lookups"], case["canisters"]
    document = {
        "kind": "ic_certificate",
        "trust": {"kind": "ic_public_key", "key": vectors["root_keys"][case["root_key"]]},
        "subnet_id": case["delegation"]["subnet"],
        "paths": [
            {"path": ["canister", f"principal:{canister['canister']}", lookup["label"]], "value": lookup["value"]}
        ],
        "proof": case["certificate"],
    }
    assert verify(document)[0] == 0
    document["paths"][0]["value"] = "00" + lookup["value"][2:]
    code, verdict = verify(document)
    assert (code, verdict["error"]["name"]) == (1, "ClaimMismatch")


def test_ics23_files_in_the_published_form(verify: Run) -> None:
    vectors = load_vectors("ibc_store_proofs")
    assert len(vectors["proofs"]) == 10
    for case in vectors["proofs"]:
        document, spec = {name: case[name] for name in ("key", "proof", "root", "value")}, case["spec"]
        code, verdict = verify(document, "--kind", "ics23", "--spec", spec)
        assert code == 0 and verdict["steps"][-1]["result"] == case["root"]
        assert verify(document, "--kind", "ics23", "--spec", spec, "--trust", "00" * 32)[0] == 1
        assert verify(document, "--kind", "ics23", "--spec", spec, "--claim", "value=text:another")[0] == 1
    assert len(vectors["batches"]) == 3
    for batch in vectors["batches"]:
        items = [{"key": key, "value": value} for key, value in batch["items"]]
        document = {"items": items, "proof": batch["proof"], "root": batch["root"]}
        code, verdict = verify(document, "--kind", "ics23_batch", "--spec", batch["spec"])
        assert code == 0 and {step["track"] for step in verdict["steps"]} >= set(range(20))


def test_path_of_a_real_chain_under_its_trusted_header(verify: Run) -> None:
    case = load_vectors("ibc_light_client")["membership"]
    trust = {"kind": "tendermint_trust", **{name: case[name] for name in ("height", "client_state", "consensus_state")}}
    document = {"kind": "ics23_chained", **{name: case[name] for name in ("path", "value", "proof")}}
    assert verify(document, "--trust", trust)[0] == 0
    proof = "base64:" + base64.b64encode(bytes.fromhex(case["proof"])).decode()
    assert verify({**document, "proof": proof}, "--trust", trust)[0] == 0
    assert verify({**document, "value": "00"}, "--trust", trust)[1]["error"]["name"] == "ValueMismatch"


@pytest.mark.parametrize("place", [0, 1])
def test_response_of_a_real_node_to_a_query(verify: Run, place: int) -> None:
    case = load_vectors("ibc_queries")["answers"][place]
    response, commit = case["response"], {"result": {"signed_header": {"header": case["header"]}}}
    for answer in ({"jsonrpc": "2.0", "id": 1, "result": {"response": response}}, {"response": response}):
        code, verdict = verify(answer, "--trust", commit, "--strict")
        assert (code, verdict["kind"]) == (0, "ics23_chained")
        assert verdict["steps"][-1]["result"] == case["header"]["app_hash"].lower()
    other = None if response["value"] else "AAAA"
    code, verdict = verify({"response": {**response, "value": other}}, "--trust", commit)
    assert (code, verdict["answer"]) == (1, "false")
    assert verify({"response": response}, "--trust", commit, "--claim", "value=00ff")[0] == 1
    assert verify({"response": response})[1]["answer"] == "untrusted"


WRONG_ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "refused": ({"code": 18, "log": "no such height"}, 'the node refused the query: code 18, "no such height"'),
    "without proof": ({"proofOps": None}, "proofOps: must have 1 to 128 ops: ask the node with prove=true"),
    "of another key": ({"key": "AAAA"}, "key: is 0x000000, its proof is of 0x636f6d6d69"),
    "of another height": ({"height": "70"}, "trust: is the header 68; the root is in that of height 71"),
    "no base64": ({"value": "?"}, 'value: "?": is not base64'),
}


@pytest.mark.parametrize("case", WRONG_ANSWERS)
def test_missing_part_of_a_response_is_named(verify: Run, case: str) -> None:
    change, text = WRONG_ANSWERS[case]
    found = load_vectors("ibc_queries")["answers"][0]
    commit = {"result": {"signed_header": {"header": found["header"]}}}
    code, verdict = verify({"response": {**found["response"], **change}}, "--trust", commit)
    assert (code, verdict["answer"]) == (2, "refused") and text in verdict["error"]["text"]


ODD: tuple[Any, ...] = (None, 0, -1, True, 2**70, "", "AAAA", [], [None], {}, {"ops": []}, {"ops": [{}]}, "\ud800")


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*place, key))


def test_any_value_in_a_response_is_judged(verify: Run) -> None:
    """Only parts that no proof needs change nothing: the envelope, and the node's other fields."""
    case = load_vectors("ibc_queries")["answers"][0]
    trust = parse_trust(json.dumps({"signed_header": {"header": case["header"]}}).encode(), "trust")
    whole = {"jsonrpc": "2.0", "id": 1, "result": {"response": case["response"]}}
    true, told = set(), list[str]()
    for place in places(whole):
        for value in ODD if place else ():
            answer: Any = copy.deepcopy(whole)
            reduce(getitem, place[:-1], answer)[place[-1]] = value
            try:
                found = verify_document(parse_document(json.dumps(answer).encode(), "answer"), trust)
            except InvalidInput as error:
                told.append(str(error))
                continue
            if found.valid:
                true.add(place[-1])
    assert all(text.startswith("answer: ") and text.isprintable() for text in told)
    assert true == {"jsonrpc", "id", "code", "log", "info", "index", "height", "codespace"}
    code, verdict = verify({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "too low"}})
    assert code == 2 and verdict["error"]["text"] == 'error: the node answered "too low"'


def test_response_with_a_proof_of_another_form_is_refused(verify: Run) -> None:
    response = load_vectors("ibc_queries")["answers"][0]["response"]
    response["proofOps"]["ops"][1]["type"] = "simple:v"
    code, verdict = verify({"response": response}, "--trust", "00" * 32)
    assert code == 2 and 'ops[1]: type: "simple:v": must be one of ics23:iavl' in verdict["error"]["text"]


def test_update_of_a_real_chain(verify: Run) -> None:
    case = load_vectors("ibc_light_client")["update"]
    trust = {
        "kind": "tendermint_trust",
        "height": case["trusted_height"],
        "client_state": case["client_state"],
        "consensus_state": case["consensus_state"],
    }
    header = bytes.fromhex(case["header"])
    given = ("--kind", "tendermint_update", "--claim", f"height={case['height']}", "--trust", trust)
    assert verify(header, *given, "--claim", f"now={case['time']}")[0] == 0
    code, verdict = verify(header, *given, "--claim", "now=2035-01-01T00:00:00Z")
    assert (code, verdict["error"]["name"]) == (2, "ClientExpired")


def test_storage_proof_of_a_genesis_state(verify: Run) -> None:
    case = load_vectors("substrate_proofs")["storage"]
    value, absent, incomplete = case["reads"]
    document = {
        "kind": "substrate_storage",
        "root": case["root"],
        "entries": [{"key": read["key"], "value": read["value"]} for read in (value, absent)],
        "proof": case["nodes"],
    }
    code, verdict = verify(document)
    assert code == 0 and verdict["steps"][-1]["result"] == case["root"]
    document["entries"].append({"key": incomplete["key"], "value": None})
    code, verdict = verify(document)
    assert (code, verdict["error"]["name"]) == (1, "InvalidProof")


def test_queues(verify: Run) -> None:
    vectors = load_vectors("substrate_roots")
    assert len(vectors["message_queues"]) == 3
    for case in vectors["message_queues"]:
        messages = [{"sent_at": sent_at, "data": data} for sent_at, data in case["messages"]]
        document = {"kind": "hrmp_queue", "previous": case["previous"], "messages": messages}
        assert verify(document, "--trust", case["head"])[0] == 0
        assert verify({**document, "messages": messages[:-1]}, "--trust", case["head"])[0] == 1
    assert len(vectors["egress_queues"]) == 4
    for case in vectors["egress_queues"]:
        for version, root in enumerate(case["roots"]):
            document = {"kind": "substrate_ordered_root", "values": case["messages"], "state_version": version}
            assert verify(document, "--trust", root)[0] == 0


def leaf(block: int) -> bytes:
    header = keccak256((block - 1).to_bytes(8, "little") + bytes([block]) * 32)
    return b"\x01" + header + b"\x01" + keccak256(block.to_bytes(8, "little") + b"\x00")


def test_mountain_ranges(verify: Run) -> None:
    vectors = load_vectors("mountain_range")
    assert len(vectors["proofs"]) == 9
    for case in vectors["proofs"]:
        proof = {"leaf_indices": case["indices"], "leaf_count": case["leaves"], "items": case["items"]}
        leaves = [{"data": leaf(index + 1).hex()} for index in case["indices"]]
        trust = {"kind": "root", "root": case["root"], "leaf_count": case["leaves"]}
        assert verify({"kind": "mmr_leaf", "leaves": leaves, "proof": proof}, "--trust", trust)[0] == 0
        assert verify({"kind": "mmr_leaf", "leaves": leaves, "proof": proof}, "--trust", "00" * 32)[0] == 1
    for count, root in vectors["roots"]:
        leaves = [{"data": leaf(block).hex()} for block in range(1, count + 1)]
        assert verify({"kind": "mmr", "leaves": leaves}, "--trust", root)[0] == 0
