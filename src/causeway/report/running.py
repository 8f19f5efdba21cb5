"""What a lake says beside its ledger: what carriers did, handlers that raised, chains that stopped."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from causeway.network.carriers import carrier_summary
from causeway.network.failures import failures
from causeway.network.opened import open_lake
from causeway.network.stopped import stopped_chains
from causeway.pipeline.lake_taking import is_lake
from causeway.pipeline.summary import fits_in_process, summary_in_process
from causeway.protocols.registry import protocol


def run_data(place: str) -> dict[str, Any] | None:
    """Return what a lake says of its run; None: no run is there, but a ledger.

    ``counts`` is None where the rows of the logs are too many to be counted in this process.
    """
    if not is_lake(place):
        return None
    opened = open_lake(place)
    if opened.lake.last_height() < 0:
        return None
    manifest = opened.manifest()
    carriers = carrier_summary(opened.lake, manifest)
    failed = failures(opened.lake, opened.topology)
    remark = protocol(opened.protocol).part("remark")
    counts = summary_in_process(opened.lake, manifest) if fits_in_process(manifest) else None
    return {
        "protocol": opened.protocol,
        "chains": len(opened.names),
        "programs": len(opened.program_names),
        "heights": manifest.height,
        "ticks": manifest.tick + 1,
        "at_rest": manifest.line.wake is None,
        "seconds_per_tick": float(opened.about["seconds_per_tick"]),
        "seed": opened.seed,
        "counts": counts,
        "carriers": [*carriers.lines],
        "carriers_content": dict(carriers.content),
        "handler_failures": {"count": failed.count, "first": [asdict(each) for each in failed.first]},
        "stopped_chains": [asdict(each) for each in stopped_chains(opened.lake, manifest)],
        "remark": None if remark is None else remark(opened.options),
    }


__all__ = ["run_data"]
