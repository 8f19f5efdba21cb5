"""Light clients in runs: validator changes, monitoring of forks, and recovery by a zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.tendermint.trust import decode_misbehaviour
from causeway_proofs.wire import ibc_queue_pb2 as wire
from pydantic import ValidationError

from causeway.core.vocabulary import Event, Via
from causeway.network.network import LakeNetwork
from causeway.protocols.ibc.calls.misbehaviour import submit_misbehaviour
from causeway.protocols.ibc.client import _signed, build_evidence, certify, conflicting_header, seats_at, validators_at
from causeway.protocols.ibc.keys import QueuePurpose, index_key
from causeway.protocols.ibc.options import IbcOptions, RotationOptions
from causeway.protocols.ibc.packets import decode_packet
from causeway.tick import bucket
from tests.support.ibc.ibc_calls import SILENT, A, B, Net
from tests.support.ibc.ibc_network import TICK_NS

ROTATING: dict[str, Any] = {"validators": 10, "rotation": {"every": 1, "replace": 1}}
"""Two blocks of the ten need seven members that are in both: three heights can be skipped over, four cannot."""


STRANGERS = (5, 9)
"""Users who bring headers and evidence here; no relayer has these numbers."""


def rejection_reasons(net: Net) -> Counter[str]:
    """Return the rejections of the last block on B."""
    return Counter(reason for zone, reason in net.refusals() if zone == "B")


# ---- validator sets that change


def test_validator_seats_rotate_in_a_sampled_order() -> None:
    options = IbcOptions(validators=7, rotation=RotationOptions(every=3, replace=2))
    for name in ("A", "B"):
        for height in range(0, 60):
            before, after = (seats_at(5, name, at, options) for at in (height, height + 1))
            changed = [after[seat] - before[seat] for seat in range(7) if after[seat] != before[seat]]
            assert changed == ([1, 1] if (height + 1) % 3 == 0 else []) and max(after) - min(after) <= 1
    assert len({seats_at(5, name, 3, options) for name in ("A", "B", "C", "D")}) > 1
    assert validators_at(5, "A", 2, options)[0].hash == validators_at(5, "A", 0, options)[0].hash
    assert validators_at(5, "A", 3, options)[0].hash != validators_at(5, "A", 0, options)[0].hash


def test_replacing_over_a_third_at_once_is_rejected() -> None:
    with pytest.raises(ValidationError, match="replace = 2 of 4 validators; allowed: a third of them at most"):
        IbcOptions(validators=4, rotation=RotationOptions(every=1, replace=2))
    IbcOptions(validators=3, rotation=RotationOptions(every=1, replace=1))
    IbcOptions(validators=1, rotation=RotationOptions(every=0, replace=1))


def test_relayers_bisect_to_an_unknown_header() -> None:
    # For six blocks nobody delivers headers of A to B: then all validators have been replaced, some twice.
    net = Net(ROTATING, blocks=20, carriers=(("drop", "A", "B", 2, 7, None),)).ask().next(3)
    assert net.view()["B"]["trust"]["A"] == [0, 1]
    net.ask().next(5)
    assert net.view()["B"]["trust"]["A"] == [0, 1] and len(net.seen(B)) == 1
    net.next()
    # 8 on 1 is unknown, so 4; 8 on 4 is unknown, so 6.
    assert rejection_reasons(net) == {"NeedIntermediateHeader": 2}
    assert net.view()["B"]["trust"]["A"] == [0, 1, 4, 6, 8] and len(net.seen(B)) == 2
    assert net.state.relayers["headers"][1] == 1 + 5, "every header that was tried is paid for: 8, 4, 8, 6, 8"


SCENARIO = """
[network]
protocol = "ibc"
executor = "in_process"
partitions = 2
{options}
[[chains]]
name = "north"
[[chains]]
name = "east"
[[programs]]
name = "caller"
chain = "north"
program = "caller"
[[programs]]
name = "echo"
chain = "east"
program = "echo"
{faults}
[traffic]
source = "script"
"""


def run_on_lake(folder: Path, sends: Sequence[int], options: str, faults: str) -> LakeNetwork:
    """Run on a lake: the caller on north asks the echo on east at these ticks."""
    call = 'to = "caller"\ncall = { receiver = "echo", method = "echo", text = "x" }'
    told = "".join(f"[[traffic.send]]\ntick = {tick}\n{call}\n" for tick in sends)
    (folder / "scenario.toml").write_text(SCENARIO.format(options=options, faults=faults) + told)
    bucket.forget_states()
    net = LakeNetwork.from_scenario(folder / "scenario.toml", lake=str(folder / "lake"))
    net.run()
    return net


def event_reasons(net: LakeNetwork) -> list[tuple[int, str]]:
    """Return (tick, reason) of every rejection in the events of a lake."""
    rows = [row for path in net.lake.log_files("events") for row in net.lake.storage.read_table(path).to_pylist()]
    return sorted((row["tick"], row["reason"]) for row in rows if row["reason"] and not row["events"] & Event.RELAYED)


def test_intermediate_headers_are_read_from_the_lake(tmp_path: Path) -> None:
    options = "[options]\nvalidators = 10\n[options.rotation]\nevery = 1\n"
    drop = '[[faults]]\nkind = "drop"\nsource = "north"\ndestination = "east"\nfrom = 2\nuntil = 7\n'
    net = run_on_lake(tmp_path, [0, 3], options, drop)
    assert net.program_state("caller")["answered"] == 2
    # The packet finds one client expired, its receipt the other one block later.
    assert event_reasons(net) == [(8, "NeedIntermediateHeader")] * 2 + [(9, "NeedIntermediateHeader")] * 2


# ---- forks


def notices(net: Net) -> list[tuple[str, str, int, int, str]]:
    """Return (zone, counterparty, remote height, relayer, event) of client events in the last block."""
    rows = net.events()
    mine = np.isin(rows["reason"].to_pylist(), ["Frozen", "Recovered"])
    rows = rows.filter(mine & (rows["events"] == Event.ACKNOWLEDGED))
    assert rows["via"].tolist() == [Via.INGRESS if user in STRANGERS else Via.NONE for user in rows["sender"].tolist()]
    columns = (rows[name].tolist() for name in ("chain", "source", "index", "sender"))
    rows_of = zip(*columns, rows["reason"].to_pylist(), strict=True)
    return [(net.names[chain], net.names[remote], *rest) for chain, remote, *rest in rows_of]


def test_relayers_observing_a_fork_freeze_its_connections() -> None:
    net = Net({"relayers": ("one", "two")}, forks=(("A", 2),)).ask().next(2)
    net.ask().next()
    assert notices(net) == [("B", "A", 2, 0, "Frozen"), ("C", "A", 2, 0, "Frozen")]
    accounts = {(chain, relayer): wasted for chain, relayer, wasted in zip(
        *(net.state.relayers[name].tolist() for name in ("chain", "relayer", "wasted")), strict=True)}  # fmt: skip
    assert accounts[2, 0] == 0 and accounts[2, 1] == 100, "the second comes too late"
    assert net.view()["B"]["frozen"] == net.view()["C"]["frozen"] == {"A"} and net.view()["A"]["frozen"] == set()
    assert net.next(3).seen(B) == net.seen(B)[:1] and rejection_reasons(net) == {}, (
        "nobody pays for a connection that is frozen"
    )


@pytest.mark.parametrize(("coordination", "who"), [("leader", [0]), ("partition", [0, 1])])
def test_relayers_share_fork_monitoring(coordination: str, who: list[int]) -> None:
    options = {"relayers": ("one", "two"), "relay": {"coordination": coordination}}
    net = Net(options, forks=(("A", 2), ("B", 2))).next(3)
    assert sorted({relayer for *_, relayer, _ in notices(net)}) == who
    assert len(notices(net)) == 4 and net.refusals() == []


def test_fork_after_many_changes_is_proved_through_intermediate_headers() -> None:
    silent = (("drop", "A", "B", 1, 10, None),)
    net = Net(ROTATING, blocks=20, carriers=silent, forks=(("A", 8),)).next(9)
    assert net.view()["B"]["frozen"] == {"A"} and rejection_reasons(net)["NeedIntermediateHeader"] >= 2
    assert notices(net)[0] == ("B", "A", 8, 0, "Frozen")


def evidence(net: Net, first: bytes, second: bytes, remote: str = "A") -> wire.Call:
    return wire.Call(misbehaviour=wire.SubmitMisbehaviour(remote=remote, misbehaviour=build_evidence(first, second)))


def test_external_evidence_is_validated() -> None:
    net = Net(carriers=SILENT, blocks=20).next(4)
    at = net.names.index("A")
    signed = {height: rows["certification"][at].as_py() for height, rows in net.past_headers.items()}
    context = net.kernel.context(net.groups[0], net.tick)
    fork = conflicting_header(signed[3], at, context)
    stranger = conflicting_header(net.headers["certification"][net.names.index("C")].as_py(), 2, context)
    late = _signed(at, 2, (10 + 1) * TICK_NS, bytes(32), context)
    for calls, outcome in (
        (evidence(net, signed[3], signed[3]), "InvalidMisbehaviour"),
        (evidence(net, signed[3], signed[2]), "InvalidMisbehaviour"),
        (evidence(net, signed[2], signed[3]), "InvalidMisbehaviour"),
        (evidence(net, signed[3], signed[2], "nobody"), "UnregisteredSender"),
        (evidence(net, signed[4], stranger), "InvalidHeader"),
        (wire.Call(misbehaviour=wire.SubmitMisbehaviour(remote="A", misbehaviour=b"x")), "InvalidMisbehaviour"),
    ):
        assert net.bring("B", calls) == [outcome]
    assert net.view()["B"]["frozen"] == set() and net.view()["B"]["trust"]["A"] == [0]
    assert net.bring("B", evidence(net, signed[3], late), user=5) == [], "the higher one is not the later one"
    assert notices(net) == [("B", "A", 3, 5, "Frozen")]
    assert net.bring("C", evidence(net, fork, signed[3]), user=5) == []
    assert net.view()["B"]["frozen"] == net.view()["C"]["frozen"] == {"A"}
    assert net.bring("C", evidence(net, fork, signed[3])) == ["ConnectionFrozen"]


def test_evidence_is_parsed_once() -> None:
    net = Net(carriers=SILENT, blocks=20).next(2)
    header = net.headers["certification"][net.names.index("A")].as_py()
    fork = conflicting_header(header, net.names.index("A"), net.kernel.context(net.groups[0], net.tick))
    with patch(f"{submit_misbehaviour.__module__}.decode_misbehaviour", wraps=decode_misbehaviour) as parsed:
        assert net.bring("B", evidence(net, header, fork)) == []
    assert parsed.call_count == 1


def test_conflicting_header_freezes_and_a_repeated_one_has_no_effect() -> None:
    net = Net(carriers=SILENT, blocks=20).next(2)
    header = net.update("A")
    assert net.bring("B", header, header) == []
    assert net.view()["B"]["trust"]["A"] == [0, 2] and notices(net) == []
    fork = conflicting_header(header.update.header, net.names.index("A"), net.kernel.context(net.groups[0], net.tick))
    assert net.bring("B", wire.Call(update=wire.UpdateHeader(remote="A", header=fork)), user=9) == []
    assert notices(net) == [("B", "A", 2, 9, "Frozen")]
    assert "HeaderAdded" not in net.events()["reason"].to_pylist()


# ---- recovery


def test_zone_recovers_a_frozen_connection() -> None:
    net = Net(forks=(("A", 2),), recoveries=(("B", "A", 6),), blocks=20).ask().next(2)
    net.ask().next(4)
    assert net.view()["B"]["frozen"] == {"A"} and len(net.seen(B)) == 1
    net.next()
    assert notices(net) == [("B", "A", 6, 0, "Recovered")]
    assert net.view()["B"]["frozen"] == set() and net.view()["B"]["trust"]["A"] == [6], "none of both forks"
    net.next(3)
    assert len(net.seen(B)) == 2 and net.view()["C"]["frozen"] == {"A"}


def test_zone_recovers_an_expired_client() -> None:
    drop = (("drop", "A", "B", 2, 12, None),)
    net = Net({"unbonding_seconds": 3.0}, carriers=drop, recoveries=(("B", "A", 15),), blocks=30).ask().next(2)
    net.ask().next(13)
    assert net.view()["B"]["trust"]["A"][-1] == 1 and len(net.seen(B)) == 1
    net.next()
    assert notices(net) == [("B", "A", 15, 0, "Recovered")]
    for _ in range(70):  # constantly rejected relayers retry eventually
        net.next()
        if len(net.seen(B)) == 2:
            break
    assert len(net.seen(B)) == 2


def test_recovery_without_a_starting_header_is_rejected() -> None:
    net = Net(recoveries=(("B", "A", 0),)).next()
    assert net.refusals() == [("B", "MissingHeader")] and notices(net) == []


def test_disconnection_continues_after_a_recovery() -> None:
    decided: dict[str, Any] = {"disconnects": (("A", "B", 1),), "recoveries": (("B", "A", 6), ("A", "B", 6))}
    net = Net(forks=(("A", 4), ("B", 4)), blocks=20, **decided).ask().next(6)
    assert net.view()["A"]["frozen"] == {"B"} and net.view()["B"]["frozen"] == {"A"}
    net.next()
    assert net.view()["A"]["disconnecting"] == {"B"} and net.view()["B"]["disconnecting"] == {"A"}
    net.ask().next()
    assert ("A", "ConnectionFrozen") in net.refusals(), "no send"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ('chain = "north"\ncounterparty = "north"\ntick = 1', "must differ from chain"),
        ('chain = "north"\ncounterparty = "nowhere"\ntick = 1', "nowhere"),
    ],
)
def test_recovery_of_unknown_zones_is_rejected(tmp_path: Path, fault: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        run_on_lake(tmp_path, [0], "", f'[[faults]]\nkind = "recover"\n{fault}\n')


def test_recovery_of_unconnected_zones_is_rejected() -> None:
    with pytest.raises(InvalidInput, match=r"faults\[0\]: recover: A and C are not connected"):
        Net({"connections": (("A", "B"),)}, recoveries=(("A", "C", 3),))


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_later_packet_may_expire_before_an_earlier_one_after_recovery(order: str) -> None:
    """B trusted a header of A far ahead for the first packet, and resumes from a lower one."""
    options = {"order": order, "timeouts": "on", "timeout_blocks": 3, "acknowledgements": "synchronous"}
    silent = (("drop", "B", "A", 0, 10**6, None),)
    net = Net(options, carriers=silent, recoveries=(("B", "A", 4),), blocks=40).next(2)
    ahead = replace(net.kernel.context(np.array([0], dtype=np.uint32), net.tick), height=20)
    header = certify(np.zeros((1, 32), dtype=np.uint8), ahead)[0].as_py()
    net.say("B", B, ("call", A, "echo", b"first", 0, None))
    assert net.bring("B", wire.Call(update=wire.UpdateHeader(remote="A", header=header))) == []
    assert net.view()["B"]["trust"]["A"] == [0, 20]
    net.next(2).say("B", B, ("call", A, "echo", b"second", 0, None)).next()
    limits = [
        decode_packet(net.stores[net.height]["B"][index_key("A", QueuePurpose.SEND, at)]).max_height for at in (0, 1)
    ]
    assert limits == [23, 7] and net.view()["B"]["frozen"] == set()
    net.next(14)
    gone = [] if order == "ordered" else [[1, 2]]
    assert [row[:2] for row in net.seen(B)] == gone, "the first is in time until height 23"
    net.next(7)
    assert sorted(row[:2] for row in net.seen(B)) == [[0, 2], [1, 2]]
