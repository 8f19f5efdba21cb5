"""``causal_order``: causal cycles over several zones, and messages that overtake other lanes."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from causeway.audit import causal_links
from causeway.audit.engine import AuditResult
from causeway.cli.output.audit import describe_earliest
from causeway.ledger import parts
from causeway.ledger.schema import PROMISES_SCHEMA
from causeway.ledger.windows import LanePromises
from causeway.report.findings import finding_phrase
from tests.spec.audit.ledger import Row
from tests.support.properties.audit_ledgers import Case, compare

Place = tuple[str, int | None]


def message(
    lane: str,
    index: int,
    sent: Place | None,
    received: Place | None,
    acknowledged: Place | None = None,
    **more: Any,
) -> list[Row]:
    """The rows of a message of a lane such as ``a>b x``, with the positions of its events."""
    (source, target), name = lane[:3].split(">"), lane[4:]
    own = {"protocol": "p", "source": source, "destination": target, "lane": name, "index": index, "kind": "request"}
    events = {"sent": sent, "received": received, "acknowledged": acknowledged}
    return [
        {**own, "event": event, "chain": place[0], "height": place[1], "time": None, **more}
        for event, place in events.items()
        if place is not None
    ]


def audited(*messages: list[Row], promises: tuple[Row, ...] = (), buckets: int = 1) -> AuditResult:
    """Audit messages of lanes with guaranteed causal order, and compare with the definition."""
    case = Case([row for rows in messages for row in rows], [], [{"promise": "causal"}, *promises])
    found = case.audit(buckets)
    compare(case, found)
    return found


def findings_of(found: AuditResult) -> list[tuple[str, str, int | None]]:
    """The reason, lane and index of each finding."""
    rows = [row for row in found.violations.to_pylist() if row["check"] == "causal_order"]
    return [(row["reason"], f"{row['source']}>{row['destination']} {row['lane']}", row["index"]) for row in rows]


CYCLE = (
    message("a>b x", 0, ("a", 9), ("b", 5)),
    message("b>c x", 0, ("b", 5), ("c", 7)),
    message("c>a x", 0, ("c", 8), ("a", 6)),
)
"""The example of docs/reference/audit/causal_order.md."""


def test_cycle_over_three_zones_is_found_by_heights_alone() -> None:
    assert findings_of(audited(*CYCLE)) == [("received_in_causal_cycle", "c>a x", 0)]
    honest = audited(*CYCLE[:2]).checks["causal_order"]
    assert honest.examined == 2 and not honest.reasons


def test_message_with_most_contradictions_in_a_cycle_is_named() -> None:
    more = [message("c>a x", number, ("c", 8 + number), ("a", 6 + number)) for number in (1, 2)]
    more += [message("b>c x", number, ("b", 5 + number), ("c", 7 + number)) for number in (1, 2)]
    found = audited(*CYCLE, *more)
    assert findings_of(found) == [("received_in_causal_cycle", "a>b x", 0)]
    (row,) = [row for row in found.violations.to_pylist() if row["check"] == "causal_order"]
    assert (row["event"], row["chain"], row["height"], row["verdict"]) == ("received", "b", 5, "violated")
    assert found.checks["causal_order"].violated == 1 and found.checks["causal_order"].examined == 7


def test_fewest_messages_are_named_of_equal_contradictions() -> None:
    twice = [message("a>b x", 1, ("a", 9), ("b", 5)), message("c>a x", 1, ("c", 8), ("a", 6))]
    assert findings_of(audited(*CYCLE, *twice)) == [("received_in_causal_cycle", "b>c x", 0)]


def test_excluded_message_contradicts_no_other() -> None:
    false = message("b>a x", 0, ("b", 9), ("a", 5)), message("c>a x", 0, ("c", 9), ("a", 5))
    found = audited(*false, message("a>b x", 0, ("a", 5), ("b", 5)), message("b>c x", 0, ("b", 5), ("c", 5)))
    assert findings_of(found) == [("received_in_causal_cycle", f"{lane} x", 0) for lane in ("b>a", "c>a")]


def test_acknowledgement_closes_a_cycle_too() -> None:
    rows = [message("a>b x", number, ("a", 10 + number), ("b", 20 + number)) for number in range(5)]
    found = audited(*rows, message("a>b z", 7, ("a", 11), ("b", 30), ("a", 12), protocol="q"))
    assert findings_of(found) == [("acknowledged_in_causal_cycle", "a>b z", 7)]


def test_message_acknowledged_in_its_sending_block_is_a_cycle() -> None:
    found = audited(message("a>b x", 0, ("a", 5), ("b", 7), ("a", 5)))
    assert len(findings_of(found)) == 1 and findings_of(found)[0][0].endswith("_in_causal_cycle")


def test_self_contradicting_message_is_left_to_causality() -> None:
    found = audited(message("a>b x", 0, ("a", 5), ("b", 7), ("a", 4)))
    assert findings_of(found) == [] and found.checks["causality"].reasons["violated", "acknowledged_before_sent"] == 1


def test_message_that_overtakes_one_of_another_lane_is_named_once() -> None:
    late = [message("a>b x", number, ("a", 10 + number), ("b", 30)) for number in range(3)]
    found = audited(*late, message("a>b y", 0, ("a", 13), ("b", 29)))
    assert findings_of(found) == [("received_out_of_causal_order", "a>b y", 0)]
    assert not findings_of(audited(*late, message("a>b y", 0, ("a", 13), ("b", 30))))
    assert not findings_of(audited(*late, message("a>b y", 0, ("a", 10), ("b", 29))))  # sent in one block
    assert not findings_of(audited(*late, message("a>b y", 0, ("a", 13), ("b", 29), protocol="q")))
    assert not findings_of(audited(*late, message("a>c y", 0, ("a", 13), ("c", 29))))


def test_acknowledgements_follow_the_order_of_receipts() -> None:
    late = message("a>b x", 0, ("a", 10), ("b", 20), ("a", 31))
    assert findings_of(audited(late, message("a>b y", 0, ("a", 11), ("b", 21), ("a", 30)))) == [
        ("acknowledged_out_of_causal_order", "a>b y", 0)
    ]
    assert not findings_of(audited(late, message("a>b y", 0, ("a", 11), ("b", 20), ("a", 30))))


def test_overtaking_in_an_ordered_lane_is_reported_by_order_alone() -> None:
    late = message("a>b x", 0, ("a", 10), ("b", 30)), message("a>b y", 0, ("a", 10), ("b", 30))
    early = message("a>b y", 1, ("a", 11), ("b", 29))
    assert findings_of(audited(*late, early)) == [("received_out_of_causal_order", "a>b y", 1)]
    ordered = audited(*late, early, promises=({"promise": "ordered_receives"},))
    assert findings_of(ordered) == [] and ordered.checks["order"].violated == 1
    alone = audited(late[0], early, promises=({"promise": "ordered_receives"},))
    assert findings_of(alone) == [("received_out_of_causal_order", "a>b y", 1)]


def test_unrecorded_or_restarted_heights_are_unknown() -> None:
    found = audited(
        message("a>b x", 0, ("a", None), ("b", 3), ("a", 9)),
        message("a>b x", 1, None, ("b", 3), ("a", 9)),
        message("c>b x", 0, ("c", 4), ("b", 3)),
        promises=({"source": "c", "promise": "restarted"},),
    )
    reasons = {("unknown", "place_unseen"): 1, ("unknown", "heights_restarted"): 1}
    assert found.checks["causal_order"].reasons == reasons and found.checks["causal_order"].examined == 3
    assert not findings_of(
        audited(message("a>b x", 0, ("a", 4), None, ("a", 9)), message("a>a x", 0, ("a", 4), ("a", 5)))
    )


def test_causal_order_is_not_examined_without_a_guarantee() -> None:
    found = Case([row for rows in CYCLE for row in rows], [], []).audit()
    assert found.checks["causal_order"].examined == 0 and not found.checks["causal_order"].reasons


@pytest.mark.parametrize("cut", [100_000, 1, 7])
def test_messages_of_one_lane_in_many_runs_are_compared_together(cut: int) -> None:
    draw, messages = Random(5), []
    for number in range(80):
        lane, index = draw.choice(("a>b x", "a>b y", "b>c x", "c>a x")), number * 2**16
        messages.append(message(lane, index, (lane[0], number), (lane[2], number + 4)))
    messages.append(message("a>b x", 100 * 2**16, ("a", 35), ("b", 6)))
    with patch.object(parts, "PART_ROWS", cut):
        found = audited(*messages, buckets=3)
    assert ("received_in_causal_cycle", "a>b x", 100 * 2**16) in findings_of(found)


def test_contradictions_are_counted_up_to_a_limit() -> None:
    """Two false messages in a cycle are distinguished only within the limit."""
    many = [message("b>a x", number, ("b", 10_000 + number), ("a", 20_000 + number)) for number in range(6_000)]
    false = message("a>b y", 0, ("a", 40_000), ("b", 9_000))
    case = Case([row for rows in (*many, false) for row in rows], [], [{"promise": "causal"}])
    assert findings_of(case.audit()) == [("received_in_causal_cycle", "a>b y", 0)]


def test_messages_of_one_lane_on_several_chains_are_distinct() -> None:
    """Heights have more than 32 bits, and some of their bytes are zero."""
    base = 7 << 40
    rows = []
    for index, chain in enumerate("bcbc"):
        rows += message("a>- x", index, ("a", base + 256 * index), (chain, base + 512 * index), destination=None)
    rows += message("b>a y", 0, ("b", base + 512), ("a", base))
    assert findings_of(audited(rows)) == [("received_in_causal_cycle", "b>a y", 0)]
    late = message("a>b z", 0, ("a", base), ("b", base + 1025))
    found = audited(rows[:8], late)
    assert findings_of(found) == [("received_out_of_causal_order", "a>None x", 2)]


@pytest.mark.parametrize("buckets", [1, 3])
def test_links_above_the_limit_are_unknown(buckets: int) -> None:
    rows = [
        message("a>b x", number << 18, ("a", 9 + number), ("b", 5 + number), ("a", 20 + number)) for number in (1, 2)
    ]
    case = Case([row for each in (*CYCLE, *rows) for row in each], [], [{"promise": "causal"}])
    with patch.object(causal_links, "MAX_LINKS", 7):
        assert case.audit(buckets).checks["causal_order"].verdict == "FAILED"
    with patch.object(causal_links, "MAX_LINKS", 6):
        found = case.audit(buckets)
    own = found.checks["causal_order"]
    assert own.reasons == {("unknown", "not_compared"): 7} and own.examined == 5 and own.verdict == "INCONCLUSIVE"
    counts = [row for row in found.counts.to_pylist() if row["check"] == "causal_order"]
    assert {row["source"]: row["count"] for row in counts} == {"a": 5, "b": 1, "c": 1}
    assert findings_of(found) == [("not_compared", f"{ends} x", None) for ends in ("a>b", "b>c", "c>a")]
    (first, *_) = [row for row in found.violations.to_pylist() if row["check"] == "causal_order"]
    assert finding_phrase(first) == "is one of 5 messages that were not compared: the input has too many"
    assert describe_earliest(first) == "first x: 5 messages (p a b)"


def links(*ways: tuple[str, str, Iterable[int], Iterable[int]]) -> pa.Table:
    """A table of receipts from one chain to another, by the heights of both."""
    rows = []
    for cause, effect, *heights in ways:
        causes, effects = ([*each] for each in heights)
        count = len(causes)
        rows.append(
            {
                **{"protocol": "p", "source": cause, "destination": effect, "lane": "x", "kind": 0},
                **{"cause": cause, "effect": effect, "links": count, "events": count, "ascend": False},
                **{"causes": causes, "effects": effects, "messages": [1] * count},
            }
        )
    return pa.Table.from_pylist(rows, causal_links.LINKS_SCHEMA)


def test_search_for_a_path_between_many_cycles_is_bounded() -> None:
    """A chain depends on the next one, and so on, to two chains with a cycle in each block."""
    count = 30_000
    way = [(f"c{number + 1:06}", f"c{number:06}", [2**40], [1]) for number in range(count)]
    last, other = f"c{count:06}", f"c{count + 1:06}"
    cycles = [
        (one, two, range(3, 2 * count, 2), range(2, 2 * count - 1, 2)) for one, two in ((other, last), (last, other))
    ]
    promises = LanePromises(PROMISES_SCHEMA.empty_table())
    found = causal_links.compare_links(links(*way, *cycles), promises)
    rings = sum(len(lane.why) for lane in found.misplaced.values())
    assert 0 < rings < count - 1 and {*found.misplaced} <= {("p", other, last, "x"), ("p", last, other, "x")}
    # The chains that only wait are in no cycle, but that is unknown.
    assert sum(found.undecided.values()) > count
    few = causal_links.compare_links(links(*way[-100:], *cycles), promises)
    assert sum(len(lane.why) for lane in few.misplaced.values()) == count - 1 and not few.undecided
