"""The files of a lake: what it says of itself, how far it has come, and reading what is sealed.

What does not fit is a ``LakeDamaged``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa

from causeway.model.document import validated
from causeway.model.errors import InvalidInput
from causeway.model.json_text import loads
from causeway.pipeline.confined import NoFile
from causeway.pipeline.layout import (
    GONE,
    HEAD_FILE,
    HEIGHTS,
    LAKE_FILE,
    READABLE,
    Freed,
    Head,
    LakeDamaged,
    LakeError,
    manifest_path,
    whole_before,
)
from causeway.pipeline.manifests import decoded, read_head
from causeway.pipeline.recent import Recent
from causeway.pipeline.sealed import MISSING, FileDamaged, Seal, seal_from
from causeway.pipeline.storage import Storage, first_line
from causeway.pipeline.stored_parquet import StoredParquet, readable
from causeway.pipeline.vacuumed import FOLDER as VACUUMED
from causeway.pipeline.vacuumed import freed_by
from causeway.protocols.registry import first_format

_FITS: Recent[bytes, bool] = Recent()
"""The digests of the contents of ``lake.json`` that fit the model."""


@dataclass(frozen=True)
class LakeFiles:
    """The files of a lake in a storage. Picklable. ``identity``: tells lakes that were at one place one after the other
    apart."""

    storage: Storage
    identity: str = ""

    # ---- what can be wrong

    def damaged(self, path: str, what: str, whole: int | None = None) -> LakeDamaged:
        """Return the error that says so. ``whole``: the last height that does not need the file; without it what the
        path tells."""
        return LakeDamaged(self.storage.uri, path, what, whole_before(path) if whole is None else whole)

    @contextlib.contextmanager
    def reading(self, path: str, whole: int | None = None) -> Iterator[None]:
        """Let what is found wrong with a file in the body of a ``with`` statement be a ``LakeDamaged``."""
        try:
            yield
        except FileDamaged as error:
            if error.what == MISSING:
                raise self._missing(path, whole) from None
            raise self.damaged(error.path, error.what, whole) from None
        except FileNotFoundError:
            raise self._missing(path, whole) from None
        except NoFile as error:
            raise self.damaged(path, str(error.strerror), whole) from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri}: {path} cannot be read: {first_line(error)}") from error

    # ---- what the network is

    def about(self) -> dict[str, Any]:
        """Return what ``create`` was given. Raises ``LakeError`` when there is no lake or it is of another version."""
        return self.described()[0]

    def described(self) -> tuple[dict[str, Any], str]:
        """Return what ``about`` does, and the digest of the file."""
        from causeway.pipeline.described import LakeDescription

        try:
            raw = self.storage.read_bytes(LAKE_FILE)
        except FileNotFoundError:
            self.exists()
            raise LakeError(f"lake: {self.storage.uri} holds no lake (no {LAKE_FILE})") from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri} cannot be read: {first_line(error)}") from error
        try:
            content = decoded(raw)
        except ValueError as error:
            self._of_another_version(raw)
            raise self.damaged(LAKE_FILE, f"is not what was written: {first_line(error)}") from None
        self._of_this_version(content)
        try:
            # A command reads the file often, and many chains take a while.
            _FITS.use(
                sha256(raw).digest(), lambda: bool(validated(LakeDescription, content, "is not what was written"))
            )
        except InvalidInput as error:
            raise self.damaged(LAKE_FILE, str(error)) from None
        return content, content.pop("digest")

    def _of_another_version(self, raw: bytes) -> None:
        """Refuse what is no lake of this version: those before it had no digest."""
        with contextlib.suppress(ValueError):
            content = loads(raw)
            if not isinstance(content, dict):
                raise LakeError(f"lake: {self.storage.uri} cannot be read: {LAKE_FILE} is no JSON object")
            if "digest" not in content:
                self._of_this_version(content)

    def _of_this_version(self, content: Mapping[str, Any]) -> None:
        name = content.get("protocol")
        allowed = [each for each in READABLE if each >= first_format(name)]
        if content.get("format") not in allowed:
            of = f" of {name}" if allowed[0] > READABLE[0] else ""
            raise LakeError(
                f"lake: {self.storage.uri} is of format {content.get('format')}, this Causeway reads lakes{of} of "
                f"format {', '.join(map(str, allowed))}"
            )

    def exists(self) -> bool:
        """Return whether there is a lake. Raises ``LakeDamaged`` where there is one without what says what it is."""
        if self.storage.exists(LAKE_FILE):
            return True
        if self.storage.exists(HEAD_FILE) and self.storage.exists(manifest_path(0)):
            raise self.damaged(LAKE_FILE, MISSING)
        return False

    def topology(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table that was written when the lake was made: ``chains``, ``programs`` or ``registry``."""
        path = f"{name}.parquet"
        files = self.about()["files"]
        if path not in files:
            raise self.damaged(LAKE_FILE, f"does not name {path}")
        return self.sealed_table(path, seal_from(files[path]), columns)

    def head(self) -> Head:
        """Return how far the lake has come, as the last commit said."""

        def read() -> bytes:
            with self.reading(HEAD_FILE):
                return self.storage.read_bytes(HEAD_FILE)

        try:
            return read_head(read, Head.of)
        except ValueError:
            raise self.damaged(HEAD_FILE, "is not what was written") from None

    # ---- files

    def sealed_table(
        self, path: str, seal: Seal, columns: Sequence[str] | None = None, whole: int | None = None
    ) -> pa.Table:
        """Return a sealed Parquet file, verified. ``whole``: as of ``damaged``. Raises ``LakeDamaged``."""
        with self.reading(path, whole):
            return self.storage.read_table(path, columns, seal)

    @contextlib.contextmanager
    def open_parquet(self, path: str, seal: Seal, whole: int | None = None) -> Iterator[StoredParquet]:
        """Open a Parquet file; what is read of it is verified. Raises ``LakeDamaged``, also for rows that the body of
        the ``with`` statement cannot cast."""
        with self.reading(path, whole), self.storage.open_parquet(path, seal) as file, readable(path):
            yield file

    def _missing(self, path: str, whole: int | None) -> LakeError:
        """Return the error that says that a file is missing, or that a vacuum took it."""
        folder, _, name = path.rpartition("/")
        if folder.startswith(f"{HEIGHTS}/") and "-" in name:
            table = name.rsplit("-", 2)[0].removesuffix(GONE)
            state = {item["name"].replace(":", ".") for item in self.about()["tables"]["state"]}
            # A commit's state is of its last height; of two heights in a row a vacuum keeps at most one.
            first = int(folder.split("/")[1])
            freed = (self.freed(first) or self.freed(first + 1)) if table in state else None
            if freed is not None:
                return freed
        return self.damaged(path, MISSING, whole)

    def freed(self, height: int) -> Freed | None:
        """Return the error that says that a height's state was freed, None when it was not."""
        with self.reading(VACUUMED):
            taken = freed_by(self.storage, height)
        return None if taken is None else Freed(f"height: the state of {height} was freed by a vacuum; {taken}")
