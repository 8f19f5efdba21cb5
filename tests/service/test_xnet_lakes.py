"""Two lakes of subnets that exchange streams: ordered exactly-once delivery despite lying or absent nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.primitives import principal_to_text
from causeway_proofs.ic.slice import CertifiedStreamSlice, encode_certified_stream_slice

from causeway.cli import main
from causeway.config.traffic import CARRIED_SCHEMA
from causeway.core.vocabulary import Kind
from causeway.network.network import program_state
from causeway.scenarios.scenario import load_scenario
from causeway.service.ic.exchange import MOST_UNCERTIFIED
from causeway.service.ic.xnet_endpoint import LIES
from causeway.service.node.node import BlockPace, Node
from causeway.storage.lake import Freed, LakeError
from causeway.storage.vacuum import vacuum_lake
from tests.support.common.subnet_lakes import ENDS, FIRST_PORT, OTHER, Lakes, both, scenario_text

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_calls_go_both_ways_and_both_lakes_reexecute_to_their_roots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with both(tmp_path, calls=60, per_tick=20) as lakes:
        lakes.until_idle()
        lakes.check(60)
        assert lakes.refusals("left") == lakes.refusals("right") == []
        status = {own: lakes.nodes[own].views.status() for own in ENDS}
        keys = [[chain["public_key"] for chain in status[own]["chains"]] for own in ENDS]
        assert keys[0] == keys[1] and len(set(keys[0])) == 2, "each lake knows the other's key"
    for own in ENDS:
        with pytest.raises(SystemExit) as ended:
            main(["check", "--execute", str(tmp_path / own)])
        assert ended.value.code == 0
        assert ": identical" in capsys.readouterr().out


def test_lying_and_unreachable_nodes_are_skipped(tmp_path: Path) -> None:
    lying = '\n[[faults]]\nkind = "node"\ndoes = "lying"\nchain = "{0}"\nnodes = [0]'
    scenarios = {own: scenario_text(own, calls=12, per_tick=3, more=lying.format(own)) for own in ENDS}
    lakes = Lakes(tmp_path, scenarios)
    try:
        lakes.until_idle()
        lakes.check(12)
        for own in ENDS:
            failures = lakes.exchange(own).clients()[0].pulled[lakes.exchange(own).ids[1 - ENDS.index(own)]].failures
            assert set(failures) <= {"RootHashMismatch", "InvalidSignature", "InvalidDestination"}
        for own in ENDS:
            del lakes.transport.apps[FIRST_PORT[own]]
        lakes.until_idle()
    finally:
        lakes.close()


def test_lagging_node_serves_available_slices_after_a_vacuum(tmp_path: Path) -> None:
    stale = '\n[[faults]]\nkind = "node"\ndoes = "stale"\nchain = "right"\nnodes = [0]'
    scenarios = {own: scenario_text(own, calls=24, per_tick=2, more=stale if own == "right" else "") for own in ENDS}
    lakes = Lakes(tmp_path, scenarios)

    def streams(port: int) -> list[tuple[int, bytes]]:
        names = ("streams", f"stream/{principal_to_text(lakes.exchange('right').ids[0])}")

        async def ask() -> list[httpx.Response]:
            transport = httpx.ASGITransport(lakes.transport.apps[port])
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return [await client.get(f"/api/v1/{name}") for name in names]

        return [(found.status_code, found.content) for found in asyncio.run(ask())]

    lakes.settle("right")
    vacuum_lake(lakes.nodes["right"].network.lake, 0, 1)
    with pytest.raises(Freed):
        lakes.nodes["right"].opened.state_rows(lakes.nodes["right"].opened.manifest(5), "offers", 1, lambda rows: rows)
    assert streams(FIRST_PORT["right"]) == [(200, b"[]"), (204, b"")], "it has nothing yet"
    assert [status for status, _ in streams(FIRST_PORT["right"] + 1)] == [200, 200]
    for _ in range(6):
        lakes.nodes["right"].produce()
    before = streams(FIRST_PORT["right"])
    assert [status for status, _ in before] == [200, 200], "it came after"
    for _ in range(9):
        lakes.nodes["right"].produce()
    vacuum_lake(lakes.nodes["right"].network.lake, 0, 1)
    assert streams(FIRST_PORT["right"]) == before
    lakes.until_idle()
    lakes.check(24)
    lakes.close()


def carried_row(lakes: Lakes, own: str, payload: bytes, carrier: int | None = None) -> pa.Table:
    row = {"chain": ENDS.index(own), "carrier": ENDS.index(OTHER[own]) if carrier is None else carrier}
    return pa.Table.from_pylist([{**row, "payload": payload}], CARRIED_SCHEMA)


def slice_of(lakes: Lakes, source: str) -> CertifiedStreamSlice:
    """Return a subnet's slice for the other one."""
    exchange = lakes.exchange(source)
    position = ENDS.index(source)
    streams = exchange.streams[position].newest()
    return streams.encode_certified_stream_slice(exchange.ids[1 - position])


def test_delivered_slices_are_verified_in_the_block_and_rejected_by_name(tmp_path: Path) -> None:
    with both(tmp_path, calls=4) as lakes:
        lakes.settle("left")
        lakes.settle("right")
        good, right = slice_of(lakes, "left"), lakes.nodes["right"].network
        altered = [*(lie(good) for lie in LIES.values()), replace(good, certification=good.certification)]
        tick = right.manifest.tick
        for number, one in enumerate(altered):
            right.step(tick + 1 + number, carried=carried_row(lakes, "right", encode_certified_stream_slice(one)))
        data = encode_certified_stream_slice(good)
        right.step(tick + 10, carried=carried_row(lakes, "right", data))
        right.step(tick + 11, carried=carried_row(lakes, "right", data[:-1]))
        right.step(tick + 12, carried=carried_row(lakes, "right", data, carrier=77))
        right.step(tick + 13, carried=carried_row(lakes, "right", data, carrier=1))
        mismatch = "InvalidStream(RootHashMismatch)"
        assert lakes.refusals("right") == [
            mismatch,
            "InvalidStream(WitnessPruningFailed)" if good.witness == LIES["sibling"](good).witness else mismatch,
            "InvalidStream(InvalidSignature)",
            "InvalidStream(InvalidDestination)",
            mismatch,
            "UnexpectedMessages",  # the same slice again
            "InvalidStream(MalformedProof)",
            "UnknownSubnet",
            "InvalidStream(DecodeFailed)",  # own slice
        ]
        lakes.exchange("right").committed(right.manifest)
        lakes.until_idle()
        lakes.check(4)


def test_second_slice_of_a_stream_in_one_block_is_rejected(tmp_path: Path) -> None:
    with both(tmp_path, calls=4) as lakes:
        lakes.settle("left")
        lakes.settle("right")
        one = carried_row(lakes, "right", encode_certified_stream_slice(slice_of(lakes, "left")))
        right = lakes.nodes["right"].network
        right.step(right.manifest.tick + 1, carried=pa.concat_tables([one, one]))
        assert lakes.refusals("right") == ["InvalidStream(MoreThanOneSlice)"]
        lakes.exchange("right").committed(right.manifest)
        lakes.until_idle()
        lakes.check(4)


def test_no_block_is_made_for_a_slice_that_fits_in_none(tmp_path: Path) -> None:
    with both(tmp_path, calls=1, options="payload_bytes = 100") as lakes:
        assert lakes.until_idle() < 20
        assert lakes.exchange("left").pools[0].size > 100


@pytest.mark.parametrize("options", ["", "\ncertification = 'threshold'"])
def test_blocks_are_made_until_remote_needs_are_certified(tmp_path: Path, options: str) -> None:
    with both(tmp_path, calls=6, per_tick=2, options=f"certification_delay = 3{options}") as lakes:
        lakes.until_idle()
        lakes.check(6)
        assert not any(lakes.nodes[own].has_work for own in ENDS)
        lakes.nodes["left"].produce()
        assert lakes.settle("left") == 0, "of a block in which nothing happens nobody needs anything"
    scenarios = {own: (tmp_path / f"{own}.toml").read_text() for own in ENDS}
    lakes = Lakes(tmp_path, scenarios)
    assert lakes.until_idle() == 0
    lakes.close()


def test_missing_certification_causes_no_endless_blocks(tmp_path: Path) -> None:
    silent = '\n[[faults]]\nkind = "node"\ndoes = "no_share"\nchain = "left"\nnodes = [0, 1]\n'
    options = 'certification = "threshold"\nnodes = 4'
    texts = {own: scenario_text(own, calls=1, options=options, more=silent * (own == "left")) for own in ENDS}
    lakes = Lakes(tmp_path, texts)
    assert MOST_UNCERTIFIED <= lakes.settle("left") < MOST_UNCERTIFIED + 10
    lakes.close()


def test_lake_continues_with_other_node_addresses_but_not_with_another_key(tmp_path: Path) -> None:
    ports = {"left": [9105], "right": [9300, 9301, 9302]}
    with both(tmp_path, calls=3) as lakes:
        lakes.settle("left")
    path = tmp_path / "left.toml"
    path.write_text(scenario_text("left", calls=3, ports=ports))
    with Node(load_scenario(path), str(tmp_path / "left"), BlockPace(0, on_demand=True)) as node:
        exchange = node.endpoint.exchange
        assert exchange is not None and [one.port for one in exchange.addresses()] == [9105]
    key = scenario_text("left").split('public_key = "')[1].split('"')[0]
    path.write_text(path.read_text().replace(key, scenario_text("right").split('public_key = "')[1].split('"')[0]))
    with pytest.raises(LakeError, match=r"options\.remote\.right\.public_key is"):
        Node(load_scenario(path), str(tmp_path / "left"))


LIAR = "[[faults]]\nkind = 'node'\ndoes = 'lying'\nnodes = [0]\n"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("[options]\n", '[options]\ncertification = "off"\n'), "believed by their keys alone"),
        (("[options]\n", "[options]\nblocks_ahead = 2\n"), "allowed with chains of other lakes: 0"),
        (("[options.remote.right]", "[options.remote.left]"), r"options\.remote\.right: missing"),
        (("left = [", "right = ["), r"options\.listen\.right: this lake runs no chain of that name"),
        (('"127.0.0.1:9100"', '"9100"'), r'options\.listen\.left\[0\]: "9100": no address to listen at'),
        (
            ('"http://127.0.0.1:9201"', '"127.0.0.1:9201"'),
            r"remote\.right\.endpoints\[1\].* no address of a node",
        ),
        (('"http://127.0.0.1:9201"', '"http://127.0.0.1:99999"'), "no address of a node"),
        (('"http://127.0.0.1:9201"', '"http://127.0.0.1:9201/x?y=1"'), "no address of a node"),
        (
            ("[traffic]\n", f"{LIAR}chain = 'right'\n[traffic]\n"),
            "faults.0.: node of lying: another lake runs",
        ),
        (("public_key = ", "public_key = 'ab' # "), "public_key"),
        (("public_key = ", f"public_key = 'c0{'00' * 95}' # "), r"options\.remote\.right\.public_key: c00.* identity"),
        (("[traffic]\n", '[[moves]]\ntick = 3\nprogram = "echo-left"\n[traffic]\n'), "programs do not move"),
    ],
)
def test_invalid_scenarios_are_rejected_before_start(tmp_path: Path, change: tuple[str, str], text: str) -> None:
    path = tmp_path / "left.toml"
    changed = scenario_text("left").replace(*change)
    assert changed != scenario_text("left")
    path.write_text(changed)
    with pytest.raises(InvalidInput, match=text):
        Node(load_scenario(path), str(tmp_path / "left"))


def test_lake_killed_between_blocks_resumes(tmp_path: Path) -> None:
    texts = {own: scenario_text(own, calls=20, per_tick=4) for own in ENDS}
    lakes = Lakes(tmp_path, texts)
    for turn in range(6):
        for own in ENDS:
            if lakes.nodes[own].has_work:
                lakes.nodes[own].produce()
            lakes.pull(own)
        lakes.close()  # the pool is lost
        lakes = Lakes(tmp_path, texts)
        assert turn == 5 or not all(lakes.state(f"caller-{own}")["answered"] == 20 for own in ENDS)
    try:
        lakes.until_idle()
        lakes.check(20)
        requests = [row for row in lakes.rows("left") if row["kind"] == Kind.REQUEST]
        assert requests
    finally:
        lakes.close()


def test_examples_are_a_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {own: (EXAMPLES / f"xnet_{own}.toml").read_text() for own in ENDS}
    for own in ENDS:
        with pytest.raises(SystemExit) as ended:
            main(["key", "drawn", str(EXAMPLES / f"xnet_{own}.toml")])
        name, key = capsys.readouterr().out.split()
        assert (ended.value.code, name) == (0, own) and f'public_key = "{key}"' in texts[OTHER[own]]
    lakes = Lakes(
        tmp_path, {own: text.replace("[network]", '[network]\nexecutor = "in_process"') for own, text in texts.items()}
    )
    try:
        lakes.until_idle()
        for own, program, calls in (("left", "alice", 100), ("right", "bob", 40)):
            network = lakes.nodes[own].network
            state = program_state(network.lake, network.manifest, network.topology, program)
            assert (state["answered"], state["rejected"]) == (calls, 0)
    finally:
        lakes.close()


def test_keys_are_generated_only_where_subnets_certify(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["key", "drawn", str(EXAMPLES / "relay_left.toml")])
    assert ended.value.code == 2 and "keys are drawn under ic" in capsys.readouterr().err


def test_system_subnet_limits_messages_of_a_remote_subnet(tmp_path: Path) -> None:
    options = 'profile = "deployed"\nindex_base = 1\nlimit = {system_slice_messages = 3}'
    texts = {own: scenario_text(own, calls=8, options=options) for own in ENDS}
    nns = {own: text.replace('name = "right"\n', 'name = "right"\nrole = "nns"\n') for own, text in texts.items()}
    lakes = Lakes(tmp_path, nns)
    lakes.until_idle()
    lakes.check(8)
    assert lakes.refusals("right") == []
    lakes.close()
