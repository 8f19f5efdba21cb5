"""Networks of the Internet Computer protocol in process: limits of programs, faults and numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession

from causeway.core.frame import Frame
from causeway.core.vocabulary import Event
from causeway.dataframes.lake_tables import LakeTables
from causeway.network.network import LakeNetwork
from causeway.programs import Effects, Program, VectorProgram
from causeway.programs.scalar import Context, Ingress, Request
from causeway.tick import bucket

HERE = "tests.programs.test_ic_networks"
BASE = '[network]\nprotocol = "ic"\nexecutor = "in_process"\n' + "".join(f'[[chains]]\nname = "{c}"\n' for c in "ABC")
CALLER = '[[programs]]\nname = "caller"\nchain = "A"\nprogram = "caller"\nbalance = 1000\n'
ECHO = '[[programs]]\nname = "echo"\nchain = "B"\nprogram = "echo"\n'
SCRIPT = '[traffic]\nsource = "script"\n'
NETWORK = BASE + CALLER + ECHO


class Leaves(Program):
    """Program that raises a ``BaseException``."""

    def on_request(self, request: Request, context: Context) -> bytes:
        sys.exit(3)


class Loose(VectorProgram):
    """Program whose initial state column violates its schema type."""

    schema: ClassVar[pa.Schema] = pa.schema(
        [pa.field("program", pa.uint64(), nullable=False), pa.field("seen", pa.uint32(), nullable=False)]
    )

    def initial_state(self, instances: Any) -> Frame:
        return Frame({"program": instances, "seen": np.zeros(len(instances), dtype=np.int64)})

    def handle(self, batch: Frame, state: Frame) -> Effects:
        return Effects(state)


class Mean(VectorProgram):
    """Program with a float in its state."""

    schema: ClassVar[pa.Schema] = pa.schema(
        [pa.field("program", pa.uint64(), nullable=False), pa.field("mean", pa.float64(), nullable=False)]
    )


class Hoard(Program):
    """Program that accepts every amount and pays it out on user request."""

    def on_request(self, request: Request, context: Context) -> tuple[bytes, int]:
        return b"", request.amount

    def on_ingress(self, message: Ingress, context: Context) -> None:
        context.call(int(message.payload), "take", amount=context.balance)


def program(name: str, chain: str, of: str, balance: int = 0) -> str:
    return f'[[programs]]\nname = "{name}"\nchain = "{chain}"\nprogram = "{of}"\nbalance = "{balance}"\n'


def call(to: str = "echo", *, tick: int = 0, count: int = 1) -> str:
    content = f'{{ receiver = "{to}", method = "m", text = "hi" }}'
    return f'[[traffic.send]]\ntick = {tick}\nto = "caller"\ncount = {count}\ncall = {content}\n'


def send(to: str, text: str, *, tick: int = 0) -> str:
    return f'[[traffic.send]]\ntick = {tick}\nto = "{to}"\nmethod = "go"\ntext = "{text}"\n'


def opened(folder: Path, text: str, overrides: dict[str, str] | None = None, *, resume: bool = False) -> LakeNetwork:
    folder.mkdir(exist_ok=True)
    (folder / "s.toml").write_text(text)
    return LakeNetwork.from_scenario(folder / "s.toml", overrides or {}, lake=str(folder / "lake"), resume=resume)


def rows(net: LakeNetwork, table: str) -> list[dict[str, Any]]:
    return [row for path in net.lake.log_files(table) for row in net.lake.storage.read_table(path).to_pylist()]


def root(net: LakeNetwork) -> str:
    return LakeTables(None, net.lake).root()  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_state_kept() -> Iterator[None]:
    bucket._STATES.clear()
    yield
    bucket._STATES.clear()


# ---- programs


def test_program_state_has_one_root_from_memory_or_storage(tmp_path: Path) -> None:
    text = BASE + CALLER + ECHO + program("loose", "B", f"{HERE}:Loose") + SCRIPT + call(count=3)
    straight = opened(tmp_path / "one", text)
    straight.run()
    opened(tmp_path / "two", text).run(ticks=1)
    bucket._STATES.clear()
    resumed = opened(tmp_path / "two", text, resume=True)
    resumed.run()
    assert root(resumed) == root(straight)


def test_float_program_state_is_rejected_at_deployment(tmp_path: Path) -> None:
    text = BASE + CALLER + program("echo", "B", f"{HERE}:Mean") + SCRIPT + call()
    with pytest.raises(InvalidInput, match="column mean is of type double; allowed: "):
        opened(tmp_path, text)


def test_balance_beyond_128_bits_does_not_end_the_network(tmp_path: Path) -> None:
    start = 10**38 - 1
    hoards = "".join(program(f"h{place}", "ABC"[place % 3], f"{HERE}:Hoard", start) for place in range(5))
    net = opened(tmp_path, BASE + hoards + SCRIPT + "".join(send(f"h{place}", "4", tick=place) for place in range(4)))
    net.run()
    manifest = net.lake.manifest(net.height)
    states = [row for table in net.lake.state(manifest, "accounts") for row in table.to_pylist()]
    words = ("balance_over", "balance_high", "balance_low")
    held = [sum(row[word] << 64 * (2 - place) for place, word in enumerate(words)) for row in states]
    assert sum(held) == 5 * start, "no value is lost"
    rejected = [row for row in rows(net, "events") if row["code"] == 5 and row["events"] & Event.RECEIVED]
    assert len(rejected) == 2, "the receiver holds three balances, and not more"


def test_exiting_handler_is_rejected(tmp_path: Path) -> None:
    net = opened(tmp_path, BASE + CALLER + program("echo", "B", f"{HERE}:Leaves") + SCRIPT + call())
    net.run()
    assert [row["code"] for row in rows(net, "events") if row["events"] & Event.ANSWERED] == [5]


# ---- faults


def forge(tick: int, receiver: str = "echo") -> str:
    ends = f'sender = "caller"\nreceiver = "{receiver}"'
    return f'[[faults]]\nkind = "forge"\ntick = {tick}\nchain = "C"\n{ends}\ntext = "x"\n'


def dropped_events(net: LakeNetwork) -> list[tuple[int, str]]:
    return [(row["tick"], row["reason"]) for row in rows(net, "events") if row["events"] & Event.DROPPED]


def test_forged_message_to_an_unknown_receiver_leaves_an_event(tmp_path: Path) -> None:
    nowhere = '[[programs]]\nname = "nowhere"\nprogram = "none"\n'
    net = opened(tmp_path, NETWORK + nowhere + SCRIPT + call() + forge(1, "nowhere"))
    net.run()
    assert dropped_events(net) == [(1, "forged_for_nobody")]


def test_forgery_of_a_halted_chain_leaves_an_event(tmp_path: Path) -> None:
    halt = '[[faults]]\nkind = "halt"\nchain = "C"\nfrom = 0\nuntil = 2\n'
    net = opened(tmp_path, NETWORK + SCRIPT + call() + halt + forge(1))
    net.run()
    assert dropped_events(net) == [(1, "ChainHalted")]


def test_gap_in_a_one_message_slice_is_rejected(tmp_path: Path) -> None:
    gap = '[[faults]]\nkind = "gap"\nsource = "A"\ndestination = "B"\ntick = 1\n'
    net = opened(tmp_path, NETWORK + SCRIPT + call() + gap)
    net.run()
    refused = [(row["tick"], row["reason"]) for row in rows(net, "events") if row["kind"] == 4]
    assert refused == [(1, "InvalidStream(MissingMessages)")]
    received = [row["tick"] for row in rows(net, "events") if row["kind"] == 1 and row["events"] & Event.RECEIVED]
    assert received == [2], "the honest offer of the next tick is taken"


def forged_answer(callback: int, sender: str = "echo", *, text: str = "made up", more: str = "") -> str:
    """Forge a response of B before its own answer, in the round of the first answer of ``echo``."""
    ends = f'sender = "{sender}"\nreceiver = "caller"\ncallback = {callback}\ntext = "{text}"\n'
    return f'[[faults]]\nkind = "forge"\ntick = 1\nchain = "B"\nmessage = "response"\n{ends}{more}'


def test_forged_response_is_accepted_once_and_only_for_an_open_call(tmp_path: Path) -> None:
    other = program("other", "B", "echo")
    # To an open call, and again; to none; from another callee; of another class.
    again = [forged_answer(0, more='code = 4\namount = "18446744073709551616"\n'), forged_answer(0)]
    forged = [*again, forged_answer(7), forged_answer(1, "other"), forged_answer(1, more="deadline = 9\n")]
    net = opened(tmp_path, NETWORK + other + SCRIPT + call(count=2) + "".join(forged))
    net.run()
    came = [row for row in rows(net, "events") if row["kind"] == 2 and row["chain"] == 0]
    taken = [(row["index"], row["callback"], row["code"]) for row in came if row["events"] & Event.RECEIVED]
    assert taken == [(1, 0, 4), (7, 1, 0)]
    lost = {row["index"]: row["reason"] for row in came if row["events"] & Event.DROPPED}
    assert lost == {**dict.fromkeys((2, 3, 4, 6), "NonMatchingResponse"), 5: "late_response"}
    summary = net.summary()
    counts = ("sent", "answered", "rejected", "dropped", "pending", "duplicates")
    assert [summary[name] for name in counts] == [2, 1, 1, 0, 0, 0]


def test_lost_forged_response_does_not_lose_the_call(tmp_path: Path) -> None:
    """A forgery by C in the name of ``echo`` is dropped; the call waits for the halted chain."""
    halt = '[[faults]]\nkind = "halt"\nchain = "B"\nfrom = 1\nuntil = 12\n'
    net = opened(tmp_path, NETWORK + SCRIPT + call() + halt + forged_answer(0).replace('chain = "B"', 'chain = "C"'))
    net.run(ticks=4)
    assert [reason for _, reason in dropped_events(net)] == ["sender_mismatch"]
    summary = net.summary()
    assert (summary["sent"], summary["pending"], summary["dropped"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('message = "reply"\n', "message: \"reply\": must be 'request' or 'response'"),
        ("code = 4\n", 'code = 4: a request has none; allowed with message = "response"'),
        ('message = "response"\ncode = 7\n', "code: 7: must be less than or equal to 6"),
        ('message = "response"\ncode = 4\nhex = "00"\n', "hex: with code = 4 it is a reject"),
        (f'amount = "{2**128}"\n', "must be from 0 to 2**128 - 1"),
        (f"deadline = {2**32}\n", f"deadline: {2**32}: must be less than or equal to {2**32 - 1}"),
        ("calback = 1\n", "calback: unknown key; did you mean callback?"),
    ],
)
def test_impossible_forgeries_are_rejected(tmp_path: Path, more: str, why: str) -> None:
    section = '[[faults]]\nkind = "forge"\ntick = 1\nchain = "C"\nsender = "echo"\nreceiver = "caller"\n' + more
    with pytest.raises(InvalidInput, match=re.escape(why)):
        opened(tmp_path, NETWORK + SCRIPT + call() + section)


@pytest.mark.parametrize("certification", ["bls", "off"])
def test_older_slice_is_validated_by_its_indices(tmp_path: Path, certification: str) -> None:
    """Deliver old slices: one valid in part, one obsolete.

    At tick 4 a slice certified two heights before delivers the first two of four calls that a drop delayed. At tick 6
    one from before the accepted messages is rejected.
    """

    def fault(kind: str, tick: int, more: str) -> str:
        return f'[[faults]]\nkind = "{kind}"\nsource = "A"\ndestination = "B"\n{more}\n'.replace("TICK", str(tick))

    late = fault("drop", 0, "from = 0\nuntil = 3") + fault("stale", 4, "tick = TICK\nage = 2")
    late += fault("stale", 6, "tick = TICK\nage = 5")
    traffic = call(tick=0, count=2) + call(tick=2, count=2) + call(tick=9)
    each = NETWORK.replace("[network]", "[network]\ncommit_every = 1")
    net = opened(tmp_path, each + SCRIPT + traffic + late, {"options.certification": f'"{certification}"'})
    net.run()
    events = rows(net, "events")
    taken = [(row["tick"], row["index"]) for row in events if row["kind"] == 1 and row["events"] & Event.RECEIVED]
    assert taken == [(4, 1), (4, 2), (5, 3), (5, 4), (10, 5)]
    assert [(row["tick"], row["reason"]) for row in events if row["kind"] == 4] == [(6, "UnexpectedMessages")]
    if certification != "off":
        return
    kept = [manifest for manifest in map(net.lake.manifest, net.lake.heights()) if manifest.state.get("kept_slices")]
    assert [manifest.tick for manifest in kept][-1] == 5, "nothing is kept that is not offered any more"


def test_first_index_rule_of_the_seed_is_rejected_before_it_stops_a_network(tmp_path: Path) -> None:
    replay = '[[faults]]\nkind = "replay"\nsource = "A"\ndestination = "B"\ntick = 6\n'
    text = NETWORK + SCRIPT + "".join(call(tick=tick, count=2) for tick in range(10)) + replay
    with pytest.raises(InvalidInput, match=r'first_index_rule: "seed_literal": only "unseen_only" in this version'):
        opened(tmp_path / "literal", text, {"options.first_index_rule": '"seed_literal"'})
    opened(tmp_path / "default", text).run()


# ---- numbers


@pytest.mark.parametrize(
    "overrides",
    [
        {"options.reject_every": str(2**64)},
        {"options.limits": '"deployed"', "options.limit.max_signals": str(2**64)},
        {"options.timeouts": '"on"', "options.request_lifetime_seconds": str(10**11)},
        {"options.timeouts": '"on"', "network.seconds_per_tick": "1e11"},
    ],
)
def test_oversized_number_is_rejected_by_name(tmp_path: Path, overrides: dict[str, str]) -> None:
    named = list(overrides)[-1].rpartition(".")[2]
    with pytest.raises(InvalidInput, match=named):
        opened(tmp_path, NETWORK + SCRIPT + call(count=3), overrides)


# ---- rejected ingress


def test_rejected_ingress_is_identified_by_payload_position(tmp_path: Path) -> None:
    empty = program("empty", "B", "none")
    text = (
        BASE + CALLER + ECHO + empty + SCRIPT + call() + "".join(send("empty", "", tick=tick) * 2 for tick in (0, 0, 3))
    )
    net = opened(tmp_path, text)
    net.run()
    refused = [row for row in rows(net, "events") if row["kind"] == 0 and row["events"] & Event.REJECTED]
    assert sorted((row["tick"], row["index"], row["callback"]) for row in refused) == [
        *((0, place, place) for place in (1, 2, 3, 4)),
        *((3, place, place) for place in (1, 2)),
    ]
    assert {row["queue_index"] for row in refused} == {0}


# ---- signals


def test_senders_side_reports_the_reject_reason(tmp_path: Path, spark: SparkSession) -> None:
    net = opened(tmp_path, NETWORK + SCRIPT + call(count=4), {"options.reject_every": "3"})
    net.run()
    seen = net.ledger.where("event = 'collected' and kind = 'request'").collect()
    judged = net.ledger.where("event = 'rejected' and kind = 'request'").collect()
    assert sorted((int(row["index"]), row.code, row.detail) for row in seen) == [
        (1, 0, None), (2, 0, None), (3, 1, "Unknown"), (4, 0, None)
    ]  # fmt: skip
    assert {(row.source, row.destination, row.chain) for row in seen} == {("A", "B", "A")}
    assert [(int(row["index"]), row.detail, row.chain) for row in judged] == [(3, "Unknown", "B")], (
        "G7: the signal is the verdict"
    )
