"""The valid set rule on kernel and oracle, for all messages including those of malicious subnets.

All responses are expected here; unexpected ones are compared in whole networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.ic.stream_header import RejectReason
from causeway_proofs.order import stable_order
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causeway.core.frame import from_table
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import Tick
from causeway.protocols.ic.induction import QUEUE_INDEX
from causeway.protocols.ic.input_queues import LostCause, vsr_check_xnet
from causeway.protocols.ic.messages import ACCEPT
from causeway.protocols.shared.messages import MESSAGE_COLUMNS, OUTBOUND_SCHEMA
from tests.spec import ic
from tests.spec.ic.judge import judge as judge_by_the_text
from tests.support.ic.ic_harness import KernelRun, OracleRun, Scenario
from tests.support.ic.ic_strategies import options
from tests.tiers import sized

SUBNETS = (0, 1, 256)
CANISTERS = (1, 2, 3, 4)
HOSTS = st.sampled_from([*SUBNETS, *SUBNETS, None])
LAST = 3

Streamed = tuple[int, Kind, int, int, int, int]
"""(source, kind, sender, receiver, code, the round that routed it)."""


@st.composite
def networks(draw: st.DrawFn) -> Scenario:
    """Generate moved canisters and options of all kinds."""
    canisters = {number: (draw(HOSTS), draw(st.sampled_from(["echo", "echo", None])), 0) for number in CANISTERS}
    moves = draw(st.lists(st.tuples(st.integers(1, LAST), st.sampled_from(CANISTERS), HOSTS), max_size=8))
    drawn = draw(options())
    drawn["limit"]["queue_capacity"] = draw(st.sampled_from([1, 2]))
    return Scenario(SUBNETS, canisters, drawn, moves=sorted(moves, key=lambda move: move[0]))


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(SUBNETS),
        st.sampled_from([Kind.REQUEST, Kind.RESPONSE]),
        st.sampled_from(CANISTERS),
        st.sampled_from(CANISTERS),
        st.sampled_from([0, 0, 2]),
        st.sampled_from([LAST, LAST, *range(1, LAST + 1)]),
    ),
    min_size=5,
    max_size=24,
)
"""Ten or so: what is played before them costs more than they do."""


def stream_messages(messages: list[Streamed], run: KernelRun, own: int, base: int) -> Any:
    """Return the messages as the kernel takes them on ``own``, with an index in the stream of each source."""
    lengths: dict[int, int] = {}
    rows = []
    for source, kind, sender, receiver, code, _ in messages:
        index = lengths[source] = lengths.get(source, base - 1) + 1
        row = dict.fromkeys(OUTBOUND_SCHEMA.names, 0) | {"method": "", "payload": b""}
        row |= {"source": run.numbers.index(source), "destination": run.numbers.index(own), "index": index}
        row |= {"kind": int(kind), "sender": sender, "receiver": receiver, "callback": index}
        row["code"] = code if kind == Kind.RESPONSE else 0
        rows.append(row)
    routed = np.array([one[-1] for one in messages], dtype=np.uint64)
    return from_table(pa.Table.from_pylist(rows, schema=OUTBOUND_SCHEMA)).with_columns(routed=routed)


def message_of(row: dict[str, Any]) -> ic.Request | ic.Response:
    if row["kind"] == Kind.REQUEST:
        return ic.Request(row["receiver"], row["sender"], row["callback"])
    reject = (row["code"], "") if row["code"] else None
    return ic.Response(row["receiver"], row["sender"], row["callback"], reject=reject, data=b"")


@settings(max_examples=sized(54, 600), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(networks(), st.sampled_from(SUBNETS), MESSAGES)
def test_every_message_gets_the_verdict_of_the_reference(
    scenario: Scenario, own: int, messages: list[Streamed]
) -> None:
    run, oracle = KernelRun(scenario, apart=False), OracleRun(scenario)
    for height in range(1, LAST + 1):
        run.round(Tick(height, height))
        oracle.round(height)
    context = run.kernel.context(run.groups[0], Tick(LAST + 1, LAST + 1))
    taken = stream_messages(messages, run, own, oracle.options.index_base)
    taken = taken.take(stable_order(*(taken[key] for key in QUEUE_INDEX)))
    verdicts = vsr_check_xnet(run.states[0], taken, context)
    state, held = oracle.states[own], dict[tuple[int, int], int]()
    for place in range(len(taken)):
        row = {name: int(taken[name][place]) for name in MESSAGE_COLUMNS[:-2]}
        message = message_of(row)
        queue = (message.src, message.dst)
        at = ((), int(taken["index"][place]))
        source = run.numbers[int(taken["source"][place])]
        wanted = {(message.dst, message.callback): (message.src, 0)}
        sent, requests = (source, at, message, int(taken["routed"][place])), held.get(queue, 0)
        expected = judge_by_the_text(state, oracle.registry, *sent, requests, wanted, oracle.options)
        if expected.enqueued and isinstance(message, ic.Request):
            held[queue] = requests + 1
        reason = int(verdicts.reason[place])
        found = None if reason == ACCEPT else RejectReason(reason).name
        assert found == (None if expected.verdict.reason is None else expected.verdict.reason.name), (row, source)
        cause = LostCause(int(verdicts.cause[place]))
        assert (None if cause == LostCause.NOTHING else cause.name) == expected.dropped, (row, source)
        assert (verdicts.reason[place] == verdicts.cause[place] == 0) == expected.enqueued


def test_isolated_subnet_accepts_nothing() -> None:
    scenario = Scenario(SUBNETS, dict.fromkeys(CANISTERS, (0, "echo", 0)))
    run = KernelRun(scenario, apart=False)
    empty = stream_messages([], run, 0, 1)
    verdicts = vsr_check_xnet(run.states[0], empty, run.kernel.context(run.groups[0], Tick(1, 1)))
    assert verdicts.reason.dtype == np.uint8
    assert len(verdicts.cause) == 0
