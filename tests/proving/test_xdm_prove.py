"""``causeway prove`` of messages and responses under xdm: the whole chain of proofs in a document."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from causeway_proofs.documents.trust import parse_trust_object
from causeway_proofs.documents.verification import build_document, verify_document
from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate import Tries

from causeway.network.opened_lake import open_lake
from causeway.proving.xdm.messages import KEPT_BYTES, ChainStorage, prove_message, read_storage
from tests.support.common.command_line import Run, command_line
from tests.support.xdm.xdm_lake import make_lake

CASES = {
    "domain to domain": ("left", "right", 3, 13, False),
    "domain to consensus": ("left", "farmers", 0, 12, False),
    "consensus to domain": ("farmers", "right", 0, 5, False),
    "response to a domain": ("right", "left", 1, 24, True),
    "response of consensus": ("farmers", "left", 0, 20, True),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Several heights per commit: those between are replayed from the log."""
    return make_lake(tmp_path_factory.mktemp("xdm"), commit_every=7)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch)


@pytest.mark.parametrize("case", CASES)
def test_proofs_verify_and_altered_ones_are_false(cli: Run, lake: str, case: str) -> None:
    source, destination, nonce, height, response = CASES[case]
    arguments = ["--chain", source, "--counterparty", destination, "--index", nonce, "--height", height]
    code, out, err = cli(
        "prove",
        lake,
        *arguments,
        *(["--response"] if response else []),
        "--out",
        "proof.json",
        "--trust-out",
        "trust.json",
    )
    assert (code, err) == (0, "")
    assert f"{'response' if response else 'request'} {nonce} from {source} to {destination}" in out
    code, out, _ = cli("verify", "proof.json", "--trust", "trust.json")
    assert (code, out.splitlines()[0]) == (0, "proof.json: true")
    proof = json.loads(Path("proof.json").read_text())
    trust = parse_trust_object(json.loads(Path("trust.json").read_text()), "trust")
    for place in range(0, len(proof["proof"]), 22):
        digit = "1" if proof["proof"][place] == "0" else "0"
        altered = {**proof, "proof": proof["proof"][:place] + digit + proof["proof"][place + 1 :]}
        assert not verify_document(build_document(altered, "altered"), trust).valid, f"digit {place}"
    other = {
        "source": 7,
        "channel_id": 1,
        "nonce": nonce + 1,
        "response": not response,
        "message": "00",
        "weight_tag": "None",
        "consensus_block": {**proof["consensus_block"], "number": 1_000},
    }
    for field, value in other.items():
        assert not verify_document(build_document({**proof, field: value}, "altered"), trust).valid, field
    Path("altered.json").write_text(json.dumps(altered))
    assert cli("verify", "altered.json", "--trust", "trust.json")[0] in (1, 2)


def test_no_file_is_written_if_one_cannot_be(cli: Run, lake: str) -> None:
    arguments = ["--chain", "left", "--counterparty", "right", "--index", 3, "--height", 13]
    Path("kept.json").write_text("as it was")
    for out in ("kept.json", "new.json"):
        code, _, err = cli("prove", lake, *arguments, "--out", out, "--trust-out", "nowhere/trust.json", "--overwrite")
        assert code == 2 and "nowhere/trust.json" in err
    assert [path.name for path in Path().iterdir()] == ["kept.json"]
    for option, other in (("--out", "--trust-out"), ("--trust-out", "--out")):
        code, _, err = cli("prove", lake, *arguments, option, "kept.json", other, "new.json")
        assert code == 2 and f"{option} kept.json: exists already; name another file, or add --overwrite" in err
    assert [path.name for path in Path().iterdir()] == ["kept.json"]
    assert Path("kept.json").read_text() == "as it was"
    assert cli("prove", lake, *arguments, "--out", "kept.json", "--overwrite")[0] == 0
    assert json.loads(Path("kept.json").read_text())


def test_missing_items_are_reported(cli: Run, lake: str) -> None:
    for arguments, told in (
        (["--chain", "left", "--counterparty", "right", "--index", 3, "--height", 2], "no block is 3 deep yet"),
        (
            ["--chain", "left", "--counterparty", "right", "--index", 3, "--height", 6],
            "no receipt of left is",
        ),
        (["--chain", "left", "--counterparty", "right", "--index", 99, "--height", 13], "no request 99 in channel 0"),
        (["--chain", "left", "--counterparty", "right", "--index", -1], "allowed are 0"),
        (["--chain", "left", "--counterparty", "left", "--index", 0], "to itself"),
        (["--chain", "left", "--counterparty", "right"], "--index: missing"),
        (["--chain", "nowhere", "--counterparty", "right", "--index", 0], "nowhere"),
        (["--chain", "left", "--counterparty", "right", "--index", 0, "--height", 999], "999"),
    ):
        code, out, err = cli("prove", lake, *arguments)
        assert (code, out) == (2, ""), arguments
        assert told in err, err


def test_every_height_of_a_commit_proves_under_its_own_root(lake: str) -> None:
    opened = open_lake(lake)
    shown = [prove_message(opened, "left", "right", nonce=3, height=height) for height in range(13, 20)]
    assert len({item.message for item in shown}) == 1
    assert len({item.root for item in shown}) == len(shown)


FORKS = """
[[faults]]
kind = "reorg"
tick = 9
depth = 2

[[faults]]
kind = "reorg"
tick = 16
depth = 2

[[faults]]
kind = "reorg"
tick = 18
depth = 1
"""


@pytest.mark.slow
def test_proofs_follow_the_fork_of_a_height_for_any_commit_size(tmp_path: Path) -> None:
    found = []
    for commit_every in (1, 7):
        folder = tmp_path / str(commit_every)
        folder.mkdir()
        opened = open_lake(make_lake(folder, ticks=8, commit_every=commit_every, options=FORKS))
        proofs: dict[tuple[object, ...], bytes] = {}
        for height in (8, 9, 12, 16, 17, 18, 24):
            for source, destination, nonce, _, response in CASES.values():
                try:
                    shown = prove_message(opened, source, destination, nonce=nonce, response=response, height=height)
                except InvalidInput:
                    continue
                proofs[height, source, destination, response] = shown.envelope.encode() + shown.root
        found.append(proofs)
    assert found[0] == found[1]
    assert {9, 16, 18} <= {height for height, *_ in found[0]}, "in the height of a fork, as of that it went back to"
    assert len(found[0]) > 15


def test_blocks_with_the_same_storage_share_it(lake: str, tmp_path: Path) -> None:
    opened, again = open_lake(lake), open_lake(make_lake(tmp_path))
    last, by_root = opened.last_height(), dict[bytes, ChainStorage]()
    for height in range(last + 1):
        for position in range(len(opened.names)):
            storage = read_storage(opened, position, height)
            assert by_root.setdefault(storage.root, storage) is storage, "made once"
    assert len(by_root) < len(opened.names) * (last + 1)
    assert read_storage(again, 0, 3) is read_storage(opened, 0, 3), "another lake, with other commits"


@pytest.mark.slow
def test_cached_storage_stays_within_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_lake(make_lake(tmp_path, options="endowment = 7_000_000"))  # with an unused storage
    monkeypatch.setattr(Tries, "live_bytes", KEPT_BYTES // 2)
    made = {
        storage.root: weakref.ref(storage) for storage in (read_storage(opened, 0, height) for height in range(1, 9))
    }
    gc.collect()
    assert len(made) > 3
    assert [root for root, storage in made.items() if storage() is not None] == [*made][-2:]
