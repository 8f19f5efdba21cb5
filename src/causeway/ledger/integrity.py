"""Verifying a whole ledger: its commits and checkpoints, the seal and the rows of every file that counts, and what lies
there that nothing names."""

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
    """The result of a check.

    ``damaged``: messages, each of which begins with the path of a file; ``strays``: files that no commit names.
    """

    commits: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    damaged: tuple[str, ...] = ()
    strays: tuple[str, ...] = field(default=())


def check_ledger(uri: str, progress: CheckProgress = lambda done, of: None) -> LedgerCheck:
    """Verify the ledger at a path or URI, which may be being written: all that counts when it begins.

    Raises ``InvalidInput`` where there is none, or it is of another format.
    """
    try:
        ledger = open_ledger(uri)
    except LedgerDamaged as error:
        return LedgerCheck(damaged=(str(error),))
    damaged = [*_wrong_records(ledger)]
    wrong: dict[str, str] = {}
    for start in range(0, len(ledger.live), FILES_AT_ONCE):
        batch = ledger.live[start : start + FILES_AT_ONCE]
        verified = io_threads(os.getpid()).map(lambda file: (file.path, _wrong(ledger, file)), batch)
        wrong |= {path: what for path, what in verified if what is not None}
        progress(start + len(batch), len(ledger.live))
    if wrong:  # files that were merged meanwhile are gone
        still = {file.path for file in open_ledger(uri).live}
        damaged += [what for path, what in wrong.items() if path in still]
    return LedgerCheck(
        ledger.number + 1,
        sum(file.rows for file in ledger.live if file.table == "ledger"),
        len(ledger.live),
        sum(file.seal[0] for file in ledger.live),
        tuple(sorted(damaged)),
        tuple(_strays(ledger)),
    )


def _wrong_records(ledger: Ledger) -> Iterator[str]:
    """Yield what is wrong with commits and checkpoints that are not needed any more to open the ledger."""
    storage, before = ledger.storage, ""
    for log, read in ((commits_of(storage), read_commit), (checkpoints_of(storage), read_checkpoint)):
        for number in log.numbers():
            if number > ledger.number:
                break
            try:
                record = read(storage, number)
            except FileNotFoundError:
                continue  # removed just now
            except LedgerDamaged as error:
                yield str(error)
                before = ""
                continue
            if isinstance(record, LedgerCommit):
                if record.before != before != "":
                    yield f"{log.path(number)} does not follow on the commit before it"
                before = record.digest


def _wrong(ledger: Ledger, file: StoredFile) -> str | None:
    """Return what is wrong with a file that counts."""
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
    """Yield the files that nothing names: none of a commit that may be under way, or that is still read."""
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
