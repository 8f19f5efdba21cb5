"""Ledgers of generated lakes of every protocol: honest ones, and planted violations."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from causeway.ledger.lake.ingest import open_or_derive_ledger
from causeway.ledger.schema import SETTLED
from tests.chance_lakes import PROTOCOLS, chance_lake
from tests.planting import plant_all
from tests.planting.judging import LIMIT, judge, judge_cut, named
from tests.planting.traffic import rows_of
from tests.planting.windows import cut_by_chance
from tests.spec.audit.ledger import Row
from tests.support.properties.audit_ledgers import Case, compare
from tests.tiers import generated_lakes

LAKES = max(2, generated_lakes() // 100)
"""Lakes per protocol: violations of every kind are planted in each, which takes long."""

EVERYWHERE = {
    *("sent_again", "received_again", "executed_again", "received_unsent", "altered", "forged_too", "reused"),
    *("received_overtakes", "skipped", "committed_before_sent", "received_before_sent"),
    *("executed_before_received", "timed_out_too", "more", "less", "asset", "no_request", "answered_twice"),
    *("watermark_fell", "watermark_two_values", "two_headers", "time_fell"),
}
"""Kinds of violations for lakes of every protocol."""


def derive_case(lake: str) -> Case:
    """The ledger of a lake; ``log_row``: its ``source_row`` there."""
    with open_or_derive_ledger(lake) as ledger:

        def table(name: str) -> list[Row]:
            rows = rows_of(pa.concat_tables([ledger.rows(bucket, table=name) for bucket in range(ledger.buckets)]))
            return [{**row, "log_row": row["source_row"]} for row in rows]

        windows, promises = (rows_of(ledger.table(name)) for name in ("observed", "promises"))
        value = [{**row, "log_row": row["source_row"]} for row in rows_of(ledger.table("value"))]
        return Case(table("ledger"), windows, promises, table("watermarks"), table("headers"), value)


def honest_and_planted(lake: str, random: Random) -> set[str]:
    """Judge the ledger of a lake unchanged, with one violation of each kind, and each with a part removed; return
    the planted violations."""
    rested = derive_case(lake)
    found = rested.audit(random.choice((1, 3)), LIMIT)
    compare(rested, found)
    # Messages withheld by faults are lost when the run is idle; no other guarantee is violated.
    assert {each[:3] for each in named(found, "violated")} <= {("delivery", "violated", "lost")}
    judge_cut(rested, found, [], cut_by_chance(random, rested))
    promises = [row for row in rested.promises if row["promise"] != SETTLED]
    honest = Case(rested.rows, rested.observed, promises, rested.watermarks, rested.headers, rested.value)
    assert not named(honest.audit(1, LIMIT), "violated")
    done = set()
    for case, planted in plant_all(honest, random):
        whole = judge(case, planted, random.choice((1, 3)))
        judge_cut(case, whole, planted, cut_by_chance(random, honest))
        done |= {one.kind for one in planted}
    return done


@pytest.mark.parametrize("protocol", ["ic", "icmp"])
def test_honest_lake_passes_and_planted_violations_are_named(protocol: str, tmp_path: Path) -> None:
    done = honest_and_planted(chance_lake(tmp_path, protocol, 2), Random(protocol))
    assert done >= EVERYWHERE, EVERYWHERE - done


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_many_random_lakes(protocol: str, tmp_path: Path) -> None:
    done = set()
    for seed in range(100, 100 + LAKES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        done |= honest_and_planted(chance_lake(folder, protocol, seed), Random(f"{protocol} {seed}"))
    assert done >= EVERYWHERE | ({"came_unsent"} if protocol == "xdm" else set())
