"""HRMP on the relay chain (X-6): the kernel's columns against the oracle, the vectors, and every pair of violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest
from causeway_proofs.substrate import QueuedMessage, chain_heads

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import ValueHolder
from causeway.protocols.hrmp import acceptance
from causeway.protocols.hrmp.acceptance import extend_heads
from causeway.protocols.hrmp.channels import apply_membership_calls, new_session
from causeway.protocols.hrmp.errors import ReceiptError, UpwardCallError
from causeway.protocols.relay_chain.options import HrmpOptions
from causeway.protocols.relay_chain.runtime import ParachainCall, ParachainCallKind
from causeway.protocols.shared.state_tables import TableState
from tests.spec.icmp import hrmp as spec
from tests.support.icmp.icmp_hrmp import digests_of, given, random_receipts, state_of, tables_of
from tests.vectors import load_vectors

ENDOWMENT = 20
SMALL = {"session_blocks": 4, "max_capacity": 3, "max_total_size": 30, "max_message_size": 20, "max_messages": 2}


def options_of(config: spec.Config) -> HrmpOptions:
    names = {**vars(config)}
    return HrmpOptions(channels="hrmp", max_messages_per_candidate=names.pop("max_messages"), **names)


def block(
    state: TableState,
    receipts: tuple[Frame, Frame, Frame],
    number: int,
    options: HrmpOptions,
    paras: Sequence[tuple[bool, int]] = (),
) -> tuple[TableState, dict[int, str], dict[tuple[int, int], str], Frame, list[Frame]]:
    """Run one kernel block: rejections, messages dropped by closing, and account movements."""
    rows, sent, calls = receipts
    value = []
    dropped = state["contents"].slice(0, 0)
    if number % options.session_blocks == 0:
        state, dropped, moved = new_session(state, number)
        value.append(moved)
    kinds = {True: ParachainCallKind.REGISTER, False: ParachainCallKind.DEREGISTER}
    state = apply_membership_calls(state, [ParachainCall(kinds[comes], p) for comes, p in paras], number)
    at = lookup_rows(state["paras"], Frame({"para": rows["source"]}, len(rows)), ("para",))
    # A chain that leaves and returns in this block starts with a new watermark.
    rows = rows.with_columns(last=np.maximum(rows["last"], state["paras"]["watermark"][at]))
    codes = acceptance.check_receipts(rows, sent, calls, state, number, options)
    refused = {int(p): ReceiptError(code).name for p, code in zip(rows["source"], codes.tolist(), strict=True) if code}
    state, wrong, moved = acceptance.apply_receipts(state, rows.filter(codes == 0), sent, calls, number, options)
    value.append(moved)
    taken = calls.filter(~np.isin(calls["source"], [*refused]))
    named = zip(taken["source"].tolist(), taken["place"].tolist(), wrong.tolist(), strict=True)
    return state, refused, {(p, at): UpwardCallError(code).name for p, at, code in named if code}, dropped, value


def test_columns_equal_the_oracle_after_every_block() -> None:
    """Every error of a receipt and of a call occurs in the blocks."""
    seen: Counter[str] = Counter()
    for seed in range(8):
        random = Random(seed)
        tight = {"max_outbound_channels": 2 - seed // 2 % 2, "max_inbound_channels": 1 + seed // 2 % 2}
        limits = {} if seed % 2 else tight
        config = spec.Config(**SMALL, sender_deposit=10, recipient_deposit=7, **limits)
        options = options_of(config)
        endowment = ENDOWMENT if seed % 2 else 5 * ENDOWMENT
        s = spec.genesis((1, 2, 3, 4), endowment)
        state = state_of(s)
        for number in range(1, 100):
            receipts = random_receipts(random, s, config, number)
            rows = given(s, receipts)
            paras = [(True, p) for p in s.free if random.random() < 0.3]
            paras += [(False, p) for p in s.free if random.random() < 0.02]
            said = spec.step(s, config, number, receipts, paras)
            state, refused, calls, dropped, value = block(state, rows, number, options, paras)
            assert (refused, calls) == (dict(said.receipts), dict(said.calls)), (seed, number)
            assert tables_of(state) == tables_of(state_of(s)), (seed, number)
            assert digests_of(state) == {p: found for p, found in s.digests.items() if found}
            lost = [(x, y, n, data) for (x, y), found in said.dropped for n, data in found]
            names = ("sender", "recipient", "sent_at", "data")
            assert sorted(zip(*(_list(dropped[name]) for name in names), strict=True)) == sorted(lost)
            assert spec.conserved(s, endowment)
            for end, name in enumerate(("max_outbound_channels", "max_inbound_channels")):
                assert max(Counter(pair[end] for pair in s.channels).values(), default=0) <= limits.get(name, 9)
            seen.update([*said.receipts.values(), *said.calls.values()])
            seen["dropped"] += len(lost)
            seen["left"] += len(s.active) < len(s.free)
            _check_value(value, seen)
    wanted = {code.name for code in (*ReceiptError, *UpwardCallError) if code} | {
        "dropped",
        "left",
        "RESERVED",
        "SOVEREIGN",
    }
    assert wanted - set(seen) == set(), seen


def _list(column: Any) -> list[Any]:
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column.tolist())


def _check_value(value: list[Frame], seen: Counter[str]) -> None:
    """Deposits come from their account and return to it."""
    for rows in value:
        ends = {int(ValueHolder.SOVEREIGN), int(ValueHolder.RESERVED)}
        for giver, taker in zip(rows["from_holder"].tolist(), rows["to_holder"].tolist(), strict=True):
            assert {giver, taker} == ends
            seen[ValueHolder(taker).name] += 1
        assert (rows["from_number"] == rows["to_number"]).all()
        assert (rows["amount_low"] > 0).all()


def test_value_log_alone_gives_every_account() -> None:
    random, config = Random(7), spec.Config(**SMALL)
    s = spec.genesis((1, 2, 3), ENDOWMENT)
    state = state_of(s)
    held, most = Counter[int](), 0
    for number in range(1, 100):
        receipts = random_receipts(random, s, config, number)
        rows = given(s, receipts)
        spec.step(s, config, number, receipts)
        state, *_, value = block(state, rows, number, options_of(config))
        for moved in value:
            for taker, p, amount in zip(
                *(moved[n].tolist() for n in ("to_holder", "to_number", "amount_low")), strict=True
            ):
                held[p] += amount if taker == ValueHolder.RESERVED else -amount
        assert {p: held[p] for p in s.held} == s.held
        most = max(most, sum(held.values()))
    assert most > 0


def test_message_queue_chain_heads_equal_published_ones() -> None:
    cases = load_vectors("substrate_roots")["message_queues"]
    assert len(cases) == 3
    for case in cases:
        head = bytes.fromhex(case["previous"])
        column = np.frombuffer(head, dtype=np.uint8).reshape(1, 32)
        for sent_at, text in case["messages"]:
            data = bytes.fromhex(text)
            head = spec.next_head(head, sent_at, data)
            row = given(spec.genesis((1, 2), 0), [spec.Receipt(1, 0, 0, ((2, data),))])[1]
            column = extend_heads(column, row.with_columns(sent_at=np.array([sent_at], dtype=np.uint64)))
        assert head.hex() == column[0].tobytes().hex() == case["head"], case["case"]
        messages = [QueuedMessage(sent_at, bytes.fromhex(text)) for sent_at, text in case["messages"]]
        assert chain_heads(messages, bytes.fromhex(case["previous"]))[-1] == head


def test_recorded_channel_accepts_its_message() -> None:
    """Replay the block of Kusama's Asset Hub: one message of 113 bytes in a channel with on-chain limits."""
    cases = load_vectors("substrate_roots")["message_queues"]
    case = next(case for case in cases if case["case"] == "real_kusama_asset_hub")
    ((sent_at, message),) = case["messages"]
    pair = case["sender"], case["recipient"]
    s = spec.genesis(pair, 0)
    s.channels[pair] = spec.Channel(
        **case["limits"], sender_deposit=0, recipient_deposit=0, mqc_head=bytes.fromhex(case["previous"])
    )
    receipt = spec.Receipt(pair[0], 1, 1, ((pair[1], bytes.fromhex(message)),))
    state, refused, *_ = block(state_of(s), given(s, [receipt]), sent_at, HrmpOptions(channels="hrmp"))
    channels = state["channels"]
    assert refused == {}
    assert channels["mqc_head"][0].tobytes().hex() == case["head"]
    assert (channels["msg_count"][0], channels["total_size"][0]) == (case["count"], case["size"])


OUTBOUND = (
    "MoreMessagesThanPermitted",
    "NotSorted",
    "NoSuchChannel",
    "MaxMessageSizeExceeded",
    "TotalSizeExceeded",
    "CapacityExceeded",
)
WATERMARK = ("AheadRelayParent", "AdvancementRule", "LandsOnBlockWithNoMessages")


def _violating_receipt(names: tuple[str, ...]) -> tuple[spec.State, spec.Receipt, spec.Config]:
    """Build a receipt of chain 5, on relay parent 9, whose last message has all named violations."""
    config = spec.Config(**{**SMALL, "max_messages": 3})
    s = spec.genesis((1, 2, 3, 4, 5, 6), 0)
    s.watermark[5] = 7
    full, size = "CapacityExceeded" in names, 20 if "TotalSizeExceeded" in names else 0
    for y in (1, 2, 3, 6):
        count = 3 if full and y == 2 else 0
        s.channels[5, y] = spec.Channel(3, 30, 20, 0, 0, count, size if y == 2 else 0)
    large = {"MaxMessageSizeExceeded": 21, "TotalSizeExceeded": 11}
    last = 4 if "NoSuchChannel" in names else 2
    before = [6] if "NotSorted" in names else [1]
    before += [6] * 4 if "MoreMessagesThanPermitted" in names and "NotSorted" in names else []
    if "MoreMessagesThanPermitted" in names and "NotSorted" not in names:
        config = spec.Config(**{**SMALL, "max_messages": 1})
    length = max((large.get(name, 1) for name in names), default=1)
    mark = {"AheadRelayParent": 10, "AdvancementRule": 6, "LandsOnBlockWithNoMessages": 8}
    watermark = next((mark[name] for name in names if name in mark), 9)
    if last == 4:
        # A missing channel has no limits of its own: other errors occur with it too.
        s.channels = {pair: channel for pair, channel in s.channels.items() if pair[1] != 2}
    messages = (*((y, b"") for y in before), (last, b"m" * length))
    return s, spec.Receipt(5, 9, watermark, messages), config


@pytest.mark.parametrize("names", [*combinations(OUTBOUND, 2), *[(a, b) for a in WATERMARK for b in OUTBOUND]])
def test_first_of_two_violations_is_named(names: tuple[str, str]) -> None:
    for given_names, due in ((names, names[0]), (names[:1], names[0]), (names[1:], names[1])):
        s, receipt, config = _violating_receipt(given_names)
        rows = given(s, [receipt])
        assert spec.check(s, config, 10, receipt) == due
        (code,) = acceptance.check_receipts(*rows, state_of(s), 10, options_of(config))
        assert ReceiptError(code).name == due
