"""Certificates of ``causeway prove`` for the Internet Computer's own client library."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.ic.stream_header import decode_stream_header
from causeway_proofs.ic.stream_tree import index_label

from causeway.cli import main
from causeway.network.opened_lake import open_lake
from causeway.protocols.ic.ids import canister_id, subnet_id
from causeway.proving.ic.state import get_state_at
from tests.support.ic.ic_lake import make_lake
from tests.verifiers.conftest import Node

SCRIPT = "ic_certificate.mjs"
HEIGHT = 5
LEFT, RIGHT, FRUIT = subnet_id(0), subnet_id(2), canister_id(2)


def prove_certificate(lake: str, folder: Path, *what: object) -> dict[str, Any]:
    """Return the output of ``causeway prove``, as the script's request, with the claimed value of the document."""
    files = {name: folder / name for name in ("out", "trust-out", "certificate-out")}
    places = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    with pytest.raises(SystemExit) as ended:
        main(["prove", lake, "--height", str(HEIGHT), *map(str, what), *places, "--overwrite"])
    logging.disable(logging.NOTSET)
    assert ended.value.code == 0
    document, trust = (json.loads(files[name].read_text()) for name in ("out", "trust-out"))
    (claim,) = document["paths"]
    return {
        "certificate": files["certificate-out"].read_bytes().hex(),
        "root_key": trust["key"],
        "canister": FRUIT.hex(),
        "value": claim["value"],
    }


def accepted(answer: dict[str, Any]) -> Any:
    """The library's value at the only path, None if it refused the certificate."""
    return answer["lookups"][0] if answer["accepted"] else None


def test_certificates_of_a_lake_are_accepted_and_altered_ones_refused(node: Node, tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    header = decode_stream_header(get_state_at(open_lake(lake), "left", HEIGHT).header("right").value)
    stream = ["--chain", "left", "--counterparty", "right"]
    asked: list[tuple[list[bytes], list[object]]] = [([b"streams", RIGHT, b"header"], [*stream, "--header"])]
    for index in range(header.begin, header.end):
        asked.append(([b"streams", RIGHT, b"messages", index_label(index)], [*stream, "--index", index]))
    asked.append(([b"canister", FRUIT, b"certified_data"], ["--program", "fruit"]))
    requests = [
        {**prove_certificate(lake, tmp_path, *what), "paths": [[label.hex() for label in path]]} for path, what in asked
    ]
    assert len(requests) > 3
    answers = node(SCRIPT, requests)
    wanted = [{"status": "found", "value": request["value"]} for request in requests]
    assert [accepted(answer) for answer in answers] == wanted, answers
    of_others = [{**one, "paths": other["paths"]} for one, other in zip(requests[1:], requests, strict=False)]
    statuses = {answer["lookups"][0]["status"] for answer in node(SCRIPT, of_others)}
    assert statuses <= {"unknown", "absent"}, "a certificate shows nothing but its own path"
    altered = []
    for request in (requests[0], requests[1], requests[-1]):
        for at in range(0, len(request["certificate"]) // 2, 41):
            data = bytearray.fromhex(request["certificate"])
            data[at] ^= 1 << at % 8
            altered.append({**request, "certificate": data.hex()})
        altered.append({**request, "root_key": request["root_key"][:-96] + "c0" + "00" * 47})
    other = prove_certificate(lake, tmp_path, "--chain", "right", "--counterparty", "left", "--header")
    altered.append({**requests[0], "root_key": other["root_key"]})
    assert [accepted(answer) for answer in node(SCRIPT, altered)] == [None] * len(altered)
