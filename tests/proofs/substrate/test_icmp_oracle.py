"""The oracle of egress queues alone: published vectors, and its networks against 1.2."""

from collections import Counter

import pytest
from causeway_proofs.substrate import ordered_root

from tests.spec.icmp.errors import RUNTIME, VALIDATION
from tests.spec.icmp.events import Called, Consumed, Included, Refused
from tests.spec.icmp.guarantees import RUNTIME_CHECKS
from tests.spec.icmp.history import Record
from tests.spec.icmp.options import Options
from tests.spec.icmp.trie import EMPTY_ROOT, R, attestationTopic, compact, encode_node, nibbles, queueTopic, trie_root
from tests.support.icmp.icmp_networks import lists_and_formulas, plan_of, run
from tests.vectors import decode_all, load_states, load_vectors

MODES = [
    ("exclusive", "any_ancestor"),
    ("inclusive", "any_ancestor"),
    ("exclusive", "has_messages"),
    ("inclusive", "has_messages"),
]


def test_all_guarantees_hold_on_any_network() -> None:
    """The networks are not idle: every possible refusal occurs, and there are forks that consume."""
    seen: Counter[str] = Counter()
    for seed in range(40):
        upper, rule = MODES[seed % 4]
        options = Options(ingress_upper=upper, watermark_rule=rule)  # type: ignore[arg-type]
        net, _ = run(options, plan_of(seed, 14))
        findings = [finding for check in RUNTIME_CHECKS for finding in check(Record(net.log, options))]
        assert findings == [], f"seed {seed}"
        lists_and_formulas(net)
        seen.update(row.error for row in net.log if isinstance(row, Refused))
        seen.update(type(row).__name__ for row in net.log if isinstance(row, Included | Consumed))
        seen.update(row.call for row in net.log if isinstance(row, Called))
        seen["forks"] += len(net.rt.relay.leaves()) - 1
    wanted = {*RUNTIME, *VALIDATION, "forks", "Included", "Consumed", "deregister", "register", "unblock"}
    assert wanted - set(seen) == set(), seen


def test_old_rule_violates_the_documented_guarantees() -> None:
    """D-12: now - 1 is marked as routed whatever the candidate consumed."""
    options = Options(watermark_mode="now_minus_1")
    broken: Counter[str] = Counter()
    for seed in range(10):
        net, _ = run(options, plan_of(seed, 14))
        record = Record(net.log, options)
        broken.update(finding.guarantee for check in RUNTIME_CHECKS for finding in check(record))
    assert broken["G3"] > 0
    assert broken["G6"] == broken["G9"] == broken["G4"] == 0


def test_roots_topics_and_nodes_match_the_published_ones() -> None:
    vectors = load_vectors("substrate_roots")
    for case in vectors["egress_queues"]:
        root = R(decode_all(case["messages"]))
        assert (root.hex(), queueTopic(root).hex()) == (case["roots"][0], case["topic"]), case["case"]
    (queue, attestation) = vectors["topics"]
    assert queueTopic(bytes.fromhex(queue["hash"])).hex() == queue["topic"]
    assert attestationTopic(bytes.fromhex(attestation["hash"])).hex() == attestation["topic"]
    assert EMPTY_ROOT.hex() == vectors["empty_root"]
    assert R([]) == EMPTY_ROOT
    for case in vectors["lists"]:
        assert R([value.encode() for value in case["values"]]).hex() == case["root"]
    for case in vectors["maps"]:
        pairs = {key.encode(): value.encode() for key, value in case["pairs"]}
        assert trie_root(pairs).hex() == case["root"]
    two = [(nibbles(b"\x13\x14"), b"\xff"), (nibbles(b"\x48\x19"), b"\xfe")]
    assert encode_node(two).hex() == "8012001443031404ff1443081904fe"


def test_state_tries_of_real_chains_have_their_roots() -> None:
    for state in load_states():
        assert trie_root(dict(state.pairs)) == state.roots[0], state.case


def test_keys_are_compact_integers() -> None:
    assert [compact(i).hex() for i in (0, 1, 63, 64, 16383, 16384)] == ["00", "04", "fc", "0101", "fdff", "02000100"]


@pytest.mark.parametrize("count", [1, 2, 16, 17, 63, 64, 65, 300])
def test_second_implementation_has_the_same_root(count: int) -> None:
    messages = [bytes([i % 7]) * (i * 37 % 131) for i in range(count)]
    assert R(messages) == ordered_root(messages)
