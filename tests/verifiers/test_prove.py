"""Packet and receipt proofs of ``causeway prove`` for the verifier of @confio/ics23."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from pathlib import Path

import pytest

from causeway.cli import main
from tests.support.ibc.ibc_lake import make_lake
from tests.verifiers.conftest import Node
from tests.verifiers.test_ics23 import Claim, altered_claims, own_verdict, verdicts

QUEUES = {
    "send": ("A", "B", [*range(4, 20)]),
    "receipt": ("B", "A", [0, 1, 3, 5, 7, 9, 15]),
}
HEIGHT = 5
ABSENT = {"send": [0, 3, 20, 10**6], "receipt": [8, 12, 16, 2**40]}


def prove_queue(lake: str, out: Path, queue: str, *what: str) -> Claim:
    """Return the output of ``causeway prove`` about a queue, as a claim."""
    chain, remote, _ = QUEUES[queue]
    place = ["--chain", chain, "--counterparty", remote, "--queue", queue, "--height", str(HEIGHT)]
    with pytest.raises(SystemExit) as ended:
        main(["prove", lake, *place, *what, "--out", str(out), "--trust-out", f"{out}.trust", "--overwrite"])
    logging.disable(logging.NOTSET)
    assert ended.value.code == 0
    document, trust = json.loads(out.read_text()), json.loads(Path(f"{out}.trust").read_text())
    value = None if document["value"] is None else bytes.fromhex(document["value"])
    # The root is the signed header's, not the one named by the proof.
    root, key, proof = (bytes.fromhex(text) for text in (trust["root"], document["key"], document["proof"]))
    return Claim(document["spec"], root, key, value, proof)


def flip_last_bit(claim: Claim) -> Claim:
    """Return a claim with one bit of its proof's last digest flipped."""
    return claim._replace(proof=claim.proof[:-1] + bytes([claim.proof[-1] ^ 1]))


def test_packets_receipts_and_absence_from_a_lake(node: Node, tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    out = tmp_path / "proof.json"
    present = [
        prove_queue(lake, out, queue, "--index", str(index)) for queue, (_, _, held) in QUEUES.items() for index in held
    ]
    present += [prove_queue(lake, out, queue, part) for queue in QUEUES for part in ("--head", "--tail")]
    absent = [
        prove_queue(lake, out, queue, "--index", str(index), "--absent") for queue in QUEUES for index in ABSENT[queue]
    ]
    claims = present + absent
    assert [own_verdict(claim) for claim in claims] == [True] * len(claims)
    assert verdicts(node, claims) == [True] * len(claims)
    wrong = [other for claim in claims for other in (*altered_claims(claim), flip_last_bit(claim))]
    wrong += [one._replace(proof=other.proof) for one, other in pairwise(present)]
    wrong += [absent[0]._replace(key=present[0].key), present[0]._replace(key=absent[0].key)]
    assert [own_verdict(claim) for claim in wrong] == [False] * len(wrong)
    assert verdicts(node, wrong) == [False] * len(wrong)
