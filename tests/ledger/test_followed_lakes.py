"""Followed lakes of every protocol: each incremental audit equals a full audit."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from causeway.audit.incremental.watch import LedgerWatch
from causeway.audit.stored import audit_ledger
from causeway.ledger import maintenance
from causeway.ledger.lake.ingest import open_or_derive_ledger
from causeway.network.network import LakeNetwork
from tests.chance_lakes import PROTOCOLS, scenario
from tests.ledger.test_ledger_watch import LIMIT, assert_equal_audits


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lake_is_followed_from_its_first_heights(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(protocol)
    monkeypatch.setattr(maintenance, "FILES_PER_MERGE", 3)
    monkeypatch.setattr(maintenance, "CHECKPOINT_EVERY", 5)
    (tmp_path / "scenario.toml").write_text(scenario(protocol, 1))
    lake, tick, last = str(tmp_path / "lake"), 0, -1
    with LakeNetwork.from_scenario(tmp_path / "scenario.toml", lake=lake) as network:
        network.run(1)
        with LedgerWatch(lake, LIMIT) as watch:
            while (height := network.run(tick := tick + random.choice((1, 2, 5)))) > last or tick < 30:
                last = height
                watched = watch.look()
                while watched is not None and watched.behind:
                    watched = watch.look()
                if watched is None:
                    continue
                with open_or_derive_ledger(lake) as ledger:
                    assert_equal_audits(watched.audit, audit_ledger(ledger, limit=LIMIT))
                if tick > 60:
                    break
