"""Plays a scenario in the kernel and in the oracle, and compares states, events and roots after every round."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.protocols.contract import Tick
from causeway.protocols.ic.commitment import table_digests
from tests.spec.ic import accounts
from tests.support.ic.ic_evidence import Evidence, holds
from tests.support.ic.ic_features import features
from tests.support.ic.ic_harness import KernelRun, OracleRun, Scenario
from tests.support.ic.ic_views import (
    Happened,
    kernel_happened,
    kernel_view,
    oracle_happened,
    oracle_view,
    with_failures,
)
from tests.support.properties.tried import tried


def compare(scenario: Scenario, *, settling: int = 0, parts: int = 2, roots: bool = False) -> None:
    """Play a scenario in the oracle and in two cuts of the kernel, whole and in ``parts``; they agree after every
    round, and the guarantees hold of the states and the log of both. ``settling``: at most so many further rounds,
    until all is at rest. ``roots``: also those that subnets certify are compared, with the oracle's own trees."""
    oracle = OracleRun(scenario)
    whole = KernelRun(scenario, apart=False)
    apart = KernelRun(scenario, apart=True, via_tables=True, parts=parts)
    of_oracle, of_kernel = Evidence(oracle), Evidence(oracle)
    if roots:
        assert_same_roots(whole, oracle, 0)
    for height in range(1, scenario.rounds + settling + 1):
        oracle.round(height)
        for run in (whole, apart):
            run.round(Tick(height, height))
        expected, happened = oracle_view(oracle), with_failures(oracle, oracle_happened(oracle))
        found, found_happened = kernel_view(whole), kernel_happened(whole)
        assert_equal(found, expected, height, "kernel and oracle")
        assert_same_events(found_happened, happened, height)
        assert_equal(kernel_view(apart), expected, height, "cuts")
        assert_same_events(kernel_happened(apart), happened, height)
        assert whole.roots() == apart.roots(), f"roots at height {height}"
        if roots:
            assert_same_roots(whole, oracle, height)
        of_oracle.of_oracle(oracle, height)
        of_kernel.of_kernel(oracle, height, found, found_happened)
        if height > scenario.rounds and not oracle.events:
            break
    else:
        assert not settling, "the network does not come to rest"
    holds(whole.payloads.violations())
    holds(apart.payloads.violations())
    for evidence in (of_oracle, of_kernel):
        if not scenario.worn:  # G6: indices have no gap
            evidence.check()
        if settling:
            holds(accounts.l2_all_calls_are_settled(evidence.states, evidence.events, oracle.options))
    tried("ic", features(scenario, of_oracle.events, oracle.options))


def assert_equal(found: dict[int, Any], expected: dict[int, Any], height: int, what: str) -> None:
    for chain, sections in expected.items():
        for section, content in sections.items():
            assert found[chain][section] == content, f"{what}: {section} of {chain} at height {height}"


def assert_same_events(found: Happened, expected: Happened, height: int) -> None:
    for chain in expected:
        missing, extra = expected[chain] - found[chain], found[chain] - expected[chain]
        assert (missing, extra) == ({}, {}), f"events of {chain} at height {height}: missing, extra"


def assert_same_roots(run: KernelRun, oracle: OracleRun, height: int) -> None:
    """Where subnets certify, a root is that of the oracle's tree. The digests of sections that 2.9 has no place for are
    the kernel's; ``loopback`` is the oracle's own, and certified data stands under its canisters."""
    sections = table_digests(
        run.state, run.kernel.context(np.arange(len(run.numbers), dtype=np.uint32), Tick(height, height))
    )
    names = sorted(set(sections) - {"certified_data"})
    given = {
        number: {name: sections[name].digests[place] for name in names} | {"loopback": b""}
        for place, number in enumerate(run.numbers)
    }
    found, expected = run.roots(), oracle.certify(given)
    assert found == expected, f"roots at height {height} of {[n for n in found if found[n] != expected[n]]}"
