"""``causeway prove`` of parachains with HRMP: channels, their contents, watermarks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.documents.trust import parse_trust_object

from causeway.network.opened_lake import open_lake
from causeway.proving.icmp.channels import channel_relay, channel_start_head
from causeway.storage.lake import LakeError
from tests.proofs.documents.test_icmp_prove import alterations, is_refused
from tests.spec.icmp import hrmp as spec
from tests.spec.icmp.trie import compact, scale_bytes, u32
from tests.support.common.command_line import Run, command_line
from tests.support.icmp.icmp_lake import make_lake

OPTIONS = """
[options]
channels = "hrmp"
session_blocks = 2
"""

BETWEEN = ["--chain", "left", "--counterparty", "right"]
WAITING = ["--chain", "left", "--counterparty", "far"]

PROVED: dict[str, list[object]] = {
    "a channel": [*BETWEEN, "--channel"],
    "a message": [*BETWEEN, "--index", 4],
    "a watermark": ["--chain", "far", "--watermark"],
    "all that waits": ["--chain", "far", "--ingress", "--height", 12],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_lake(tmp_path_factory.mktemp("hrmp"), commit_every=3, faults=OPTIONS)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch)


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
    assert count > 30


def test_messages_in_a_channel_lead_to_the_proven_head(cli: Run, lake: str) -> None:
    """Their bytes equal those of the oracle: deployed clients read them."""
    asked = [*WAITING, "--index", 1, "--out", "proof.json", "--queue-out", "queue.json"]
    assert cli("prove", lake, *asked)[0] == 0
    code, out, _ = cli("verify", "queue.json", "--self-consistent")
    assert (code, out.splitlines()[0]) == (0, "queue.json: true")
    proof, queue = json.loads(Path("proof.json").read_text()), json.loads(Path("queue.json").read_text())
    channel, contents = (entry["value"] for entry in proof["entries"])
    messages = [(message["sent_at"], bytes.fromhex(message["data"])) for message in queue["messages"]]
    assert contents == (compact(len(messages)) + b"".join(u32(n) + scale_bytes(data) for n, data in messages)).hex()
    head = bytes.fromhex(queue["previous"])
    for sent_at, data in messages:
        head = spec.next_head(head, sent_at, data)
    assert head.hex() == queue["trust"]["root"]
    size = sum(len(data) for _, data in messages)
    numbers = b"".join(map(u32, (1000, 102_400, 102_400, len(messages), size)))
    deposits = (10).to_bytes(16, "little") * 2
    assert channel == (numbers + b"\x01" + head + deposits).hex()


def test_pending_messages_name_every_channel_to_a_parachain(cli: Run, lake: str) -> None:
    code, out, _ = cli("prove", lake, *PROVED["all that waits"], "--json")
    assert code == 0
    entries: dict[str, list[str | None]] = {}
    for entry in json.loads(out)["entries"]:
        entries.setdefault(entry["storage"]["item"], []).append(entry["value"])
    relay = channel_relay(open_lake(lake), 12)
    senders = relay.tables["channels"]["sender"][relay.tables["channels"]["recipient"] == 3].tolist()
    assert senders
    assert entries["HrmpIngressChannelsIndex"] == [(compact(len(senders)) + b"".join(map(u32, senders))).hex()]
    assert len(entries["HrmpChannels"]) == len(entries["HrmpChannelContents"]) == len(senders)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--chain", "far", "--counterparty", "left", "--channel", "--height", 1], "no channel from far is open"),
        ([*BETWEEN, "--index", 99], "no message 99 from left to right is in their channel at any height"),
        ([*BETWEEN, "--index", 0, "--height", 2], "no message 0 from left to right is in their channel after height 2"),
        (["--chain", "relay", "--watermark"], "is no parachain that relay block"),
        (["--chain", "far", "--watermark", "--queue-out", "q.json"], "--queue-out: watermark is of one chain"),
        (["--chain", "far", "--watermark", "--leaf", "1"], "--leaf: with channels"),
        ([*BETWEEN, "--channel", "--index", 3], "selection: allowed: exactly one of"),
    ],
)
def test_missing_messages_are_refused_in_one_line(cli: Run, lake: str, asked: list[Any], said: str) -> None:
    code, _, err = cli("prove", lake, *asked, "--out", "proof.json")
    assert code == 2 and said in err and len(err.splitlines()) == 1


def test_contents_without_a_matching_head_are_not_returned(lake: str) -> None:
    opened = open_lake(lake)
    height = next(n for n in range(opened.last_height()) if len(channel_relay(opened, n).contents(1, 3)))
    relay = channel_relay(opened, height)
    contents = relay.tables["contents"]
    wrong = contents.with_columns(sent_at=contents["sent_at"] + 1)
    object.__setattr__(relay, "tables", relay.tables.with_tables(contents=wrong))
    with pytest.raises(LakeError, match="has had as the head of its channel"):
        channel_start_head(opened, relay, 1, 3)
