"""The simulation against the oracle's network, and its log against the guarantees (ICMP reference 1.2, 1.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.spec.icmp.events import Got, Pool, Row, Sent
from tests.spec.icmp.gossip_guarantees import GOSSIP_CHECKS, g8_no_echo, l1_reach
from tests.spec.icmp.history import Record
from tests.spec.icmp.options import Options
from tests.support.icmp.icmp_simulated import kernel_of, name, puts, rows, with_oracle, world

ALL = {"propagate_on_leaf": "on", "allowed_by": "root", "seen_until": "purge", "impolite_limit": 16}
CASES = {
    "block": Options(**ALL),  # type: ignore[arg-type]
    "root": Options(topic_mode="root", **ALL),  # type: ignore[arg-type]
    "ancestors": Options(ancestors=1, **ALL),  # type: ignore[arg-type]
    "minisketch": Options(reconciliation="minisketch", **ALL),  # type: ignore[arg-type]
    "new_only": Options(heads_diff="new_only", **ALL),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("case", "seed"), [("block", 0), *((case, place % 2) for place, case in enumerate(CASES, 1))])
def test_every_node_equals_the_oracle_nodes_in_content_and_time(case: str, seed: int) -> None:
    w = world(seed, 10 + 10 * seed, 3, 6, CASES[case])
    with_oracle(w)
    kernel = kernel_of(w)
    log: list[Row] = []
    for some, _ in rows(kernel):
        log += some
    if case == "minisketch":
        # A sketch sent in a slice covers the whole slice, so that fewer have to be enlarged.
        assert {put[:2] for put in puts(log)} == {put[:2] for put in puts(w.g.rows)}
    else:
        assert puts(log) == puts(w.g.rows)
    assert len(puts(log)) > 5 * w.nodes
    assert {row.verdict for row in log if isinstance(row, Got)} <= {"good", "duplicate"}
    holders = {name(node): [] if para is None else [para] for node, para in enumerate(w.paras)}
    record = Record([*w.g.base.log, *log], w.options)
    found = [finding for check in GOSSIP_CHECKS for finding in check(record)]
    assert found == [] and l1_reach(record, holders) == []
    # The checks have content: queues missing in one node's pool, and repeated sends.
    poor = [row for row in log if not (isinstance(row, Pool) and row.node == name(1))]
    assert l1_reach(Record([*w.g.base.log, *poor], w.options), holders)
    sent = next(at for at, row in enumerate(log) if isinstance(row, Sent))
    again = [*log[: sent + 1], replace(log[sent]), *log[sent + 1 :]]
    assert g8_no_echo(Record([*w.g.base.log, *again], w.options))
