"""The commits of a lake and their heights: which manifest has which, and committing one more.

What does not fit is a ``LakeDamaged``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from causeway.pipeline.lake_files import LakeFiles
from causeway.pipeline.layout import HEAD_FILE, LAKE_FILE, MANIFESTS, Head, LakeDamaged, LakeError, manifest_path
from causeway.pipeline.manifests import Manifest
from causeway.pipeline.sealed import MISSING
from causeway.pipeline.storage import AlreadyExists, first_line

_MOST_SPANS = 1 << 16
"""Manifests of which a process knows at most what heights they have."""


@dataclass
class _Known:
    """What this process has read of a lake's manifests, which never change: the first and last heights of each, by its
    number, and the number and the last height of the ``latest``."""

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    latest: tuple[int, int] = (-1, -1)

    def add(self, manifest: Manifest) -> tuple[int, int]:
        """Take a manifest; return its first and last heights."""
        if len(self.spans) > _MOST_SPANS:
            self.spans.clear()
        span = self.spans[manifest.number] = manifest.first, manifest.last
        self.latest = max(self.latest, (manifest.number, manifest.last))
        return span


_KNOWN: dict[tuple[str, str], _Known] = {}
"""By URI and identity of a lake. Holds one lake at a time."""


@dataclass(frozen=True)
class LakeManifests(LakeFiles):
    """The commits of a lake in a storage. Picklable."""

    def last_height(self) -> int:
        """Return the last committed height, -1 when there is none. Raises ``LakeDamaged`` when it is gone."""
        head, number = self._last()
        return head.height if number == head.number else self.numbered(number).last

    def _last(self) -> tuple[Head, int]:
        """Return ``head``, and the number of the last manifest."""
        head = self.head()
        last = head.number
        while self.storage.exists(manifest_path(last + 1)):  # committed, and killed before that was written down
            last += 1
        if last == head.number >= 0 and not self.storage.exists(manifest_path(last)):
            raise self._damaged_manifest(last, MISSING)
        return head, last

    def heights(self) -> list[int]:
        """Return the committed heights, ascending: all from 0 to the last."""
        return list(range(self.last_height() + 1))

    def last_manifest(self) -> Manifest:
        """Return the manifest of the last committed height. Raises ``LakeError`` when there is none yet."""
        manifest = self.newest()
        if manifest is None:
            raise LakeError(f"lake: {self.storage.uri} has no committed height yet")
        return manifest

    def newest(self) -> Manifest | None:
        """Return the manifest of the last committed height, None when there is none yet."""
        head, last = self._last()
        if last < 0:
            return None
        manifest = self.numbered(last)
        if last == head.number and manifest.digest != head.manifest:
            raise self._damaged_manifest(last, "is not the one that was committed")
        return manifest

    def manifest(self, height: int) -> Manifest:
        """Return the manifest that has a height, looked at from it. Raises ``LakeError`` when the height is not
        committed, ``LakeDamaged``."""
        known = self._known()
        number, last = known.latest
        if 0 <= height <= last:
            return self._found(height, known, number, last)
        head = self.head()
        if height > head.height or height < 0:
            last = self.last_height()
            if not 0 <= height <= last:
                committed = f"0 to {last}" if last >= 0 else "none"
                raise LakeError(f"height: {height} is not committed; committed are {committed}")
            number = head.number + 1
            while (manifest := self.numbered(number)).last < height:
                number += 1
            return manifest.at(height)
        return self._found(height, known, head.number, head.height)

    def _found(self, height: int, known: _Known, high: int, last: int) -> Manifest:
        """Return the manifest that has a height up to ``last``, with which the manifest of the number ``high`` ends: by
        its share of the heights between those that are known to lie around it, and by halves where that does not do."""
        low, first = 0, 0
        for halves in itertools.count():
            share = high - low if height == last else (height - first) * (high - low) // max(last - first, 1)
            number = low + ((high - low) // 2 if halves % 2 else share)
            span = known.spans.get(number)
            if span is None or span[0] <= height <= span[1]:
                manifest = self._readable(number, height, high)
                number = manifest.number
                span = known.add(manifest)
                if span[0] <= height <= span[1]:
                    return manifest.at(height)
            if height < span[0]:
                high, last = number - 1, span[0] - 1
            else:
                low, first = number + 1, span[1] + 1
            if low > high or not first <= height <= last:
                raise self._damaged_manifest(number, f"does not fit its neighbours at height {height}")
        raise AssertionError

    def _readable(self, number: int, height: int, high: int) -> Manifest:
        """Return the manifest of that number; where it is damaged, and does not have the height, one beside it."""
        try:
            return self.numbered(number)
        except LakeDamaged as error:
            beside = range(number - 1, -1, -1) if height <= error.whole else range(number + 1, high + 1)
            for other in beside:
                with contextlib.suppress(LakeDamaged):
                    manifest = self.numbered(other)
                    if height < manifest.first and height > error.whole:
                        break
                    return manifest
            raise

    def _known(self) -> _Known:
        """Return what this process knows of the manifests."""
        if not self.identity:
            return _Known()
        if (self.storage.uri, self.identity) not in _KNOWN:
            _KNOWN.clear()
        return _KNOWN.setdefault((self.storage.uri, self.identity), _Known())

    def numbered(self, number: int) -> Manifest:
        """Return the manifest of that number. Raises ``LakeDamaged`` where it is missing or not what was written."""
        path = manifest_path(number)
        try:
            manifest = Manifest.of(self.storage.read_bytes(path))
        except FileNotFoundError:
            raise self._damaged_manifest(number, MISSING) from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri}: {path} cannot be read: {first_line(error)}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._damaged_manifest(number, f"is not what was written: {first_line(error)}") from None
        if manifest.number != number:
            raise self._damaged_manifest(number, f"is the manifest number {manifest.number}")
        return manifest

    def _damaged_manifest(self, number: int, what: str) -> LakeDamaged:
        """Return the error that says what is wrong with a manifest: the last whole height is that of the one before."""
        whole = -1
        names = [name.removesuffix(".json") for name in self.storage.list(MANIFESTS)]
        # Those that there are: a damaged head may name any number.
        for before in sorted((int(name) for name in names if name.isdecimal()), reverse=True):
            if before >= number:
                continue
            with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
                whole = Manifest.of(self.storage.read_bytes(manifest_path(before))).last
                break
        return self.damaged(manifest_path(number), what, whole)

    def chain(self, first: int, last: int) -> Iterator[Manifest]:
        """Yield the manifests of those numbers, each compared with what the next one has of it."""
        before: Manifest | None = None
        for number in range(first, last + 1):
            manifest = self.numbered(number)
            if number == 0 and manifest.parent != self.described()[1]:
                raise self.damaged(manifest_path(0), f"is not the first of this {LAKE_FILE}")
            if before is not None and (manifest.parent, manifest.first) != (before.digest, before.last + 1):
                raise self.damaged(manifest_path(number), "does not follow on the manifest before it", before.last)
            before = manifest
            yield manifest

    def commit(self, manifest: Manifest) -> Manifest:
        """Commit heights: from now on they exist. Return the manifest as it was written.

        Raises ``LakeError`` when another run has committed them.
        """
        if manifest.number == 0:
            manifest = replace(manifest, parent=self.described()[1])
        path = manifest_path(manifest.number)
        try:
            self.storage.create(path, manifest.content)
        except AlreadyExists:
            # An object store may have taken it and lost its answer: then it holds just this.
            if self.numbered(manifest.number).digest != manifest.digest:
                raise LakeError(
                    f"lake: height {manifest.first} of {self.storage.uri} was committed by another run"
                ) from None
        head = self.head()
        if manifest.number > head.number:
            number, digest = manifest.number, manifest.digest
            self.write_head(replace(head, height=manifest.last, number=number, manifest=digest, settled=False))
        return manifest

    def settle(self, manifest: Manifest) -> None:
        """Write down that nothing more would happen after the last manifest, for the holder of the claim."""
        head = self.head()
        if (head.number, head.manifest, head.settled) == (manifest.number, manifest.digest, False):
            self.write_head(replace(head, settled=True))

    def is_settled(self, manifest: Manifest) -> bool:
        """Return whether nothing more would have happened after a manifest, as far as it was written down."""
        head = self.head()
        return head.settled and (head.number, head.manifest) == (manifest.number, manifest.digest)

    def write_head(self, head: Head) -> None:
        """Write down how far the lake has come, for the holder of the claim."""
        self.storage.put(HEAD_FILE, head.content())
