"""Roots of tries, of ordered lists and of egress queues; topics; heads of message queue chains."""

from __future__ import annotations

from pathlib import Path

from causeway.proofs.substrate.egress import attestation_topic, egress_root, queue_topic, verify_queue
from causeway.proofs.substrate.message_queue_chain import QueuedMessage, heads, verify_message_queue_chain
from causeway.proofs.substrate.node import EMPTY_ROOT, StateVersion
from causeway.proofs.substrate.ordered import OrderedTrie, ordered_root
from causeway.proofs.substrate.trie import Trie
from tests.conformance.substrate_vectors import unhex, vectors


def test_roots_of_ordered_lists(shared_folder: Path) -> None:
    cases = vectors(shared_folder, "ordered_root.json")["cases"]
    assert len(cases) == 6
    for case in cases:
        values = [value.encode() for value in case["values_utf8"]]
        assert ordered_root(values).hex() == case["root"]
        queue = OrderedTrie()
        for value in values:
            queue.append([value])
        assert queue.root.hex() == case["root"]


def test_of_pairs_with_one_key_the_later_value_counts(shared_folder: Path) -> None:
    cases = vectors(shared_folder, "trie_root.json")["cases"]
    assert len(cases) == 6
    for case in cases:
        keys, values = zip(*[(key.encode(), value.encode()) for key, value in case["pairs_utf8"]], strict=True)
        assert Trie.build(keys, values, StateVersion.V0).root.hex() == case["root"]
        one_by_one = Trie(StateVersion.V0)
        for key, value in zip(keys, values, strict=True):
            one_by_one.insert(key, value)
        assert one_by_one.root.hex() == case["root"]


def test_roots_of_states_in_both_layouts(shared_folder: Path) -> None:
    runs = vectors(shared_folder, "state_trie_roots.json")["runs"]
    assert sum(run["entries"] for run in runs) == 10_110
    for run in runs:
        pairs = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in run["pairs_hex"]]
        for version in StateVersion:
            built = Trie.build([key for key, _ in pairs], [value for _, value in pairs], version)
            assert built.root.hex() == run[f"root_v{version}"], run["name"]
            one_by_one = Trie(version)
            for key, value in pairs:
                one_by_one.insert(key, value)
            assert one_by_one.root.hex() == run[f"root_v{version}"], run["name"]


def test_egress_queues_and_topics(shared_folder: Path) -> None:
    content = vectors(shared_folder, "icmp_egress_roots.json")
    assert EMPTY_ROOT.hex() == egress_root([]).hex() == content["empty_root"]
    for case in content["cases"]:
        messages = unhex(case["messages_hex"])
        assert egress_root(messages).hex() == case["root_v0"], case["name"]
        assert egress_root(messages, StateVersion.V1).hex() == case["root_v1"], case["name"]
        assert verify_queue(bytes.fromhex(case["root_v0"]), messages)
        assert queue_topic(bytes.fromhex(case["root_v0"])).hex() == case["queue_topic"], case["name"]
    kinds = {"queue": ("root", queue_topic), "attestation": ("relay_parent", attestation_topic)}
    for topic in content["topics"]:
        field, function = kinds[topic["kind"]]
        assert function(bytes.fromhex(topic[field])).hex() == topic["topic"]


def test_heads_of_message_queue_chains(shared_folder: Path) -> None:
    cases = vectors(shared_folder, "hrmp_mqc.json")["cases"]
    assert len(cases) == 3
    for case in cases:
        messages = [QueuedMessage(item["sent_at"], bytes.fromhex(item["data_hex"])) for item in case["messages"]]
        previous = bytes.fromhex(case["previous_head"])
        assert heads(messages, previous)[-1].hex() == case["head"], case["name"]
        steps = verify_message_queue_chain(previous, messages, bytes.fromhex(case["head"]))
        assert [step.result for step in steps] == heads(messages, previous)
