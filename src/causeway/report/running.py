"""The data of a lake beside its ledger: settings, relayers, handlers that raised, chains that stopped."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from causeway.network.carriers import carrier_summary
from causeway.network.failures import failures
from causeway.network.opened import open_lake
from causeway.network.stopped import stopped_chains
from causeway.pipeline.lake_taking import is_lake
from causeway.protocols.registry import protocol


def run_data(place: str) -> dict[str, Any] | None:
    """Return the settings, the relayers and the failures of a run; None: the place is no lake of a run."""
    if not is_lake(place):
        return None
    opened = open_lake(place)
    if opened.lake.last_height() < 0:
        return None
    manifest = opened.manifest()
    carriers = carrier_summary(opened.lake, manifest)
    failed = failures(opened.lake, opened.topology)
    return {
        "protocol": opened.protocol,
        "chains": len(opened.names),
        "programs": len(opened.program_names),
        "heights": manifest.height,
        "ticks": manifest.tick + 1,
        "at_rest": manifest.line.wake is None,
        "seconds_per_tick": float(opened.about["seconds_per_tick"]),
        "seed": opened.seed,
        "carriers": [*carriers.lines],
        "carriers_content": dict(carriers.content),
        "handler_failures": {"count": failed.count, "first": [asdict(each) for each in failed.first]},
        "stopped_chains": [asdict(each) for each in stopped_chains(opened.lake, manifest)],
        "remark": protocol(opened.protocol).load_semantics().remark(opened.options),
    }


__all__ = ["run_data"]
