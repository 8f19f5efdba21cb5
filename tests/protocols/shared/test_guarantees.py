"""Guarantees of protocols against the promises of their lanes, which runs are checked by."""

import pytest

from causeway.audit.passes.results import CHECK_NAMES
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.protocols.shared.semantics import CHECKS, TOPICS, Lanes

CASES = [
    ("ic", {}),
    ("ic", {"profile": "deployed"}),
    ("ic", {"certification": "off"}),
    ("ibc", {}),
    ("ibc", {"order": "unordered"}),
    ("ibc", {"timeouts": "on", "timeout_blocks": 5}),
    ("ibc", {"delay_seconds": 3.0}),
    ("xdm", {}),
    ("xdm", {"archiving_depth": 5, "challenge_period": 8}),
    ("icmp", {}),
    ("icmp", {"channels": "hrmp"}),
    ("icmp", {"watermark_mode": "now_minus_1"}),
]


def test_every_protocol_is_among_the_cases():
    assert {name for name, _ in CASES} == set(protocol_names())


def test_guarantee_checks_belong_to_the_audit():
    assert set(CHECKS) <= set(TOPICS)
    assert set(CHECKS.values()) <= set(CHECK_NAMES)


@pytest.mark.parametrize(("name", "given"), CASES)
def test_guarantees_match_lane_promises(name, given):
    info = find_protocol(name)
    options = info.load_options()(**given)
    said = {one.topic: one for one in info.load_semantics().guarantees(options)}
    assert list(said) == list(TOPICS)
    assert all(one.how and one.reference[0].isdigit() for one in said.values())
    lanes = Lanes(options, ("a", "b"), {}, 1_000_000, tuple((each, False) for each in (0, 1)))
    promises = info.load_semantics().promises
    assert promises is not None
    of_lanes = list(promises(lanes))
    of_requests = {one.promise for one in of_lanes if one.substream in (None, 1 if name == "ibc" else 0)}
    assert (said["answered"].holds == "yes") == ("answered" in of_requests)
    assert (said["order"].holds == "yes") == ("ordered_receives" in of_requests)
    if "causal" in of_requests:
        assert said["causal"].holds == "yes"
    assert (said["value"].holds != "no") == ("conserved" in of_requests)
    if "capacity" in of_requests:
        assert said["held_back"].holds == "yes"


def test_watermark_moving_past_messages_leaves_gaps():
    info = find_protocol("icmp")
    for mode, holds in (("per_candidate", "yes"), ("now_minus_1", "no")):
        said = {one.topic: one for one in info.load_semantics().guarantees(info.load_options()(watermark_mode=mode))}
        assert said["no_gaps"].holds == holds
