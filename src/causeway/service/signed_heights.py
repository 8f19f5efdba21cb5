"""The last heights that validators signed, remembered outside the lake, so that nothing is signed twice.

Whoever signs two headers of one height gives everybody the proof that its chain is malicious, and all clients of the
chain freeze; and a subnet that certifies two states of one height has sent other messages than those that were taken.
An older copy of a lake, put back and served again, would do that. So beside each key file lies a file
with the last height of each chain that the key signed (``KEYFILE.signed``), written before the height is committed and
thereby shown to anybody. A height is signed when it is above, or when it is the very same block: one that a kill
interrupted between the two files is made again from the lake's record, and comes out the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.json_text import loads
from causeway.pipeline.places import naming

try:
    import fcntl
except ImportError:  # no advisory locks on this system
    fcntl = None  # type: ignore[assignment]

ENDING = ".signed"
TYPE = "causeway-signed"
VERSION = 1


class SignedAlready(InvalidInput):
    """The keys of validators have signed another block of this height, or a later one."""


@dataclass(frozen=True)
class Mark:
    """What was signed last of a chain: the block's height, its tick, and a digest of what its header says."""

    height: int
    tick: int
    digest: str

    def is_whole(self) -> bool:
        """Return whether all of it has the types that it must have."""
        return type(self.height) is int and type(self.tick) is int and type(self.digest) is str


class SignedHeights:
    """The last heights that some keys signed. Held by one process at a time.

    ``keys``: the files of the keys, by the chain that they sign for.
    """

    def __init__(self, keys: Mapping[str, Sequence[Path]], lake: str) -> None:
        """Open the files, or make them.

        Raises:
            InvalidInput: one is in the lake, is used by another process, cannot be written, or is damaged.
        """
        self._files: list[_File] = []
        self._lake = lake
        try:
            for path in sorted({path for paths in keys.values() for path in paths}):
                marks = path.with_name(path.name + ENDING)
                if "://" not in lake and marks.resolve().is_relative_to(Path(lake).resolve()):
                    raise InvalidInput(
                        f"{path}: lies in the lake {lake}, and would be restored with it; move it elsewhere"
                    )
                chains = [chain for chain, paths in keys.items() if path in paths]
                self._files.append(_File(path, marks, chains))
        except BaseException:
            self.close()
            raise

    def unfinished(self, height: int, *, newest: bool) -> int | None:
        """Return the tick of the height after ``height``, the lake's last, if it was signed and not committed.

        ``newest``: whether this is the newest copy of a lake whose files are lost; -1 stands for no lake.

        Raises:
            SignedAlready: later heights were signed.
            InvalidInput: a file is missing, or what it says of a chain, although the lake has heights that were signed.
        """
        unsaid = [(file, chain) for file in self._files for chain in file.chains if chain not in file.marks]
        if unsaid and height > 0 and not newest:
            file, chain = unsaid[0]
            what = f"says nothing of {chain}" if file.path.exists() else "missing"
            text = f"{what}, but {self._lake} has {height} heights that the key signed; put it back"
            lost = "if it is lost and no newer copy of the lake was ever served, add --newest-copy"
            raise InvalidInput(f"{file.path}: {text}, or, {lost}")
        for file in self._files:
            for chain, mark in file.marks.items():
                if mark.height > height + 1:
                    raise self._refused(file, chain, mark, height)
        ticks = [mark.tick for file in self._files for mark in file.marks.values() if mark.height == height + 1]
        return ticks[0] if ticks and height >= 0 else None

    def sign(self, headers: Iterable[Mapping[str, Any]], tick: int, names: Sequence[str]) -> None:
        """Remember the headers of a height, durably, before anybody sees them.

        ``headers``: rows with ``chain`` (a position among ``names``), ``number``, ``root``.

        Raises:
            SignedAlready: another one was signed.
        """
        new = {names[row["chain"]]: Mark(row["number"], tick, _digest(row, tick)) for row in headers}
        for file in self._files:
            for chain in file.chains:
                if chain in new:
                    last, mark = file.marks.get(chain), new[chain]
                    if last is not None and last != mark and last.height >= mark.height:
                        raise self._refused(file, chain, last, mark.height - 1)
        for file in self._files:
            file.write({chain: new[chain] for chain in file.chains if chain in new})

    def _refused(self, file: _File, chain: str, mark: Mark, height: int) -> SignedAlready:
        text = f"{file.path}: {chain} has signed height {mark.height}, but {self._lake} ends at height {max(height, 0)}"
        why = f"it is an older copy, or another lake, and would sign a height twice, which ends all trust in {chain}"
        return SignedAlready(f"{text}: {why}. Put back the newest copy of the lake; or serve a new one with new keys")

    def close(self) -> None:
        """Let other processes use the keys."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class _File:
    """The marks of the key in a file, which is locked meanwhile. ``chains``: those it signs for now."""

    def __init__(self, key: Path, path: Path, chains: Sequence[str]) -> None:
        self.path, self.chains = path, chains
        self._lock: IO[bytes] | None = None
        try:
            self._lock = open(key, "rb")  # noqa: SIM115 - open as long as it is locked
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.marks = self._read()
        except BlockingIOError:
            self.close()
            raise InvalidInput(f"{key}: another process signs with this key") from None
        except OSError as error:
            self.close()
            raise InvalidInput(f"{error.filename or path}: cannot be read: {error.strerror or error}") from None

    def _read(self) -> dict[str, Mark]:
        if not self.path.exists():
            return {}
        try:
            content = loads(self.path.read_text())
            if (content["type"], content["version"]) != (TYPE, VERSION):
                raise ValueError
            marks = {chain: Mark(**mark) for chain, mark in content["chains"].items()}
            if not all(mark.is_whole() for mark in marks.values()):
                raise ValueError
            return marks
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidInput(
                f"{self.path}: is damaged, so it cannot be told what was signed; put back a copy of it"
            ) from None

    def write(self, marks: Mapping[str, Mark]) -> None:
        """Add marks, and have the disk keep them."""
        self.marks = {**self.marks, **marks}
        chains = {chain: asdict(mark) for chain, mark in sorted(self.marks.items())}
        new = self.path.with_name(self.path.name + ".new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with naming(str(new)), open(handle, "w") as file:
            file.write(json.dumps({"type": TYPE, "version": VERSION, "chains": chains}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Let go of the file."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _digest(row: Mapping[str, Any], tick: int) -> str:
    return hashlib.sha256(b"%d/%d/" % (row["number"], tick) + row["root"]).hexdigest()


def header_rows(tables: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """Return what ``SignedHeights.sign`` wants of tables of headers."""
    return [row for table in tables for row in table.select(["chain", "number", "root"]).to_pylist()]
