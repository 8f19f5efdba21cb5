"""Roots of tries, of ordered lists and of egress queues; topics; heads of message queue chains."""

from __future__ import annotations

from causeway_proofs.substrate.egress import egress_root, verify_queue
from causeway_proofs.substrate.node import EMPTY_ROOT, StateVersion
from causeway_proofs.substrate.ordered_lists import ordered_root
from causeway_proofs.substrate.parachains import QueuedMessage, chain_heads, verify_message_queue_chain
from causeway_proofs.substrate.trie import Trie

from tests.oracles.ordered_trie import OrderedTrie
from tests.oracles.topics import attestation_topic, queue_topic
from tests.vectors import decode_all, load_states, load_vectors


def test_roots_of_ordered_lists() -> None:
    cases = load_vectors("substrate_roots")["lists"]
    assert len(cases) == 6
    for case in cases:
        values = [value.encode() for value in case["values"]]
        assert ordered_root(values).hex() == case["root"]
        queue = OrderedTrie()
        for value in values:
            queue.append([value])
        assert queue.root.hex() == case["root"]


def test_last_of_pairs_with_one_key_counts() -> None:
    cases = load_vectors("substrate_roots")["maps"]
    assert len(cases) == 6
    for case in cases:
        keys, values = zip(*[(key.encode(), value.encode()) for key, value in case["pairs"]], strict=True)
        assert Trie.build(keys, values, StateVersion.V0).root.hex() == case["root"]
        one_by_one = Trie(StateVersion.V0)
        for key, value in zip(keys, values, strict=True):
            one_by_one.insert(key, value)
        assert one_by_one.root.hex() == case["root"]


def test_roots_of_states_in_both_layouts() -> None:
    states = load_states()
    assert (len(states), sum(len(state.pairs) for state in states)) == (6, 10_110)
    for state in states:
        for version in StateVersion:
            built = Trie.build([key for key, _ in state.pairs], [value for _, value in state.pairs], version)
            assert built.root == state.roots[version], state.case
            one_by_one = Trie(version)
            for key, value in state.pairs:
                one_by_one.insert(key, value)
            assert one_by_one.root == state.roots[version], state.case


def test_egress_queues_and_topics() -> None:
    vectors = load_vectors("substrate_roots")
    assert EMPTY_ROOT.hex() == egress_root([]).hex() == vectors["empty_root"]
    for case in vectors["egress_queues"]:
        messages, (root_v0, root_v1) = decode_all(case["messages"]), case["roots"]
        assert egress_root(messages).hex() == root_v0, case["case"]
        assert egress_root(messages, StateVersion.V1).hex() == root_v1, case["case"]
        assert verify_queue(bytes.fromhex(root_v0), messages)
        assert queue_topic(bytes.fromhex(root_v0)).hex() == case["topic"], case["case"]
    functions = {"queue": queue_topic, "attestation": attestation_topic}
    for topic in vectors["topics"]:
        assert functions[topic["kind"]](bytes.fromhex(topic["hash"])).hex() == topic["topic"]


def test_heads_of_message_queue_chains() -> None:
    cases = load_vectors("substrate_roots")["message_queues"]
    assert len(cases) == 3
    for case in cases:
        messages = [QueuedMessage(sent_at, bytes.fromhex(data)) for sent_at, data in case["messages"]]
        previous = bytes.fromhex(case["previous"])
        assert chain_heads(messages, previous)[-1].hex() == case["head"], case["case"]
        steps = verify_message_queue_chain(previous, messages, bytes.fromhex(case["head"]))
        assert [step.result for step in steps] == chain_heads(messages, previous)
