"""Validator keys in files, their signing records, and restored lakes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.tendermint.trust import decode_header_update
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.recheck import LakeRecheck
from causeway.protocols.shared.secrets import Secrets
from causeway.scenarios.scenario import Scenario, load_scenario
from causeway.service.keys.key_files import WEAK, AccountKey, public_key, read_key, write_key
from causeway.service.keys.signing import MESSAGE, NotSigned, SignedMessage, sign_message
from causeway.service.keys.validators import SignedAlready, ValidatorKeys, add_validators
from causeway.service.node.node import BlockPace, Node
from causeway.storage.lake import Lake
from tests.support.common.lakes import key_of, scenario_text


class Left:
    """The left lake, with key files of its validators."""

    def __init__(self, folder: Path, validators: int = 1) -> None:
        self.folder, self.lake = folder, str(folder / "lake")
        self.files = [folder / f"{number}.key" for number in range(validators)]
        for file in self.files:
            write_key(file, AccountKey.generate())
        self.other = key_of(99).public.hex()
        (folder / "left.toml").write_text(scenario_text("left", calls=0))

    def scenario(self, **options: Any) -> tuple[Scenario, ValidatorKeys]:
        own = [f"left={file}" for file in options.pop("files", self.files)]
        return add_validators(load_scenario(self.folder / "left.toml"), own, [f"right={self.other}"], **options)

    def node(self, lake: str | None = None, **options: Any) -> Node:
        scenario, keys = self.scenario(**options)
        return Node(scenario, lake or self.lake, BlockPace(0, on_demand=True), keys=keys)

    def send(self, node: Node) -> None:
        nonce = node.senders.last(key_of(1).public) + 1
        content = {"to": "caller-left", "call": {"receiver": "echo-right", "method": "hello"}}
        node.take(sign_message(key_of(1), node.opened.lake.identity, MESSAGE, "", nonce, content))


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_headers_are_signed_only_by_file_keys(left: Left) -> None:
    with left.node() as node:
        node.produce()
        _, certification = node.opened.header("left", 1)
    update = decode_header_update(certification)
    assert [one.public_key.data for one in update.validators.validators] == [read_key(left.files[0]).public]
    stored = b"".join(path.read_bytes() for path in Path(left.lake).rglob("*") if path.is_file())
    assert read_key(left.files[0]).seed not in stored
    assert read_key(left.files[0]).seed.hex().encode() not in stored


def test_two_thirds_of_the_validators_suffice_and_fewer_do_not(tmp_path: Path) -> None:
    left = Left(tmp_path, validators=4)
    scenario, keys = left.scenario()
    some = ValidatorKeys({"left": left.files[:3]}, Secrets(dict(list(keys.secrets.seeds.items())[:3])))
    with Node(scenario, left.lake, keys=some) as node:
        node.produce()
        commit = decode_header_update(node.opened.header("left", 1)[1]).signed_header.commit
        assert sorted(bool(one.signature) for one in commit.signatures) == [False, True, True, True]
    few = ValidatorKeys({"left": left.files[:2]}, Secrets(dict(list(keys.secrets.seeds.items())[:2])))
    with pytest.raises(InvalidInput, match=r"left: secret keys of 2 of its 4 validators .*more than two thirds"):
        Node(scenario, left.lake, keys=few)


def test_older_copy_of_a_lake_signs_nothing(left: Left) -> None:
    with left.node() as node:
        for _ in range(2):
            node.produce()
        shutil.copytree(left.lake, left.folder / "copy")
        for _ in range(3):
            node.produce()
    with pytest.raises(
        SignedAlready, match=r"0\.key\.signed: left has signed height 5, but .* ends at height 2.*newest"
    ):
        left.node(str(left.folder / "copy"))
    with pytest.raises(SignedAlready, match="ends at height 0"):
        left.node(str(left.folder / "new"))
    assert not (left.folder / "new").exists()
    with left.node() as node:
        node.produce()
        assert node.network.height == 6


def test_copy_one_height_behind_reproduces_the_block_or_makes_none(left: Left) -> None:
    with left.node() as node:
        node.produce()
        shutil.copytree(left.lake, left.folder / "copy")
        node.produce()
        shutil.copytree(left.lake, left.folder / "later")
        left.send(node)
        node.produce()
    marks = json.loads((left.folder / "0.key.signed").read_text())
    with pytest.raises(SignedAlready):
        left.node(str(left.folder / "copy"))
    # The next block had a message; a copy without it would make another one.
    with pytest.raises(SignedAlready, match=r"has signed height 3, but .* ends at height 2"):
        left.node(str(left.folder / "later"))
    assert json.loads((left.folder / "0.key.signed").read_text()) == marks


def test_block_signed_before_a_kill_is_reproduced(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(self: Lake, manifest: Any) -> None:
        raise Killed

    with left.node() as node:
        node.produce()
        left.send(node)
        monkeypatch.setattr(Lake, "commit", killed)
        with pytest.raises(Killed):
            node.produce()
        monkeypatch.undo()
    mark = json.loads((left.folder / "0.key.signed").read_text())["chains"]["left"]
    assert mark["height"] == 2
    with left.node() as node:
        assert node.network.height == 2
        assert json.loads((left.folder / "0.key.signed").read_text())["chains"]["left"] == mark
        assert node.senders.last(key_of(1).public) == 1
        assert node.network.manifest.rows["events"] > 0
        left.send(node)
        node.produce()
        assert node.network.height == 3


def test_missing_damaged_or_misplaced_signing_marks_are_rejected(left: Left) -> None:
    with left.node() as node:
        node.produce()
        with pytest.raises(InvalidInput, match=r"0\.key: another process signs with this key"):
            left.node(str(left.folder / "other"))
    marks = left.folder / "0.key.signed"
    text = marks.read_text()
    for damaged in ("{}", text.replace('"height": 1', '"height": "1"'), text.replace('"tick": 0', '"tick": null')):
        marks.write_text(damaged)
        with pytest.raises(InvalidInput, match="is corrupted"):
            left.node()
    marks.write_text(json.dumps({**json.loads(text), "chains": {}}))
    with pytest.raises(
        InvalidInput, match=r"0\.key\.signed: says nothing of left, but .* has 1 heights .*--newest-copy"
    ):
        left.node()
    marks.unlink()
    with pytest.raises(InvalidInput, match=r"0\.key\.signed: missing, but .* has 1 heights .*--newest-copy"):
        left.node()
    with left.node(newest=True) as node:
        node.produce()
    assert json.loads(marks.read_text())["chains"]["left"]["height"] == 2
    marks.write_text(text)
    inside = Path(left.lake) / "0.key"
    shutil.copy(left.files[0], inside)
    os.chmod(inside, 0o600)
    with pytest.raises(InvalidInput, match="lies in the lake"):
        left.node(files=[inside])


@pytest.mark.parametrize(
    ("own", "others", "error"),
    [
        (["left"], [], "write it as CHAIN=FILE"),
        (["lefd={key}"], [], "did you mean left?"),
        (["left={key}.none"], [], "cannot be read"),
        (["left={key}"], ["right=00"], "allowed: a public key"),
        (["left={key}"], [], "right: its validators' keys would be drawn from the seed.*--validators right=KEY"),
        ([], ["right={other}"], "left: its validators' keys would be drawn.*--validator-key left=FILE"),
        (
            ["left={key}"],
            ["left={other}"],
            "--validators: left: the scenario, the lake or .* names others",
        ),
    ],
)
def test_invalid_validators(left: Left, own: list[str], others: list[str], error: str) -> None:
    words = {"key": left.files[0], "other": left.other}
    with pytest.raises(InvalidInput, match=error):
        add_validators(
            load_scenario(left.folder / "left.toml"),
            [text.format(**words) for text in own],
            [text.format(**words) for text in others],
        )


def test_key_of_an_unlisted_validator_is_rejected(left: Left) -> None:
    scenario, _ = left.scenario()
    write_key(left.folder / "more.key", AccountKey.generate())
    with pytest.raises(InvalidInput, match="is the key of no validator that"):
        add_validators(scenario, [f"left={left.folder / 'more.key'}"])


def test_plain_run_has_no_keys_of_a_served_lake(left: Left) -> None:
    with left.node() as node:
        node.produce()
        scenario = node.scenario
    with pytest.raises(InvalidInput, match="secret keys of 0 of its 1 validators are here"):
        LakeNetwork(scenario, left.lake, resume=True)


def test_keys_never_leave_the_process(left: Left) -> None:
    with pytest.raises(InvalidInput, match="do not leave the process"):
        pickle.dumps(Secrets({b"public": b"secret"}))
    assert "secret" not in repr(Secrets({b"public": b"secret"}))
    assert read_key(left.files[0]).seed.hex() not in repr(read_key(left.files[0]))


def test_invalid_key_files(tmp_path: Path) -> None:
    file = tmp_path / "a.key"
    write_key(file, key_of(5))
    assert read_key(file) == key_of(5)
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidInput, match="exists already"):
        write_key(file, key_of(6))
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(InvalidInput, match=r"others than its owner .* chmod 600"):
            read_key(file)
    file.chmod(0o600)
    content = json.loads(file.read_text())
    for changed, error in (
        ({"public": "00" * 32}, "not the public key of secret"),
        ({"secret": "00"}, "secret: 1 bytes"),
        ({"version": 2}, "type, version, algorithm are"),
        ({"secret": None}, "holds no key"),
    ):
        file.write_text(json.dumps({**content, **changed}))
        with pytest.raises(InvalidInput, match=error):
            read_key(file)
    file.write_text("x" * 5000)
    with pytest.raises(InvalidInput, match="more than 4096 bytes"):
        read_key(file)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_key(tmp_path / "none.key")


def test_lake_is_reexecuted_with_validator_keys_and_checked_without(left: Left) -> None:
    with left.node() as node:
        left.send(node)
        node.produce()
        node.produce()
    opened = open_lake(left.lake)
    without = LakeRecheck(opened)
    for height in range(3):
        without.roots(height)
    with pytest.raises(InvalidInput, match="--validator-key: missing; the validators of this lake sign with keys in"):
        without.execute(0, 2)
    _, keys = left.scenario()
    assert LakeRecheck(opened, secrets=keys.secrets).execute(0, 2) is None


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("y", sorted(WEAK))
def test_publicly_known_key_is_rejected(y: int, sign: int) -> None:
    public = (y + (sign << 255)).to_bytes(32, "little")
    forged = bytes([1, *bytes(31)]) + bytes(32)  # the neutral element, and 0: valid wherever the key cancels out
    sent = [SignedMessage("lake", MESSAGE, "", public, nonce, {"to": 1}, forged) for nonce in range(200)]
    verify = Ed25519PublicKey.from_public_bytes(public).verify
    assert any(_passes(verify, one) for one in sent)
    for one in sent:
        with pytest.raises(NotSigned):
            one.verify()
    with pytest.raises(InvalidInput, match="small order"):
        public_key(public.hex(), "--relayer")


def _passes(verify: Any, message: SignedMessage) -> bool:
    try:
        verify(message.signature, message.encoded)
    except InvalidSignature:
        return False
    return True
