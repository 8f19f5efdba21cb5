"""Groups of ticks and their commits: the driver's side of a run.

Bulk data never passes through the driver: only file names, row counts and small offers between buckets.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from causeway_proofs.work import merge_counts

from causeway.storage.external_input import NO_INPUT, ExternalInput
from causeway.storage.lake import CompactedLogs, Lake, Manifest
from causeway.storage.layout import height_folder
from causeway.storage.manifests import StateParts
from causeway.storage.writer_claim import WriterClaim
from causeway.tick.bucket import BucketCommit
from causeway.tick.deployment import TickGroup, height_line
from causeway.tick.exchange import write_exchange
from causeway.tick.executors import Executor


def commit_genesis(executor: Executor, lake: Lake, claim: WriterClaim | None = None) -> Manifest:
    """Write and commit height 0.

    Args:
        executor: Runs the buckets.
        lake: The new lake.
        claim: Claim on the lake; None: no other process knows the lake.
    """
    written = executor.genesis()
    manifest = _write_exchange(lake, assemble_manifest(0, written), written)
    return _commit(lake, claim, replace(manifest, totals=manifest.rows))


def run_group(
    executor: Executor,
    lake: Lake,
    before: Manifest,
    group: TickGroup,
    *,
    claim: WriterClaim | None = None,
    compacted: CompactedLogs | None = None,
    check: Callable[[Manifest], None] | None = None,
) -> Manifest:
    """Run ticks of the whole network on top of a commit and commit them as the next heights.

    Args:
        executor: Runs the buckets.
        lake: The lake.
        before: The last commit.
        group: The ticks: the first of the group, and more of it only if one bucket has all chains.
        claim: As in ``commit_genesis``.
        compacted: State of the compaction, if newer than in ``before``.
        check: Called with the manifest before the commit; raises to prevent it.
    """
    written = executor.run(before, group)
    return commit_written(lake, before, written, group.outside, claim=claim, compacted=compacted, check=check)


def commit_written(
    lake: Lake,
    before: Manifest,
    written: Sequence[BucketCommit],
    outside: ExternalInput = NO_INPUT,
    *,
    claim: WriterClaim | None = None,
    compacted: CompactedLogs | None = None,
    check: Callable[[Manifest], None] | None = None,
) -> Manifest:
    """Commit what all buckets wrote as the next heights.

    Args:
        lake: The lake.
        before: The last commit.
        written: Files and reports of all buckets.
        outside: External input recorded for the first tick.
        claim: As in ``commit_genesis``.
        compacted: As in ``run_group``.
        check: As in ``run_group``.
    """
    manifest = _write_exchange(lake, assemble_manifest(before.number + 1, written, outside), written)
    totals = dict(before.totals)
    for line in manifest.lines:
        for name, count in line.rows.items():
            totals[name] = totals.get(name, 0) + count
    work = merge_counts([before.work, *(part.work for part in written)])
    manifest = replace(manifest, parent=before.digest, totals=totals, work=work)
    manifest = replace(manifest, compacted=compacted or before.compacted)
    if check is not None:
        check(manifest)
    return _commit(lake, claim, manifest)


def _write_exchange(lake: Lake, manifest: Manifest, written: Sequence[BucketCommit]) -> Manifest:
    """Write the offers between buckets; return the manifest that names them."""
    offers = {part.bucket: part.offers for part in written}
    written_exchange = write_exchange(lake, height_folder(manifest.first), uuid.uuid4().hex[:8], offers)
    if written_exchange is None:
        return manifest
    exchange, seal = written_exchange
    return replace(manifest, exchange=exchange, files={**manifest.files, exchange.path: seal})


def _commit(lake: Lake, claim: WriterClaim | None, manifest: Manifest) -> Manifest:
    """Commit a manifest under a confirmed claim."""
    if claim is not None:
        claim.confirm()
        manifest = replace(manifest, epoch=claim.epoch)
    return lake.commit(manifest)


def assemble_manifest(number: int, written: Sequence[BucketCommit], outside: ExternalInput = NO_INPUT) -> Manifest:
    """Build the manifest of what all buckets wrote.

    Args:
        number: Number of the commit.
        written: Files and reports of all buckets.
        outside: External input recorded for the first tick.
    """
    state: dict[str, dict[str, StateParts]] = {}
    log: dict[str, dict[str, str]] = {}
    spilled: dict[str, str] = {}
    for part in written:
        for table, parts in part.state.items():
            state.setdefault(table, {})[str(part.bucket)] = parts
        for table, path in part.log.items():
            log.setdefault(table, {})[str(part.bucket)] = path
        spilled |= {str(part.bucket): path for path in part.offers.files()}
    files = {path: seal for part in written for path, seal in part.files.items()}
    heights = zip(*(part.reports for part in written), strict=True)
    return Manifest(
        number,
        tuple(height_line(of_height[0][0], [report for _, report in of_height]) for of_height in heights),
        last_state=state,
        log=log,
        outside={kind: path for kind, (path, _) in outside.items()},
        offers=spilled,
        files=files | dict(outside.values()),
    )
