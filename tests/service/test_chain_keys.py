"""Subnets that sign with keys in files: signatures, lakes without the keys, and restored copies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.certificate import verify_state_root
from causeway_proofs.ic.errors import InvalidSignature
from causeway_proofs.ic.slice import decode_certification

from causeway.cli import main
from causeway.cli.commands import serve
from causeway.network import replay
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.recheck import LakeRecheck
from causeway.network.reexecution import DifferenceReason, DifferingHeight
from causeway.protocols.ic.subnet_keys import derive_public_key
from causeway.scenarios.scenario import load_scenario
from causeway.service.ic.endpoint import drawn_keys
from causeway.service.keys.key_files import AccountKey, ChainKey, read_chain_key, read_key, write_key
from causeway.service.keys.validators import SignedAlready, add_chain_keys
from causeway.service.node.node import BlockPace, Node
from causeway.storage.lake import Lake, LakeError
from tests.support.common.subnet_lakes import ENDS, OTHER, SEEDS, Lakes, scenario_text


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Return a key file for each subnet."""
    found = {own: tmp_path / f"{own}.key" for own in ENDS}
    for file in found.values():
        write_key(file, ChainKey.generate())
    return found


def texts(files: Mapping[str, Path], **scenario: Any) -> dict[str, str]:
    """Return the scenarios of both lakes, each naming the other's key file."""
    drawn = {own: derive_public_key(SEEDS[own], ENDS.index(own)).hex() for own in ENDS}
    return {
        own: scenario_text(own, **scenario).replace(drawn[OTHER[own]], read_chain_key(files[OTHER[own]]).public.hex())
        for own in ENDS
    }


def node_of(folder: Path, files: Mapping[str, Path], lake: str | None = None, more: str = "") -> Node:
    """Return the left lake alone."""
    path = folder / "left.toml"
    path.write_text(texts(files, calls=2, more=more)["left"])
    scenario, keys = add_chain_keys(load_scenario(path), [f"left={files['left']}"])
    return Node(scenario, lake or str(folder / "lake"), BlockPace(0, on_demand=True), keys=keys)


@pytest.mark.parametrize("options", ["", 'certification = "threshold"'])
def test_lakes_with_file_keys_exchange_and_reexecute_without_them(
    tmp_path: Path, files: dict[str, Path], capsys: pytest.CaptureFixture[str], options: str
) -> None:
    lakes = Lakes(tmp_path, texts(files, calls=4, options=options), files)
    try:
        lakes.until_idle()
        lakes.check(4)
        assert lakes.refusals("left") == lakes.refusals("right") == []
        status = lakes.nodes["left"].views.status()["chains"]
        assert [chain["public_key"] for chain in status] == [read_chain_key(files[own]).public.hex() for own in ENDS]
        _, encoded = lakes.nodes["left"].opened.header("left", 3)
    finally:
        lakes.close()
    certification = decode_certification(encoded)
    verify_state_root(certification.root_hash, certification.signature, read_chain_key(files["left"]).public)
    with pytest.raises(InvalidSignature):
        verify_state_root(certification.root_hash, certification.signature, derive_public_key(SEEDS["left"], 0))
    secret = read_chain_key(files["left"]).seed
    stored = b"".join(path.read_bytes() for path in (tmp_path / "left").rglob("*") if path.is_file())
    assert secret not in stored and secret.hex().encode() not in stored
    files["left"].unlink()
    with pytest.raises(SystemExit) as ended:
        main(["check", "--execute", str(tmp_path / "left")])
    assert ended.value.code == 0 and ": identical" in capsys.readouterr().out


def test_recorded_certifications_are_verified_on_reexecution(
    tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with node_of(tmp_path, files) as node:
        for _ in range(3):
            node.produce()
    recorded = replay._certifications

    def other_signature(value: bytes) -> bytes:
        signature = decode_certification(value).signature
        return value.replace(signature, read_chain_key(files["left"]).secret.sign(b"another root"))

    def changed_by(change: Callable[[bytes], bytes]) -> Callable[[Lake, int], dict[int, bytes]]:
        def read(lake: Lake, height: int) -> dict[int, bytes]:
            shown = recorded(lake, height)
            return {chain: change(value) for chain, value in shown.items()} if height == 2 else shown

        return read

    differs = DifferingHeight(2, ("left",), "headers", DifferenceReason.ROWS, "certification")
    for change in (lambda value: b"", other_signature):
        monkeypatch.setattr(replay, "_certifications", changed_by(change))
        assert LakeRecheck(open_lake(str(tmp_path / "lake"))).execute(0, 3) == differs


def test_older_copy_of_a_lake_certifies_nothing(tmp_path: Path, files: dict[str, Path]) -> None:
    with node_of(tmp_path, files) as node:
        node.produce()
        shutil.copytree(tmp_path / "lake", tmp_path / "copy")
        for _ in range(2):
            node.produce()
    with pytest.raises(SignedAlready, match=r"left\.key\.signed: left has signed height 3, but .* ends at height 1"):
        node_of(tmp_path, files, str(tmp_path / "copy"))
    with node_of(tmp_path, files) as node:
        node.produce()
        assert node.network.height == 4


def test_block_signed_before_a_kill_is_reproduced(
    tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(self: Lake, manifest: Any) -> None:
        raise Killed

    # During its halt, the subnet's own height fell behind the lake's.
    halted = '\n[[faults]]\nkind = "halt"\nchain = "left"\nfrom = 1\nuntil = 2\n'
    with node_of(tmp_path, files, more=halted) as node:
        for _ in range(3):
            node.produce()
        monkeypatch.setattr(Lake, "commit", killed)
        with pytest.raises(Killed):
            node.produce()
        monkeypatch.undo()
    mark = json.loads((tmp_path / "left.key.signed").read_text())["chains"]["left"]
    assert mark["height"] == 4
    with node_of(tmp_path, files, more=halted) as node:
        assert node.network.height == 4
        _, own = header_of(node)
        assert own < 4
    assert json.loads((tmp_path / "left.key.signed").read_text())["chains"]["left"] == mark
    # The lake records its scenario, faults included.
    scenario, keys = add_chain_keys(serve._scenario(str(tmp_path / "lake"), None, (), {}), [f"left={files['left']}"])
    with Node(scenario, str(tmp_path / "lake"), BlockPace(0, on_demand=True), keys=keys) as node:
        node.produce()


def header_of(node: Node) -> tuple[bytes, int]:
    """Return the root and the number in the last header of the left subnet."""
    row = node.network.lake.log_rows("headers", node.network.manifest)[0].to_pylist()[0]
    return row["root"], row["number"]


def test_lake_is_not_continued_without_its_key(tmp_path: Path, files: dict[str, Path]) -> None:
    with node_of(tmp_path, files) as node:
        node.produce()
        scenario = node.scenario
    with pytest.raises(InvalidInput, match=r"options\.chain_keys\.left: its secret key is in a file: .*left=FILE"):
        LakeNetwork(scenario, str(tmp_path / "lake"), resume=True)
    with pytest.raises(LakeError, match=r"options\.chain_keys"):
        LakeNetwork(load_scenario(tmp_path / "left.toml"), str(tmp_path / "lake"), resume=True)
    assert drawn_keys(load_scenario(tmp_path / "left.toml")) and not drawn_keys(scenario)


def test_invalid_key_files_are_rejected(tmp_path: Path, files: dict[str, Path]) -> None:
    path = tmp_path / "left.toml"
    path.write_text(texts(files)["left"])
    scenario = load_scenario(path)
    write_key(tmp_path / "user.key", AccountKey.generate())
    left = files["left"]
    for given, error in (
        (["left"], "write it as CHAIN=FILE"),
        ([f"middle={left}"], '"middle": no such chain'),
        ([f"right={left}"], '"right": no such chain'),
        ([f"left={left}", f"left={left}"], "left: given twice"),
        ([f"left={tmp_path / 'user.key'}"], "holds no key of a chain; make one with: causeway key new --chain"),
        ([f"left={tmp_path / 'none.key'}"], "cannot be read"),
    ):
        with pytest.raises(InvalidInput, match=error):
            add_chain_keys(scenario, given)
    listing, _ = add_chain_keys(scenario, [f"left={left}"])
    with pytest.raises(InvalidInput, match=r"right\.key: holds another key than options\.chain_keys lists for left"):
        add_chain_keys(listing, [f"left={files['right']}"])
    with pytest.raises(InvalidInput, match="holds the key of a chain"):
        read_key(left)
    left.chmod(0o644)
    with pytest.raises(InvalidInput, match="chmod 600"):
        add_chain_keys(scenario, [f"left={left}"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ('chain_keys = { left = "ab" }', r"options\.chain_keys\.left: .*must be 192 hexadecimal digits"),
        (f'chain_keys = {{ left = "c0{"00" * 95}" }}', r"options\.chain_keys\.left: .*identity"),
        ('chain_keys = { right = "KEY" }', r"options\.chain_keys\.right: this lake runs no chain of that name"),
    ],
)
def test_invalid_listed_keys_are_rejected(tmp_path: Path, files: dict[str, Path], options: str, text: str) -> None:
    path = tmp_path / "left.toml"
    key = read_chain_key(files["left"]).public.hex()
    path.write_text(scenario_text("left", options=options.replace("KEY", key)))
    with pytest.raises(InvalidInput, match=text):
        Node(load_scenario(path), str(tmp_path / "lake"))


def run(*words: str) -> int:
    """Run a command; return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_commands_create_and_print_the_key_of_a_subnet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "left.key")
    assert run("key", "new", "--chain", file) == 0
    made = capsys.readouterr().out.split()
    assert made[0] == "public" and len(made) == 2 and len(made[1]) == 192
    assert Path(file).stat().st_mode & 0o777 == 0o600
    assert run("key", "show", "--public", file) == 0 and capsys.readouterr().out.strip() == made[1]
    assert run("key", "show", "--json", file) == 0 and json.loads(capsys.readouterr().out) == {"public": made[1]}
    assert run("key", "new", "--chain", file) != 0 and "exists already" in capsys.readouterr().err
    content = json.loads(Path(file).read_text())
    Path(file).write_text(json.dumps({**content, "secret": "00" * 32}))
    assert run("key", "show", file) != 0 and "secret: a BLS12-381 secret key is" in capsys.readouterr().err


def test_public_server_rejects_seed_derived_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "left.toml"
    path.write_text(scenario_text("left"))
    words = ["serve", str(tmp_path / "lake"), "--scenario", str(path), "--public", "--port", "0"]
    assert run(*words) != 0
    assert "left: its key is drawn from the seed, so strangers could sign as it" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not (tmp_path / "lake").exists()
