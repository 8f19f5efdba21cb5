"""The IC oracle on coordination: the state manager (2.8), batches (3.1), registry versions that add and remove subnets
(hazards 36 and 37), and what the checkers of G12 and G13 find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.spec import ic
from tests.spec.ic import guarantees
from tests.spec.ic.coordination import certified_state
from tests.spec.ic.payloads import Proposal
from tests.spec.ic.tree import FULL, METADATA, state_tree

OPTIONS = ic.Options(full_hash_every=2)
REGISTRY = ic.Registry(frozenset({1}), {1: 1, 2: 1})
SECTIONS = {"queues": b"q" * 32}


def certifies(canister: int, program: Any, message: ic.Message) -> tuple[Any, list[ic.Effect]]:
    """Certifies the payloads of users; too long ones are an error, and so is `raise` after they were set."""
    assert isinstance(message, ic.Ingress)
    if message.method == "raise":
        raise ValueError("no")
    return program, [ic.CertifiedData(b"before"), ic.CertifiedData(message.payload)]


def manager() -> ic.StateManager:
    state = ic.genesis(1, dict.fromkeys((1, 2)), {})
    return ic.StateManager({0: state}, {0: certified_state(state, None, SECTIONS, OPTIONS)}, delay=1)


def batch(number: int, *ingress: ic.Ingress) -> ic.Batch:
    full = OPTIONS.requires_full_state_hash(number)
    payload = dict(enumerate(ingress, start=1))
    return ic.Batch(number, 1, payload, requires_full_state_hash=full, time_ns=number * 200)


def process_batch(before: ic.StateManager, b: ic.Batch) -> ic.StateManager:
    result = ic.process_batch(before, b, {1: REGISTRY}, certifies, OPTIONS, 0, SECTIONS)
    assert not isinstance(result, ic.Ignored)
    return result[0]


def test_states_exist_from_commit_until_removal() -> None:
    now = process_batch(process_batch(manager(), batch(1)), batch(2))
    assert now.take_tip_at(2) is now.get_state_at(2)
    assert now.get_state_at(1).number == 1
    with pytest.raises(ic.StateRemoved):
        now.take_tip_at(1)
    for call in (now.take_tip_at, now.get_state_at):
        with pytest.raises(ic.StateNotCommittedYet):
            call(3)
    now = now.remove_below(2)
    with pytest.raises(ic.StateRemoved):
        now.get_state_at(1)
    assert now.trees[1].root == process_batch(manager(), batch(1)).trees[1].root, "what was signed stays signed"


def test_every_height_commits_to_its_predecessor() -> None:
    now = process_batch(process_batch(process_batch(manager(), batch(1)), batch(2)), batch(3))
    for height in (1, 2, 3):
        tree = now.trees[height].tree
        assert tree[b"metadata"] == {b"height": bytes([height]), b"prev_state_hash": now.trees[height - 1].root}
        assert (b"causeway" in tree) == (height == 2), "every second batch requires the full state hash"
        assert now.trees[height].certification.height == height
    assert b"prev_state_hash" not in now.trees[0].tree[b"metadata"]
    assert now.certified() is now.trees[2], "it is certified one height later"
    assert manager().certified() is None


def test_hazard_31_batch_of_an_existing_state_is_ignored() -> None:
    now = process_batch(manager(), batch(1))
    for number in (0, 1):
        found = ic.process_batch(now, batch(number), {1: REGISTRY}, certifies, OPTIONS)
        assert found == ic.Ignored(expected=2, actual=number)
    with pytest.raises(ic.InvariantViolation):
        ic.process_batch(now, batch(3), {1: REGISTRY}, certifies, OPTIONS)


def test_hazard_32_equal_batches_have_equal_roots() -> None:
    set_it = ic.Ingress("u", 1, "set", b"digest")
    roots = [process_batch(manager(), batch(1, set_it)).trees[1].root for _ in range(2)]
    others = [
        process_batch(manager(), batch(1)).trees[1].root,
        process_batch(manager(), replace(batch(1, set_it), time_ns=1)).trees[1].root,
    ]
    assert guarantees.g12_agreement([(1, 1, root) for root in roots]) == []
    for other in others:
        assert len(guarantees.g12_agreement([(1, 1, roots[0]), (1, 1, other)])) == 1


def test_certified_data_is_the_last_value_and_migrates() -> None:
    set_it, too_long, fails = (
        ic.Ingress("u", 1, "set", b"digest"),
        ic.Ingress("u", 1, "set", bytes(33)),
        ic.Ingress("u", 1, "raise", b""),
    )
    state = process_batch(manager(), batch(1, set_it, too_long, fails)).get_state_at(1)
    assert state.certified_data == {1: b"digest"}
    moved = ic.move_canisters({1: state, 2: ic.genesis(2, {}, {})}, REGISTRY, REGISTRY.with_moved(1, 2, 2))
    assert [moved[subnet].certified_data for subnet in (1, 2)] == [{}, {1: b"digest"}]


def test_scopes_differ_by_custom_sections_alone() -> None:
    state = ic.genesis(1, {}, {})
    full, metadata = (dict(state_tree(state, b"p" * 32, SECTIONS, 1, scope=scope)) for scope in (FULL, METADATA))
    assert full.pop(b"causeway") == {b"queues": b"q" * 32}
    assert full == metadata


# ---- registry versions


def stream_to(destination: int, first: int, last: int) -> ic.Stream:
    messages: dict[int, ic.Request | ic.Response] = {i: ic.Request(2, 1, i) for i in range(first, last)}
    return ic.Stream({}, {(): ic.Queue(last, messages)}, {((), i): 1 for i in messages})


@pytest.mark.parametrize("base", [0, 1])
def test_hazard_36_new_subnet_is_expected_from_the_base_on(base: int) -> None:
    options = ic.Options(index_base=base)
    state = ic.genesis(2, {}, {})
    before, after = ic.Registry(frozenset({2}), {}), ic.Registry(frozenset({1, 2}), {}, version=2)
    for first, error in ((base, None), (base + 1, ic.UnexpectedMessages)):
        source = replace(ic.genesis(1, {}, {}), streams={2: stream_to(2, first, base + 4)}, number=1)
        css = ic.slice_for(source, 2, frozenset({(1, ((), first))}), options)
        assert css is not None
        with pytest.raises(ic.UnknownSubnet):
            ic.check_slice(state, before, 1, css, options)
        if error is None:
            assert ic.check_slice(state, after, 1, css, options) == css
            continue
        with pytest.raises(error):
            ic.check_slice(state, after, 1, css, options)


def test_hazard_37_messages_of_a_removed_subnet_stay_until_its_return() -> None:
    options = ic.Options()
    there, gone = ic.Registry(frozenset({1, 2}), {}), ic.Registry(frozenset({2}), {}, version=2)
    source = replace(ic.genesis(1, {}, {}), streams={2: stream_to(2, 1, 4)}, number=1)
    state = replace(ic.genesis(2, {}, {}), expected_xnet_indices=frozenset({(1, ((), 2))}))
    css = ic.slice_for(source, 2, state.expected_xnet_indices, options)
    assert css is not None
    assert not ic.validate_xnet_payload(gone, state, [], {1: css}, None, options)
    assert ic.validate_xnet_payload(there, state, [], {1: css}, None, options)
    # A payload agreed before counts for the expected indices under any current registry.
    assert ic.expected_indexes(2, state, [{1: css}]) == {(1, ((), 4))}
    assert ic.get_xnet_payload(2, gone, state, [], None, lambda sn: lambda *_: css, options) == {}


# ---- G12, G13


def included(height: int, first: int | None, end: int | None, chain: int = 2) -> ic.Event:
    return ic.Event("received", chain, height, "control", remote=1, via="xnet", detail=(((), 1, 9, 1, first, end),))


def received_event(height: int, index: int) -> ic.Event:
    return ic.Event("received", 2, height, "request", ("q", 1, index), 1, 2, 0, 1, (), index, index, "xnet")


def test_g13_detects_discontinuous_slices() -> None:
    honest = [
        included(1, 1, 3),
        received_event(1, 1),
        received_event(1, 2),
        included(2, None, None),
        included(3, 3, 4),
        received_event(3, 3),
    ]
    assert guarantees.g13_alignment(honest, OPTIONS) == []
    for wrong in (
        [included(1, 2, 3), received_event(1, 2)],
        [*honest, included(4, 3, 4), received_event(4, 3)],
        [*honest, included(4, 5, 6), received_event(4, 5)],
        honest[:-1],
        [*honest, received_event(4, 4)],
        [*honest[:-1], received_event(4, 3)],
    ):
        assert guarantees.g13_alignment(wrong, OPTIONS)


def test_g12_detects_invalid_payloads() -> None:
    slices = {1: (((), 1, 9, 1, 1, 3),)}
    agreed = Proposal(2, 1, 0, 0, True, 500, 500, slices)
    refused = replace(agreed, honest=False, slices={}, error="UnexpectedMessages")
    events = [included(1, 1, 3)]
    assert guarantees.g12_payloads([refused, agreed], events) == []
    assert guarantees.g12_payloads([agreed, replace(agreed, height=9, slices={})], events) == [], "it waits"
    for wrong in (
        [replace(agreed, error="EmptySlice"), agreed],
        [agreed, agreed],
        [replace(agreed, size=501)],
        [replace(agreed, slices={})],
        [replace(agreed, slices={1: (((), 1, 9, 1, 1, 2),)})],
        [refused],
        [],
    ):
        assert guarantees.g12_payloads(wrong, events)
