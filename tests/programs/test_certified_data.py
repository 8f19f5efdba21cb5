"""Certified data of programs: permissions, limits, and state after a failing handler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.hash_tree import build_tree, decode_tree, digest
from causeway_proofs.ic.lookup import LookupStatus, lookup_path

from causeway.core.frame import Frame
from causeway.network.deploy import build_kernel
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.programs import Effects, Program, VectorProgram
from causeway.programs.bundled.certified_map import CertifiedMap
from causeway.programs.scalar import Context, Ingress, Request
from causeway.programs.trial import HandlerFailed, Trial
from causeway.protocols.ic.registry import registry_at
from causeway.protocols.ic.state import update_certified_data
from causeway.protocols.shared.execution import CERTIFIED_DATA_SCHEMA
from causeway.proving.ic.state import get_state_at
from causeway.scenarios.scenario import load_scenario
from tests.programs.test_programs import request, run
from tests.support.ic.ic_lake import make_lake


class Notary(Program):
    """Program that certifies its input and then executes it."""

    certifies = True

    def on_ingress(self, message: Ingress, context: Context) -> None:
        data: Any = message.payload.decode() if message.method == "text" else message.payload
        context.set_certified_data(data)
        if message.method == "fail":
            raise ValueError("after all")

    def on_request(self, request: Request, context: Context) -> bytes:
        context.set_certified_data(request.payload)
        if request.method == "fail":
            raise ValueError("after all")
        return b""


class Undeclared(Notary):
    certifies = False


class Echoed(VectorProgram):
    """Program that certifies the payload of every message."""

    certifies = True

    def handle(self, batch: Frame, state: Frame) -> Effects:
        rows = np.arange(len(batch))
        return Effects(state, certified=Frame({"row": rows, "data": batch["payload"]}, len(batch)))


class UndeclaredEcho(Echoed):
    certifies = False


def last_set(program: type[Any], installed: int, *messages: dict[str, Any]) -> dict[int, bytes]:
    """Return the data last set by each instance in one round."""
    given = run({"p": program}, dict.fromkeys(range(installed), "p"), *messages).certified
    return dict(zip(given["program"].tolist(), given["data"].to_pylist(), strict=True))


def test_certified_data_persists_until_set_again() -> None:
    trial = Trial(Notary)
    assert trial.certified_data is None
    trial.ingress("set", b"one")
    trial.ingress("set", b"")
    assert trial.certified_data == b""


def test_raising_handler_sets_nothing() -> None:
    trial = Trial(Notary)
    trial.ingress("set", b"kept")
    with pytest.raises(HandlerFailed):
        trial.ingress("fail", b"lost")
    trial.request(1, "fail", b"lost")
    assert trial.certified_data == b"kept"


def test_data_has_at_most_32_bytes() -> None:
    trial = Trial(Notary)
    trial.ingress("set", bytes(32))
    with pytest.raises(
        HandlerFailed, match="CertifiedDataTooLong: certified data has 33 bytes, at most 32 are allowed"
    ):
        trial.ingress("set", bytes(33))
    with pytest.raises(HandlerFailed, match="TypeError: certified data is str, allowed: bytes"):
        trial.ingress("text", b"text")
    assert trial.certified_data == bytes(32)


def test_undeclared_class_cannot_set_certified_data() -> None:
    with pytest.raises(HandlerFailed, match=r"CertifiedDataNotDeclared: .* declares certifies = True"):
        Trial(Undeclared).ingress("set", b"one")


@pytest.mark.parametrize("program", [Notary, Echoed], ids=["scalar", "vector"])
def test_both_forms_return_the_data_last_set_by_each_program(program: type[Any]) -> None:
    messages = [request(9, 0, b"a"), request(9, 0, b"b"), request(9, 1, bytes(33)), request(9, 2, b"c")]
    assert last_set(program, 3, *messages) == {0: b"b", 2: b"c"}


def test_undeclared_vector_class_is_rejected() -> None:
    execution = run({"p": UndeclaredEcho}, {0: "p"}, request(9, 0, b"a"))
    assert len(execution.certified) == 0
    assert execution.produced["payload"].to_pylist()[0].startswith(b"CertifiedDataNotDeclared: ")


def rows(*given: tuple[int, bytes]) -> Frame:
    table = pa.Table.from_pylist([{"program": number, "data": data} for number, data in given], CERTIFIED_DATA_SCHEMA)
    return Frame({"program": table["program"].to_numpy(), "data": table["data"].combine_chunks()}, len(given))


def test_table_lists_the_latest_data_per_canister_in_order() -> None:
    before = rows((2, b"two"), (5, b"five"))
    after = update_certified_data(before, rows((5, b"new"), (9, b"nine"), (3, b"x"), (9, b""), (5, b"newer")))
    assert after["program"].tolist() == [2, 3, 5, 9]
    assert after["data"].to_pylist() == [b"two", b"x", b"newer", b""]
    assert update_certified_data(before, rows()) is before


def test_certified_map_entry_is_proved_under_its_data() -> None:
    trial = Trial(CertifiedMap)
    for entry in (b"apple=1", b"pear=2=3", b"plum=", b"apple=4"):
        trial.ingress("put", entry)
    trial.ingress("remove", b"plum")
    shown = {}
    for key in (b"apple", b"pear", b"plum"):
        (answer,) = trial.request(1, "get", key)
        found = cbor2.loads(answer.payload)
        tree = decode_tree(found["witness"])
        assert digest(tree) == trial.certified_data
        at = lookup_path(tree, (key,))
        shown[key] = at.value if at.status is LookupStatus.FOUND else at.status
        assert found["value"] == (at.value if at.status is LookupStatus.FOUND else None)
    assert shown == {b"apple": b"4", b"pear": b"2=3", b"plum": LookupStatus.ABSENT}


def test_certified_map_rejects_unknown_keys() -> None:
    trial = Trial(CertifiedMap)
    for method, payload in (("put", b"no separator"), ("drop", b"a")):
        with pytest.raises(HandlerFailed, match="ValueError"):
            trial.ingress(method, payload)
    assert trial.certified_data is None


SCENARIO = """
[network]
protocol = "{protocol}"
[[chains]]
name = "left"
[[chains]]
name = "right"
[[programs]]
name = "map"
chain = "left"
program = "certified_map"
[traffic]
source = "script"
"""


def test_uncertified_chains_reject_certifying_programs(tmp_path: Path) -> None:
    file = tmp_path / "map.toml"
    for protocol in ("ic", "ibc"):
        file.write_text(SCENARIO.format(protocol=protocol))
        scenario = load_scenario(str(file))
        topology = scenario.topology(scenario.traffic(str(tmp_path)))
        if protocol == "ic":
            assert build_kernel(scenario, topology).tables()
            continue
        said = 'program "certified_map" certifies data, which chains of the protocol ibc do not certify; those of ic do'
        with pytest.raises(InvalidInput, match=f"programs.*: {said}"):
            build_kernel(scenario, topology)


MOVING = """
[[programs]]
name = "bare"
chain = "middle"
program = "certified_map"
[[moves]]
tick = 5
program = "fruit"
chain = "right"
[[moves]]
tick = 7
program = "fruit"
"""


@pytest.mark.parametrize("certification", ["bls", "off"])
def test_data_moves_with_its_canister_and_ends_with_it(tmp_path: Path, certification: str) -> None:
    opened = open_lake(make_lake(tmp_path, more=MOVING, certification=certification))
    manifests = {opened.manifest(height).tick: opened.manifest(height) for height in opened.lake.heights()}
    found = {}
    for tick in (1, 4, 5, 6, 7):
        for position, chain in enumerate(opened.names):
            registry = registry_at(opened.topology, tick)
            rows = opened.state_rows(manifests[tick], "certified_data", position, registry.last_hosts)
            found[tick, chain] = dict(zip(rows["program"].tolist(), rows["data"].to_pylist(), strict=True))
    red, both = (digest(build_tree(entries)) for entries in ({b"apple": b"red"}, {b"apple": b"red", b"plum": b"blue"}))
    left = {tick: found[tick, "left"] for tick in (1, 4, 5, 6, 7)}
    assert left == {1: {2: red}, 4: {2: both}, 5: {}, 6: {}, 7: {}}
    assert [found[tick, "right"] for tick in (4, 5, 6, 7)] == [{}, {2: both}, {2: both}, {}]
    assert not any(found[tick, "middle"] for tick in (1, 4, 5, 6, 7))
    if certification == "bls":
        assert get_state_at(opened, "right", manifests[6].height).certified_data("fruit").value == both
        for chain, tick, why in (("left", 6, "is not on left"), ("right", 7, "is not on right")):
            with pytest.raises(InvalidInput, match=f"program: fruit: {why} at height"):
                get_state_at(opened, chain, manifests[tick].height).certified_data("fruit")


def test_uncertified_data_enters_only_its_subnets_root(tmp_path: Path) -> None:
    roots = {}
    for partitions in (1, 3):
        for data in ("red", "blue", ""):
            folder = tmp_path / f"{partitions}{data}"
            folder.mkdir()
            opened = open_lake(folder_lake(folder, partitions, data))
            roots[partitions, data] = [opened.header(name, 1)[0] for name in opened.names]
    assert roots[1, "red"] == roots[3, "red"]
    (red, blue, none) = (roots[1, data] for data in ("red", "blue", ""))
    changed = [name for name, *of in zip(opened.names, red, blue, none, strict=True) if len(set(of)) > 1]
    assert changed == ["left"]
    assert len({root[0] for root in (red, blue, none)}) == 3


class Quiet(Program):
    """Stateless program that certifies its input."""

    certifies = True

    def on_ingress(self, message: Ingress, context: Context) -> None:
        if message.payload:
            context.set_certified_data(message.payload)


def folder_lake(folder: Path, partitions: int, data: str) -> str:
    """Build an uncertified lake of one height in which a program on ``left`` received ``data``."""
    network = f'executor = "in_process"\npartitions = {partitions}\n[options]\ncertification = "off"\n'
    text = SCENARIO.format(protocol="ic").replace("[[chains]]", f"{network}[[chains]]", 1)
    text = text.replace('"certified_map"', '"tests.programs.test_certified_data:Quiet"')
    file = folder / "scenario.toml"
    file.write_text(f'{text}[[traffic.send]]\ntick = 0\nto = "map"\nmethod = "set"\ntext = "{data}"\n')
    with LakeNetwork.from_scenario(file, lake=str(folder / "lake")) as ran:
        ran.run(1)
    return str(folder / "lake")
