"""Public vectors of every family through ``causeway verify``, in the forms in which people have them."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from causeway.cli import main
from causeway.proofs.hashing import keccak256

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Give a function that runs ``causeway verify`` on files, bytes or JSON, and gives its exit code and verdict."""
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
            main(["verify", *given, "--json"])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int) and not err, err
        return ended.value.code, json.loads(out)

    yield run
    logging.disable(logging.NOTSET)


def read(shared_folder: Path, name: str) -> Any:
    return json.loads((shared_folder / "vectors" / name).read_text())


def test_certificates(verify: Run, shared_folder: Path) -> None:
    cases = read(shared_folder, "ic/certificates.json")["certificates"]
    assert len(cases) == 10
    checks = 0
    for case in cases:
        trust = "ic-mainnet" if case["root_key"] == "mainnet" else bytes.fromhex(case["root_key_der_hex"])
        certificate = bytes.fromhex(case["certificate_hex"])
        given = ("--kind", "ic_certificate", "--trust", trust, "--claim")
        code, verdict = verify(certificate, *given, f"time={case['time_ns']}")
        assert code == 0, case["name"]
        assert verdict["steps"][0]["result"] == case["tree_root_digest"]
        for check in case.get("canister_checks", []):
            code, verdict = verify(certificate, *given, f"canister_id={check['canister_id']}")
            checks += 1
            assert code == (0 if check["accept"] else 1), case["name"]
            assert check["accept"] or verdict["error"]["name"] in ("CanisterOutOfRange", "CanisterRangesNotProven")
    assert checks == 9


def test_a_certified_value(verify: Run, shared_folder: Path) -> None:
    case = read(shared_folder, "ic/certificates.json")["certificates"][0]
    (lookup,) = case["lookups"]
    path = ["canister", "principal:" + lookup["path"][1].split()[0], "certified_data"]
    document = {
        "kind": "ic_certificate",
        "trust": {"kind": "ic_public_key", "key": case["root_key_der_hex"]},
        "subnet_id": case["subnet_id"],
        "paths": [{"path": path, "value": lookup["value_hex"]}],
        "proof": case["certificate_hex"],
    }
    assert verify(document)[0] == 0
    document["paths"][0]["value"] = "00" + lookup["value_hex"][2:]
    code, verdict = verify(document)
    assert (code, verdict["error"]["name"]) == (1, "ClaimMismatch")


def test_ics23_files_as_they_are_published(verify: Run, shared_folder: Path) -> None:
    folder = shared_folder / "vectors" / "ibc" / "ics23"
    single = 0
    for spec in ("iavl", "tendermint", "smt"):
        for path in sorted((folder / spec).glob("*.json")):
            single += 1
            code, verdict = verify(path, "--kind", "ics23", "--spec", spec)
            assert code == 0 and verdict["steps"][-1]["result"] == json.loads(path.read_text())["root"]
            assert verify(path, "--kind", "ics23", "--spec", spec, "--trust", "00" * 32)[0] == 1
            assert verify(path, "--kind", "ics23", "--spec", spec, "--claim", "value=text:another")[0] == 1
    assert single == 10
    batches = sorted((folder / "batch").glob("*.json"))
    assert len(batches) == 3
    for path in batches:
        code, verdict = verify(path, "--kind", "ics23_batch", "--spec", path.name.split("_")[0])
        assert code == 0 and {step["track"] for step in verdict["steps"]} >= set(range(20))


def test_a_path_of_a_real_chain_under_its_trusted_header(verify: Run, shared_folder: Path) -> None:
    case = read(shared_folder, "ibc/chained/verify_membership_key_0.json")
    message = case["membership_msg"]
    trust = {
        "kind": "tendermint_trust",
        "height": message["height"],
        "client_state": case["client_state_hex"],
        "consensus_state": case["consensus_state_hex"],
    }
    document = {
        "kind": "ics23_chained",
        "path": message["path"],
        "value": message["value"],
        "proof": message["proof"],
    }
    assert verify(document, "--trust", trust)[0] == 0
    proof = "base64:" + base64.b64encode(bytes.fromhex(message["proof"])).decode()
    assert verify({**document, "proof": proof}, "--trust", trust)[0] == 0
    assert verify({**document, "value": "00"}, "--trust", trust)[1]["error"]["name"] == "ValueMismatch"


def test_the_update_of_a_real_chain(verify: Run, shared_folder: Path) -> None:
    case = read(shared_folder, "ibc/chained/update_client_happy_path.json")
    message = case["update_client_message"]
    trust = {
        "kind": "tendermint_trust",
        "height": message["trusted_height"],
        "client_state": case["client_state_hex"],
        "consensus_state": case["consensus_state_hex"],
    }
    header = bytes.fromhex(message["client_message_hex"])
    given = ("--kind", "tendermint_update", "--claim", f"height={message['new_height']}", "--trust", trust)
    now = case["metadata"]["generated_at"]
    assert verify(header, *given, "--claim", f"now={now}")[0] == 0
    code, verdict = verify(header, *given, "--claim", "now=2035-01-01T00:00:00Z")
    assert (code, verdict["error"]["name"]) == (1, "ClientExpired")


def test_a_storage_proof_of_a_genesis_state(verify: Run, shared_folder: Path) -> None:
    (case,) = read(shared_folder, "substrate/storage_proofs.json")["cases"]
    value, absent, incomplete = case["checks"]
    document = {
        "kind": "substrate_storage",
        "root": case["state_root"],
        "entries": [{"key": value["key"], "value": value["value"]}, {"key": absent["key"], "value": None}],
        "proof": case["proof_nodes"],
    }
    code, verdict = verify(document)
    assert code == 0 and verdict["steps"][-1]["result"] == case["state_root"]
    document["entries"].append({"key": incomplete["key"], "value": None})
    code, verdict = verify(document)
    assert (code, verdict["error"]["name"]) == (1, "InvalidProof")


def test_queues(verify: Run, shared_folder: Path) -> None:
    chains = read(shared_folder, "substrate/hrmp_mqc.json")["cases"]
    assert len(chains) == 3
    for case in chains:
        messages = [{"sent_at": message["sent_at"], "data": message["data_hex"]} for message in case["messages"]]
        document = {"kind": "hrmp_queue", "previous": case["previous_head"], "messages": messages}
        assert verify(document, "--trust", case["head"])[0] == 0
        assert verify({**document, "messages": messages[:-1]}, "--trust", case["head"])[0] == 1
    queues = read(shared_folder, "substrate/icmp_egress_roots.json")["cases"]
    assert len(queues) == 4
    for case in queues:
        for version in (0, 1):
            document = {"kind": "substrate_ordered_root", "values": case["messages_hex"], "state_version": version}
            assert verify(document, "--trust", case[f"root_v{version}"])[0] == 0


def leaf(block: int) -> bytes:
    header = keccak256((block - 1).to_bytes(8, "little") + bytes([block]) * 32)
    return b"\x01" + header + b"\x01" + keccak256(block.to_bytes(8, "little") + b"\x00")


def test_mountain_ranges(verify: Run, shared_folder: Path) -> None:
    vectors = read(shared_folder, "substrate/mmr.json")
    assert len(vectors["proofs"]) == 9
    for case in vectors["proofs"]:
        proof = {name: case[name] for name in ("leaf_indices", "leaf_count", "items")}
        leaves = [{"data": leaf(index + 1).hex()} for index in case["leaf_indices"]]
        trust = {"kind": "root", "root": case["root"], "leaf_count": case["leaf_count"]}
        assert verify({"kind": "mmr_leaf", "leaves": leaves, "proof": proof}, "--trust", trust)[0] == 0
        assert verify({"kind": "mmr_leaf", "leaves": leaves, "proof": proof}, "--trust", "00" * 32)[0] == 1
    for count, root in vectors["roots_by_leaf_count"].items():
        leaves = [{"data": leaf(block).hex()} for block in range(1, int(count) + 1)]
        assert verify({"kind": "mmr", "leaves": leaves}, "--trust", root)[0] == 0
