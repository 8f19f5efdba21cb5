"""``causeway prove`` under icmp: watermarks, pending ingress and messages under a relay state root."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.documents.trust import Trust, parse_trust_object
from causeway_proofs.documents.verification import build_document, verify_document
from causeway_proofs.errors import InvalidInput

from causeway.network.opened_lake import open_lake
from causeway.proving.icmp.messages import prove_message, relay_leaves
from tests.support.common.command_line import Run, command_line
from tests.support.icmp.icmp_lake import FORK, make_lake
from tests.support.xdm.xdm_lake import make_lake as make_domains

PROVED: dict[str, list[object]] = {
    "a call": ["--chain", "left", "--counterparty", "right", "--index", 4],
    "an answer": ["--chain", "right", "--counterparty", "far", "--index", 1],
    "what waits for a chain that is halted": ["--chain", "left", "--counterparty", "far", "--index", 3, "--height", 9],
    "a watermark": ["--chain", "far", "--watermark"],
    "the ingress of a chain that is halted": ["--chain", "far", "--ingress", "--height", 9],
    "no ingress at all": ["--chain", "right", "--ingress"],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Several heights a commit: states between are replayed."""
    return make_lake(tmp_path_factory.mktemp("icmp"), commit_every=7)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch)


def alterations(value: Any) -> Iterator[Any]:
    """Return a part of a document with one byte altered, or one number: all ways but for its bytes, of which every
    seventh. That nothing is stored is as true of other keys."""
    if isinstance(value, dict):
        absent = "value" in value and value["value"] is None
        for name, part in value.items():
            if name not in ("kind", "state_version") and not (absent and name == "storage"):
                yield from ({**value, name: other} for other in alterations(part))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            before, after = value[:place], value[place + 1 :]
            yield from ([*before, other, *after] for other in alterations(part))
            if isinstance(part, str):  # a node; fewer claims are true, too
                yield [*before, *after]
    elif isinstance(value, int):
        yield from (value + 1, value ^ 1 << 20)
    elif value is None:
        yield "00"
    else:
        digits = range(0, len(value), 7) if all(digit in "0123456789abcdef" for digit in value) else [0]
        for place in digits:
            yield value[:place] + ("1" if value[place] == "0" else "0") + value[place + 1 :]


def is_refused(document: dict[str, Any], trust: Trust) -> bool:
    """Return whether a document proves nothing: it is false or malformed, such as with an unknown hasher."""
    try:
        return not verify_document(build_document(document, "altered"), trust).valid
    except InvalidInput as error:
        return str(error).startswith("altered: ")


@pytest.mark.parametrize("case", PROVED)
def test_proofs_verify_and_one_altered_byte_is_refused(cli: Run, lake: str, case: str) -> None:
    code, _, err = cli("prove", lake, *PROVED[case], "--out", "proof.json", "--trust-out", "trust.json")
    assert (code, err) == (0, "")
    code, out, _ = cli("verify", "proof.json", "--trust", "trust.json")
    assert (code, out.splitlines()[0]) == (0, "proof.json: true")
    proof, told = json.loads(Path("proof.json").read_text()), json.loads(Path("trust.json").read_text())
    trust, count = parse_trust_object(told, "trust"), 0
    for altered in alterations(proof):
        assert is_refused(altered, trust), altered
        count += 1
    assert count > 50
    assert is_refused(proof, parse_trust_object({"kind": "root", "root": "11" * 32}, "trust"))


def test_ingress_is_the_complete_list_with_empty_blocks(cli: Run, lake: str) -> None:
    code, out, _ = cli("prove", lake, "--chain", "far", "--ingress", "--height", 9, "--json")
    assert code == 0
    relay, entries = relay_leaves(open_lake(lake), 9)[0], json.loads(out)["entries"]
    (row,) = relay.leaf.paras.filter(relay.leaf.paras["para"] == 3)["watermark"].tolist()
    numbers = [int.from_bytes(bytes.fromhex(entry["storage"]["keys"][0]["key"])[:4], "little") for entry in entries[1:]]
    assert numbers == list(range(row + 1, relay.number + 1))
    listed = relay.leaf.unrouted.filter(relay.leaf.unrouted["to"] == 3)["number"].tolist()
    assert len(listed) >= 3
    assert sorted(set(listed)) == [
        n for n, entry in zip(numbers, entries[1:], strict=True) if entry["value"] is not None
    ]


def test_first_state_that_lists_a_message_is_found_without_a_height(lake: str) -> None:
    opened = open_lake(lake)
    shown = prove_message(opened, "left", "far", index=3)
    for height in range(shown.relay.height + 1, 12):
        assert prove_message(opened, "left", "far", index=3, height=height).message == shown.message
    assert shown.relay.number == shown.block, "the block that posted it"


def test_each_leaf_of_a_fork_proves_its_own_list(tmp_path: Path) -> None:
    """Leaf 0 alone has the posts of ``left``, leaf 1 those of ``right``; leaf 1 is final, and ``left`` is reverted."""
    opened = open_lake(make_lake(tmp_path, faults=FORK))
    first, second = relay_leaves(opened, 7)
    assert first.number == second.number == 7 and first.root != second.root
    lost = prove_message(opened, "left", "far", index=4, height=7)
    assert (lost.block, lost.relay.root) == (6, first.root)
    kept = prove_message(opened, "right", "left", index=0, height=7)
    assert (kept.block, kept.relay.root) == (5, second.root)
    with pytest.raises(InvalidInput, match=r"the one that its recipient's watermark passes it in$"):
        prove_message(opened, "left", "far", index=4, height=11)
    again = prove_message(opened, "left", "far", index=4, height=13)
    assert (again.block, again.message) == (13, lost.message)
    assert prove_message(opened, "left", "far", index=4).block == 13, "what was taken back is nobody's message any more"
    assert prove_message(opened, "right", "left", index=0, leaf="1").relay.place == 1
    with pytest.raises(InvalidInput, match="leaf 0 of the relay chain lists after height 7"):
        prove_message(opened, "right", "left", index=0, height=7, leaf="0")


def test_leaf_is_named_and_the_verdict_names_its_head(cli: Run, tmp_path: Path) -> None:
    """By number or by the hash of its block; a proof of one leaf is not true under the header of the other."""
    lake = make_lake(tmp_path, faults=FORK)
    heads = [one.leaf.hash.hex() for one in relay_leaves(open_lake(lake), 8)]
    claims = []
    for leaf, named in enumerate(["0", heads[1].upper()]):
        asked = ["--chain", "right", "--ingress", "--height", 8, "--leaf", named]
        code, out, err = cli("prove", lake, *asked, "--out", f"{leaf}.json", "--trust-out", f"trust-{leaf}.json")
        assert (code, err) == (0, "") and f"head      {heads[leaf]}, leaf {leaf}" in out
        code, out, _ = cli("verify", f"{leaf}.json", "--trust", f"trust-{leaf}.json", "--json")
        claims.append(json.loads(Path(f"{leaf}.json").read_text())["entries"])
        said = json.loads(out)["trust"]["subject"]
        assert code == 0 and said.endswith(f"after relay block 8, head {heads[leaf]}")
    assert claims[0] != claims[1]
    assert cli("verify", "0.json", "--trust", "trust-1.json")[0] == 1
    trust = json.loads(Path("trust-1.json").read_text())
    for name, value in (("leaf", 0), ("number", 9), ("root", heads[0]), ("included", heads[0]), ("hash", heads[0])):
        with pytest.raises(InvalidInput, match=r"hash: .*: the header of these fields has the hash"):
            parse_trust_object(trust | {name: value}, "trust")
    code, _, err = cli("prove", lake, "--chain", "right", "--watermark", "--height", 8, "--leaf", "2")
    assert code == 2 and "leaf: 2: allowed at height 8" in err and heads[0] in err and heads[1] in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--chain", "left"], "exactly one of --watermark, --ingress, --index N and --channel (with --counterparty)"),
        (["--chain", "left", "--watermark", "--ingress"], "exactly one of"),
        (["--watermark"], "--chain: missing"),
        (["--chain", "left", "--index", 1], "--counterparty: missing"),
        (["--chain", "left", "--counterparty", "right", "--watermark"], "watermark is of one chain; leave it out"),
        (["--chain", "lef", "--watermark"], 'chain: "lef": no such chain; did you mean left?'),
        (["--chain", "relay", "--watermark"], "relay: is no parachain"),
        (["--chain", "left", "--counterparty", "relay", "--index", 1], "relay: is the relay chain"),
        (["--chain", "left", "--counterparty", "left", "--index", 1], "in no egress queue"),
        (["--chain", "left", "--counterparty", "right", "--index", 99], "no message 99 from left to right was sent"),
        (["--chain", "left", "--counterparty", "right", "--index", 1, "--height", 1], "leave --height out"),
        (
            ["--chain", "left", "--counterparty", "right", "--index", 1, "--leaf", "1e3"],
            "leaf: 1e3: allowed: its number",
        ),
        (["--chain", "left", "--watermark", "--leaf", "a" * 63], "allowed: its number, or the hash"),
        (["--chain", "left", "--counterparty", "right", "--index", -1], "allowed are 0 to 2**64 - 1"),
        (["--chain", "left", "--watermark", "--height", 4_000], "height"),
        (["--chain", "left", "--queue", "send", "--watermark"], "--queue"),
    ],
)
def test_unprovable_requests_are_reported_in_one_line(cli: Run, lake: str, arguments: list[Any], text: str) -> None:
    code, out, err = cli("prove", lake, *arguments)
    assert (code, out) == (2, "")
    assert text in err and len(err.splitlines()) == 1


def test_lake_of_another_protocol_has_no_relay_chain(cli: Run, tmp_path: Path) -> None:
    code, _, err = cli("prove", make_domains(tmp_path), "--chain", "left", "--watermark")
    assert code == 2 and "--watermark" in err
