"""Audits of random and honest ledgers against the oracle."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from causeway.audit.checks import lane_order
from causeway.audit.passes import bucket_pass, lane_merge
from causeway.ledger import parts
from tests.support.properties.audit_ledgers import by_chance, compare, journeys_by_chance, zones_by_chance
from tests.support.properties.audit_plants import LIMIT, Network
from tests.support.properties.audit_values import valued_by_chance
from tests.tiers import sized


@settings(max_examples=sized(10, 150))
@example(seed=450, buckets=1, cut=100_000)  # received on two chains, one of which restarted
@given(seed=st.integers(0, 2**32), buckets=st.sampled_from((1, 3)), cut=st.sampled_from((100_000, 1, 2, 5)))
def test_audit_matches_the_oracle(seed: int, buckets: int, cut: int) -> None:
    case = by_chance(Random(seed))
    with patch.object(parts, "PART_ROWS", cut):
        compare(case, case.audit(buckets))


@settings(max_examples=sized(9, 100))
@given(seed=st.integers(0, 2**32), buckets=st.sampled_from((1, 3)), cut=st.sampled_from((100_000, 1, 3)))
def test_audit_of_duplicates_and_reverted_events_matches_the_oracle(seed: int, buckets: int, cut: int) -> None:
    case = journeys_by_chance(Random(seed))
    with patch.object(parts, "PART_ROWS", cut):
        compare(case, case.audit(buckets))


@settings(max_examples=sized(10, 200))
@given(seed=st.integers(0, 2**32), buckets=st.sampled_from((1, 3)), cut=st.sampled_from((100_000, 1, 5)))
def test_causal_order_among_three_zones_matches_the_oracle(seed: int, buckets: int, cut: int) -> None:
    case = zones_by_chance(Random(seed))
    with patch.object(parts, "PART_ROWS", cut):
        compare(case, case.audit(buckets))


@settings(max_examples=sized(9, 100))
@given(seed=st.integers(0, 2**32), buckets=st.sampled_from((1, 3)), cut=st.sampled_from((100_000, 1, 3)))
def test_value_checks_match_the_oracle(seed: int, buckets: int, cut: int) -> None:
    case = valued_by_chance(Random(seed))
    with patch.object(parts, "PART_ROWS", cut):
        found = case.audit(buckets)
    compare(case, found)
    for row in found.violations.to_pylist():
        if row["check"] == "conservation" and row["event"] is None:  # names a row of value
            named = case.value[row["source_row"]]
            assert row["unit"] in (named["asset"], None) and row["chain"] == named["chain"]
            assert row["height"] == named["height"] and row["transaction"] is None


@settings(max_examples=sized(4, 75))
@given(seed=st.integers(0, 2**32), raising=st.integers(1, 3), cut=st.integers(1, 7))
def test_deferred_and_second_pass_findings_are_identical(seed: int, raising: int, cut: int) -> None:
    case = by_chance(Random(seed))
    whole = case.audit()
    with patch.object(parts, "PART_ROWS", cut):
        late = case.audit(3)
        with (
            patch.object(lane_order, "RAISING", raising),
            patch.object(lane_merge, "RAISING", raising),
            patch.object(bucket_pass, "PENDING_COLUMNS", 0),
        ):
            again = case.audit(3)
    for found in (late, again):
        assert found.checks == whole.checks
        for name in ("violations", "completeness", "lanes", "sums", "abroad"):
            assert getattr(found, name).equals(getattr(whole, name)), name


@settings(max_examples=3)
@given(seed=st.integers(0, 2**32))
def test_honest_ledger_passes_every_check(seed: int) -> None:
    found = Network(Random(seed)).case().audit(3)
    assert {check.verdict for check in found.checks.values()} <= {"PASSED", "NOT APPLICABLE"}
    assert not found.violations.num_rows and {row["difference"] for row in found.sums.to_pylist()} == {"0"}
    assert {row["difference"] for row in found.abroad.to_pylist()} == {"0"}


def test_comparison_helper_detects_a_difference() -> None:
    case = Network(Random(1)).case()
    found = case.audit()
    case.rows[0]["time"] += 10 * LIMIT
    with pytest.raises(AssertionError):
        compare(case, found)
