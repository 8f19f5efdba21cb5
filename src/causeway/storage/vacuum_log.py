"""Log of vacuums: one small record each, written before any file is removed."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.storage.commit_log import Record, read_record
from causeway.storage.files import Storage

VACUUM_FOLDER = "vacuumed"


@dataclass(frozen=True)
class VacuumRecord(Record):
    """A vacuum of the heights up to ``last``, except multiples of ``keep_every`` (0: none).

    ``number``: number of the vacuum in its lake.
    """

    number: int
    last: int
    keep_every: int

    @property
    def path(self) -> str:
        """Path of the record."""
        return f"{VACUUM_FOLDER}/{self.number:06d}.json"

    @property
    def done_path(self) -> str:
        """Path of the file that marks completion."""
        return f"{VACUUM_FOLDER}/{self.number:06d}.done"

    def covers_height(self, height: int) -> bool:
        """Return True if the vacuum frees the state of a height."""
        return height <= self.last and (not self.keep_every or height % self.keep_every != 0)


def read_vacuums(storage: Storage) -> list[VacuumRecord]:
    """Return the vacuums of a lake in order. Raises ``FileDamaged``."""
    names = [name for name in storage.list(VACUUM_FOLDER) if name.endswith(".json")]
    return [read_record(storage, f"{VACUUM_FOLDER}/{name}", VacuumRecord.of) for name in names]


def find_vacuum(storage: Storage, height: int) -> str | None:
    """Describe the rule of the vacuum that freed a height, or return None."""
    for vacuumed in read_vacuums(storage):
        if vacuumed.covers_height(height):
            every = f"every {vacuumed.keep_every}th height up to {vacuumed.last} and " if vacuumed.keep_every else ""
            return f"it kept {every}all from {vacuumed.last + 1} on"
    return None
