"""Guarantees declared by a mapping: those of its lanes, deadlines, clock tolerances."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from causeway.core.text import parse_duration
from causeway.ledger.ingest import mapping_names
from causeway.ledger.ingest.mapping import MappingDocument, load_mapping
from causeway.ledger.ingest.windows import build_promises
from causeway.ledger.schema import PROMISES_SCHEMA
from tests.support.properties.audit_ledgers import table

NONE = PROMISES_SCHEMA.empty_table()


def mapping(protocol: Any = None, **changes: Any) -> MappingDocument:
    fields = {"protocol": protocol or {"text": "p"}, "index": "n", "event": {"text": "sent"}}
    return MappingDocument.model_validate(
        {"format": "csv", "stated_by": "t", "fields": fields, "events": [{}], "deadline": 0, **changes}
    )


def stated_rows(of: MappingDocument, before: Any = NONE) -> list[dict[str, Any]]:
    """Return the guarantees of a mapping without nulls."""
    rows = build_promises(of, before).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_each_guarantee_has_its_number_or_cause() -> None:
    given: list[dict[str, Any]] = [
        {"promise": "received", "seconds": 90, "lane": "x"}, {"promise": "received", "seconds": "1500ms"},
        {"promise": "settled"}, {"promise": "causal", "protocol": "p"},
        {"promise": "may_drop", "cause": "queue full", "source": "a"}, {"promise": "refund_messages"},
        {"promise": "refunds_recorded"}, {"promise": "answered"}, {"promise": "capacity", "number": 7},
    ]  # fmt: skip
    assert stated_rows(mapping(promises=given)) == [
        {"promise": "received", "number": 90_000_000, "lane": "x", "stated_by": "t"},
        {"promise": "received", "number": 1_500_000, "stated_by": "t"},
        {"promise": "settled", "stated_by": "t"}, {"promise": "causal", "protocol": "p", "stated_by": "t"},
        {"promise": "may_drop", "detail": "queue full", "source": "a", "stated_by": "t"},
        {"promise": "refund_messages", "stated_by": "t"}, {"promise": "refunds_recorded", "stated_by": "t"},
        {"promise": "answered", "stated_by": "t"}, {"promise": "capacity", "number": 7, "stated_by": "t"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"promise": "received"}, "received needs seconds"),
        ({"promise": "may_drop"}, "may_drop needs cause"),
        ({"promise": "settled", "seconds": 5}, "seconds: 5: has no effect on settled"),
        ({"promise": "answered", "number": 5}, "number: 5: has no effect on answered"),
        ({"promise": "causal", "cause": "x"}, "cause: x: has no effect on causal"),
        ({"promise": "received", "seconds": "soon"}, "must be seconds from 0 to 9000000000000, or a duration such as"),
        ({"promise": "received", "seconds": True}, "must be seconds from 0"),
        ({"promise": "received", "seconds": -1}, "must be seconds from 0"),
        ({"promise": "received", "seconds": float("nan")}, "must be seconds from 0"),
    ],
)
def test_missing_and_unsupported_options_of_a_guarantee_are_named(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        mapping(promises=[given])


def test_message_is_expected_within_a_day_by_default() -> None:
    def expected(**changes: Any) -> list[tuple[Any, Any]]:
        return [(row.get("protocol"), row["number"]) for row in stated_rows(mapping(**changes))]

    assert expected(deadline=86_400) == [("p", 86_400_000_000)]
    assert expected(deadline="2h") == [("p", 7_200_000_000)]
    assert expected(deadline=0) == []
    columns = {"column": "protocol"}
    assert expected(deadline="90s", protocol=columns) == [(None, 90_000_000)]
    two = [{"protocol": {"text": name}} for name in ("q", "p", "q")]
    assert expected(deadline=1.5, events=two) == [("p", 1_500_000), ("q", 1_500_000)]
    default = {"format": "csv", "stated_by": "t", "events": [{"protocol": {"text": "p"}, "index": "n",
                                                              "event": {"text": "sent"}}]}  # fmt: skip
    assert stated_rows(MappingDocument.model_validate(default))[0]["number"] == 86_400_000_000
    assert {name: load_mapping(name).deadline for name in mapping_names()} == dict.fromkeys(mapping_names(), 86_400)


def test_clock_tolerance_is_set_per_chain_or_globally() -> None:
    clocks = {"b": 2, "a": "1500ms", "*": "500ms"}
    assert stated_rows(mapping(clocks=clocks)) == [
        {"promise": "clock_tolerance", "number": 500_000, "stated_by": "t"},
        {"promise": "clock_tolerance", "number": 1_500_000, "source": "a", "stated_by": "t"},
        {"promise": "clock_tolerance", "number": 2_000_000, "source": "b", "stated_by": "t"},
    ]
    with pytest.raises(ValidationError, match="must be seconds from 0"):
        mapping(clocks={"a": "2 hours"})


def test_mapping_replaces_its_own_guarantees_and_keeps_others() -> None:
    before = table([{"promise": "numbered", "stated_by": name} for name in ("other", "t")], PROMISES_SCHEMA)
    found = stated_rows(mapping(promises=[{"promise": "settled"}]), before)
    assert [(row["promise"], row["stated_by"]) for row in found] == [("numbered", "other"), ("settled", "t")]


def test_durations_are_numbers_with_a_unit() -> None:
    texts = {"90s": 90, "1500ms": 1.5, "5min": 300, "2h": 7200, "2 d": 172_800, " 1.5h ": 5400}
    assert {text: parse_duration(text) for text in texts} == texts
    assert [parse_duration(text) for text in ("", "5", "h", "-1s", "1e3s", "5m", "1" * 16 + "s")] == [None] * 7
