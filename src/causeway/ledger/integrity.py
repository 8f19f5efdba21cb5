"""Verify a ledger: commits, checkpoints, seals and rows of all live files, and stray files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from causeway.core.arrow_types import align_columns
from causeway.ledger.commits import (
    CHECKPOINTS,
    LEDGER_FILE,
    LEDGER_HEAD,
    MANIFESTS,
    STAGING,
    FilesMerged,
    LedgerCommit,
    LedgerDamaged,
    checkpoints_of,
    commits_of,
    read_checkpoint,
    read_commit,
    table_schema,
)
from causeway.ledger.store import Ledger, StoredFile, open_ledger
from causeway.storage.commit_log import number_of
from causeway.storage.integrity import FILES_AT_ONCE, CheckProgress
from causeway.storage.object_store import io_threads
from causeway.storage.seals import MISSING


@dataclass(frozen=True)
class LedgerCheck:
    """Result of a verification.

    Attributes:
        commits: Number of commits.
        rows: Number of rows of the table ``ledger``.
        files: Number of live files.
        bytes: Size of the live files.
        damaged: Messages, each with the path of a file first.
        strays: Files that no commit names.
    """

    commits: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    damaged: tuple[str, ...] = ()
    strays: tuple[str, ...] = field(default=())


def check_ledger(uri: str, progress: CheckProgress = lambda done, of: None) -> LedgerCheck:
    """Verify the ledger at a path or URI as of the begin of the call; it may grow meanwhile.

    Args:
        uri: Path or URI.
        progress: Called with the number of verified files, and their total.

    Returns:
        The result.

    Raises:
        InvalidInput: There is no ledger, or its format is unknown.
    """
    try:
        ledger = open_ledger(uri)
    except LedgerDamaged as error:
        return LedgerCheck(damaged=(str(error),))
    damaged = [*_record_errors(ledger)]
    wrong: dict[str, str] = {}
    for start in range(0, len(ledger.live), FILES_AT_ONCE):
        batch = ledger.live[start : start + FILES_AT_ONCE]
        verified = io_threads(os.getpid()).map(lambda file: (file.path, _wrong(ledger, file)), batch)
        wrong |= {path: error for path, error in verified if error is not None}
        progress(start + len(batch), len(ledger.live))
    if wrong:  # files merged meanwhile were removed, not damaged
        still = {file.path for file in open_ledger(uri).live}
        damaged += [error for path, error in wrong.items() if path in still]
    return LedgerCheck(
        ledger.number + 1,
        sum(file.rows for file in ledger.live if file.table == "ledger"),
        len(ledger.live),
        sum(file.seal[0] for file in ledger.live),
        tuple(sorted(damaged)),
        tuple(_strays(ledger)),
    )


def _record_errors(ledger: Ledger) -> Iterator[str]:
    """Yield errors of commits and checkpoints that are not needed to open the ledger."""
    storage, before = ledger.storage, ""
    for log, read in ((commits_of(storage), read_commit), (checkpoints_of(storage), read_checkpoint)):
        for number in log.numbers():
            if number > ledger.number:
                break
            try:
                record = read(storage, number)
            except FileNotFoundError:
                continue  # removed concurrently
            except LedgerDamaged as error:
                yield str(error)
                before = ""
                continue
            if isinstance(record, LedgerCommit):
                if record.before != before != "":
                    yield f"{log.path(number)} does not follow on the commit before it"
                before = record.digest


def _wrong(ledger: Ledger, file: StoredFile) -> str | None:
    """Return the error of a live file, or None."""
    schema = table_schema(file.table)
    try:
        with ledger.opened(file, whole=True) as opened:
            for group in range(opened.num_row_groups):
                align_columns(opened.read_row_group(group, use_threads=False), schema)
    except LedgerDamaged as error:
        return str(error)
    except FilesMerged:
        return f"{file.path} {MISSING}"
    return None


def _strays(ledger: Ledger) -> Iterator[str]:
    """Yield unnamed files, except those of a running commit and removed files with readers."""
    known = {LEDGER_FILE, LEDGER_HEAD, *(file.path for file in ledger.live), *(path for path, _ in ledger.gone)}
    for path in sorted(ledger.storage.walk()):
        folder, _, name = path.rpartition("/")
        number = number_of(path.split("/")[1] if path.startswith(f"{STAGING}/") else name)
        if path in known or (number is not None and number > ledger.number):
            continue
        if folder in (MANIFESTS, CHECKPOINTS) and name == f"{name[:10]}.json" and number is not None:
            continue
        yield path


__all__ = ["LedgerCheck", "check_ledger"]
