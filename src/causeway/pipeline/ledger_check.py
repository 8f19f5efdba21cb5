"""Verifying a whole ledger: its commits and checkpoints, the seal and the rows of every file that counts, and what lies
there that nothing names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from causeway.ledger.typed import with_columns_of
from causeway.pipeline.check import AT_ONCE, Progress
from causeway.pipeline.confined import NoFile
from causeway.pipeline.ledger_commits import (
    CHECKPOINTS,
    LEDGER_FILE,
    LEDGER_HEAD,
    MANIFESTS,
    STAGING,
    LedgerDamaged,
    number_of,
    numbered_path,
    read_checkpoint,
    read_commit,
    schema_of,
)
from causeway.pipeline.ledger_store import Ledger, StoredFile, open_ledger
from causeway.pipeline.places import workers
from causeway.pipeline.sealed import MISSING, FileDamaged
from causeway.pipeline.storage import Storage
from causeway.pipeline.stored_parquet import readable


@dataclass(frozen=True)
class CheckedLedger:
    """The result of a check.

    ``damaged``: messages, each of which begins with the path of a file; ``strays``: files that no commit names.
    """

    commits: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    damaged: tuple[str, ...] = ()
    strays: tuple[str, ...] = field(default=())


def check_ledger(uri: str, progress: Progress = lambda done, of: None) -> CheckedLedger:
    """Verify the ledger at a path or URI, which may be being written: all that counts when it begins.

    Raises ``InvalidInput`` where there is none, or it is of another format.
    """
    try:
        ledger = open_ledger(uri)
    except LedgerDamaged as error:
        return CheckedLedger(damaged=(str(error),))
    damaged = [*_wrong_records(ledger)]
    wrong: dict[str, str] = {}
    for start in range(0, len(ledger.live), AT_ONCE):
        batch = ledger.live[start : start + AT_ONCE]
        verified = workers(os.getpid()).map(lambda file: (file.path, _wrong(ledger.storage, file)), batch)
        wrong |= {path: what for path, what in verified if what is not None}
        progress(start + len(batch), len(ledger.live))
    if wrong:  # files that were merged meanwhile are gone
        still = {file.path for file in open_ledger(uri).live}
        damaged += [what for path, what in wrong.items() if path in still]
    return CheckedLedger(
        ledger.number + 1,
        sum(file.rows for file in ledger.live if file.table == "ledger"),
        len(ledger.live),
        sum(file.seal[0] for file in ledger.live),
        tuple(sorted(damaged)),
        tuple(_strays(ledger)),
    )


def _wrong_records(ledger: Ledger) -> Iterator[str]:
    """Yield what is wrong with commits and checkpoints that are not needed any more to open the ledger."""
    storage = ledger.storage
    before: str | None = None
    for number in _numbers(storage, MANIFESTS, ledger.number):
        try:
            commit = read_commit(storage, number)
        except FileNotFoundError:
            continue  # removed just now
        except LedgerDamaged as error:
            yield str(error)
            before = None
            continue
        if before is not None and commit.before != before:
            yield f"{numbered_path(MANIFESTS, number)} does not follow on the commit before it"
        before = commit.digest
    for number in _numbers(storage, CHECKPOINTS, ledger.number):
        try:
            read_checkpoint(storage, number)
        except FileNotFoundError:
            continue
        except LedgerDamaged as error:
            yield str(error)


def _numbers(storage: Storage, folder: str, last: int) -> list[int]:
    """Return the commits up to one of which a folder has something, ascending."""
    found = {number_of(name) for name in storage.list(folder) if name.endswith(".json")}
    return sorted(number for number in found if number is not None and number <= last)


def _wrong(storage: Storage, file: StoredFile) -> str | None:
    """Return what is wrong with a file that counts."""
    try:
        schema, rows = schema_of(file.table), 0
        with storage.open_parquet(file.path, file.seal, whole=True) as opened, readable(file.path):
            opened.require(schema, partly=True)
            for group in range(opened.num_row_groups):
                rows += with_columns_of(opened.read_row_group(group, use_threads=False), schema).num_rows
    except FileDamaged as error:
        return str(error)
    except FileNotFoundError:
        return f"{file.path} {MISSING}"
    except NoFile as error:
        return f"{file.path} {error.strerror}"
    return None if rows == file.rows else f"{file.path} has {rows:,} rows, and {file.rows:,} were written"


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


__all__ = ["CheckedLedger", "check_ledger"]
