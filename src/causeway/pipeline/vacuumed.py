"""Which heights' state was freed: one small record a vacuum, written before it removes anything."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.pipeline.manifests import decoded, encoded
from causeway.pipeline.storage import FileDamaged, Storage

FOLDER = "vacuumed"
_DONE = ".done"


@dataclass(frozen=True)
class Vacuumed:
    """One vacuum: the state of the heights up to ``last`` is gone, but for multiples of ``keep_every`` (0: of none).

    ``number``: counts the vacuums of a lake. ``done``: whether it has removed all that it may.
    """

    number: int
    last: int
    keep_every: int
    done: bool = False

    def frees(self, height: int) -> bool:
        """Return whether it takes the state of a height."""
        return height <= self.last and (not self.keep_every or height % self.keep_every != 0)


def vacuums(storage: Storage) -> list[Vacuumed]:
    """Return the vacuums of a lake, in their order. Raises ``FileDamaged``."""
    names = storage.list(FOLDER)
    found = []
    for name in names:
        if not name.endswith(".json"):
            continue
        path = f"{FOLDER}/{name}"
        try:
            content = decoded(storage.read_bytes(path))
            if not {type(content[key]) for key in ("number", "last", "keep_every")} <= {int}:
                raise ValueError("a vacuum has whole numbers")
            done = name.removesuffix(".json") + _DONE in names
            found.append(Vacuumed(content["number"], content["last"], content["keep_every"], done))
        except (ValueError, KeyError):
            raise FileDamaged(path, "is not what was written") from None
    return found


def record(storage: Storage, vacuumed: Vacuumed) -> None:
    """Write down what a vacuum is going to do. Raises ``AlreadyExists`` when another one has its number."""
    storage.make_folder(FOLDER)
    content = {"number": vacuumed.number, "last": vacuumed.last, "keep_every": vacuumed.keep_every}
    storage.create(_path(vacuumed), encoded(content))


def finished(storage: Storage, vacuumed: Vacuumed) -> None:
    """Write down that a vacuum has removed all that it may."""
    storage.put(_path(vacuumed).removesuffix(".json") + _DONE, b"")


def freed_by(storage: Storage, height: int) -> str | None:
    """Return which heights the vacuum kept that took the state of a height, None when none did."""
    for vacuumed in vacuums(storage):
        if vacuumed.frees(height):
            every = f"every {vacuumed.keep_every}th height up to {vacuumed.last} and " if vacuumed.keep_every else ""
            return f"it kept {every}all from {vacuumed.last + 1} on"
    return None


def _path(vacuumed: Vacuumed) -> str:
    return f"{FOLDER}/{vacuumed.number:06d}.json"
